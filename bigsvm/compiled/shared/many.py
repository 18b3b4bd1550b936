"""Products and updates of one row with the weights of many models, W of shape (n_weights, n_models).

X holds rows of any kind: a dense array, `CSR`, `PackedCSR` or `PackedDense`.  The loops are written once for all of
them, in terms of functions that give the entries of a row: `row_span` and `row_entry`, or `row_parts`, `small_entry`
and `large_entry`.  In `PackedCSR` feature numbers below 65536 are *small*: they come first and are stored in 16 bits;
in the other kinds all entries count as small.
"""

from __future__ import annotations

import numpy as np
from numba import types

from bigsvm.compiled.shared.compile import overload, register_jitable
from bigsvm.compiled.shared.packed import PackedCSR, PackedDense, _is, _large
from bigsvm.compiled.shared.prefetch import prefetch
from bigsvm.compiled.shared.rows import _is_csr
from bigsvm.compiled.shared.vectors.lanes import (
    eight_zeros,
    four_zeros,
    lanes_of,
    moved_weights,
    plus_products,
    put_lanes,
)

_ONE = np.uint64(1)
_WORTH_A_LINE = 3  # models that move, from which on all models are updated together


def row_span(X, i):
    """(first, stop), uint64: row i has the entries first, ..., stop - 1.  Compiled only."""
    raise NotImplementedError


def row_entry(X, i, k):
    """(feature, value) of entry k of row i; the value is float64 and still to be multiplied by `row_scale`.

    Compiled only.
    """
    raise NotImplementedError


def row_parts(X, i):
    """(first, small, n), uint64: the first entry of row i, its number of small entries, and of all entries.

    Compiled only.
    """
    raise NotImplementedError


def small_entry(X, i, first, n, t):
    """As `row_entry`, for entry t of the row, counted from 0, if t < small.  Compiled only."""
    raise NotImplementedError


def large_entry(X, i, first, small, n, t):
    """As `row_entry`, for entry t of the row, counted from 0, if t >= small.  Compiled only."""
    raise NotImplementedError


def row_scale(X, i):
    """The factor by which the values of row i must be multiplied, float64.  Compiled only."""
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


@overload(row_parts)
def _row_parts(X, i):
    def packed(X, i):
        first, small = np.uint64(X.ptr[i]), np.uint64(X.hot[i])
        return first, small, (np.uint64(X.ptr[i + 1]) - first + small) // np.uint64(3)

    def sparse(X, i):
        first = np.uint64(X.indptr[i])
        n = np.uint64(X.indptr[i + 1]) - first
        return first, n, n

    if _is(X, PackedCSR):
        return packed
    if _is_csr(X):
        return sparse
    if _is(X, PackedDense):
        return lambda X, i: (np.uint64(0), np.uint64(X.values.shape[1]), np.uint64(X.values.shape[1]))
    return lambda X, i: (np.uint64(0), np.uint64(X.shape[1]), np.uint64(X.shape[1]))


@overload(small_entry)
def _small_entry(X, i, first, n, t):
    if _is(X, PackedCSR):
        return lambda X, i, first, n, t: (np.uint64(X.pool[first + n + t]), np.float64(X.values[first + t]))
    return lambda X, i, first, n, t: row_entry(X, i, first + t)


@overload(large_entry)
def _large_entry(X, i, first, small, n, t):
    def packed(X, i, first, small, n, t):
        number = first + n + small + np.uint64(2) * (t - small)
        return np.uint64(_large(X.pool, number)), np.float64(X.values[first + t])

    return packed if _is(X, PackedCSR) else (lambda X, i, first, small, n, t: row_entry(X, i, first + t))


@overload(row_scale)
def _row_scale(X, i):
    if _is(X, PackedDense) or _is(X, PackedCSR):
        return lambda X, i: np.float64(X.scale[i])
    return lambda X, i: 1.0


def many_dots(X, i, W, out):
    """out[m] = X[i] . W[:, m] for all models m.  out : float64, (n_models,).  Compiled only."""
    raise NotImplementedError


