"""Squared distances summed from differences, for pairs of rows where ||x||^2 + ||s||^2 - 2 x.s would cancel.

If rows lie far from the origin, or in clusters far apart, norms and products are large and nearly cancel: at 1.7e9 +-
100 (times in seconds) no digit of a distance is left in float64.  So the distance of a pair is summed again from x - s,
which loses nothing, if gamma (||x||^2 + ||s||^2) is above `_CANCELS` and the kernel value is not certain to be 0.  For
all other pairs the exponent is off by at most `_CANCELS` times the relative rounding error of norms and products.

Whether a pair is computed again depends on its two rows and gamma alone, and so does its value.

x is a row of the data in the tile, s a row of S (`gram.py`).
"""

from __future__ import annotations

import numpy as np
from numba import types

from bigsvm.compiled.kernel.values.expo import exp_of
from bigsvm.compiled.kernel.values.lanes import fused
from bigsvm.compiled.kernel.values.placed import is_placed, place
from bigsvm.compiled.kernel.values.whole import is_whole
from bigsvm.compiled.shared.compile import overload, register_jitable

_CANCELS = 4096.0
_VANISHES = 750.0  # gamma times a squared distance beyond which every value is the smallest that `exp_of` returns
_SLACK = 2.0**-10  # bound on the rounding error of a squared distance, relative to the norms: float32, many features
_VAST = 1e37  # squared norms from which on float32 may have overflowed


@register_jitable
def may_cancel(gamma, largest, largest_of_support):
    """Whether the distance of any pair may have to be summed from differences.

    largest, largest_of_support : float, the largest squared norm of the rows on each side of the pairs
    """
    return gamma * (np.float64(largest) + np.float64(largest_of_support)) > _CANCELS


@register_jitable
def cancelling(a, r, gamma, x_sq, s_sq, here, largest):
    """The lanes t < here whose distance must be summed from differences: bit t of an int64.

    a : float32 or float64, (GROUP, LANES); a[r, t] is the product of the tile's row t with the row of S
    x_sq : (LANES,), squared norms of the tile's rows;  s_sq : squared norm of the row of S
    largest : the largest of x_sq[:here]
    """
    lanes, other = np.int64(0), np.float64(s_sq)
    if gamma * (np.float64(largest) + other) <= _CANCELS:
        return lanes
    for t in range(here):
        norms = np.float64(x_sq[t]) + other
        if gamma * norms <= _CANCELS:
            continue
        if norms < _VAST and gamma * (norms - 2.0 * np.float64(a[r, t]) - _SLACK * norms) > _VANISHES:
            continue
        lanes |= np.int64(1) << np.int64(t)
    return lanes


@register_jitable
def differ(X, rows, first, here, S, k, lanes, gamma, tile, a, r):
    """a[r, t] = exp(-gamma ||x_t - S_k||^2) for the lanes whose bit is set; x_t is row rows[first + t] of X.

    Distances are float64 sums of squared differences between the tile's column t, which holds x_t, and row k of S.

    lanes : int64, as `cancelling` returns it;  here : rows in the tile
    """
    _exponents(X, rows, first, here, S, k, lanes, gamma, tile, a, r)
    for t in range(here):
        if (lanes >> np.int64(t)) & np.int64(1) != 0:
            a[r, t] = exp_of(a[r, t])


def _exponents(X, rows, first, here, S, k, lanes, gamma, tile, a, r):
    """a[r, t] = -gamma ||x_t - S_k||^2 for the lanes whose bit is set."""
    raise NotImplementedError


@overload(_exponents)
def _overload_exponents(X, rows, first, here, S, k, lanes, gamma, tile, a, r):
    if is_whole(S):  # distances of whole numbers are exact already
        return lambda X, rows, first, here, S, k, lanes, gamma, tile, a, r: None
    if isinstance(S, types.Array):
        return _of_dense
    return _of_sparse


