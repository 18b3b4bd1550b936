"""Rows that are in memory while others stream by: those of the active set, and candidates for the next one.

One buffer that never grows: new rows go to its end, and rows that are let go make room by moving the others down.
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
from bigsvm.store.blocks import Matrix, blocks_of, bytes_per_row, frozen, readonly_view, row_bytes

_BESIDE = 160  # bytes of an active row's numbers, bounds and scores, and of what is sorted of them
_BESIDE_MORE = 32  # and for each model but one that it may be active in, of its number in lists
LEAST_ROWS = 2048
"""Rows that every plan has room for, where there are as many."""
_LONGER = 1.1  # times the mean entries of a row: rows that matter may be longer
GATHERED = 2 << 20
"""Bytes of rows on the other side of kernel values at one time.

Plans count them twice: a proof has few of them in both float types, and sums over their pairs (`gram.py`).
"""


def support_rows(ctx: Context) -> int:
    """Rows that are on the other side of kernel values at one time: whole tiles, as sums over pairs want them."""
    return max(int(GATHERED // (2 * row_bytes(ctx.data))) // LANES, 1) * LANES


def least_rows(n: int) -> int:
    """Rows that every plan has room for."""
    return min(n, LEAST_ROWS)


def _beside(places: int) -> int:
    """Bytes beside a row that is held."""
    return _BESIDE + _BESIDE_MORE * (places - 1)


class RowBuffer:
    """Rows by their number in the data.  Of rows that are all in memory anyway nothing is kept.

    capacity : rows that may be held
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
        """Bytes of the rows that are in memory whatever the budget is, for the plan; places : as `KernelData`."""
        stored = bytes_per_row(shape, shape.entry_bytes) * _LONGER + 16
        return int(least_rows(shape.n_samples) * (stored + _beside(places))) + 12 * shape.n_features

    @staticmethod
    def capacity_for(ctx: Context, places: int) -> int:
        """Rows that the plan has room for."""
        n = ctx.data.n_samples
        if ctx.resident:
            return n
        return min(least_rows(n) + int(ctx.row_buffer_bytes // (_LONGER * row_bytes(ctx.data) + _beside(places))), n)

    @property
    def X(self) -> Matrix:
        """Where the rows lie."""
        if self._whole is not None:
            return self._whole
        if self._data.ctx.data.layout == "dense":
            return frozen(self._dense[: self.n])
        end = int(self._csr.indptr[self.n])
        return readonly_view(CSR(self._csr.data[:end], self._csr.indices[:end], self._csr.indptr[: self.n + 1]))

    def at(self, numbers: np.ndarray) -> np.ndarray:
        """Where rows that are held lie in X."""
        if self._whole is not None:
            return numbers
        held = self._held[: self.n]
        order = np.argsort(held, kind="stable")
        found = np.searchsorted(held, numbers, sorter=order)
        # A row in the place of another would go unseen.
        assert not len(numbers) or (found.max() < self.n and np.array_equal(held[order[found]], numbers))
        return order[found]

    def load(self, numbers: np.ndarray, charge: bool) -> int:
        """Hold these rows (ascending) and no others; how many there was room for, the first ones.

        The blocks that hold some are read.  charge : count what is read; not of a run that was stopped.
        """
        self.n = 0
        return self.bring(numbers, charge)

    def bring(self, numbers: np.ndarray, charge: bool) -> int:
        """Hold more rows (ascending, none of them held), as `load` does."""
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
        """Which of some rows are held, bool."""
        if self._whole is not None:
            return np.ones(len(numbers), bool)
        return np.isin(numbers, self._held[: self.n])

    def offer(self, rows: Rows, numbers: np.ndarray) -> np.ndarray:
        """Hold more rows, of a block; those for which there was room (long rows may fill it sooner than planned)."""
        if self._whole is not None or not len(numbers):
            return numbers
        numbers = numbers[: self.capacity - self.n]
        return numbers[: self._append(numbers, picked_rows(rows.X, numbers - rows.offset))]

    def keep(self, numbers: np.ndarray) -> None:
        """Let go of all rows but these (ascending)."""
        if self._whole is not None:
            return
        held = self._held[: self.n]
        at = np.searchsorted(numbers, held)
        stays = np.flatnonzero(numbers[np.minimum(at, len(numbers) - 1)] == held) if len(numbers) else at[:0]
        self._held[: len(stays)] = held[stays]
        if self._data.ctx.data.layout == "dense":
            for start in range(0, len(stays), LEAST_ROWS):  # in pieces: no copy of them all
                piece = stays[start : start + LEAST_ROWS]
                self._dense[start : start + len(piece)] = self._dense[piece]
        else:
            move_rows_down(*self._csr, stays)
        self.n = len(stays)

    def _append(self, numbers: np.ndarray, X: Matrix) -> int:
        """Copy rows to the end; how many there was room for."""
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
