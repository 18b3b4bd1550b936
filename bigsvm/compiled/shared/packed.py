"""Rows with values rounded to 16 bits: about half the bytes, for rows that are kept only to choose steps with.

A value is stored as round(x / scale), int16, with one scale for each row, so its error is at most 1.6e-5 of the row's
largest value.  Feature numbers below 65536 (*small* ones) take 16 bits and others 32; if features are numbered by
frequency, that is 2.3 bytes on average.  Because of the rounding, nothing that is proved is computed from these rows.
Where it is too coarse, plain CSR and dense arrays take their place: `pack_row` and `move_rows` accept them too.

    PackedCSR    row i is pool[ptr[i]:ptr[i+1]]: first its values, then its hot[i] small feature numbers,
                 then the large ones in two pieces of 16 bits, the lower one first; values are in the same order
    PackedDense  the value of feature j in row i is values[i, j] * scale[i]
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from bigsvm.compiled.shared.compile import overload, register_jitable
from bigsvm.compiled.shared.rows import _is_csr, row_axpy, row_axpys, row_dot, row_dots
from bigsvm.compiled.shared.vectors.moving import move_along

_LARGEST = 32767.0
_SMALL = 1 << 16


class PackedCSR(NamedTuple):
    """Packed sparse rows.

    pool : uint16, (capacity,);  values : int16, (capacity,), a view of the same memory
    ptr : int64, (n_slots + 1,), where each row begins;  hot : int32, (n_slots,), small feature numbers in each row
    scale : float32, (n_slots,)
    """

    pool: np.ndarray
    values: np.ndarray
    ptr: np.ndarray
    hot: np.ndarray
    scale: np.ndarray


class PackedDense(NamedTuple):
    """Packed dense rows.  values : int16, (capacity, n_features);  scale : float32, (capacity,)"""

    values: np.ndarray
    scale: np.ndarray


def _is(X, kind):
    return isinstance(X, types.BaseNamedTuple) and X.instance_class is kind


@register_jitable
def _spans(X, i):
    """Places in the pool, uint64: (first value, first small number, first large number, end) of row i."""
    a = X.ptr[i]
    hot = np.int64(X.hot[i])
    n = (X.ptr[i + 1] - a + hot) // 3
    return np.uint64(a), np.uint64(a + n), np.uint64(a + n + hot), np.uint64(X.ptr[i + 1])


@register_jitable
def _large(pool, k):
    return np.uint32(pool[k]) | (np.uint32(pool[k + np.uint64(1)]) << np.uint32(16))


@register_jitable
def _packed_csr_dot(X, i, w):
    first, small, large, end = _spans(X, i)
    pool, values = X.pool, X.values
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    s0 = s1 = s2 = s3 = 0.0
    k, j = first, small
    stop = large - (large - small) % four
    while j < stop:
        s0 += values[k] * w[pool[j]]
        s1 += values[k + one] * w[pool[j + one]]
        s2 += values[k + two] * w[pool[j + two]]
        s3 += values[k + three] * w[pool[j + three]]
        k += four
        j += four
    while j < large:
        s0 += values[k] * w[pool[j]]
        k += one
        j += one
    while j < end:
        s1 += values[k] * w[_large(pool, j)]
        k += one
        j += two
    return ((s0 + s1) + (s2 + s3)) * X.scale[i]


@register_jitable
def _packed_csr_axpy(a, X, i, w):
    first, small, large, end = _spans(X, i)
    pool, values = X.pool, X.values
    step = a * X.scale[i]
    k = first
    for j in range(small, large):
        w[pool[j]] += step * values[k]
        k += np.uint64(1)
    j = large
    while j < end:
        w[_large(pool, j)] += step * values[k]
        k += np.uint64(1)
        j += np.uint64(2)


@register_jitable
def _packed_csr_dots(X, i, W, out):
    first, small, large, end = _spans(X, i)
    pool, values = X.pool, X.values
    out[:] = 0.0
    k = first
    j = small
    while j < end:
        hot = j < large
        feature = np.uint32(pool[j]) if hot else _large(pool, j)
        j += np.uint64(1) if hot else np.uint64(2)
        x = np.float64(values[k])
        k += np.uint64(1)
        for m in range(out.shape[0]):
            out[m] += x * W[feature, m]
    for m in range(out.shape[0]):
        out[m] *= X.scale[i]


@register_jitable
def _packed_csr_axpys(a, X, i, W):
    first, small, large, end = _spans(X, i)
    pool, values = X.pool, X.values
    k = first
    j = small
    while j < end:
        hot = j < large
        feature = np.uint32(pool[j]) if hot else _large(pool, j)
        j += np.uint64(1) if hot else np.uint64(2)
        x = np.float64(values[k]) * X.scale[i]
        k += np.uint64(1)
        for m in range(a.shape[0]):
            W[feature, m] += x * a[m]


@overload(row_dot)
def _row_dot(X, i, w):
    if _is(X, PackedDense):
        return lambda X, i, w: row_dot(X.values, i, w) * X.scale[i]
    return (lambda X, i, w: _packed_csr_dot(X, i, w)) if _is(X, PackedCSR) else None


@overload(row_axpy)
def _row_axpy(a, X, i, w):
    if _is(X, PackedDense):
        return lambda a, X, i, w: row_axpy(a * X.scale[i], X.values, i, w)
    return (lambda a, X, i, w: _packed_csr_axpy(a, X, i, w)) if _is(X, PackedCSR) else None


@overload(row_dots)
def _row_dots(X, i, W, out):
    def dense(X, i, W, out):
        row_dots(X.values, i, W, out)
        for m in range(out.shape[0]):
            out[m] *= X.scale[i]

    if _is(X, PackedDense):
        return dense
    return (lambda X, i, W, out: _packed_csr_dots(X, i, W, out)) if _is(X, PackedCSR) else None


@overload(row_axpys)
def _row_axpys(a, X, i, W):
    def dense(a, X, i, W):
        row_axpys(a * X.scale[i], X.values, i, W)

    if _is(X, PackedDense):
        return dense
    return (lambda a, X, i, W: _packed_csr_axpys(a, X, i, W)) if _is(X, PackedCSR) else None


def pack_row(A, slot, X, i):
    """Store row i of X as row `slot` of A, the first free one; returns False if there is no room.

    A : PackedCSR, PackedDense, CSR or a dense array;  X : CSR or dense.  Compiled only.
    """
    raise NotImplementedError


def move_rows(A, target, first, stop):
    """Move rows [first, stop) of A to the rows from `target` on, target <= first.  Compiled only."""
    raise NotImplementedError


@overload(pack_row)
def _pack_row(A, slot, X, i):
    def sparse(A, slot, X, i):
        data, indices, pool, values = X.data, X.indices, A.pool, A.values
        first, stop = np.uint64(X.indptr[i]), np.uint64(X.indptr[i + 1])
        n = np.int64(stop - first)
        hot = 0
        largest = 0.0
        for k in range(first, stop):
            hot += indices[k] < _SMALL
            largest = max(largest, abs(np.float64(data[k])))
        a = A.ptr[slot]
        end = a + n + hot + 2 * (n - hot)
        if slot >= A.hot.shape[0] or end > pool.shape[0]:
            return False
        inverse = _LARGEST / largest if largest > 0.0 else 0.0
        one = np.uint64(1)
        p, q = np.uint64(a), np.uint64(a + hot)  # values of small feature numbers come first
        j, wide = np.uint64(a + n), np.uint64(a + n + hot)
        for k in range(first, stop):
            x = np.int16(np.rint(np.float64(data[k]) * inverse))
            index = indices[k]
            if index < _SMALL:
                values[p] = x
                pool[j] = np.uint16(index)
                p += one
                j += one
            else:
                values[q] = x
                pool[wide] = np.uint16(index & 0xFFFF)
                pool[wide + one] = np.uint16(index >> 16)
                q += one
                wide += one + one
        A.hot[slot] = hot
        A.scale[slot] = np.float32(largest / _LARGEST)
        A.ptr[slot + 1] = end
        return True

    def dense(A, slot, X, i):
        if slot >= A.values.shape[0]:
            return False
        largest = 0.0
        for j in range(X.shape[1]):
            largest = max(largest, abs(np.float64(X[i, j])))
        inverse = _LARGEST / largest if largest > 0.0 else 0.0
        for j in range(X.shape[1]):
            A.values[slot, j] = np.int16(np.rint(np.float64(X[i, j]) * inverse))
        A.scale[slot] = np.float32(largest / _LARGEST)
        return True

    def as_it_is(A, slot, X, i):
        first, stop = np.uint64(X.indptr[i]), np.uint64(X.indptr[i + 1])
        a = np.uint64(A.indptr[slot])
        n = stop - first
        if slot + 1 >= A.indptr.shape[0] or a + n > np.uint64(A.data.shape[0]):
            return False
        for k in range(n):
            A.data[a + k] = X.data[first + k]
            A.indices[a + k] = X.indices[first + k]
        A.indptr[slot + 1] = a + n
        return True

    def dense_as_it_is(A, slot, X, i):
        if slot >= A.shape[0]:
            return False
        for j in range(X.shape[1]):
            A[slot, j] = X[i, j]
        return True

    if _is(A, PackedDense):
        return dense
    if isinstance(A, types.Array):
        return dense_as_it_is
    if _is_csr(A):
        return as_it_is
    return sparse if _is(A, PackedCSR) and _is_csr(X) else None


@overload(move_rows)
def _move_rows(A, target, first, stop):
    def sparse(A, target, first, stop):
        shift = A.ptr[first] - A.ptr[target]
        move_along(A.pool, A.ptr[target], A.ptr[first], A.ptr[stop])
        move_along(A.hot, target, first, stop)
        move_along(A.scale, target, first, stop)
        for slot in range(first, stop):
            A.ptr[target + slot - first + 1] = A.ptr[slot + 1] - shift

    def dense(A, target, first, stop):
        move_along(A.values, target, first, stop)
        move_along(A.scale, target, first, stop)

    def as_it_is(A, target, first, stop):
        a, b = A.indptr[first], A.indptr[target]
        move_along(A.data, b, a, A.indptr[stop])
        move_along(A.indices, b, a, A.indptr[stop])
        for slot in range(first, stop):
            A.indptr[target + slot - first + 1] = A.indptr[slot + 1] - (a - b)

    def dense_as_it_is(A, target, first, stop):
        move_along(A, target, first, stop)

    if isinstance(A, types.Array):
        return dense_as_it_is
    if _is_csr(A):
        return as_it_is
    return dense if _is(A, PackedDense) else sparse if _is(A, PackedCSR) else None