@overload(many_dots)
def _many_dots(X, i, W, out):
    def by_lanes(X, i, W, out):
        if W.shape[1] >= 8:
            _dots_in_lanes(eight_zeros(), 8, X, i, W, out)
        elif W.shape[1] >= 4:
            _dots_in_lanes(four_zeros(), 4, X, i, W, out)
        else:
            _dots_in_turn(X, i, W, out)

    return by_lanes if W.layout == "C" else (lambda X, i, W, out: _dots_in_turn(X, i, W, out))


@register_jitable
def _dots_in_turn(X, i, W, out):
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
def _dots_in_lanes(zeros, width, X, i, W, out):
    """As `_dots_in_turn`, with the same bits, for 2 `width` models at a time in vectors of `width` lanes.

    The last vector always ends with the last model.  If it overlaps the vector before, some products are computed
    twice, which costs less than a separate loop for them.

    zeros : `four_zeros` or `eight_zeros`;  width : its number of lanes, at most the number of models
    """
    first, small, n = row_parts(X, i)
    models = W.shape[1]
    last = models - width
    for strip in range(0, models, 2 * width):
        p, q = min(strip, last), min(strip + width, last)
        s, t = zeros, zeros
        if p == q:
            for k in range(small):
                j, x = small_entry(X, i, first, n, k)
                s = plus_products(s, x, W, j, p)
            for k in range(small, n):
                j, x = large_entry(X, i, first, small, n, k)
                s = plus_products(s, x, W, j, p)
            put_lanes(s, out, 0, p)
        else:
            for k in range(small):
                j, x = small_entry(X, i, first, n, k)
                s = plus_products(s, x, W, j, p)
                t = plus_products(t, x, W, j, q)
            for k in range(small, n):
                j, x = large_entry(X, i, first, small, n, k)
                s = plus_products(s, x, W, j, p)
                t = plus_products(t, x, W, j, q)
            put_lanes(s, out, 0, p)
            put_lanes(t, out, 0, q)
    scale = row_scale(X, i)
    if scale != 1.0:
        for m in range(np.uint64(models)):
            out[m] *= scale


@register_jitable
def few(live):
    """Whether at most three bits are set.

    Then a loop over the row for each of these models costs less than one loop for all models.
    """
    for _ in range(3):
        live &= live - _ONE if live else live
    return live == np.uint64(0)


@register_jitable
def some_dots(X, i, W, out, live):
    """As `many_dots`, only for the models m whose bit is set in `live`, uint64."""
    first, small, n = row_parts(X, i)
    scale = row_scale(X, i)
    for m in range(np.uint64(W.shape[1])):
        if live >> m & _ONE:
            s0 = s1 = 0.0
            for k in range(small):
                j, x = small_entry(X, i, first, n, k)
                if k & _ONE:
                    s1 += x * W[j, m]
                else:
                    s0 += x * W[j, m]
            for k in range(small, n):
                j, x = large_entry(X, i, first, small, n, k)
                if k & _ONE:
                    s1 += x * W[j, m]
                else:
                    s0 += x * W[j, m]
            out[m] = (s0 + s1) * scale


def many_axpys(steps, X, i, W):
    """W[:, m] += steps[m] X[i] for the models whose step is not 0.  Compiled only."""
    raise NotImplementedError


@overload(many_axpys)
def _many_axpys(steps, X, i, W):
    def by_lanes(steps, X, i, W):
        if W.shape[1] < 4 or _moving(steps, W) < _WORTH_A_LINE:
            _axpys_in_turn(0, steps, X, i, W)
        elif W.shape[1] >= 8:
            _axpys_in_lanes(eight_zeros(), 8, steps, X, i, W)
        else:
            _axpys_in_lanes(four_zeros(), 4, steps, X, i, W)

    return by_lanes if W.layout == "C" else (lambda steps, X, i, W: _axpys_in_turn(0, steps, X, i, W))


@register_jitable
def _moving(steps, W):
    moving = 0
    for m in range(np.uint64(W.shape[1])):
        moving += steps[m] != 0.0
    return moving


