"""How many rows a face (or a round of `rosen-block`) may have: all kernel values between them must fit in memory."""

from __future__ import annotations

import math

from bigsvm.solvers.base import DataShape, Need
from bigsvm.solvers.context import Context
from bigsvm.store.blocks import bytes_per_row, row_bytes

_LEAST = 384  # rows that every plan has room for
_SQUARES = 3  # matrices in float64: K, the smaller one that it grows from, and one for Newton's equations
_COPIES = 4  # copies of a row: as stored, gathered, and in float64 (twice as large)
_FREE = 0.75  # share of the unreserved memory that may be used


def face_needs(shape: DataShape) -> list[Need]:
    """Bytes of the smallest face."""
    stored = int(bytes_per_row(shape, shape.entry_bytes + 8))
    return [Need("K of a face", _bytes(min(_LEAST, shape.n_samples), stored))]


def rows_that_fit(ctx: Context) -> int:
    """The number of rows of a face that fit, at least `_LEAST`; a function of the plan alone."""
    a_row = _COPIES * row_bytes(ctx.data)
    room = ctx.row_buffer_bytes + int(_FREE * ctx.budget.free)
    # 8 _SQUARES m^2 + a_row m = room
    square = 8.0 * _SQUARES
    m = (math.sqrt(a_row * a_row + 4.0 * square * room) - a_row) / (2.0 * square)
    return max(int(m), _LEAST)


def _bytes(m: int, a_row: float) -> int:
    return int(8 * _SQUARES * m * m + _COPIES * a_row * m)
