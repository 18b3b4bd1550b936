"""Kernel rows that are kept: the same values to the bit, computed once where there is room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from bigsvm.solvers.kernel.values.kernel_rows import KernelRows
from bigsvm.store.state.row_cache import RowCache

_MOST = 2  # of a sum's rows: where more than one in so many are missing, all are summed as they are computed


class CachedRows:
    """`KernelRows` that takes rows from a cache where they are, and from `inner` where they are not.

    inner : whose values these are; its counts are kept on, with the hits
    cache : of rows of length inner.n and dtype inner.dtype; its owner closes it, and tells what its disk did wrong
    at_once : int      missing rows that `update` may hold at one time, beside the cache
    one_scan : bool    each call of `inner` reads the data: an `update` that lacks more rows than `at_once` then has
        all of them summed by `inner`, in the one scan that it may have; else it takes piece by piece what is missing,
        unless that is most of them
    keep_sums : bool   rows that `update` computes one by one are kept, too: for who asks for rows in sums alone

    Raises
    ------
    ValueError : the cache is of other rows.
    """

    def __init__(
        self, inner: KernelRows, cache: RowCache, at_once: int = 16, one_scan: bool = True, keep_sums: bool = False
    ) -> None:
        if (cache.row_len, cache.dtype) != (inner.n, inner.dtype):
            raise ValueError(f"a cache of ({cache.row_len},) {cache.dtype} for rows of ({inner.n},) {inner.dtype}")
        self._inner, self._cache, self._at_once = inner, cache, at_once
        self._one_scan, self._keep_sums = one_scan, keep_sums
        self.n, self.dtype, self.counts = inner.n, inner.dtype, inner.counts

    @property
    def diag(self) -> np.ndarray:
        """K_ii of `inner`."""
        return self._inner.diag

    def fetch(self, idx: np.ndarray) -> np.ndarray:
        """Rows idx, in memory of the caller's own; all that are missing in one call of `inner`, and kept."""
        out = np.empty((len(idx), self.n), self.dtype)
        with self._counted():
            missing = np.flatnonzero(~self._cache.get_many(idx, out))
        with self.counts.reading(idx):
            if len(missing):
                out[missing] = self._inner.fetch(idx[missing])
                for k in missing:
                    self._cache.put(idx[k], out[k])
        out.flags.writeable = False
        return out

    def block(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """K[a, b], by `inner`: few values, which rows of the cache may not hold in this order of rounding."""
        return self._inner.block(a, b)

    def update(self, f: np.ndarray, idx: np.ndarray, change: np.ndarray) -> None:
        """f += sum_k change_k K[idx_k, :] in the order of idx; nothing new is kept, but where `keep_sums` says so.

        Sums over all support vectors, asked for once, would push out what the next steps need.
        """
        if len(idx) == 0:  # no support vectors yet
            return
        with self.counts.reading(idx):
            self._update(f, idx, change)

    def _update(self, f: np.ndarray, idx: np.ndarray, change: np.ndarray) -> None:
        here = self._cache.has(idx)
        missing = int(np.count_nonzero(~here))
        many = missing > self._at_once and (self._one_scan or _MOST * missing > len(idx))
        if many or (missing == len(idx) and not self._keep_sums):
            self._inner.update(f, idx, change)
            return
        # A piece ends before the missing row that would be one too many.
        piece = np.maximum(np.cumsum(~here) - 1, 0) // self._at_once
        with self._counted():
            for number in range(int(piece[-1]) + 1):
                self._add(f, *(values[piece == number] for values in (idx, change, here)))

    def _add(self, f: np.ndarray, idx: np.ndarray, change: np.ndarray, here: np.ndarray) -> None:
        made = idx[~here]
        computed = self._inner.fetch(made) if len(made) else np.empty((0, self.n), self.dtype)
        absent = iter(computed)
        for k, (i, kept) in enumerate(zip(idx, here, strict=True)):
            row = self._cache.get(i) if kept else next(absent)
            if row is None:  # its place on disk failed just now, or another row has taken its place
                row = self._inner.fetch(np.array([i]))[0]
            self._inner.add(f, row[None, :], change[k : k + 1])
        if self._keep_sums:
            for i, row in zip(made, computed, strict=True):
                self._cache.put(i, row)

    def take_warning(self) -> str | None:
        """What the cache's disk did wrong first, once."""
        return self._cache.take_warning()

    def close(self) -> None:
        """Let go of what is kept."""
        self._cache.close()

    def add(self, f: np.ndarray, K: np.ndarray, change: np.ndarray) -> None:
        """As `inner` does."""
        self._inner.add(f, K, change)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        before = self._cache.stats()
        yield
        after = self._cache.stats()
        ram, disk = after.memory_hits - before.memory_hits, after.disk_hits - before.disk_hits
        self.counts.ram_hits += ram
        self.counts.disk_hits += disk
        self.counts.asked += (ram + disk) * self.n
