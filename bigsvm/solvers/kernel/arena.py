"""Rows that are in memory while others stream by: those of the active set, and candidates for the next one."""

from __future__ import annotations

import numpy as np

from bigsvm.solvers.base import Context, DataShape
from bigsvm.solvers.gathered import picked_rows, stacked
from bigsvm.solvers.kernel.data import KernelData, Rows
from bigsvm.store.blocks import Matrix, kernel_matrix, row_bytes

_BESIDE = 160  # bytes of an active row's numbers, bounds and scores, and of what is sorted of them
_COPIES = 3  # of a row of the arena: as it was, as it is to be, and as the other side of kernel values


_LEAST = 2048  # rows


def least_rows(n: int) -> int:
    """Rows that every plan has room for."""
    return min(n, _LEAST)


def _active_row_bytes(stored: float) -> float:
    return _COPIES * stored + _BESIDE


class RowArena:
    """Rows by their number in the data.  Of rows that are all in memory anyway, their numbers alone.

    numbers : int64, ascending;  at : int64, where they lie in X
    """

    def __init__(self, data: KernelData) -> None:
        self._data = data
        self._whole = data.whole()
        self._fresh: list[tuple[np.ndarray, Matrix]] = []
        self._X: Matrix | None = None
        self.numbers = np.empty(0, np.int64)

    @staticmethod
    def least_bytes(shape: DataShape) -> int:
        """Bytes of the rows that are in memory whatever the budget is, for the plan."""
        stored = shape.nnz / max(shape.n_samples, 1) * max(shape.entry_bytes, 4) + 16
        return int(least_rows(shape.n_samples) * _active_row_bytes(stored))

    @staticmethod
    def capacity(ctx: Context) -> int:
        """Rows that the arena may hold."""
        n = ctx.data.n_samples
        if ctx.resident:
            return n
        # The other side is float32 whatever the data are; sparse entries have a number each.
        stored = row_bytes(ctx.data)
        as_float = 4.0 * ctx.data.n_features if ctx.data.layout == "dense" else stored
        return min(least_rows(n) + int(ctx.arena_bytes // _active_row_bytes(max(stored, as_float))), n)

    def load(self, numbers: np.ndarray) -> None:
        """Hold these rows; blocks are read where they are not in memory, and not counted: a run that was stopped reads
        them again."""
        self._fresh = []
        self.numbers = numbers
        if self._whole is None:
            X, _ = self._data.take(numbers, charge=False)
            self._X = X

    @property
    def X(self) -> Matrix:
        """Where the rows lie."""
        X = self._whole if self._whole is not None else self._X
        assert X is not None
        return X

    def at(self, numbers: np.ndarray) -> np.ndarray:
        """Where rows that are held lie in X."""
        return numbers if self._whole is not None else np.searchsorted(self.numbers, numbers)

    def offer(self, rows: Rows, numbers: np.ndarray) -> None:
        """Keep some rows of a block for the next active set."""
        if self._whole is None and len(numbers):
            self._fresh.append((numbers, picked_rows(rows.X, numbers - rows.offset)))

    def thin(self, kept: np.ndarray) -> None:
        """Let go of rows that were offered and are not among `kept` (ascending)."""
        thinner = []
        for numbers, X in self._fresh:
            stays = np.flatnonzero(np.isin(numbers, kept, assume_unique=True))
            if len(stays):
                thinner.append((numbers[stays], picked_rows(X, stays)))
        self._fresh = thinner

    def change(self, numbers: np.ndarray) -> None:
        """Hold these rows (ascending), each of which is held or was offered."""
        if self._whole is None:
            stays = np.isin(self.numbers, numbers, assume_unique=True)
            parts = [(self.numbers[stays], self._X, np.flatnonzero(stays))] if self._X is not None else []
            parts += [(given, X, np.arange(len(given))) for given, X in self._fresh]
            self._fresh = []
            held = np.concatenate([given for given, _, _ in parts])
            matrix = stacked([picked_rows(X, which) for _, X, which in parts])
            del parts
            order = np.argsort(held, kind="stable")
            wanted = order[np.isin(held[order], numbers, assume_unique=True)]
            self._X = kernel_matrix(picked_rows(matrix, wanted))
        self.numbers = numbers
