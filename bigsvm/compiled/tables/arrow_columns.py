"""Columns of Arrow as dense rows: found by its C data interface, and turned a small square at a time."""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import intrinsic

from bigsvm.compiled.shared.compile import inner_loop

# Of `struct ArrowArray`, in words of 8 bytes: https://arrow.apache.org/docs/format/CDataInterface.html
_NULLS, _OFFSET, _BUFFERS, _CHILDREN = 1, 2, 5, 6
_ROWS, _COLUMNS = 256, 8
"""Of a part that is turned.  The nearest cache has eight places for what lies a power of two apart, as columns may."""


@intrinsic
def _read(typingctx, address, place, like):
    """Number `place` of those that lie at an address; they are of the type of the array `like`."""
    dtype = like.dtype

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], context.get_data_type(dtype).as_pointer())
        return builder.load(builder.gep(pointer, [arguments[1]]))

    return dtype(types.uint64, types.uint64, like), generate


@inner_loop
def find_columns(batch, places, itemsize, addresses):
    """Where the values of some columns of a batch lie; False where one of them may have nulls.

    batch : int            address of an ArrowArray of structs, each a row; it is neither changed nor released
    places : int64, shape (n_columns,)      of the columns, all of numbers of `itemsize` bytes
    addresses : uint64, shape (n_columns,)  out
    """
    children = _read(np.uint64(batch), np.uint64(_CHILDREN), addresses)
    skipped = _read(np.uint64(batch), np.uint64(_OFFSET), addresses)
    for j in range(places.shape[0]):
        column = _read(children, np.uint64(places[j]), addresses)
        buffers = _read(column, np.uint64(_BUFFERS), addresses)
        known_without = _read(column, np.uint64(_NULLS), addresses) == 0
        if not known_without and _read(buffers, np.uint64(0), addresses) != 0:
            return False
        first = skipped + _read(column, np.uint64(_OFFSET), addresses)
        addresses[j] = _read(buffers, np.uint64(1), addresses) + first * np.uint64(itemsize)
    return True


@inner_loop
def turn_columns(addresses, first, out):
    """out[i, first + j] = value i of the column at addresses[j]; returns whether all of them are finite.

    addresses : uint64, shape (n_columns,)   of as many values as `out` has rows, and of its type
    out : shape (n_rows, at least first + n_columns)
    """
    n_rows, n_columns = out.shape[0], addresses.shape[0]
    odd = False
    for row in range(0, n_rows, _ROWS):
        a, b = np.uint64(row), np.uint64(min(row + _ROWS, n_rows))
        for column in range(0, n_columns, _COLUMNS):
            p, q = np.uint64(column), np.uint64(min(column + _COLUMNS, n_columns))
            for j in range(p, q):
                values = addresses[j]
                for i in range(a, b):
                    x = _read(values, i, out)
                    odd |= x - x != 0  # of NaN and infinities this is NaN
            to = np.uint64(first)
            for i in range(a, b):
                for j in range(p, q):
                    out[i, to + j] = _read(addresses[j], i, out)
    return not odd
