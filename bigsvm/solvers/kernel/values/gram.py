"""Kernel values of a matrix' rows with others, on several threads: what `compiled/kernel/values/gram.py` computes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np

from bigsvm.compiled.kernel.values.gram import (
    KernelFunction,
    add_kernel_pairs,
    add_kernel_rows,
    write_kernel_rows,
)
from bigsvm.compiled.kernel.values.layout import TileWorkspace
from bigsvm.compiled.kernel.values.step import Steps
from bigsvm.compiled.kernel.values.support import Support, support_of, whole_support_of
from bigsvm.compiled.kernel.values.tile import LANES
from bigsvm.compiled.shared.rows import CSR
from bigsvm.problem.kernel import Kernel
from bigsvm.store.blocks import Matrix

_WORTH_A_THREAD = 1 << 22
"""Products of two numbers, below which waking a thread takes longer than what it would do."""
_BESIDE = 16  # products that what makes a kernel value of a row's products is worth
_LAID_OUT = 32  # products that it is worth to lay out a number of a row in a tile
PAIRED = 1024
"""Rows that sums over pairs go through at one time."""
_PAIRED_PARTS = 32  # of the rows behind them, each with sums of its own, which are added in order
_PARTS = 4  # for each thread: a thread that the system stops for a while leaves the others what it has not begun


def _mean_entries(X: Matrix) -> float:
    """Numbers of a row that are there."""
    if isinstance(X, CSR):
        return float(X.indptr[-1] - X.indptr[0]) / max(len(X.indptr) - 1, 1)
    return float(X.shape[1])


class Gram:
    """Computes kernel values in one float type; keeps a tile for each thread.

    n_features : columns of the matrices
    threads : at most so many, the caller's among them; the bits do not depend on them
    steps : of the numbers of all rows that it will see
    """

    def __init__(
        self, kernel: Kernel, n_features: int, dtype: np.dtype | type, threads: int, steps: Steps | None = None
    ) -> None:
        self.kernel, self.dtype, self.threads = kernel, np.dtype(dtype), threads
        self._step = 0.0 if steps is None else steps.for_values(self.dtype, kernel.gamma * (kernel.name == "rbf"))
        self._function, self._n_features = KernelFunction(*kernel.parameters), n_features
        self._workspaces = threading.local()
        self._pool = ThreadPoolExecutor(threads - 1, "bigsvm-kernel") if threads > 1 else None

    @staticmethod
    def workspace_bytes(n_features: int, itemsize: int, threads: int) -> int:
        """Bytes that the threads' tiles take, and the sums and products beside them."""
        return threads * LANES * (n_features + 32) * itemsize

    def support(self, X: Matrix, rows: np.ndarray) -> Support:
        """Rows of X as the other side of kernel values."""
        return whole_support_of(X, rows, self._step) if self._step else support_of(X, rows, self.dtype)

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

        self._run(work, len(rows), X, support)

    def values(self, X: Matrix, rows: np.ndarray, support: Support, out: np.ndarray | None = None) -> np.ndarray:
        """K(S_s, X[rows[i]]), (n_support, n), in this object's float type; into `out` where that is given."""
        out = np.empty((support.n, len(rows)), self.dtype) if out is None else out

        def work(start: int, stop: int) -> None:
            workspace = self._workspace(support.S, 1)
            write_kernel_rows(X, rows[start:stop], support, self._function, workspace, out, start)

        if support.n and len(rows):
            self._run(work, len(rows), X, support)
        return out

    def add_pairs(
        self, X: Matrix, rows: np.ndarray, support: Support, coef: np.ndarray, out: np.ndarray, into: np.ndarray
    ) -> None:
        """Sums over pairs of rows, the value of each pair computed once and used both ways.

        Called for one part of a list of rows after another it makes out[into[i]] += sum_j coef_j K_ij over the list.

        support : the next rows of the list, at most PAIRED, and a multiple of LANES where others follow
        rows, coef, into : of these and all behind them, (n,): int64, rows of X; float64; int64, places in `out`
        """
        n, k = len(rows), support.n
        step = max(-(-n // (_PAIRED_PARTS * LANES)), 1) * LANES
        starts = range(0, n, step)  # by shape, not by threads: so are the sums
        sums, coef = np.zeros((len(starts), k)), np.ascontiguousarray(coef)

        def work(start: int, stop: int) -> None:
            args = self._function, self._workspace(support.S, 2), out, into[start:stop], sums[start // step]
            add_kernel_pairs(X, rows[start:stop], start, support, coef[:k], coef[start:stop], *args)

        self._share(work, [(start, min(start + step, n)) for start in starts], self._threads(n, X, support))
        for part in sums:
            out[into[:k]] += part

    def close(self) -> None:
        """Let the threads go."""
        if self._pool is not None:
            self._pool.shutdown()

    def _run(self, work: Callable[[int, int], None], n: int, X: Matrix, support: Support) -> None:
        """`work` on parts of n rows, which begin at a tile's first row, by as many threads as pay."""
        threads = self._threads(n, X, support)
        step = n if threads == 1 else -(-n // (threads * _PARTS * LANES)) * LANES
        self._share(work, [(start, min(start + step, n)) for start in range(0, n, step)], threads)

    def _threads(self, n: int, X: Matrix, support: Support) -> int:
        """Threads that pay for the kernel values of n rows of X with some others."""
        products = support.n * (_mean_entries(support.S) + _BESIDE) + _LAID_OUT * _mean_entries(X)
        return max(min(self.threads, -(-n // LANES), int(n * products / _WORTH_A_THREAD)), 1)

    def _share(self, work: Callable[[int, int], None], parts: Sequence[tuple[int, int]], threads: int) -> None:
        """`work` on each part, begun in their order by whichever of some threads is free; over where this returns."""
        left = deque(parts)

        def take() -> None:
            while True:
                try:
                    part = left.popleft()
                except IndexError:  # nothing is left
                    return
                work(*part)

        helpers = [] if self._pool is None else [self._pool.submit(take) for _ in range(threads - 1)]
        try:
            take()
        finally:
            left.clear()
            wait(helpers)  # they write into the caller's arrays
        for helper in helpers:
            helper.result()

    def _workspace(self, S: Matrix, n_models: int) -> TileWorkspace:
        workspace: TileWorkspace | None = getattr(self._workspaces, "workspace", None)
        if workspace is None or len(workspace.sums) < n_models:
            workspace = self._workspaces.workspace = TileWorkspace.zeros(self._n_features, self.dtype, n_models)
        return workspace
