"""Values and sparse rows put to their place in a block, and looked at on the way.

What is not as it should be is not told here: whoever is told False looks again, at what has come, and says what it is.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop


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
def take_rows(data, indices, indptr, n_features, to_data, to_indices):
    """Copy the entries of sparse rows; False where a row is not sound, or its indices do not ascend.

    data, indices : shape (nnz,);  indptr : int64, shape (n_rows + 1,)   as they came: nothing is known of them
    to_data, to_indices : shape (at least nnz,)
    """
    n = data.shape[0]
    if indptr[0] != 0 or indptr[-1] != n or indices.shape[0] != n or min(to_data.shape[0], to_indices.shape[0]) < n:
        return False
    sound = True
    for row in range(indptr.shape[0] - 1):
        sound &= indptr[row] <= indptr[row + 1]
    if not sound:  # so that all of them lie between the first and the last
        return False
    if n == 0:
        return True
    odd = beyond = False
    for k in range(np.uint64(n)):
        x = data[k]
        odd |= x - x != 0
        to_data[k] = x
    for k in range(np.uint64(n)):
        j = indices[k]
        beyond |= (j < 0) | (j >= n_features)
        to_indices[k] = j
    falls = 0
    for k in range(np.uint64(1), np.uint64(n)):
        falls += indices[k] <= indices[k - np.uint64(1)]
    for row in range(1, indptr.shape[0] - 1):  # where a row begins, indices may fall
        k = np.uint64(indptr[row])
        if indptr[row] > 0 and indptr[row] < indptr[row + 1]:
            falls -= indices[k] <= indices[k - np.uint64(1)]
    return not (odd or beyond or falls != 0)
