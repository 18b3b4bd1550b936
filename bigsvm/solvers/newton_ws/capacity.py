"""How many rows a working set holds, and what that takes: bytes of rows, of their solution, of matrices."""

from __future__ import annotations

from bigsvm.compiled.linear.hessian import triangle_size
from bigsvm.solvers.base import DataShape
from bigsvm.solvers.newton_ws.interior import ROW_ARRAYS
from bigsvm.solvers.newton_ws.subproblem import SLICES
from bigsvm.store.blocks import bytes_per_row

_ROWS_PER_FEATURE = 10  # of the smallest working set
_OWN_ROWS = 0.25  # of these, that a model wants beside those of another C (mnist, 8 of them: less would do)
_SHARE_IN_MEMORY = 10  # of rows that are in memory all, one in so many is copied
_SMALL, _SMALL_BYTES = 8192, 8 << 20  # rows in memory that are a working set as a whole
_PART_BYTES = 80  # a row of the working set beside its entries and what its solution takes
_OVER = 1.6  # rows held at most over the capacity: those of a round come before others leave
_OVER_SEVERAL = 2.1  # with several models: each solves on copies of its own rows
_FOLDED, _FOLDED_EACH = 2, 3  # more where folded rows have one: the solution's, and of each model with two tasks' parts


def least_rows(shape: DataShape, resident: bool) -> int:
    """Rows of the smallest working set that is of use."""
    apart = shape.n_models // shape.n_costs
    sets = apart * (1.0 + _OWN_ROWS * (shape.n_costs - 1))
    least = int(_ROWS_PER_FEATURE * (shape.n_features + 1) * sets)
    if resident:
        small = min(_SMALL, rows_in(_SMALL_BYTES, shape))
        least = max(least, shape.n_samples // _SHARE_IN_MEMORY, small)
    return min(least, shape.n_samples)


def matrix_bytes(shape: DataShape) -> int:
    """Bytes of all matrices: triangles, of sums (one of which becomes the factor) and of what is folded."""
    folded = _FOLDED + _FOLDED_EACH * shape.n_models if shape.smooth_loss else 0
    return 8 * triangle_size(shape.n_features + 1) * (SLICES + folded)


def working_bytes(shape: DataShape, rows: int) -> int:
    """Bytes that a working set of so many rows takes, while it is solved."""
    return int(rows * _row_bytes(shape))


def rows_in(nbytes: int, shape: DataShape) -> int:
    """Rows of a working set that takes so many bytes, while it is solved."""
    return int(nbytes / _row_bytes(shape))


def _row_bytes(shape: DataShape) -> float:
    over = _OVER if shape.n_models == 1 else _OVER_SEVERAL
    held = bytes_per_row(shape, shape.entry_bytes, _PART_BYTES + 25 * shape.n_models)
    return over * held + 8.0 * ROW_ARRAYS
