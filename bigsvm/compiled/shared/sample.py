"""Statistics of single rows, by which an ordered data set can be told from a shuffled one."""

from __future__ import annotations

import numpy as np
from numba import types

from bigsvm.compiled.shared.compile import njit, overload, register_jitable
from bigsvm.compiled.shared.fingerprint import _mix
from bigsvm.compiled.shared.rows import CSR, row_sqnorm

PROJECTIONS = 4

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@register_jitable
def _add(x, j, out):
    # One hash of the feature gives the signs of all projections.
    signs = _mix((np.uint64(j) + np.uint64(1)) * _GOLDEN)
    for p in range(PROJECTIONS):
        if (signs >> np.uint64(p)) & np.uint64(1):
            out[p] += x
        else:
            out[p] -= x


@register_jitable
def _dense_project(X, i, out):
    for j in range(X.shape[1]):
        _add(np.float64(X[i, j]), j, out)


@register_jitable
def _csr_project(X, i, out):
    for k in range(X.indptr[i], X.indptr[i + 1]):
        _add(np.float64(X.data[k]), X.indices[k], out)


def _project(X, i, out):
    (_csr_project if isinstance(X, CSR) else _dense_project)(X, i, out)


@overload(_project)
def _overload_project(X, i, out):
    if isinstance(X, types.Array):
        return lambda X, i, out: _dense_project(X, i, out)
    return lambda X, i, out: _csr_project(X, i, out)


@njit(cache=True, nogil=True)
def row_statistics(X, out):
    """out[i] = squared norm of row i, then its dot products with PROJECTIONS random vectors of +-1.

    out : float64, shape (n_rows, 1 + PROJECTIONS)
    """
    for i in range(out.shape[0]):
        out[i] = 0.0
        out[i, 0] = row_sqnorm(X, i)
        _project(X, i, out[i, 1:])


@njit(cache=True, nogil=True)
def count_features(indices, counts):
    """counts[j] += 1 for every entry of feature j.  counts : int64, shape (n_features,)"""
    for k in range(indices.shape[0]):
        counts[np.uint64(indices[k])] += 1
