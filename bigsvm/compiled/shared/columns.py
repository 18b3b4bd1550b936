"""Loops that store a matrix by columns: they count entries, split them by ranges of columns, and put them in place.

An *entry* is a number of a row, given by its column, its row and its value.  Values are only moved, so they are treated
as unsigned integers of the same width (`as_bits`).  Then one compiled loop serves int8 and uint8, and the bits of a NaN
stay as they are.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop


def as_bits(values):
    """A view of the values as unsigned integers of the same width."""
    return values.view(np.dtype(f"u{values.dtype.itemsize}"))


@inner_loop
def count_columns(indices, counts):
    """counts[j + 1] += number of entries of column j.  counts : int64, shape (n_features + 1,)"""
    for k in range(indices.shape[0]):
        counts[np.uint64(indices[k]) + np.uint64(1)] += 1


@inner_loop
def number_entries(indptr, first_row, rows):
    """rows[k] = the row number of entry k.

    indptr : int64, shape (n_rows + 1,), of the rows from `first_row` on;  rows : int32 or int64, shape (nnz,), filled
    """
    for i in range(indptr.shape[0] - 1):
        for k in range(indptr[i], indptr[i + 1]):
            rows[k] = first_row + i


@inner_loop
def split_entries(columns, rows, bits, start, first, table, fill, to_columns, to_rows, to_bits):
    """Append the entries from `start` on to the buffers of their buckets, in order.

    A *bucket* is a range of columns.  The loop stops before an entry whose buffer is full, and returns its number, or n
    if all were appended.  The caller then empties that buffer, sets its `fill` to 0, and goes on from there.

    columns, rows, bits : shape (n,)       the entries
    first : int                            the column that table[0] belongs to
    table : uint8, shape (n_columns,)      bucket of each column
    fill : int64, shape (n_buckets,)       entries in each buffer
    to_columns, to_rows, to_bits : shape (n_buckets, capacity)   the buffers
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
    """Write each entry after the earlier ones of its column; False if some entry has no place in the arrays.

    columns, rows, bits : shape (n,)    the entries
    first : int                         the column that place[0] belongs to
    place : int64, shape (n_columns,)   where the next entry of each column goes; advanced
    to_rows, to_bits : shape (capacity,)   filled
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
    """As `place_entries`, for all columns and the rows of a CSR matrix, numbered from 0; places are not checked."""
    for i in range(indptr.shape[0] - 1):
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            j = np.uint64(indices[k])
            at = np.uint64(place[j])
            to_rows[at], to_bits[at] = i, bits[k]
            place[j] += 1


@inner_loop
def cut_columns(indptr, entry_bytes, column_bytes, limit, edges):
    """Divide columns into runs of at most `limit` bytes, or of a single column; returns the number of runs.

    A column takes `entry_bytes` for each entry and `column_bytes` in addition.

    indptr : int64, shape (n_columns + 1,), of the matrix by columns
    edges : int64, filled with the first column of each run, and the end, as far as it is long enough (runs + 1)
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
    """out[j, i] = X[i, j], copied in squares of 32 x 32 values, so that both arrays stay in the cache.

    X : shape (n, d), read-only, C order;  out : shape (d, n), C order
    """
    side = 32
    n, d = X.shape
    for i0 in range(0, n, side):
        for j0 in range(0, d, side):
            for j in range(j0, min(j0 + side, d)):
                for i in range(i0, min(i0 + side, n)):
                    out[j, i] = X[i, j]
