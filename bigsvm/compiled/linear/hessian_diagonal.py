"""The diagonal of a Hessian: sums of squares of each column, weighted by row, for any number of features."""

from __future__ import annotations

import numpy as np
from numba import types

from bigsvm.compiled.shared.compile import njit, overload, register_jitable
from bigsvm.compiled.shared.models import add_weight, n_models
from bigsvm.compiled.shared.rows import CSR


@register_jitable
def _dense_squares(X, i, h, m, D):
    for j in range(X.shape[1]):
        x = np.float64(X[i, j])
        add_weight(D, j, m, h * x * x)


@register_jitable
def _csr_squares(X, i, h, m, D):
    for e in range(X.indptr[i], X.indptr[i + 1]):
        x = np.float64(X.data[e])
        add_weight(D, X.indices[e], m, h * x * x)


def _add_squares(X, i, h, m, D):
    """D[:, m] += h X[i]^2.  Compiled only."""
    raise NotImplementedError


@overload(_add_squares)
def _overload_add_squares(X, i, h, m, D):
    if isinstance(X, types.Array):
        return lambda X, i, h, m, D: _dense_squares(X, i, h, m, D)
    if isinstance(X, types.BaseNamedTuple) and X.instance_class is CSR:
        return lambda X, i, h, m, D: _csr_squares(X, i, h, m, D)
    return None


@njit(cache=True, nogil=True)
def add_hessian_diagonal(X, h, bias, D):
    """D[:, m] += sum_i h[i, m] [x_i, bias]^2; feature by feature; rows with h = 0 are skipped.

    X : dense or CSR;  h : float64, (n_rows, n_models);  D : float64, (n_features + 1,) or (n_features + 1, n_models)
    """
    last = D.shape[0] - 1
    for i in range(h.shape[0]):
        for m in range(n_models(D)):
            if h[i, m] != 0.0:
                _add_squares(X, i, h[i, m], m, D)
                add_weight(D, last, m, h[i, m] * bias * bias)
