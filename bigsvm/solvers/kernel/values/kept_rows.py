"""Kernel rows that are kept in memory while a model is trained; nothing is evicted."""

from __future__ import annotations

import numpy as np

from bigsvm.budget import Reservation
from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.values.kernel_rows import KernelRows


class KeptRows:
    """Keeps the first rows that are asked for, as many as fit."""

    def __init__(self, n: int, at_most: int, dtype: np.dtype, reservation: Reservation | None) -> None:
        self._reservation = reservation
        self._rows, self._used = np.empty((at_most, n), dtype), 0
        self._at = np.full(n, -1)

    def take(self, rows: KernelRows, idx: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(K, at): row idx[k] is K[at[k]].  Rows that are not kept are fetched.  K must not be written to."""
        missing = idx[self._at[idx] < 0]
        rows.counts.ram_hits += len(idx) - len(missing)
        rows.counts.asked += (len(idx) - len(missing)) * rows.n
        with rows.counts.reading(idx):
            fetched = rows.fetch(missing) if len(missing) else self._rows[:0]
        if len(missing):
            new = missing[: len(self._rows) - self._used]
            self._rows[self._used : self._used + len(new)] = fetched[: len(new)]
            self._at[new] = np.arange(self._used, self._used + len(new))
            self._used += len(new)
            if len(new) < len(missing):
                found = np.empty((len(idx), rows.n), self._rows.dtype)
                kept = self._at[idx] >= 0
                found[kept] = self._rows[self._at[idx[kept]]]
                found[~kept] = fetched[len(new) :]
                return found, np.arange(len(idx))
        return self._rows, self._at[idx]

    def close(self) -> None:
        """Release the memory."""
        if self._reservation is not None:
            self._reservation.release()


def keep_rows(rows: KernelRows, ctx: Context, at_most: int = 0) -> KeptRows:
    """Room for all rows, for `at_most` rows (0: no limit), or for as many as the plan's cache holds.

    Without a plan, half of the free memory is used.
    """
    nbytes = max(rows.n * rows.dtype.itemsize, 1)
    wanted = min(rows.n, at_most or rows.n)
    if ctx.cache_bytes:
        return KeptRows(rows.n, min(wanted, ctx.cache_bytes // nbytes), rows.dtype, None)
    n = min(wanted, ctx.budget.free // 2 // nbytes)
    reservation = ctx.budget.try_reserve("kept kernel rows", n * nbytes)
    return KeptRows(rows.n, 0 if reservation is None else n, rows.dtype, reservation)


def rows_of(rows: KernelRows, idx: np.ndarray, kept: KeptRows | None) -> tuple[np.ndarray, np.ndarray]:
    """(K, at): row idx[k] is K[at[k]].  kept : rows that are kept; None: fetch all"""
    return (rows.fetch(idx), np.arange(len(idx))) if kept is None else kept.take(rows, idx)
