"""Loops that shuffle rows on disk: rows become records, which are sorted by a hash of the row number.

The hashes are sorted in two steps: by their leading bits into buckets, and then each bucket by itself.  A record has
8-byte words and holds all that belongs to a row, so moving a row is one copy whatever its types are:

    word 0  row number        word 2  label: an integer, or the bits of a float64
    word 1  entries n         word 3  squared norm, bits of a float64
    word 4  weight, bits of a float64 (only where there are weights)
    then    n indices and n values, bytes as stored, up to a whole word

The hash of row i is output i of splitmix64 (Steele, Lea, Flood, OOPSLA 2014) seeded with `key`.  That is a bijection of
64 bits, so no two rows have the same hash.

Arguments with the same meaning in several functions:

    head         words before the indices: 4, or 5 with weights
    entry_bytes  bytes of an index and a value together;  index_size, value_size: of each (index_size is 0 for dense)
    edges        int64, shape (n_buckets + 1,): bucket b has the rows order[edges[b]:edges[b + 1]]
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import njit, register_jitable
from bigsvm.compiled.shared.fingerprint import _mix

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True, nogil=True)
def shape_key(n_samples, n_features):
    """The key of the random order of a data set, uint64; it depends on the shape alone."""
    return _mix(_mix(np.uint64(n_samples) * _GOLDEN) + np.uint64(n_features))


@register_jitable
def _row_hash(row, key):
    return _mix((np.uint64(row) + np.uint64(1)) * _GOLDEN + key)


@njit(cache=True, nogil=True)
def row_hashes(first_row, key, out):
    """out[i] = hash of row first_row + i.  out : uint64, shape (n_rows,), filled"""
    for i in range(out.shape[0]):
        out[i] = _row_hash(first_row + i, key)


@njit(cache=True, nogil=True)
def bucket_order(hashes, shift, bits, edges, order):
    """Sort rows by their bucket; the rows of a bucket keep their order (a counting sort).

    The bucket of a hash h is the number made of the `bits` bits of h above its lowest `shift` bits.

    hashes : uint64, shape (n,)
    edges : int64, shape (2**bits + 1,)   filled: bucket b has the rows order[edges[b]:edges[b + 1]]
    order : int64, shape (n,)             filled
    """
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    # A shift by 64 is undefined.  It would occur with one bucket, whose mask is 0 whatever the shift is.
    down = np.uint64(min(shift, 63))
    edges[:] = 0
    for i in range(hashes.shape[0]):
        edges[np.int64((hashes[i] >> down) & mask) + 1] += 1
    for b in range(edges.shape[0] - 1):
        edges[b + 1] += edges[b]
    place = edges[:-1].copy()
    for i in range(hashes.shape[0]):
        b = np.int64((hashes[i] >> down) & mask)
        order[place[b]] = i
        place[b] += 1


@register_jitable
def _copy(source, start, target, at, count):
    # Unsigned positions: signed ones are tested for being negative, which keeps loops from being vectorised.
    a, b = np.uint64(start), np.uint64(at)
    for k in range(np.uint64(count)):
        target[b + k] = source[a + k]


@register_jitable
def _words(entries, head, entry_bytes):
    return head + (entries * entry_bytes + 7) // 8


@njit(cache=True, nogil=True)
def pack_rows(order, edges, first_row, indptr, indices, values, index_size, value_size, y, sqnorm, weight, out, parts):
    """Write the records of rows, in the order `order`, one after another.

    order, edges : from `bucket_order`;  first_row : number of row 0
    indptr : int64, shape (n_rows + 1,)      row i has the entries indptr[i], ..., indptr[i + 1] - 1
    indices, values : uint8                  bytes of all indices (none if index_size is 0) and of all values
    y, sqnorm, weight : int64, shape (n_rows,)   labels, or the bits of float64; weight is (0,) without weights
    out : int64, large enough                filled with the records
    parts : int64, shape of edges            filled with the first word of each bucket in `out`, and the end
    """
    out8 = out.view(np.uint8)
    head = 5 if weight.shape[0] > 0 else 4
    p = 0
    for b in range(edges.shape[0] - 1):
        parts[b] = p
        for k in range(edges[b], edges[b + 1]):
            i = order[k]
            a = indptr[i]
            n = indptr[i + 1] - a
            size = _words(n, head, index_size + value_size)
            if size > head:
                out[p + size - 1] = 0  # the last word may be filled in part only
            out[p], out[p + 1], out[p + 2], out[p + 3] = first_row + i, n, y[i], sqnorm[i]
            if head == 5:
                out[p + 4] = weight[i]
            at = (p + head) * 8
            _copy(indices, a * index_size, out8, at, n * index_size)
            _copy(values, a * value_size, out8, at + n * index_size, n * value_size)
            p += size
    parts[edges.shape[0] - 1] = p


@njit(cache=True, nogil=True)
def find_records(words, head, entry_bytes, key, positions, hashes):
    """Find the records in `words`; returns (number of records, words that they take).

    A record that is cut off at the end does not count.

    words : int64
    positions : int64, shape (most records,)   filled with the first word of each record
    hashes : uint64, the same shape            filled with the hashes of the rows
    """
    p = count = 0
    while p + head <= words.shape[0] and count < positions.shape[0]:
        size = _words(words[p + 1], head, entry_bytes)
        if p + size > words.shape[0]:
            break
        positions[count] = p
        hashes[count] = _row_hash(words[p], key)
        count += 1
        p += size
    return count, p


@njit(cache=True, nogil=True)
def gather_records(words, positions, order, edges, head, entry_bytes, out, parts):
    """Copy the records at positions[order] to `out`, one after another, as `pack_rows` would have written them.

    words, out : int64;  positions : int64, shape (n,);  order, edges, parts : as for `pack_rows`
    """
    p = 0
    for b in range(edges.shape[0] - 1):
        parts[b] = p
        for k in range(edges[b], edges[b + 1]):
            start = positions[order[k]]
            size = _words(words[start + 1], head, entry_bytes)
            _copy(words, start, out, p, size)
            p += size
    parts[edges.shape[0] - 1] = p


@njit(cache=True, nogil=True)
def record_indptr(words, positions, indptr):
    """Fill indptr, int64, shape (n + 1,), for the rows whose records start at `positions`, int64, shape (n,)."""
    indptr[0] = 0
    for i in range(positions.shape[0]):
        indptr[i + 1] = indptr[i] + words[positions[i] + 1]


@njit(cache=True, nogil=True)
def unpack_rows(words, positions, index_size, value_size, indptr, indices, values, rows, y, sqnorm, weight):
    """Unpack the rows whose records start at `positions`: the inverse of `pack_rows`.

    indptr : int64, shape (n + 1,), from `record_indptr`;  rows : int64, shape (n,), filled with the row numbers
    indices, values, y, sqnorm, weight : filled, as for `pack_rows`
    """
    words8 = words.view(np.uint8)
    head = 5 if weight.shape[0] > 0 else 4
    for i in range(positions.shape[0]):
        p = positions[i]
        a = indptr[i]
        n = indptr[i + 1] - a
        rows[i], y[i], sqnorm[i] = words[p], words[p + 2], words[p + 3]
        if head == 5:
            weight[i] = words[p + 4]
        at = (p + head) * 8
        _copy(words8, at, indices, a * index_size, n * index_size)
        _copy(words8, at + n * index_size, values, a * value_size, n * value_size)


@njit(cache=True, nogil=True)
def renumber(indices, rank, out):
    """out[k] = rank[indices[k]]: replace feature numbers by working numbers.  rank : integers, shape (n_features,)"""
    for k in range(indices.shape[0]):
        out[k] = rank[np.uint64(indices[k])]


@njit(cache=True, nogil=True)
def rebase_indptr(indptr, rows, entries):
    """Join the indptr of blocks that follow one another to one, in place.

    Before, block k has rows[k] + 1 pointers that begin with 0, one block after another.  After, the first sum(rows) + 1
    numbers are the indptr of all rows.  A pointer only moves to a lower place, so none is overwritten before it was
    read.

    indptr : int64;  rows, entries : int64, shape (n_blocks,), rows and entries of each block
    """
    source = target = base = 0
    for k in range(rows.shape[0]):
        for i in range(rows[k] + 1):
            indptr[target + i] = base + indptr[source + i]
        source += rows[k] + 1
        target += rows[k]
        base += entries[k]
