"""Columns of Arrow as dense rows: found by its C data interface, and turned a small square at a time."""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop
from bigsvm.compiled.tables.arrow_memory import BUFFERS, CHILDREN, NULLS, OFFSET, read_at, release

_ROWS, _COLUMNS = 256, 8
"""Of a part that is turned.  The nearest cache has eight places for what lies a power of two apart, as columns may."""


@inner_loop
def find_columns(batch, places, itemsize, addresses):
    """Where the values of some columns of a batch lie; False where one of them may have nulls.

    batch : int            address of an ArrowArray of structs, each a row; released
    places : int64, shape (n_columns,)      of the columns, all of numbers of `itemsize` bytes
    addresses : uint64, shape (n_columns,)  out
    """
    children = read_at(np.uint64(batch), np.uint64(CHILDREN), np.uint64)
    skipped = read_at(np.uint64(batch), np.uint64(OFFSET), np.uint64)
    for j in range(places.shape[0]):
        column = read_at(children, np.uint64(places[j]), np.uint64)
        buffers = read_at(column, np.uint64(BUFFERS), np.uint64)
        known_without = read_at(column, np.uint64(NULLS), np.uint64) == 0
        if not known_without and read_at(buffers, np.uint64(0), np.uint64) != 0:
            release(np.uint64(batch))
            return False
        first = skipped + read_at(column, np.uint64(OFFSET), np.uint64)
        addresses[j] = read_at(buffers, np.uint64(1), np.uint64) + first * np.uint64(itemsize)
    release(np.uint64(batch))
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
                    x = read_at(values, i, out)
                    odd |= x - x != 0  # of NaN and infinities this is NaN
            to = np.uint64(first)
            for i in range(a, b):
                for j in range(p, q):
                    out[i, to + j] = read_at(addresses[j], i, out)
    return not odd
