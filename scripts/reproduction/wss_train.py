"""Trainings of SMO by their parts: kernel rows, kept or computed, a rule, a bound of steps; what came of it."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from bigsvm.compiled.kernel.values.gram import add_stored_rows
from bigsvm.compiled.kernel.values.support import support_of
from bigsvm.compiled.shared.rows import CSR
from bigsvm.problem.kernel import Kernel, poly_of_bracket
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.smo.textbook import Textbook
from bigsvm.solvers.kernel.state import gap_at_best_bias
from bigsvm.solvers.kernel.values.cached_rows import CachedRows
from bigsvm.solvers.kernel.values.gram import Gram
from bigsvm.solvers.kernel.values.kernel_rows import KernelCounts, KernelRows
from bigsvm.store.blocks import Matrix, readonly_view
from bigsvm.store.state.row_cache import RowCache
from bigsvm.testing.matrix_rows import MatrixRows

VIOLATION = 1e-3
DEGREE = 3
_FLOAT = np.dtype(np.float32)
_AT_ONCE = 1000  # steps


class Point(NamedTuple):
    """A grid point: C, the kernel's gamma (0 where it has none), epsilon of regression (0 for classes)."""

    C: float
    gamma: float = 0.0
    epsilon: float = 0.0

    def kernel(self, name: str) -> Kernel:
        """(gamma (x.z + 1))^3 of poly, tanh(gamma x.z) of sigmoid."""
        if name == "poly":
            return poly_of_bracket(self.gamma, DEGREE)
        return Kernel(name, self.gamma or 1.0)


