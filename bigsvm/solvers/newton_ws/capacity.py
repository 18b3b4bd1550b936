"""The memory of a working set: bytes of its rows, of the solution, and of matrices, and the rows that fit in it."""

from __future__ import annotations

from typing import NamedTuple

from bigsvm.compiled.linear.hessian import triangle_size
from bigsvm.compiled.shared.coded import SMALL
from bigsvm.solvers.base import DataShape
from bigsvm.solvers.newton_ws.held_rows import DECODED_BYTES
from bigsvm.solvers.newton_ws.interior import ROW_ARRAYS
from bigsvm.solvers.newton_ws.subproblem import SLICES
from bigsvm.store.blocks import bytes_per_row

_ROWS_PER_FEATURE = 10  # rows of the smallest working set
_OWN_ROWS = 0.25  # part of these that each further C of a class needs for itself (mnist, 8 values of C: less would do)
_SHARE_IN_MEMORY = 10  # if all rows are in memory, at least a tenth of them are copied into the working set
_SMALL, _SMALL_BYTES = 8192, 8 << 20  # rows in memory up to this number, or these bytes, form one working set
# Bytes of a row that is held, beside its entries: once, for each model, and for each model of a smooth loss.
_ROW, _ROW_MODEL, _ROW_ENDS = 40, 18, 16
_OVER = 1.6  # rows held during a pass, relative to the capacity: rows of a round arrive before others are dropped
_BESIDE = 0.1  # part of the rows (the sample's) that a solution copies
_SOLVED, _SOLVED_MODEL = 50 + 8 * ROW_ARRAYS, 10  # bytes of a row during a solution: once, and for each model
# Triangles that a smooth loss needs for folded rows: in all, and for each model, together with the parts of two tasks.
_FOLDED, _FOLDED_EACH = 2, 3


def least_rows(shape: DataShape, resident: bool) -> int:
    """Rows of the smallest useful working set."""
    apart = shape.n_models // shape.n_costs
    sets = apart * (1.0 + _OWN_ROWS * (shape.n_costs - 1))
    least = int(_ROWS_PER_FEATURE * (shape.n_features + 1) * sets)
    if resident:
        small = min(_SMALL, rows_in(_SMALL_BYTES, shape))
        least = max(least, shape.n_samples // _SHARE_IN_MEMORY, small)
    return min(least, shape.n_samples)


def matrix_bytes(shape: DataShape) -> int:
    """Bytes of all matrices, stored as triangles: sums of outer products, and those of folded rows.

    One of the sums is overwritten by its Cholesky factor.
    """
    folded = _FOLDED + _FOLDED_EACH * shape.n_models if shape.smooth_loss else 0
    return 8 * triangle_size(shape.n_features + 1) * (SLICES + folded)


def working_bytes(shape: DataShape, rows: int, entry_bytes: float = 0.0) -> int:
    """Bytes of a working set of so many rows.

    entry_bytes : mean bytes of the entries of a row, if known; 0: the most that they may take
    """
    return int(rows * _row_bytes(shape, entry_bytes)) + DECODED_BYTES


def rows_in(nbytes: int, shape: DataShape) -> int:
    """Rows of a working set that fit in so many bytes, whatever their values are."""
    return int(max(nbytes - DECODED_BYTES, 0) / _row_bytes(shape))


class Room(NamedTuple):
    """The limits of a working set.

    most : limit of rows
    nbytes : limit of bytes, if rows are coded (how few bytes they take is not known before); 0: rows are not coded
    shape : of the data
    """

    most: int
    nbytes: int
    shape: DataShape

    @property
    def coded(self) -> bool:
        """Rows are kept in a shorter code if that is possible (`compiled/shared/coded.py`)."""
        return self.nbytes > 0

    def rows(self, entry_bytes: float) -> int:
        """The number of rows that fit.  entry_bytes : mean bytes of the entries of a row; 0 if not known"""
        if not self.coded:
            return self.most
        return min(self.most, int((self.nbytes - DECODED_BYTES) / _row_bytes(self.shape, entry_bytes)))

    def certain(self, entry_bytes: float) -> float:
        """The part of `rows(entry_bytes)` that fits even if rows cannot be coded."""
        if not self.coded:
            return 1.0
        return min(1.0, _row_bytes(self.shape, entry_bytes) / _row_bytes(self.shape))


def room_of_shard(whole: Room, shards: int) -> Room:
    """The limits for one of so many shards; together they have the limits of the whole."""
    nbytes = (whole.nbytes - DECODED_BYTES) // shards + DECODED_BYTES
    return Room(-(-whole.most // shards), nbytes, whole.shape)


def _least_saved(shape: DataShape) -> int:
    """Bytes of an entry if values cannot be coded; the feature numbers of sparse rows still can."""
    sparse = shape.nnz < shape.n_samples * shape.n_features and shape.n_features <= SMALL
    return shape.entry_bytes - 2 * sparse


def _row_bytes(shape: DataShape, entry_bytes: float = 0.0) -> float:
    """The bytes of a row at the time when they are most: during the pass, or during the solution.

    entry_bytes : bytes of its entries; 0: the most that they may take
    """
    several = shape.n_models > 1
    row = _ROW + shape.n_models * (_ROW_MODEL + _ROW_ENDS * shape.smooth_loss)
    held = row + entry_bytes if entry_bytes else bytes_per_row(shape, _least_saved(shape), row)
    # If there are several models, each solves on copies of its own rows.
    return max(_OVER * held, (2.0 if several else 1.0 + _BESIDE) * held + _SOLVED + _SOLVED_MODEL * shape.n_models)
