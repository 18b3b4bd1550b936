"""How many rows a working set holds, and what that takes: bytes of rows, of their solution, of matrices."""

from __future__ import annotations

from typing import NamedTuple

from bigsvm.compiled.linear.hessian import triangle_size
from bigsvm.compiled.shared.coded import SMALL
from bigsvm.solvers.base import DataShape
from bigsvm.solvers.newton_ws.held_rows import DECODED_BYTES
from bigsvm.solvers.newton_ws.interior import ROW_ARRAYS
from bigsvm.solvers.newton_ws.subproblem import SLICES
from bigsvm.store.blocks import bytes_per_row

_ROWS_PER_FEATURE = 10  # of the smallest working set
_OWN_ROWS = 0.25  # of these, that a model wants beside those of another C (mnist, 8 of them: less would do)
_SHARE_IN_MEMORY = 10  # of rows that are in memory all, one in so many is copied
_SMALL, _SMALL_BYTES = 8192, 8 << 20  # rows in memory that are a working set as a whole
_ROW, _ROW_MODEL, _ROW_ENDS = 40, 18, 16  # bytes of a row that is held beside its entries; of each model; for F
_OVER = 1.6  # rows held over the capacity while a pass goes on: those of a round come before others leave
_BESIDE = 0.1  # of the rows, that a solution has copies of: the sample's
_SOLVED, _SOLVED_MODEL = 50 + 8 * ROW_ARRAYS, 10  # bytes of a row while it is solved for; of each model
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


def working_bytes(shape: DataShape, rows: int, entry_bytes: float = 0.0) -> int:
    """Bytes that a working set of so many rows takes: where their entries take so many, or whatever they are."""
    return int(rows * _row_bytes(shape, entry_bytes)) + DECODED_BYTES


def rows_in(nbytes: int, shape: DataShape) -> int:
    """Rows of a working set that takes so many bytes, whatever their values are."""
    return int(max(nbytes - DECODED_BYTES, 0) / _row_bytes(shape))


class Room(NamedTuple):
    """What a working set may take.

    most : rows, however few bytes they take
    nbytes : of rows that are coded, which turn out to take less than the plan could know; 0 for rows as they come
    shape : of the data
    """

    most: int
    nbytes: int
    shape: DataShape

    @property
    def coded(self) -> bool:
        """Rows are kept in fewer bytes where they can be (`compiled/shared/coded.py`)."""
        return self.nbytes > 0

    def rows(self, entry_bytes: float) -> int:
        """Rows that fit where the entries of one take so many bytes in the mean; 0 for nobody knows."""
        if not self.coded:
            return self.most
        return min(self.most, int((self.nbytes - DECODED_BYTES) / _row_bytes(self.shape, entry_bytes)))

    def certain(self, entry_bytes: float) -> float:
        """Of the rows that fit by that word: those that fit in any case."""
        if not self.coded:
            return 1.0
        return min(1.0, _row_bytes(self.shape, entry_bytes) / _row_bytes(self.shape))


def room_of_shard(whole: Room, shards: int) -> Room:
    """What the working set of one of so many shards may take: together they take what the whole does."""
    nbytes = (whole.nbytes - DECODED_BYTES) // shards + DECODED_BYTES
    return Room(-(-whole.most // shards), nbytes, whole.shape)


def _least_saved(shape: DataShape) -> int:
    """Bytes of an entry whose value no table holds: of sparse rows the feature number at least is coded."""
    sparse = shape.nnz < shape.n_samples * shape.n_features and shape.n_features <= SMALL
    return shape.entry_bytes - 2 * sparse


def _row_bytes(shape: DataShape, entry_bytes: float = 0.0) -> float:
    """The most bytes of a row: while rows come, or while a solution has what it wants beside them.

    entry_bytes : of its entries;  0 for those of a row as it comes
    """
    several = shape.n_models > 1
    row = _ROW + shape.n_models * (_ROW_MODEL + _ROW_ENDS * shape.smooth_loss)
    held = row + entry_bytes if entry_bytes else bytes_per_row(shape, _least_saved(shape), row)
    # With several models each solves on copies of its own rows.
    return max(_OVER * held, (2.0 if several else 1.0 + _BESIDE) * held + _SOLVED + _SOLVED_MODEL * shape.n_models)