def _of_dense(X, rows, first, here, S, k, lanes, gamma, tile, a, r):
    for t in range(0, here, 4):
        if (lanes >> np.int64(t)) & np.int64(15) == 0:
            continue
        # Four sums at once, because a single sum would wait for each addition before the next.
        s0 = s1 = s2 = s3 = 0.0
        for j in range(S.shape[1]):
            s, column = np.float64(S[k, j]), tile[j]
            d0, d1 = np.float64(column[t]) - s, np.float64(column[t + 1]) - s
            d2, d3 = np.float64(column[t + 2]) - s, np.float64(column[t + 3]) - s
            s0 = fused(d0, d0, s0)
            s1 = fused(d1, d1, s1)
            s2 = fused(d2, d2, s2)
            s3 = fused(d3, d3, s3)
        for u, total in ((0, s0), (1, s1), (2, s2), (3, s3)):
            if (lanes >> np.int64(t + u)) & np.int64(1) != 0:
                a[r, t + u] = -gamma * total


def _of_sparse(X, rows, first, here, S, k, lanes, gamma, tile, a, r):
    for t in range(here):
        if (lanes >> np.int64(t)) & np.int64(1) == 0:
            continue
        total = 0.0
        # The features of S_k come first and are cleared in the tile.  Then the column holds features of x_t alone.
        for p in range(S.indptr[k], S.indptr[k + 1]):
            d = np.float64(tile[S.indices[p], t]) - np.float64(S.data[p])
            total = fused(d, d, total)
            tile[S.indices[p], t] = 0
        total = _rest(X, rows[first + t], t, tile, total)
        _put_back(X, rows[first + t], t, tile)
        a[r, t] = -gamma * total


def _rest(X, row, t, tile, total):
    """total plus the squares of what is left of a row of X in column t of the tile, and of features without a tile row.

    The latter exist for `Placed` rows only.
    """
    raise NotImplementedError


@overload(_rest)
def _overload_rest(X, row, t, tile, total):
    if isinstance(X, types.Array):

        def dense(X, row, t, tile, total):
            for j in range(X.shape[1]):
                total = fused(np.float64(tile[j, t]), np.float64(tile[j, t]), total)
            return total

        return dense

    if is_placed(X):
        if isinstance(X.types[0], types.Array):

            def placed_dense(X, row, t, tile, total):
                for j in range(X.X.shape[1]):
                    p = place(j, X.features, X.table)
                    value = np.float64(tile[p, t]) if p >= 0 else np.float64(X.X[row, j])
                    total = fused(value, value, total)
                return total

            return placed_dense

        def placed_sparse(X, row, t, tile, total):
            for q in range(X.X.indptr[row], X.X.indptr[row + 1]):
                p = place(X.X.indices[q], X.features, X.table)
                value = np.float64(tile[p, t]) if p >= 0 else np.float64(X.X.data[q])
                total = fused(value, value, total)
            return total

        return placed_sparse

    def sparse(X, row, t, tile, total):
        for q in range(X.indptr[row], X.indptr[row + 1]):
            value = np.float64(tile[X.indices[q], t])
            total = fused(value, value, total)
        return total

    return sparse


def _put_back(X, row, t, tile):
    """Write a row of X into column t of the tile again, after its entries were cleared."""
    raise NotImplementedError


@overload(_put_back)
def _overload_put_back(X, row, t, tile):
    if isinstance(X, types.Array):

        def dense(X, row, t, tile):
            for j in range(X.shape[1]):
                tile[j, t] = X[row, j]

        return dense

    if is_placed(X):
        if isinstance(X.types[0], types.Array):

            def placed_dense(X, row, t, tile):
                for p in range(len(X.features)):
                    if X.features[p] < X.X.shape[1]:
                        tile[p, t] = X.X[row, X.features[p]]

            return placed_dense

        def placed_sparse(X, row, t, tile):
            for q in range(X.X.indptr[row], X.X.indptr[row + 1]):
                p = place(X.X.indices[q], X.features, X.table)
                if p >= 0:
                    tile[p, t] = X.X.data[q]

        return placed_sparse

    def sparse(X, row, t, tile):
        for q in range(X.indptr[row], X.indptr[row + 1]):
            tile[X.indices[q], t] = X.data[q]

    return sparse
