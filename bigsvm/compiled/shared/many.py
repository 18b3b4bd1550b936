"""A row against the weights of many models, W of shape (n_weights, n_models).

Written once for every kind of row, by way of `row_span` and `row_entry`.
"""

from __future__ import annotations

import numpy as np
from numba import types

from bigsvm.compiled.shared.compile import overload, register_jitable
from bigsvm.compiled.shared.packed import PackedCSR, PackedDense, _is, _large
from bigsvm.compiled.shared.prefetch import prefetch
from bigsvm.compiled.shared.rows import _is_csr

_ONE = np.uint64(1)


def row_span(X, i):
    """(first, stop): numbers of the entries of row i, uint64.  Compiled only."""
    raise NotImplementedError


def row_entry(X, i, k):
    """(feature, value as float64, not yet scaled) of entry k of row i.  Compiled only."""
    raise NotImplementedError


def row_scale(X, i):
    """What the values of row i are to be multiplied by.  Compiled only."""
    raise NotImplementedError


@overload(row_span)
def _row_span(X, i):
    if isinstance(X, types.Array):
        return lambda X, i: (np.uint64(0), np.uint64(X.shape[1]))
    if _is(X, PackedDense):
        return lambda X, i: (np.uint64(0), np.uint64(X.values.shape[1]))
    if _is(X, PackedCSR):
        return lambda X, i: (np.uint64(0), np.uint64((X.ptr[i + 1] - X.ptr[i] + X.hot[i]) // 3))
    return (lambda X, i: (np.uint64(X.indptr[i]), np.uint64(X.indptr[i + 1]))) if _is_csr(X) else None


@overload(row_entry)
def _row_entry(X, i, k):
    def packed(X, i, k):
        a, hot = np.uint64(X.ptr[i]), np.uint64(X.hot[i])
        n = (np.uint64(X.ptr[i + 1]) - a + hot) // np.uint64(3)
        if k < hot:
            return np.uint64(X.pool[a + n + k]), np.float64(X.values[a + k])
        return np.uint64(_large(X.pool, a + n + hot + np.uint64(2) * (k - hot))), np.float64(X.values[a + k])

    if isinstance(X, types.Array):
        return lambda X, i, k: (k, np.float64(X[i, k]))
    if _is(X, PackedDense):
        return lambda X, i, k: (k, np.float64(X.values[i, k]))
    if _is(X, PackedCSR):
        return packed
    return (lambda X, i, k: (np.uint64(X.indices[k]), np.float64(X.data[k]))) if _is_csr(X) else None


@overload(row_scale)
def _row_scale(X, i):
    if _is(X, PackedDense) or _is(X, PackedCSR):
        return lambda X, i: np.float64(X.scale[i])
    return lambda X, i: 1.0


@register_jitable
def many_dots(X, i, W, out):
    """out[m] = X[i] . W[:, m]."""
    a, b = row_span(X, i)
    models = np.uint64(W.shape[1])
    for m in range(models):
        out[m] = 0.0
    for k in range(a, b):
        j, x = row_entry(X, i, k)
        for m in range(models):
            out[m] += x * W[j, m]
    scale = row_scale(X, i)
    if scale != 1.0:
        for m in range(models):
            out[m] *= scale


@register_jitable
def few(live):
    """Whether at most three bits are set: that many walks over a row cost less than one for everybody."""
    for _ in range(3):
        live &= live - _ONE if live else live
    return live == np.uint64(0)


@register_jitable
def some_dots(X, i, W, out, live):
    """`many_dots` for the models whose bit is set."""
    a, b = row_span(X, i)
    scale = row_scale(X, i)
    for m in range(np.uint64(W.shape[1])):
        if live >> m & _ONE:
            s0 = s1 = 0.0
            for k in range(a, b):
                j, x = row_entry(X, i, k)
                if k & _ONE:
                    s1 += x * W[j, m]
                else:
                    s0 += x * W[j, m]
            out[m] = (s0 + s1) * scale


@register_jitable
def many_axpys(steps, X, i, W):
    """W[:, m] += steps[m] X[i] for the models whose step is not 0: few of them move at a row."""
    a, b = row_span(X, i)
    scale = row_scale(X, i)
    models = np.uint64(W.shape[1])
    moving = 0
    for m in range(models):
        moving += steps[m] != 0.0
    if 2 * moving > W.shape[1]:
        for k in range(a, b):
            j, x = row_entry(X, i, k)
            x *= scale
            for m in range(models):
                W[j, m] += steps[m] * x
        return
    for m in range(models):
        if steps[m] != 0.0:
            step = steps[m] * scale
            for k in range(a, b):
                j, x = row_entry(X, i, k)
                W[j, m] += step * x


@register_jitable
def prefetch_weights(X, i, W):
    """Ask for the weights that row i will need: with many models they are too large for caches to hold."""
    a, b = row_span(X, i)
    for k in range(a, b):
        j, _ = row_entry(X, i, k)
        prefetch(W, j)


def sparse_rows(X):
    """Whether a numba type is one of sparse rows."""
    return _is_csr(X) or _is(X, PackedCSR)


def prefetch_features(X, i, w):
    """`prefetch_weights` of sparse rows and one model, in as few instructions as it takes.  Compiled only."""
    raise NotImplementedError


@overload(prefetch_features)
def _prefetch_features(X, i, w):
    def sparse(X, i, w):
        indices = X.indices
        for k in range(np.uint64(X.indptr[i]), np.uint64(X.indptr[i + 1])):
            prefetch(w, indices[k])

    def packed(X, i, w):
        pool = X.pool
        a, hot = np.uint64(X.ptr[i]), np.uint64(X.hot[i])
        end = np.uint64(X.ptr[i + 1])
        j = a + (end - a + hot) // np.uint64(3)  # first the numbers of one piece, then those of two
        large = j + hot
        while j < large:
            prefetch(w, np.uint64(pool[j]))
            j += _ONE
        while j < end:
            prefetch(w, np.uint64(_large(pool, j)))
            j += _ONE + _ONE

    return packed if _is(X, PackedCSR) else sparse
