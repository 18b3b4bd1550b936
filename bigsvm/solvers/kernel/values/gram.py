"""Kernel values between rows of two matrices, on several threads (compiled code: `compiled/kernel/values/gram.py`)."""

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
"""Multiplications below which waking a thread takes longer than the work."""
_BESIDE = 16  # multiplications that computing a kernel value from a product counts as
_LAID_OUT = 32  # multiplications that laying out an entry of a row in a tile counts as
PAIRED = 1024
"""Rows of a sum over pairs that are worked on at a time."""
_PAIRED_PARTS = 32  # parts of the other rows of such a sum, each with its own sums, which are added in order
_PARTS = 4  # parts of the work for each thread, so that others can take over from a thread that was suspended


def _mean_entries(X: Matrix) -> float:
    """The mean number of stored entries of a row."""
    if isinstance(X, CSR):
        return float(X.indptr[-1] - X.indptr[0]) / max(len(X.indptr) - 1, 1)
    return float(X.shape[1])


class Gram:
    """Computes kernel values in one float type, with a tile for each thread.

    n_features : int   columns of the matrices
    threads : int      most threads, including the caller's; the bits do not depend on their number
    steps : Steps      steps of which all values of all rows are multiples (`compiled/kernel/values/step.py`), or None
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
        """Bytes of the tiles of all threads, with their sums and products."""
        return threads * LANES * (n_features + 32) * itemsize

    def support(self, X: Matrix, rows: np.ndarray) -> Support:
        """Rows of X as the second argument of kernel values."""
        return whole_support_of(X, rows, self._step) if self._step else support_of(X, rows, self.dtype)

    def add(self, X: Matrix, rows: np.ndarray, support: Support, coef: np.ndarray, out: np.ndarray) -> None:
        """out[m, i] += sum_s coef[s, m] K(S_s, X[rows[i]]), in the order of s.

        rows : int64, (n,);  coef : float64, (n_support, n_models);  out : float64, (n_models, n)
        """
        if support.n == 0 or len(rows) == 0:
            return
        # A view with strides would be a type of its own, which nothing has compiled.
        coef, rows = np.ascontiguousarray(coef), np.ascontiguousarray(rows)

        def work(start: int, stop: int) -> None:
            workspace = self._workspace(support.S, len(out))
            add_kernel_rows(X, rows[start:stop], support, coef, self._function, workspace, out, start)

        self._run(work, len(rows), X, support)

    def values(self, X: Matrix, rows: np.ndarray, support: Support, out: np.ndarray | None = None) -> np.ndarray:
        """K(S_s, X[rows[i]]), (n_support, n), in the float type of this object; written into `out` if it is given."""
        out = np.empty((support.n, len(rows)), self.dtype) if out is None else out
        rows = np.ascontiguousarray(rows)

        def work(start: int, stop: int) -> None:
            workspace = self._workspace(support.S, 1)
            write_kernel_rows(X, rows[start:stop], support, self._function, workspace, out, start)

        if support.n and len(rows):
            self._run(work, len(rows), X, support)
        return out

    def add_pairs(
        self, X: Matrix, rows: np.ndarray, support: Support, coef: np.ndarray, out: np.ndarray, into: np.ndarray
    ) -> None:
        """Add kernel sums between the rows of a list; the value of each pair is computed once, and used for both rows.

        Calls for consecutive parts of the list together do out[into[i]] += sum_j coef_j K_ij over the list.

        support : the next part of the list: at most PAIRED rows, and a multiple of LANES unless it is the last
        rows, coef, into : (n,), for these rows and all after them: int64, rows of X; float64; int64, places in `out`
        """
        n, k = len(rows), support.n
        step = max(-(-n // (_PAIRED_PARTS * LANES)), 1) * LANES
        starts = range(0, n, step)  # by shapes alone, so that the sums do not depend on threads
        sums, coef = np.zeros((len(starts), k)), np.ascontiguousarray(coef)

        def work(start: int, stop: int) -> None:
            args = self._function, self._workspace(support.S, 2), out, into[start:stop], sums[start // step]
            add_kernel_pairs(X, rows[start:stop], start, support, coef[:k], coef[start:stop], *args)

        self._share(work, [(start, min(start + step, n)) for start in starts], self._threads(n, X, support))
        for part in sums:
            out[into[:k]] += part

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def _run(self, work: Callable[[int, int], None], n: int, X: Matrix, support: Support) -> None:
        """Do `work` on parts of n rows, which begin at whole tiles, with as many threads as pay off."""
        threads = self._threads(n, X, support)
        step = n if threads == 1 else -(-n // (threads * _PARTS * LANES)) * LANES
        self._share(work, [(start, min(start + step, n)) for start in range(0, n, step)], threads)

    def _threads(self, n: int, X: Matrix, support: Support) -> int:
        """The number of threads that pay off for the kernel values between n rows of X and `support`."""
        products = support.n * (_mean_entries(support.S) + _BESIDE) + _LAID_OUT * _mean_entries(X)
        return max(min(self.threads, -(-n // LANES), int(n * products / _WORTH_A_THREAD)), 1)

    def _share(self, work: Callable[[int, int], None], parts: Sequence[tuple[int, int]], threads: int) -> None:
        """Do `work` on each part.  Threads take parts in order when they are free; all are done on return."""
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
