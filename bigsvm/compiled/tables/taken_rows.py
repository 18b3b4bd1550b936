"""Values and sparse rows put to their place in a block, and looked at on the way.

What is not as it should be is not told here: whoever is told False looks again, at what has come, and says what it is.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop, part_of_loop
from bigsvm.compiled.tables.arrow_memory import read_at


@inner_loop
def take_values(values, out):
    """Copy values; returns whether all of them are finite.  Both have shape (n,)."""
    odd = False
    for k in range(np.uint64(values.shape[0])):
        x = values[k]
        odd |= x - x != 0  # of NaN and infinities this is NaN
        out[k] = x
    return not odd


@inner_loop
def take_rows(found, stored, indptr, n_features, to_data, to_indices):
    """`take_entries` of values and indices at the addresses `found`, uint64, shape (2,)."""
    return take_entries(found[0], found[1], stored, indptr, n_features, to_data, to_indices)


@part_of_loop
def take_entries(data, indices, stored, indptr, n_features, to_data, to_indices):
    """Copy the entries of sparse rows; False where a row is not sound, or its indices do not ascend.

    data, indices : uint64   addresses of values, of the type of `to_data`, and of indices; nothing is known of them
    stored : shape (0,)      of the type of the indices
    indptr : int64, shape (n_rows + 1,)   where rows begin, wherever the first does: nothing is known of it
    to_data, to_indices : shape (at least nnz,)
    """
    began, n_rows = indptr[0], indptr.shape[0] - 1
    sound = min(to_data.shape[0], to_indices.shape[0]) >= indptr[n_rows] - began
    for row in range(n_rows):
        sound &= indptr[row] <= indptr[row + 1]
    if not sound:  # so that all of them lie between the first and the last
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
    for row in range(n_rows):  # where a row begins, indices may fall; ascending, they lie between its ends
        a, b = np.uint64(indptr[row] - began), np.uint64(indptr[row + 1] - began)
        if a < b:
            first, last = read_at(indices, a, stored), read_at(indices, b - np.uint64(1), stored)
            beyond |= (first < 0) | (last >= n_features)
            if a > 0:
                falls -= first <= read_at(indices, a - np.uint64(1), stored)
    return not (odd or beyond or falls != 0)