@register_jitable
def _axpys_in_turn(begin, steps, X, i, W):
    """As `many_axpys`, for the models from `begin` on."""
    first, small, n = row_parts(X, i)
    scale = row_scale(X, i)
    for m in range(np.uint64(begin), np.uint64(W.shape[1])):
        if steps[m] != 0.0:
            step = steps[m]
            for k in range(small):
                j, x = small_entry(X, i, first, n, k)
                W[j, m] += step * (x * scale)
            for k in range(small, n):
                j, x = large_entry(X, i, first, small, n, k)
                W[j, m] += step * (x * scale)


@register_jitable
def _axpys_in_lanes(zeros, width, steps, X, i, W):
    """As `many_axpys`, for 2 `width` models at a time in vectors of `width` lanes.

    If two vectors overlap, both are read before either is written, so both write the same numbers.  A remainder of less
    than `width` models would overlap models that are written already; these models are updated one by one.

    zeros, width : as for `_dots_in_lanes`
    """
    first, small, n = row_parts(X, i)
    scale = row_scale(X, i)
    models = W.shape[1]
    for strip in range(0, models, 2 * width):
        if models - strip < width:
            _axpys_in_turn(strip, steps, X, i, W)
            break
        p, q = strip, min(strip + width, models - width)
        moving = False
        for m in range(np.uint64(p), np.uint64(q + width)):
            moving |= steps[m] != 0.0
        if not moving:
            continue
        s, t = lanes_of(zeros, steps, p), lanes_of(zeros, steps, q)
        if p == q:
            for k in range(small):
                j, x = small_entry(X, i, first, n, k)
                put_lanes(moved_weights(s, x * scale, W, j, p), W, j, p)
            for k in range(small, n):
                j, x = large_entry(X, i, first, small, n, k)
                put_lanes(moved_weights(s, x * scale, W, j, p), W, j, p)
        else:
            for k in range(small):
                j, x = small_entry(X, i, first, n, k)
                u, v = moved_weights(s, x * scale, W, j, p), moved_weights(t, x * scale, W, j, q)
                put_lanes(u, W, j, p)
                put_lanes(v, W, j, q)
            for k in range(small, n):
                j, x = large_entry(X, i, first, small, n, k)
                u, v = moved_weights(s, x * scale, W, j, p), moved_weights(t, x * scale, W, j, q)
                put_lanes(u, W, j, p)
                put_lanes(v, W, j, q)


def prefetch_weights(X, i, W):
    """Prefetch the weights that row i will need, because no cache holds those of many models.  Compiled only."""
    raise NotImplementedError


@overload(prefetch_weights)
def _prefetch_weights(X, i, W):
    def dense(X, i, W):
        a, b = row_span(X, i)
        for j in range(a, b):
            prefetch(W, j)

    return (lambda X, i, W: prefetch_features(X, i, W)) if sparse_rows(X) else dense


def sparse_rows(X):
    """Whether a numba type is that of sparse rows."""
    return _is_csr(X) or _is(X, PackedCSR)


def prefetch_features(X, i, w):
    """As `prefetch_weights`, for sparse rows, in as few instructions as possible.  Compiled only."""
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
        j = a + (np.uint64(X.ptr[i + 1]) - a + hot) // np.uint64(3)  # first small feature numbers, then large ones
        large = j + hot
        while j < large:
            prefetch(w, np.uint64(pool[j]))
            j += _ONE
        prefetch_rare(X, i, w)

    return packed if _is(X, PackedCSR) else sparse


def prefetch_rare(X, i, w):
    """As `prefetch_features`, but in packed rows only for large feature numbers.

    Features are numbered by frequency there, and a core's cache holds the weights of the frequent ones.  Compiled only.
    """
    raise NotImplementedError


@overload(prefetch_rare)
def _prefetch_rare(X, i, w):
    def packed(X, i, w):
        pool = X.pool
        a, hot = np.uint64(X.ptr[i]), np.uint64(X.hot[i])
        end = np.uint64(X.ptr[i + 1])
        j = a + (end - a + hot) // np.uint64(3) + hot
        while j < end:
            prefetch(w, np.uint64(_large(pool, j)))
            j += _ONE + _ONE

    return packed if _is(X, PackedCSR) else (lambda X, i, w: prefetch_features(X, i, w))
