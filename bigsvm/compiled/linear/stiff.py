"""Norm and update of a row in the problem of a shard, whose steps are damped by a factor for each feature.

The factor is the *stiffness* of docs/mathematics.md 4.6: float32, (n_features,), at least 1.  X holds rows of any kind,
as in `shared/many.py`.
"""

from __future__ import annotations

import numpy as np
from numba import types

from bigsvm.compiled.shared.compile import overload, register_jitable
from bigsvm.compiled.shared.many import row_entry, row_scale, row_span


@register_jitable
def stiff_sqnorm(X, i, stiffness):
    """The sum over features j of stiffness[j] X[i, j]^2, float64.  Compiled only."""
    first, stop = row_span(X, i)
    total = 0.0
    for k in range(first, stop):
        feature, x = row_entry(X, i, k)
        total += stiffness[feature] * x * x
    return total * row_scale(X, i) ** 2


def stiff_axpys(a, X, i, stiffness, W):
    """W[j, m] += a[m] stiffness[j] X[i, j] for all features j and models m.  Compiled only."""
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
            if a[m] != 0.0:  # at most rows few models move
                step = a[m] * scale
                for k in range(first, stop):
                    feature, x = row_entry(X, i, k)
                    W[feature, m] += step * stiffness[feature] * x

    return one if isinstance(W, types.Array) and W.ndim == 1 else many
