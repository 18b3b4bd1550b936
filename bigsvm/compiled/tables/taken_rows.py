"""Copy values and sparse rows to their place in a block, and check them on the way.

These loops only return False if something is invalid.  Their callers then look at the rows again, and say what it is.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop, part_of_loop
from bigsvm.compiled.tables.arrow_memory import read_at


@inner_loop
def take_values(values, out):
    """Copy `values` to `out`, both of shape (n,); returns whether all of them are finite."""
    odd = False
    for k in range(np.uint64(values.shape[0])):
        x = values[k]
        odd |= x - x != 0  # for NaN and infinities x - x is NaN
        out[k] = x
    return not odd


@inner_loop
def take_rows(found, stored, indptr, n_features, to_data, to_indices):
    """As `take_entries`.  found : uint64, shape (2,), the addresses of values and indices"""
    return take_entries(found[0], found[1], stored, indptr, n_features, to_data, to_indices)


@part_of_loop
def take_entries(data, indices, stored, indptr, n_features, to_data, to_indices):
    """Copy the entries of sparse rows; returns False if some row is invalid.

    A row is valid if it does not end before it begins, its values are finite, and its indices ascend, from 0 or more to
    below n_features.

    data, indices : uint64   addresses of values, in the dtype of `to_data`, and of indices; neither is checked yet
    stored : shape (0,)      an array of the dtype of the indices
    indptr : int64, shape (n_rows + 1,)   row i has the entries indptr[i] - indptr[0] to indptr[i + 1] - indptr[0] - 1;
        not checked yet
    to_data, to_indices : shape (nnz or more,), filled
    """
    began, n_rows = indptr[0], indptr.shape[0] - 1
    sound = min(to_data.shape[0], to_indices.shape[0]) >= indptr[n_rows] - began
    for row in range(n_rows):
        sound &= indptr[row] <= indptr[row + 1]
    if not sound:  # after this check every entry lies between the first and the last
        return False
    n = np.uint64(indptr[n_rows] - began)
    odd = beyond = False
    for k in range(n):
        x = read_at(data, k, to_data)
        odd |= x - x != 0
        to_data[k] = x
    if n > 0:
        to_indices[0] = read_at(indices, np.uint64(0), stored)
    falls = 0
    for k in range(np.uint64(1), n):
        j = read_at(indices, k, stored)
        falls += j <= read_at(indices, k - np.uint64(1), stored)
        to_indices[k] = j
    # `falls` counts indices that do not ascend, which is allowed only where a row begins.  Ascending indices are in
    # range if the first and the last of their row are.
    for row in range(n_rows):
        a, b = np.uint64(indptr[row] - began), np.uint64(indptr[row + 1] - began)
        if a < b:
            first, last = read_at(indices, a, stored), read_at(indices, b - np.uint64(1), stored)
            beyond |= (first < 0) | (last >= n_features)
            if a > 0:
                falls -= first <= read_at(indices, a - np.uint64(1), stored)
    return not (odd or beyond or falls != 0)
