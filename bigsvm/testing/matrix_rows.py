"""Kernel rows of a matrix that is there."""

from __future__ import annotations

import numpy as np

from bigsvm.solvers.kernel.values.kernel_rows import KernelCounts


class MatrixRows:
    """A matrix that is there: for tests, and the reference of what the others do."""

    def __init__(self, K: np.ndarray) -> None:
        self._K = K
        self.n, self.dtype, self.counts = len(K), K.dtype, KernelCounts()
        self._diag = np.diag(K).astype(np.float64)

    @property
    def diag(self) -> np.ndarray:
        return self._diag

    def fetch(self, idx: np.ndarray) -> np.ndarray:
        """Rows idx."""
        self.counts.computed += len(idx)
        self.counts.values += len(idx) * self.n
        self.counts.asked += len(idx) * self.n
        return self._K[idx]

    def block(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """K[a, b]."""
        self.counts.values += len(a) * len(b)
        self.counts.asked += len(a) * len(b)
        return self._K[np.ix_(a, b)]

    def update(self, f: np.ndarray, idx: np.ndarray, change: np.ndarray) -> None:
        """Row by row."""
        self.add(f, self.fetch(idx), change)

    def add(self, f: np.ndarray, K: np.ndarray, change: np.ndarray) -> None:
        """Row by row."""
        for row, by in zip(K, change, strict=True):
            f += by * row.astype(np.float64)
