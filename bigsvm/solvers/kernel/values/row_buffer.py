"""The row buffer: rows of the active sets, and candidates for the next ones, in memory while other rows stream.

It is one buffer that never grows.  New rows go to its end.  When rows are dropped, the others move down.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.kernel.values.support import move_rows_down
from bigsvm.compiled.kernel.values.tile import LANES
from bigsvm.compiled.shared.rows import CSR
from bigsvm.solvers.base import DataShape
from bigsvm.solvers.context import Context
from bigsvm.solvers.gathered import picked_rows
from bigsvm.solvers.kernel.values.data import KernelData, Rows
from bigsvm.store.blocks import Matrix, RowBlocks, blocks_of, bytes_per_row, frozen, readonly_view, row_bytes

_BESIDE = 160  # bytes of an active row beside its entries: its number, bounds and scores, and work space for sorting
_BESIDE_MORE = 32  # more bytes for each further model in which it may be active
LEAST_ROWS = 2048
"""Rows that every plan has room for, if there are that many."""
_LONGER = 1.1  # entries of a row in the buffer over the mean of all rows, since active rows may be longer
GATHERED = 2 << 20
"""Bytes of rows that are gathered at a time as second arguments of kernel values.

Plans count them twice, because a proof may have them in both float types, and has sums over their pairs (`gram.py`).
"""
_KEPT_SHARE = 4  # gathered rows stay in at most this part of the memory that the plan uses for nothing


def support_rows(ctx: Context) -> int:
    """The number of rows that are gathered at a time as second arguments; whole tiles, as sums over pairs need."""
    per_row = max(2 * row_bytes(ctx.data), _gathered_bytes(ctx.data) / 2)  # rows of bytes grow when they are gathered
    return max(int(GATHERED // per_row) // LANES, 1) * LANES


def _gathered_bytes(data: RowBlocks) -> float:
    """Bytes of a gathered row of mean length, in float32 and in float64, with its squared norms."""
    sparse = data.layout != "dense"
    per_entry = 4 + 8 + (2 * data.index_dtype.itemsize if sparse else 0)
    return bytes_per_row(data, per_entry, 4 + 8 + 16 * sparse)


def kept_rows(ctx: Context, models: int = 1) -> int:
    """The number of gathered rows that may stay for a whole pass, so that they are not gathered for each block again.

    models : the number of models whose coefficients are kept with the rows

    Which rows stay has no effect on the bits: rows are always gathered and added up `support_rows` at a time.
    """
    unused = ctx.budget.free // _KEPT_SHARE
    return max(support_rows(ctx), int(unused // (_gathered_bytes(ctx.data) + 8 * models)))


def least_rows(n: int) -> int:
    """The number of rows that every plan has room for."""
    return min(n, LEAST_ROWS)


def _beside(places: int) -> int:
    """Bytes of a row in the buffer, beside its entries."""
    return _BESIDE + _BESIDE_MORE * (places - 1)


class RowBuffer:
    """Holds rows by their number in the data.  If all rows are in memory anyway, it stores nothing.

    capacity : int   most rows to hold;  n : int   rows that are held
    """

    def __init__(self, data: KernelData) -> None:
        self._data = data
        self._whole = data.whole()
        self.capacity = self.capacity_for(data.ctx, data.places)
        self.n = 0
        if self._whole is None:
            store = data.ctx.data
            self._held = np.empty(self.capacity, np.int64)
            if store.layout == "dense":
                self._dense = np.empty((self.capacity, store.n_features), store.dtype)
            else:
                self._entries = int(self.capacity * bytes_per_row(store, 1) * _LONGER) + store.n_features
                self._csr = CSR(
                    np.empty(self._entries, store.dtype), np.empty(self._entries, store.index_dtype),
                    np.zeros(self.capacity + 1, np.int64),
                )  # fmt: skip

    @staticmethod
    def least_bytes(shape: DataShape, places: int) -> int:
        """Bytes of the smallest buffer, for the plan.  places : see `KernelData`"""
        stored = bytes_per_row(shape, shape.entry_bytes) * _LONGER + 16
        return int(least_rows(shape.n_samples) * (stored + _beside(places))) + 12 * shape.n_features

    @staticmethod
    def capacity_for(ctx: Context, places: int) -> int:
        """The number of rows that the plan has room for."""
        n = ctx.data.n_samples
        if ctx.resident:
            return n
        return min(least_rows(n) + int(ctx.row_buffer_bytes // (_LONGER * row_bytes(ctx.data) + _beside(places))), n)

    @property
    def X(self) -> Matrix:
        """The matrix of the rows."""
        if self._whole is not None:
            return self._whole
        if self._data.ctx.data.layout == "dense":
            return frozen(self._dense[: self.n])
        end = int(self._csr.indptr[self.n])
        return readonly_view(CSR(self._csr.data[:end], self._csr.indices[:end], self._csr.indptr[: self.n + 1]))

    def at(self, numbers: np.ndarray) -> np.ndarray:
        """The places in X of rows that are held."""
        if self._whole is not None:
            return numbers
        held = self._held[: self.n]
        order = np.argsort(held, kind="stable")
        found = np.searchsorted(held, numbers, sorter=order)
        if len(numbers) and not (found.max() < self.n and np.array_equal(held[order[found]], numbers)):
            raise RuntimeError("a row is not held")  # it would be replaced by another without a word
        return order[found]

    def load(self, numbers: np.ndarray, charge: bool) -> int:
        """Hold these rows (ascending), and no others; returns how many fit, which are the first ones.

        Reads the blocks that contain some.  charge : count the bytes read; not when a stopped run is resumed
        """
        self.n = 0
        return self.bring(numbers, charge)

    def bring(self, numbers: np.ndarray, charge: bool) -> int:
        """Hold more rows (ascending, none of them held yet); see `load`."""
        if self._whole is not None:
            return len(numbers)
        data, before = self._data, self.n
        for block in blocks_of(data.ctx.data, data.refs_of(numbers)):
            if charge:
                data.ctx.charge(block.nbytes)
            a, b = np.searchsorted(numbers, [block.start, block.stop])
            if self._append(numbers[a:b], picked_rows(block.X, numbers[a:b] - block.start)) < b - a:
                break
        return self.n - before

    def has(self, numbers: np.ndarray) -> np.ndarray:
        """bool: whether each of these rows is held."""
        if self._whole is not None:
            return np.ones(len(numbers), bool)
        return np.isin(numbers, self._held[: self.n])

    def offer(self, rows: Rows, numbers: np.ndarray) -> np.ndarray:
        """Hold more rows, out of a block; returns those that fit (long rows may fill the buffer sooner)."""
        if self._whole is not None or not len(numbers):
            return numbers
        numbers = numbers[: self.capacity - self.n]
        return numbers[: self._append(numbers, picked_rows(rows.X, numbers - rows.offset))]

    def keep(self, numbers: np.ndarray) -> None:
        """Drop all rows but these (ascending)."""
        if self._whole is not None:
            return
        held = self._held[: self.n]
        at = np.searchsorted(numbers, held)
        stays = np.flatnonzero(numbers[np.minimum(at, len(numbers) - 1)] == held) if len(numbers) else at[:0]
        self._held[: len(stays)] = held[stays]
        if self._data.ctx.data.layout == "dense":
            for start in range(0, len(stays), LEAST_ROWS):  # in pieces, so that the copies stay small
                piece = stays[start : start + LEAST_ROWS]
                self._dense[start : start + len(piece)] = self._dense[piece]
        else:
            move_rows_down(*self._csr, stays)
        self.n = len(stays)

    def _append(self, numbers: np.ndarray, X: Matrix) -> int:
        """Copy rows to the end; returns how many fit."""
        n = len(numbers)
        if isinstance(X, CSR):
            first = int(self._csr.indptr[self.n])
            n = int(np.searchsorted(X.indptr[1:], self._entries - first, "right"))
            end = int(X.indptr[n])
            self._csr.data[first : first + end] = X.data[:end]
            self._csr.indices[first : first + end] = X.indices[:end]
            self._csr.indptr[self.n + 1 : self.n + 1 + n] = first + X.indptr[1 : n + 1]
        else:
            self._dense[self.n : self.n + n] = X
        self._held[self.n : self.n + n] = numbers[:n]
        self.n += n
        return n