class ComputedRows:
    """Rows of K in float32, computed from the data each time they are asked for."""

    def __init__(self, X: np.ndarray | CSR, kernel: Kernel) -> None:
        self._X: Matrix = readonly_view(X)
        d = int(X.indices.max(initial=0)) + 1 if isinstance(X, CSR) else X.shape[1]
        self._gram = Gram(kernel, d, _FLOAT, threads=1)
        self.n = len(X.indptr) - 1 if isinstance(X, CSR) else len(X)
        self.dtype, self.counts = _FLOAT, KernelCounts()
        self._all = np.arange(self.n)
        self.diag = kernel.diagonal(support_of(self._X, self._all, np.dtype(np.float64)).sq)

    def fetch(self, idx: np.ndarray) -> np.ndarray:
        """Rows idx, (len(idx), n)."""
        self.counts.computed += len(idx)
        self.counts.values += len(idx) * self.n
        return self._gram.values(self._X, self._all, support_of(self._X, idx, _FLOAT))

    def block(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """K[a, b]."""
        self.counts.values += len(a) * len(b)
        return self._gram.values(self._X, b, support_of(self._X, a, _FLOAT))

    def update(self, f: np.ndarray, idx: np.ndarray, change: np.ndarray) -> None:
        """f += sum_k change_k K[idx_k, :]."""
        self.counts.computed += len(idx)
        self.counts.values += len(idx) * self.n
        self._gram.add(self._X, self._all, support_of(self._X, idx, _FLOAT), change[:, None], f[None, :])

    def add(self, f: np.ndarray, K: np.ndarray, change: np.ndarray) -> None:
        """f += sum_k change_k K[k, :], as `update` does."""
        add_stored_rows(K, np.arange(len(K)), np.ascontiguousarray(change), f)


def whole_matrix(X: np.ndarray | CSR, kernel: Kernel) -> np.ndarray:
    """K of all rows, float32: the values that `ComputedRows` gives."""
    rows = ComputedRows(X, kernel)
    return rows.fetch(np.arange(rows.n))


def kept(X: np.ndarray | CSR, kernel: Kernel, memory: float) -> CachedRows:
    """Computed rows, those used last kept in so many bytes."""
    rows = ComputedRows(X, kernel)
    least = RowCache.least_bytes(rows.n, _FLOAT, disk=False)
    return CachedRows(rows, RowCache(rows.n, _FLOAT, max(int(memory), least), n_rows=rows.n))


def new_part(y: np.ndarray, point: Point, regression: bool) -> DualQP:
    """The programme at beta = 0."""
    n = len(y)
    C = np.full(n, point.C)
    lower = -C if regression else np.where(y > 0, 0.0, -C)
    upper = C if regression else np.where(y > 0, C, 0.0)
    return DualQP(y.copy(), lower, upper, point.epsilon, np.zeros(n), -y, None, VIOLATION)


class Run(NamedTuple):
    """A training: its end, seconds of the processor, steps, how often each variable was selected where recorded."""

    qp: DualQP
    seconds: float
    iterations: int
    selected: np.ndarray

    def proof(self) -> tuple[float, float, float, float]:
        """(gap, primal, dual, bias), the bias that makes the primal least."""
        return gap_at_best_bias(self.qp)


def train(
    rows: KernelRows,
    y: np.ndarray,
    point: Point,
    rule: str,
    limit: int,
    *,
    shrinking: bool = False,
    regression: bool = False,
    record: bool = False,
) -> Run:
    """Until the rule is met or `limit` steps are done; f of all rows is then computed, outside of the seconds."""
    qp = new_part(y, point, regression)
    began = time.process_time()
    work = Textbook(record=record, wss=rule, shrinking=shrinking).start_model(qp, rows)
    done = 0
    while done < limit:
        progress = Textbook(min(_AT_ONCE, limit - done), record, rule, shrinking).step_model(qp, work, rows)
        done += progress.iterations
        if progress.done or progress.exhausted or progress.final:
            break
    seconds = time.process_time() - began
    Textbook().whole(qp, work, rows)
    return Run(qp, seconds, done, work.selected)


def path(rows: KernelRows, y: np.ndarray, point: Point, rule: str, limit: int, marks: int) -> list[list[float]]:
    """[step, dual value, gap / primal] at about so many steps, dense at the beginning; classification."""
    qp = new_part(y, point, regression=False)
    work = Textbook(wss=rule, shrinking=False).start_model(qp, rows)
    found, done = [], 0
    for mark in np.unique(np.geomspace(1, limit, marks).astype(int)).tolist():
        progress = Textbook(mark - done, wss=rule, shrinking=False).step_model(qp, work, rows)
        done += progress.iterations
        gap, primal, dual, _ = gap_at_best_bias(qp)
        found.append([done, dual, gap / primal])
        if progress.done or progress.exhausted or progress.final:
            break
    return found


def weighed(run: Run, convex: bool) -> dict[str, Any]:
    """What a training leaves to say, as JSON: `gap` over the primal where the kernel allows a proof."""
    gap, primal, dual, _ = run.proof()
    return {
        "seconds": run.seconds, "iterations": run.iterations, "dual": dual,
        "gap": gap / primal if convex else None,
    }  # fmt: skip


def matrix_of(X: Any) -> np.ndarray | CSR:
    """A loader's matrix as compiled kernels take it: dense where a fifth of it is not 0, else CSR."""
    if isinstance(X, np.ndarray):
        return np.ascontiguousarray(X, np.float64)
    if X.nnz > 0.2 * X.shape[0] * X.shape[1]:
        return np.ascontiguousarray(X.toarray(), np.float64)
    return CSR(X.data.astype(np.float64), X.indices.astype(np.int32), X.indptr.astype(np.int64))


def picked(X: np.ndarray | CSR, rows: np.ndarray) -> np.ndarray | CSR:
    """Some rows of a matrix."""
    if not isinstance(X, CSR):
        return X[rows]
    sizes = np.diff(X.indptr)[rows]
    at = np.concatenate([np.arange(a, b) for a, b in zip(X.indptr[rows], X.indptr[rows + 1], strict=True)])
    return CSR(X.data[at], X.indices[at], np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))


def cut(K: np.ndarray, rows: np.ndarray) -> MatrixRows:
    """Rows and columns of a matrix of kernel values."""
    return MatrixRows(np.ascontiguousarray(K[np.ix_(rows, rows)]))
