"""How many rows a working set holds, and the bytes that it takes: its rows, the arrays of a solution, the matrices."""

from __future__ import annotations

from typing import NamedTuple

from bigsvm.compiled.linear.hessian import triangle_size
from bigsvm.compiled.shared.coded import SMALL
from bigsvm.solvers.base import DataShape
from bigsvm.solvers.newton_ws.held_rows import DECODED_BYTES
from bigsvm.solvers.newton_ws.interior import ROW_ARRAYS
from bigsvm.solvers.newton_ws.subproblem import SLICES
from bigsvm.store.blocks import bytes_per_row

_ROWS_PER_FEATURE = 10  # rows of the smallest working set for each feature
_OWN_ROWS = 0.25  # share of these that each further C of a class adds (mnist with eight C would do with less)
_SHARE_IN_MEMORY = 10  # if all rows are in memory, one row in this many is copied into the working set
_SMALL, _SMALL_BYTES = 8192, 8 << 20  # if all rows are in memory, so many rows or bytes are kept whole
_ROW, _ROW_MODEL, _ROW_ENDS = 40, 18, 16  # bytes of a held row beside its entries: once, per model, for `ends`
_OVER = 1.6  # rows held during a pass, over the capacity: a round adds its rows before others are folded
_BESIDE = 0.1  # share of the rows that a solution copies: those of the sample
_SOLVED, _SOLVED_MODEL = 50 + 8 * ROW_ARRAYS, 10  # bytes of a row while its problem is solved: once, and per model
_FOLDED, _FOLDED_EACH = 2, 3  # triangles for F: two of a solution; per model one, and the parts of two tasks


def least_rows(shape: DataShape, resident: bool) -> int:
    """The number of rows of the smallest working set that is of use."""
    apart = shape.n_models // shape.n_costs
    sets = apart * (1.0 + _OWN_ROWS * (shape.n_costs - 1))
    least = int(_ROWS_PER_FEATURE * (shape.n_features + 1) * sets)
    if resident:
        small = min(_SMALL, rows_in(_SMALL_BYTES, shape))
        least = max(least, shape.n_samples // _SHARE_IN_MEMORY, small)
    return min(least, shape.n_samples)


def matrix_bytes(shape: DataShape) -> int:
    """Bytes of all matrices, as triangles: the sums of a Hessian (one of which becomes its factor), and those of F."""
    folded = _FOLDED + _FOLDED_EACH * shape.n_models if shape.smooth_loss else 0
    return 8 * triangle_size(shape.n_features + 1) * (SLICES + folded)


def working_bytes(shape: DataShape, rows: int, entry_bytes: float = 0.0) -> int:
    """Bytes of a working set of `rows` rows whose entries take `entry_bytes` each; 0: the most that they may take."""
    return int(rows * _row_bytes(shape, entry_bytes)) + DECODED_BYTES


def rows_in(nbytes: int, shape: DataShape) -> int:
    """The number of rows that fit in `nbytes` whatever their values are."""
    return int(max(nbytes - DECODED_BYTES, 0) / _row_bytes(shape))


class Room(NamedTuple):
    """The limits of a working set.

    most : int     largest number of rows
    nbytes : int   bytes for rows that are coded, whose size is known only once they are; 0: rows are not coded
    shape : DataShape   of all rows
    """

    most: int
    nbytes: int
    shape: DataShape

    @property
    def coded(self) -> bool:
        """Whether rows are coded, that is, kept in fewer bytes if possible (`compiled/shared/coded.py`)."""
        return self.nbytes > 0

    def rows(self, entry_bytes: float) -> int:
        """The number of rows that fit if the entries of a row take `entry_bytes` in the mean; 0: not known yet."""
        if not self.coded:
            return self.most
        return min(self.most, int((self.nbytes - DECODED_BYTES) / _row_bytes(self.shape, entry_bytes)))

    def certain(self, entry_bytes: float) -> float:
        """The share of `rows(entry_bytes)` that fits even if no value can be coded."""
        if not self.coded:
            return 1.0
        return min(1.0, _row_bytes(self.shape, entry_bytes) / _row_bytes(self.shape))


def room_of_shard(whole: Room, shards: int) -> Room:
    """The limits of the working set on one of `shards` shards; all of them together have the limits of `whole`."""
    nbytes = (whole.nbytes - DECODED_BYTES) // shards + DECODED_BYTES
    return Room(-(-whole.most // shards), nbytes, whole.shape)


def _least_saved(shape: DataShape) -> int:
    """Bytes of a coded entry whose value is in no table: in sparse rows the feature number is shortened still."""
    sparse = shape.nnz < shape.n_samples * shape.n_features and shape.n_features <= SMALL
    return shape.entry_bytes - 2 * sparse


def _row_bytes(shape: DataShape, entry_bytes: float = 0.0) -> float:
    """The most bytes of a row: during a pass, or during a solution with its arrays.

    entry_bytes : bytes of its entries;  0: the most that coded entries may take
    """
    several = shape.n_models > 1
    row = _ROW + shape.n_models * (_ROW_MODEL + _ROW_ENDS * shape.smooth_loss)
    held = row + entry_bytes if entry_bytes else bytes_per_row(shape, _least_saved(shape), row)
    # With several models, each solution works on copies of the rows of its model.
    return max(_OVER * held, (2.0 if several else 1.0 + _BESIDE) * held + _SOLVED + _SOLVED_MODEL * shape.n_models)
