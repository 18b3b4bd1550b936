"""Rows as records of 8-byte words, thrown into buckets and gathered again in the order of a hash.

A record holds everything of a row, so that moving a row is one copy whatever its types are:

    word 0  row number        word 2  label: an integer, or the bits of a float64
    word 1  entries n         word 3  squared norm, bits of a float64
    word 4  weight, bits of a float64 (only where there are weights)
    then    n indices and n values, bytes as stored, up to a whole word

The hash of row i is the i-th output of splitmix64 (Steele, Lea, Flood, OOPSLA 2014) seeded with `key`: a
bijection of 64 bits, so no two rows tie.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import njit, register_jitable
from bigsvm.compiled.shared.fingerprint import _mix

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True, nogil=True)
def shape_key(n_samples, n_features):
    """The key of a data set's order, uint64: a function of its shape alone."""
    return _mix(_mix(np.uint64(n_samples) * _GOLDEN) + np.uint64(n_features))


@register_jitable
def _row_hash(row, key):
    return _mix((np.uint64(row) + np.uint64(1)) * _GOLDEN + key)


@njit(cache=True, nogil=True)
def row_hashes(first_row, key, out):
    """out[i] = hash of row first_row + i; out is uint64, shape (n_rows,)."""
    for i in range(out.shape[0]):
        out[i] = _row_hash(first_row + i, key)


@njit(cache=True, nogil=True)
def bucket_order(hashes, shift, bits, edges, order):
    """Rows by bucket, each bucket in the order given (a counting sort).

    The bucket of a hash h is the `bits` bits of h above bit `shift`.

    hashes : uint64, shape (n,)
    edges : int64, shape (2**bits + 1,)   out: bucket b is order[edges[b]:edges[b + 1]]
    order : int64, shape (n,)             out
    """
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    # Shifting by 64 is undefined: with one bucket nothing is left of the hash anyway.
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
    """Write the records of rows `order` one after another.

    order, edges : from `bucket_order`
    indptr : int64, shape (n_rows + 1,)      entries of each row
    indices, values : uint8                  bytes of all indices (none where index_size is 0) and values
    y, sqnorm, weight : int64, shape (n_rows,)   labels and bits of float64; weight is empty where there is none
    out : int64, large enough                out: records
    parts : int64, shape of edges            out: first word of each bucket in `out`, and the end
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
    """Where the whole records in `words` start, and the hashes of their rows: (how many, words they take).

    A record that is cut off at the end is not counted.

    positions, hashes : int64 and uint64, shape (at least the number of records,)   out
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
    """Copy the records at positions[order], as `pack_rows` would have written them."""
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
    """indptr (int64, shape (n + 1,)) of the rows whose records start at `positions`."""
    indptr[0] = 0
    for i in range(positions.shape[0]):
        indptr[i + 1] = indptr[i] + words[positions[i] + 1]


@njit(cache=True, nogil=True)
def unpack_rows(words, positions, index_size, value_size, indptr, indices, values, rows, y, sqnorm, weight):
    """Take the rows whose records start at `positions` apart; arrays as in `pack_rows`, rows their numbers."""
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
    """out[k] = rank[indices[k]]: features under their working numbers."""
    for k in range(indices.shape[0]):
        out[k] = rank[np.uint64(indices[k])]


@njit(cache=True, nogil=True)
def rebase_indptr(indptr, rows, entries):
    """Make one indptr, in place, of those of blocks that follow one another.

    Before, block k has its own rows[k] + 1 pointers from 0, back to back; after, the first sum(rows) + 1 are
    one running indptr.  A pointer only moves down, so none is overwritten before it was read.

    rows, entries : int64, shape (n_blocks,)
    """
    source = target = base = 0
    for k in range(rows.shape[0]):
        for i in range(rows[k] + 1):
            indptr[target + i] = base + indptr[source + i]
        source += rows[k] + 1
        target += rows[k]
        base += entries[k]
