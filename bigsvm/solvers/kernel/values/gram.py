"""Kernel values of a matrix' rows with others, on several threads: what `compiled/kernel/gram.py` computes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from bigsvm.compiled.kernel.gram import KernelFunction, TileWorkspace, add_kernel_rows, write_kernel_rows
from bigsvm.compiled.kernel.support import GROUP, Support
from bigsvm.compiled.kernel.tile import LANES
from bigsvm.problem.kernel import Kernel
from bigsvm.store.blocks import Matrix

_SMALLEST_PART = 8 * LANES
"""Rows for which it pays to wake a thread."""


class Gram:
    """Computes kernel values in one float type; keeps a tile for each thread.

    n_features : columns of the matrices;  threads : at most so many; the bits do not depend on them
    """

    def __init__(self, kernel: Kernel, n_features: int, dtype: np.dtype | type, threads: int) -> None:
        self.kernel, self.dtype, self.threads = kernel, np.dtype(dtype), threads
        self._function, self._shape = KernelFunction(*kernel.parameters), (n_features, LANES)
        self._workspaces = threading.local()
        self._pool = ThreadPoolExecutor(threads, "bigsvm-kernel") if threads > 1 else None

    @staticmethod
    def workspace_bytes(n_features: int, itemsize: int, threads: int) -> int:
        """Bytes that the threads' tiles take."""
        return threads * LANES * (n_features + 16) * itemsize

    def add(self, X: Matrix, rows: np.ndarray, support: Support, coef: np.ndarray, out: np.ndarray) -> None:
        """out[m, i] += sum_s coef[s, m] K(S_s, X[rows[i]]), in the order of s.

        rows : int64, (n,);  coef : float64, (n_support, n_models);  out : float64, (n_models, n)
        """
        if support.n == 0 or len(rows) == 0:
            return
        coef = np.ascontiguousarray(coef)

        def work(start: int, stop: int) -> None:
            workspace = self._workspace(support.S, len(out))
            add_kernel_rows(X, rows[start:stop], support, coef, self._function, workspace, out, start)

        self._run(work, len(rows))

    def values(self, X: Matrix, rows: np.ndarray, support: Support, out: np.ndarray | None = None) -> np.ndarray:
        """K(S_s, X[rows[i]]), (n_support, n), in this object's float type; into `out` where that is given."""
        out = np.empty((support.n, len(rows)), self.dtype) if out is None else out

        def work(start: int, stop: int) -> None:
            workspace = self._workspace(support.S, 1)
            write_kernel_rows(X, rows[start:stop], support, self._function, workspace, out, start)

        if support.n and len(rows):
            self._run(work, len(rows))
        return out

    def close(self) -> None:
        """Let the threads go."""
        if self._pool is not None:
            self._pool.shutdown()

    def _run(self, work: Callable[[int, int], None], n: int) -> None:
        parts = min(self.threads, max(n // _SMALLEST_PART, 1))
        if parts == 1 or self._pool is None:
            work(0, n)
            return
        # Parts begin at a tile's first row.
        step = -(-n // parts // LANES) * LANES
        for done in [self._pool.submit(work, start, min(start + step, n)) for start in range(0, n, step)]:
            done.result()

    def _workspace(self, S: Matrix, n_models: int) -> TileWorkspace:
        workspace: TileWorkspace | None = getattr(self._workspaces, "workspace", None)
        if workspace is None or len(workspace.sums) < n_models:
            kind = self.dtype
            workspace = TileWorkspace(
                np.zeros(self._shape, kind), np.zeros(LANES, kind), np.zeros((GROUP, LANES), kind),
                np.zeros((n_models, LANES)),
            )  # fmt: skip
            self._workspaces.workspace = workspace
        return workspace
