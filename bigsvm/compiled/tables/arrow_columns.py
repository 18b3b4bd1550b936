"""Read Arrow columns as dense rows: find them by the C data interface, and transpose them in small rectangles."""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop
from bigsvm.compiled.tables.arrow_memory import BUFFERS, CHILDREN, NULLS, OFFSET, read_at, release

_ROWS, _COLUMNS = 256, 8
"""Size of a rectangle.  The L1 cache has only eight places for addresses that differ by certain powers of two, as those
of columns may."""


@inner_loop
def find_columns(batch, places, itemsize, addresses):
    """Find the addresses of the values of some columns in a batch; returns False if one of them may have nulls.

    batch : int            address of an ArrowArray of structs, one for each row; it is released
    places : int64, shape (n_columns,)      numbers of the columns, whose values all have `itemsize` bytes
    addresses : uint64, shape (n_columns,)  filled
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
    """out[i, first + j] = value i of the column at addresses[j]; returns whether all values are finite.

    addresses : uint64, shape (n_columns,)   each column has n_rows values of the dtype of `out`
    first : int, the column of `out` for the first of them
    out : shape (n_rows, first + n_columns or more), filled
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
                    odd |= x - x != 0  # for NaN and infinities x - x is NaN
            to = np.uint64(first)
            for i in range(a, b):
                for j in range(p, q):
                    out[i, to + j] = read_at(addresses[j], i, out)
    return not odd
