"""Prefetching: loading memory into a cache before it is needed, where no processor could predict the address."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from bigsvm.compiled.shared.compile import overload

_READ_OR_WRITE, _KEEP, _DATA = 1, 3, 1


@intrinsic
def prefetch(typingctx, array, i):
    """Load the cache line at the beginning of array[i] into the cache; no value changes.  array : C order"""

    def generate(context, builder, signature, arguments):
        kind = signature.args[0]
        values = context.make_array(kind)(context, builder, arguments[0])
        first = context.cast(builder, arguments[1], signature.args[1], types.intp)
        index = [first] + [ir.Constant(first.type, 0)] * (kind.ndim - 1)
        shape = cgutils.unpack_tuple(builder, values.shape, kind.ndim)
        strides = cgutils.unpack_tuple(builder, values.strides, kind.ndim)
        place = cgutils.get_item_pointer2(context, builder, values.data, shape, strides, kind.layout, index)
        place = builder.bitcast(place, cgutils.voidptr_t)
        i32 = ir.IntType(32)
        call = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, i32, i32, i32])
        function = cgutils.get_or_insert_function(builder.module, call, "llvm.prefetch.p0")
        builder.call(function, [place, i32(_READ_OR_WRITE), i32(_KEEP), i32(_DATA)])
        return context.get_dummy_value()

    return types.void(array, i), generate


def ask_row(X, i):
    """Prefetch the entries of row i, for rows that are visited in an order that no processor could predict.

    X : dense, CSR, PackedCSR or PackedDense.  Compiled only.
    """
    raise NotImplementedError


@overload(ask_row)
def _ask_row(X, i):
    def sparse(X, i):
        for k in range(np.uint64(X.indptr[i]), np.uint64(X.indptr[i + 1]), np.uint64(16)):
            prefetch(X.data, k)
            prefetch(X.indices, k)

    def pooled(X, i):
        for k in range(np.uint64(X.ptr[i]), np.uint64(X.ptr[i + 1]), np.uint64(32)):
            prefetch(X.pool, k)

    def dense(X, i):
        row = X[i]
        for j in range(0, row.shape[0], 64 // row.itemsize):
            prefetch(row, j)

    def whole(X, i):
        row = X.values[i]
        for j in range(0, row.shape[0], 64 // row.itemsize):
            prefetch(row, j)

    if isinstance(X, types.Array):
        return dense
    if "indptr" in X.fields:
        return sparse
    if "pool" in X.fields:
        return pooled
    return whole


def ask_place(X, i):
    """Prefetch the place of row i in the arrays, which `ask_row` reads and would otherwise wait for.

    Compiled only.
    """
    raise NotImplementedError


@overload(ask_place)
def _ask_place(X, i):
    def sparse(X, i):
        prefetch(X.indptr, i)

    def pooled(X, i):
        prefetch(X.ptr, i)
        prefetch(X.hot, i)
        prefetch(X.scale, i)

    def scaled(X, i):
        prefetch(X.scale, i)

    if isinstance(X, types.Array):
        return lambda X, i: None
    if "indptr" in X.fields:
        return sparse
    return pooled if "pool" in X.fields else scaled
