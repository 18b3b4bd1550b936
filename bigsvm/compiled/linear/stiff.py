"""A row in a local problem that is stiffer than the problem it is a part of, feature by feature.

stiffness : float32, (n_features,), at least 1.  Written once for every kind of row, as in `shared/many.py`.
"""

from __future__ import annotations

import numpy as np
from numba import types

from bigsvm.compiled.shared.compile import overload, register_jitable
from bigsvm.compiled.shared.many import row_entry, row_scale, row_span


@register_jitable
def stiff_sqnorm(X, i, stiffness):
    """Sum over features of stiffness[j] X[i, j]^2.  Compiled only."""
    first, stop = row_span(X, i)
    total = 0.0
    for k in range(first, stop):
        feature, x = row_entry(X, i, k)
        total += stiffness[feature] * x * x
    return total * row_scale(X, i) ** 2


def stiff_axpys(a, X, i, stiffness, W):
    """W[j, m] += a[m] stiffness[j] X[i, j].  Compiled only."""
    raise NotImplementedError


@overload(stiff_axpys)
def _stiff_axpys(a, X, i, stiffness, W):
    def one(a, X, i, stiffness, W):
        first, stop = row_span(X, i)
        step = a[0] * row_scale(X, i)
        for k in range(first, stop):
            feature, x = row_entry(X, i, k)
            W[feature] += step * stiffness[feature] * x

    def many(a, X, i, stiffness, W):
        first, stop = row_span(X, i)
        scale = row_scale(X, i)
        for m in range(np.uint64(W.shape[1])):
            if a[m] != 0.0:  # few models move at a row
                step = a[m] * scale
                for k in range(first, stop):
                    feature, x = row_entry(X, i, k)
                    W[feature, m] += step * stiffness[feature] * x

    return one if isinstance(W, types.Array) and W.ndim == 1 else many
