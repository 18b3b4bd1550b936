"""Rows turned into columns: entries counted, split into ranges of columns, and put in their places.

Values are moved and never computed with, so they come as unsigned integers of their width (`as_bits`): one
compiled kernel serves int8 and uint8, and no NaN can be quietened on the way.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop


def as_bits(values):
    """The values as unsigned integers of the same width; a view."""
    return values.view(np.dtype(f"u{values.dtype.itemsize}"))


@inner_loop
def count_columns(indices, counts):
    """counts[j + 1] += entries of column j; counts is int64, shape (n_features + 1,)."""
    for k in range(indices.shape[0]):
        counts[np.uint64(indices[k]) + np.uint64(1)] += 1


@inner_loop
def number_entries(indptr, first_row, rows):
    """rows[k] = the row of entry k of rows that begin at `first_row`; rows is int32 or int64, shape (nnz,)."""
    for i in range(indptr.shape[0] - 1):
        for k in range(indptr[i], indptr[i + 1]):
            rows[k] = first_row + i


@inner_loop
def split_entries(columns, rows, bits, start, first, table, fill, to_columns, to_rows, to_bits):
    """Append entries from `start` on to the buffers of their buckets, in order; returns the first not taken.

    It stops before an entry whose buffer is full: empty that one (set its `fill` to 0) and go on.

    columns, rows, bits : shape (n,)       the entries
    first : int                            column that table[0] is about
    table : uint8                          bucket of each column
    fill : int64, shape (n_buckets,)       entries in each buffer
    to_columns, to_rows, to_bits : shape (n_buckets, capacity)
    """
    capacity = to_rows.shape[1]
    for k in range(start, columns.shape[0]):
        b = np.uint64(table[np.uint64(columns[k] - first)])
        at = fill[b]
        if at == capacity:
            return k
        to_columns[b, at], to_rows[b, at], to_bits[b, at] = columns[k], rows[k], bits[k]
        fill[b] = at + 1
    return columns.shape[0]


@inner_loop
def place_entries(columns, rows, bits, first, place, to_rows, to_bits):
    """Put each entry behind the earlier ones of its column; False where one has no place there.

    first : int                       column that place[0] is about
    place : int64, shape (n_columns,) where the next entry of each column goes; advanced
    """
    for k in range(columns.shape[0]):
        j = columns[k] - first
        if j < 0 or j >= place.shape[0] or place[j] >= to_rows.shape[0]:
            return False
        at = np.uint64(place[j])
        to_rows[at], to_bits[at] = rows[k], bits[k]
        place[j] += 1
    return True


@inner_loop
def place_rows(indptr, indices, bits, place, to_rows, to_bits):
    """The same for whole rows from row 0 on, whose columns are all of a matrix."""
    for i in range(indptr.shape[0] - 1):
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            j = np.uint64(indices[k])
            at = np.uint64(place[j])
            to_rows[at], to_bits[at] = i, bits[k]
            place[j] += 1


@inner_loop
def cut_columns(indptr, entry_bytes, column_bytes, limit, edges):
    """Divide columns into runs of at most `limit` bytes, or of one column; returns how many runs there are.

    A column takes entry_bytes for each entry and column_bytes besides.

    indptr : int64, shape (n_columns + 1,)
    edges : int64; where it is long enough (runs + 1), out: first column of each run, and the end
    """
    n = indptr.shape[0] - 1
    count = start = 0
    for j in range(1, n + 1):
        size = (indptr[j] - indptr[start]) * entry_bytes + (j - start) * column_bytes
        if size > limit and j - start > 1:
            if count < edges.shape[0]:
                edges[count] = start
            count += 1
            start = j - 1
    if count < edges.shape[0]:
        edges[count] = start
    count += 1
    if count < edges.shape[0]:
        edges[count] = n
    return count


@inner_loop
def turn(X, out):
    """out[j, i] = X[i, j], square by square so that both sides stay in the cache.

    X : shape (n, d), read-only, C order.  out : shape (d, n), C order
    """
    side = 32
    n, d = X.shape
    for i0 in range(0, n, side):
        for j0 in range(0, d, side):
            for j in range(j0, min(j0 + side, d)):
                for i in range(i0, min(i0 + side, n)):
                    out[j, i] = X[i, j]
