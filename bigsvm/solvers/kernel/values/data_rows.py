"""`KernelRows` computed from the data of a run when they are asked for; the data may be in memory or stream."""

from __future__ import annotations

import weakref
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import numpy as np

from bigsvm.compiled.kernel.values.gram import add_stored_rows
from bigsvm.compiled.kernel.values.support import Support
from bigsvm.solvers.kernel.values.data import KernelData, Rows
from bigsvm.solvers.kernel.values.gram import Gram
from bigsvm.solvers.kernel.values.kernel_rows import KernelCounts
from bigsvm.store.blocks import BlockRef, Matrix

_CHUNK = 1 << 12  # rows of a sum that are in memory at a time


class DataRows:
    """Kernel rows of one QP.

    part_rows : int64   numbers in the data of the rows that take part, ascending; None: all rows
    gram : Gram         computes the values, in its float type
    """

    def __init__(self, data: KernelData, gram: Gram, part_rows: np.ndarray | None) -> None:
        self.data, self.gram, self._rows = data, gram, part_rows
        self.n = data.n if part_rows is None else len(part_rows)
        # A weak reference, because the method would form a cycle, which Python frees only when it searches for cycles.
        reading = weakref.WeakMethod(self._reading)
        self.dtype, self.counts = gram.dtype, KernelCounts(reading=lambda idx: cast(Any, reading())(idx))
        self._diag: np.ndarray | None = None
        ends = [0, *(ref.stop for ref in data.ctx.refs)]
        self._ends, self._lengths = np.array(ends[1:]), np.diff(ends)

    @property
    def diag(self) -> np.ndarray:
        """K_ii, float64, (n,), without the rounding of the float type; computed when it is first asked for."""
        if self._diag is None:
            self._diag = np.ones(self.n)
            if self.data.kernel.name != "rbf":
                with self.data.ctx.reads.asking(0):  # not counted, because a resumed fit reads it again
                    for rows in self.data.blocks():
                        mine, numbers = self.of(rows)
                        self._diag[mine] = self.data.diagonal(rows.X, numbers - rows.offset, numbers)
        return self._diag

    def fetch(self, idx: np.ndarray) -> np.ndarray:
        """Rows idx, (len(idx), n)."""
        out = np.empty((len(idx), self.n), self.dtype)
        with self._reading(idx):
            support = self._support(idx)
            for rows in self.data.blocks():
                mine, numbers = self.of(rows)
                if len(numbers):
                    out[:, mine] = self.gram.values(rows.X, numbers - rows.offset, support)
        self._count(len(idx), self.n)
        return out

    def block(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """K[a, b]."""
        X, at = self._take(b)
        self.counts.values += len(a) * len(b)
        self.counts.asked += len(a) * len(b)
        return self.gram.values(X, at, self._support(a))

    def update(self, f: np.ndarray, idx: np.ndarray, change: np.ndarray) -> None:
        """f += sum_k change_k K[idx_k, :]."""
        with self._reading(idx):
            for start in range(0, len(idx), _CHUNK):
                qp = slice(start, start + _CHUNK)
                support, coef = self._support(idx[qp]), change[qp][:, None]
                for rows in self.data.blocks():
                    mine, numbers = self.of(rows)
                    if len(numbers):
                        scores = np.ascontiguousarray(f[mine])[None, :]
                        self.gram.add(rows.X, numbers - rows.offset, support, coef, scores)
                        f[mine] = scores[0]
        self._count(len(idx), self.n)

    def add(self, f: np.ndarray, K: np.ndarray, change: np.ndarray) -> None:
        """f += sum_k change_k K[k, :], with the same bits as `update`."""
        add_stored_rows(K, np.arange(len(K)), np.ascontiguousarray(change), f)

    def of(self, rows: Rows | BlockRef) -> tuple[slice, np.ndarray]:
        """(positions in the QP, numbers in the data) of a block's rows."""
        if self._rows is None:
            return slice(rows.start, rows.stop), np.arange(rows.start, rows.stop)
        a, b = np.searchsorted(self._rows, [rows.start, rows.stop])
        return slice(a, b), self._rows[a:b]

    def _take(self, idx: np.ndarray) -> tuple[Matrix, np.ndarray]:
        """(X, at) for rows of the QP, given by positions in any order."""
        numbers = idx if self._rows is None else self._rows[idx]
        ascending = np.unique(numbers)
        X, at = self.data.take(ascending)
        return X, at[np.searchsorted(ascending, numbers)]

    def _support(self, idx: np.ndarray) -> Support:
        numbers = np.asarray(idx if self._rows is None else self._rows[idx])
        if self.data.kernel.name == "precomputed":
            return self.data.support(np.empty((0, 0)), numbers, numbers, self.gram)
        X, at = self._take(idx)
        return self.data.support(X, at, numbers, self.gram)

    def _reading(self, idx: np.ndarray) -> AbstractContextManager[None]:
        """A context in which rows idx are computed or found: counts what computing all of them would read."""
        ctx = self.data.ctx
        if ctx.resident or not len(idx):
            return nullcontext()
        whole = -(-len(idx) // _CHUNK) * self.data.n
        if self.data.kernel.name == "precomputed":
            return ctx.reads.asking(whole)
        numbers = idx if self._rows is None else self._rows[idx]
        blocks = np.unique(np.searchsorted(self._ends, numbers, "right"))
        return ctx.reads.asking(whole + int(self._lengths[blocks].sum()))

    def _count(self, rows: int, n: int) -> None:
        self.counts.computed += rows
        self.counts.values += rows * n
        self.counts.asked += rows * n
