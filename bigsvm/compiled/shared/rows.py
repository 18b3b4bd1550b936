"""Operations on a row of a data matrix, dense or CSR, by the same functions.

So a loop of a solver is written once: when numba compiles it for the type of X, `row_dot(X, i, w)` picks the
implementation.

All products and sums are float64.  A sum over a row is made of four partial sums, s0 to s3, to which entries go in turn
by their position in the row; they are added as (s0 + s1) + (s2 + s3).  So the chain of additions is four times shorter,
and a dense row gives the same bits as the same row stored as CSR with every entry.  Values of 8 bits become float32 as
they are read, and give the same bits as these values do in float32.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from bigsvm.compiled.shared.compile import inner_loop, overload, register_jitable
from bigsvm.compiled.shared.vectors.lanes import four_zeros
from bigsvm.compiled.shared.vectors.row_products import has_lanes, lane, plus_pairs
from bigsvm.csr import CSR


def n_rows_of(X):
    """Number of rows of a dense array or CSR."""
    return X.indptr.shape[0] - 1 if isinstance(X, CSR) else X.shape[0]


def take_rows(X, start, stop):
    """Rows [start, stop) as the same kind of matrix: a view of the values, and a new indptr that begins with 0."""
    if isinstance(X, CSR):
        a, b = X.indptr[start], X.indptr[stop]
        return CSR(X.data[a:b], X.indices[a:b], X.indptr[start : stop + 1] - a)
    return X[start:stop]


def _number(x):
    """A value of X as it is used in products: int8 and uint8 as float32, other types unchanged."""
    return np.float32(x) if isinstance(x, np.int8 | np.uint8) else x


@overload(_number)
def _overload_number(x):
    return (lambda x: np.float32(x)) if x in (types.int8, types.uint8) else (lambda x: x)


@register_jitable
def _dense_row_dot(X, i, w):
    n = X.shape[1]
    s0 = s1 = s2 = s3 = 0.0
    stop = n - n % 4
    for j in range(0, stop, 4):
        s0 += np.float64(X[i, j]) * w[j]
        s1 += np.float64(X[i, j + 1]) * w[j + 1]
        s2 += np.float64(X[i, j + 2]) * w[j + 2]
        s3 += np.float64(X[i, j + 3]) * w[j + 3]
    if stop < n:
        s0 += np.float64(X[i, stop]) * w[stop]
    if stop + 1 < n:
        s1 += np.float64(X[i, stop + 1]) * w[stop + 1]
    if stop + 2 < n:
        s2 += np.float64(X[i, stop + 2]) * w[stop + 2]
    return (s0 + s1) + (s2 + s3)


@register_jitable
def _csr_row_dot(X, i, w):
    a = np.uint64(X.indptr[i])
    n = np.uint64(X.indptr[i + 1]) - a
    data, indices = X.data, X.indices
    s0 = s1 = s2 = s3 = 0.0
    stop = a + (n - n % np.uint64(4))
    end = a + n
    k = a
    while k < stop:
        s0 += np.float64(data[k]) * w[indices[k]]
        s1 += np.float64(data[k + np.uint64(1)]) * w[indices[k + np.uint64(1)]]
        s2 += np.float64(data[k + np.uint64(2)]) * w[indices[k + np.uint64(2)]]
        s3 += np.float64(data[k + np.uint64(3)]) * w[indices[k + np.uint64(3)]]
        k += np.uint64(4)
    if k < end:
        s0 += np.float64(data[k]) * w[indices[k]]
    if k + np.uint64(1) < end:
        s1 += np.float64(data[k + np.uint64(1)]) * w[indices[k + np.uint64(1)]]
    if k + np.uint64(2) < end:
        s2 += np.float64(data[k + np.uint64(2)]) * w[indices[k + np.uint64(2)]]
    return (s0 + s1) + (s2 + s3)


@register_jitable
def _dense_row_axpy(a, X, i, w):
    for j in range(X.shape[1]):
        w[j] += a * _number(X[i, j])


@register_jitable
def _csr_row_axpy(a, X, i, w):
    data, indices = X.data, X.indices
    for k in range(np.uint64(X.indptr[i]), np.uint64(X.indptr[i + 1])):
        w[indices[k]] += a * _number(data[k])


@register_jitable
def _dense_row_sqnorm(X, i):
    n = X.shape[1]
    s0 = s1 = s2 = s3 = 0.0
    for j in range(n):
        x = np.float64(X[i, j])
        lane = j % 4
        if lane == 0:
            s0 += x * x
        elif lane == 1:
            s1 += x * x
        elif lane == 2:
            s2 += x * x
        else:
            s3 += x * x
    return (s0 + s1) + (s2 + s3)


@register_jitable
def _norm_of(values, k, end):
    """The norm of values[k:end], from four partial sums that do not wait for one another."""
    s0 = s1 = s2 = s3 = 0.0
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    while k + four <= end:
        x0, x1 = np.float64(values[k]), np.float64(values[k + one])
        x2, x3 = np.float64(values[k + two]), np.float64(values[k + three])
        s0 += x0 * x0
        s1 += x1 * x1
        s2 += x2 * x2
        s3 += x3 * x3
        k += four
    while k < end:
        x0 = np.float64(values[k])
        s0 += x0 * x0
        k += one
    return math.sqrt((s0 + s1) + (s2 + s3))


@register_jitable
def _csr_row_sqnorm(X, i):
    a = X.indptr[i]
    s0 = s1 = s2 = s3 = 0.0
    for k in range(X.indptr[i + 1] - a):
        x = np.float64(X.data[a + k])
        lane = k % 4
        if lane == 0:
            s0 += x * x
        elif lane == 1:
            s1 += x * x
        elif lane == 2:
            s2 += x * x
        else:
            s3 += x * x
    return (s0 + s1) + (s2 + s3)


@register_jitable
def _dense_row_dots(X, i, W, out):
    out[:] = 0.0
    for j in range(X.shape[1]):
        x = _number(X[i, j])
        for m in range(out.shape[0]):
            out[m] += x * W[j, m]


@register_jitable
def _csr_row_dots(X, i, W, out):
    out[:] = 0.0
    for k in range(np.uint64(X.indptr[i]), np.uint64(X.indptr[i + 1])):
        x = _number(X.data[k])
        j = X.indices[k]
        for m in range(out.shape[0]):
            out[m] += x * W[j, m]


@register_jitable
def _dense_row_axpys(a, X, i, W):
    for j in range(X.shape[1]):
        x = _number(X[i, j])
        for m in range(a.shape[0]):
            W[j, m] += x * a[m]


@register_jitable
def _csr_row_axpys(a, X, i, W):
    for k in range(np.uint64(X.indptr[i]), np.uint64(X.indptr[i + 1])):
        x = _number(X.data[k])
        j = X.indices[k]
        for m in range(a.shape[0]):
            W[j, m] += x * a[m]


def row_dot(X, i, w):
    """Sum over features of X[i, j] * w[j]; w is float64, shape (at least n_features,)."""
    return (_csr_row_dot if isinstance(X, CSR) else _dense_row_dot)(X, i, w)


def row_axpy(a, X, i, w):
    """w += a * X[i], in place."""
    (_csr_row_axpy if isinstance(X, CSR) else _dense_row_axpy)(a, X, i, w)


def row_sqnorm(X, i):
    """Squared Euclidean norm of row i."""
    return (_csr_row_sqnorm if isinstance(X, CSR) else _dense_row_sqnorm)(X, i)


def row_norm(X, i):
    """Norm of row i, in a quarter of the time of `row_sqnorm`; the bits may differ from those of its root.

    Compiled only.
    """
    raise NotImplementedError


def row_dots(X, i, W, out):
    """out[m] = sum over features of X[i, j] * W[j, m], for every model m on the last axis of W."""
    (_csr_row_dots if isinstance(X, CSR) else _dense_row_dots)(X, i, W, out)


def row_axpys(a, X, i, W):
    """W[:, m] += a[m] * X[i] for every model m, in place."""
    (_csr_row_axpys if isinstance(X, CSR) else _dense_row_axpys)(a, X, i, W)


def _is_csr(X):
    return isinstance(X, types.BaseNamedTuple) and X.instance_class is CSR


@overload(row_dot)
def _row_dot(X, i, w):
    def in_lanes(X, i, w):
        n = X.shape[1]
        sums, stop = four_zeros(), n - n % 4
        for j in range(0, stop, 4):
            sums = plus_pairs(sums, X, i, w, j)
        s0, s1, s2, s3 = lane(sums, 0), lane(sums, 1), lane(sums, 2), lane(sums, 3)
        if stop < n:
            s0 += np.float64(X[i, stop]) * w[stop]
        if stop + 1 < n:
            s1 += np.float64(X[i, stop + 1]) * w[stop + 1]
        if stop + 2 < n:
            s2 += np.float64(X[i, stop + 2]) * w[stop + 2]
        return (s0 + s1) + (s2 + s3)

    if isinstance(X, types.Array):
        # The compiler itself does not put the four sums in a vector, and its code takes three times as long.
        return in_lanes if has_lanes(X) and has_lanes(w) else (lambda X, i, w: _dense_row_dot(X, i, w))
    return (lambda X, i, w: _csr_row_dot(X, i, w)) if _is_csr(X) else None


@overload(row_axpy)
def _row_axpy(a, X, i, w):
    if isinstance(X, types.Array):
        return lambda a, X, i, w: _dense_row_axpy(a, X, i, w)
    return (lambda a, X, i, w: _csr_row_axpy(a, X, i, w)) if _is_csr(X) else None


@overload(row_sqnorm)
def _row_sqnorm(X, i):
    if isinstance(X, types.Array):
        return lambda X, i: _dense_row_sqnorm(X, i)
    return (lambda X, i: _csr_row_sqnorm(X, i)) if _is_csr(X) else None


@overload(row_norm)
def _row_norm(X, i):
    if isinstance(X, types.Array):
        return lambda X, i: _norm_of(X[i], np.uint64(0), np.uint64(X.shape[1]))
    return (lambda X, i: _norm_of(X.data, np.uint64(X.indptr[i]), np.uint64(X.indptr[i + 1]))) if _is_csr(X) else None


@overload(row_dots)
def _row_dots(X, i, W, out):
    if isinstance(X, types.Array):
        return lambda X, i, W, out: _dense_row_dots(X, i, W, out)
    return (lambda X, i, W, out: _csr_row_dots(X, i, W, out)) if _is_csr(X) else None


@overload(row_axpys)
def _row_axpys(a, X, i, W):
    if isinstance(X, types.Array):
        return lambda a, X, i, W: _dense_row_axpys(a, X, i, W)
    return (lambda a, X, i, W: _csr_row_axpys(a, X, i, W)) if _is_csr(X) else None


@overload(n_rows_of)
def _n_rows_of(X):
    if isinstance(X, types.Array):
        return lambda X: X.shape[0]
    return lambda X: X.indptr.shape[0] - 1


@inner_loop
def sqnorms(X, out):
    """out[i] = squared norm of row i; out is float64, shape (n_rows,)."""
    for i in range(out.shape[0]):
        out[i] = row_sqnorm(X, i)


@inner_loop
def decision(X, W, out):
    """out[i, m] = sum over features of X[i, j] * W[j, m]; out is float64, shape (n_rows, n_models)."""
    for i in range(out.shape[0]):
        row_dots(X, i, W, out[i])
