"""Kernel rows with a cache: the same values, to the bit, as without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from bigsvm.solvers.kernel.values.kernel_rows import KernelRows
from bigsvm.store.state.row_cache import RowCache

_MOST = 2  # if more than one in this many rows of a sum is missing, all rows are computed and summed without the cache


class CachedRows:
    """`KernelRows` that takes rows from a cache if it has them, and from `inner` otherwise.

    inner : KernelRows   computes the values; its counts are continued, with the hits added
    cache : RowCache     for rows of length inner.n and dtype inner.dtype
    at_once : int        most missing rows that `update` holds at a time, beside the cache
    one_scan : bool      each call of `inner` reads the data.  If more than `at_once` rows are missing in an `update`,
        then `inner` sums all of them in one scan.  False: missing rows are computed piece by piece, unless most are
        missing
    keep_sums : bool     also cache the rows that `update` computes, for solvers that ask only for sums

    Raises
    ------
    ValueError : the cache is for rows of another length or dtype.
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
        """Rows idx, in new memory.  Missing rows are computed in one call of `inner`, and cached."""
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
        """K[a, b], computed by `inner`: these are few values, and cached rows may differ from them in rounding."""
        return self._inner.block(a, b)

    def update(self, f: np.ndarray, idx: np.ndarray, change: np.ndarray) -> None:
        """f += sum_k change_k K[idx_k, :], in the order of idx.  New rows are cached only with `keep_sums`.

        Otherwise a single sum over all support vectors would evict the rows that the next steps need.
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
        # Each piece has at most `at_once` missing rows.
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
            if row is None:  # reading it from disk failed, or it was evicted meanwhile
                row = self._inner.fetch(np.array([i]))[0]
            self._inner.add(f, row[None, :], change[k : k + 1])
        if self._keep_sums:
            for i, row in zip(made, computed, strict=True):
                self._cache.put(i, row)

    def take_warning(self) -> str | None:
        """The first warning of the cache about its disk; None after it was taken."""
        return self._cache.take_warning()

    def close(self) -> None:
        """Release the cache."""
        self._cache.close()

    def add(self, f: np.ndarray, K: np.ndarray, change: np.ndarray) -> None:
        """See `KernelRows.add`."""
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
