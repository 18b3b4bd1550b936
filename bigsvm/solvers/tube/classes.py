"""One model of two classes by an interior-point method, on all rows in memory: where sweeps of `dcd` take long.

Columns of different scales can make coordinate descent need 100,000 epochs.  With few features `auto` lets working sets
take over (`solvers/newton_ws`), whose memory a plan counts from the beginning.  The methods here ask for memory only
when they are needed, so they may be for many features.  They take about a dozen iterations, whatever scales and C are.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.linear.hessian import triangle_size
from bigsvm.problem.problem import Problem
from bigsvm.solvers.context import Context
from bigsvm.solvers.newton_ws.interior import ROW_ARRAYS, PathRows, follow
from bigsvm.solvers.newton_ws.subproblem import SLICES, Subproblem
from bigsvm.solvers.tube.in_memory import bytes_of_copies, parts_of
from bigsvm.solvers.tube.squared_path import solve_squared
from bigsvm.solvers.tube.tube import FINAL, targets_and_costs
from bigsvm.store.blocks import Block, readonly_view

STEPS = 8
"""The work of a solution on all rows, in Newton steps whose multiplications take as long as those of sweeps: about a
dozen iterations, but a multiplication of two rows of a matrix takes about half as long as one of a sweep."""
_BESIDE = 128  # epochs beyond those of the steps
_SPARSE = 2.0  # price of a multiplication of sparse rows, which are scattered into the Hessian
# Newton steps from weights of `dcd`, and what they take, in epochs over the number of entries: the multiplications of
# two rows of a matrix, for each entry of a row, and d^3 of a Cholesky factor (an entry of sparse rows takes longer).
_NEWTON_STEPS, _A_MULTIPLICATION, _A_FACTOR = 4, 0.3, {False: 0.3, True: 0.05}
_ARRAYS = ROW_ARRAYS + 8  # float64 numbers of each row
_VECTORS = 32  # as large as w
_TINY = np.finfo(float).tiny


def work(n: int, d: int, nnz: float, sparse: bool, steps: float = STEPS, kept: int | None = None) -> float:
    """The work of some Newton steps on a working set, in epochs of sweeps over all rows.

    It is a constant, and the multiplications of the steps over the number of entries.

    n, d, nnz : rows, features and entries of all rows;  kept : rows of the working set; None: all of them
    """
    nnz = max(float(nnz), 1.0)
    a_row = 0.5 * (nnz / max(n, 1)) ** 2 * (_SPARSE if sparse else 1.0)
    step = (n if kept is None else kept) * a_row + float(d) ** 3 / 6.0  # the Hessian, and its Cholesky factor
    return _BESIDE + steps * step / nnz


def newton_work(n: int, d: int, nnz: float, sparse: bool, inside: float) -> float:
    """The work of Newton's method for the squared hinge loss on all rows, in epochs of sweeps of `dcd` over them.

    n, d, nnz : rows, features and entries;  inside : the share of the rows that violate, of which Hessians are sums
    """
    nnz = max(float(nnz), 1.0)
    hessian = _A_MULTIPLICATION * nnz / max(n, 1) * inside
    return _NEWTON_STEPS * (hessian + _A_FACTOR[sparse] * float(d) ** 3 / nnz)


def bytes_for_classes(problem: Problem, block: Block, ctx: Context) -> int:
    """The memory of `solve_classes` beside the rows, all of which are in `block`, and beside w and alpha."""
    d, n = ctx.data.n_features, ctx.data.n_samples
    return 8 * (_ARRAYS * n + _VECTORS * d + SLICES * triangle_size(d + 1)) + bytes_of_copies(problem, block)


def on_all_rows(problem: Problem, m: int, block: Block, ctx: Context) -> tuple[Subproblem, np.ndarray]:
    """The problem of one of the models on all rows of positive cost, which are in `block`, and the numbers of these."""
    (y, C), width = targets_and_costs(problem, m, block, 0), ctx.data.n_features + 1
    kept, zeros = np.flatnonzero(C > 0.0), np.zeros(width)
    part = Subproblem(
        parts=parts_of(readonly_view(block.X), kept if len(kept) < len(C) else None, width),
        codes=(problem.signs_of(y[kept], m) > 0.0).astype(np.int32),
        C=C[kept],
        far=np.zeros(len(kept), bool),
        side=np.ones(len(kept)),
        bias=problem.constant_feature,
        free=problem.bias == "free",
        lean=zeros,
        at=zeros,
        threads=ctx.threads,
    )
    return part, kept


def solve_classes(problem: Problem, m: int, block: Block, ctx: Context) -> tuple[np.ndarray, np.ndarray, float]:
    """w, float64 (n_features + 1,), alpha, float64 (n_rows,), and the relative gap, of one of the models.

    Raises PassLeft if the run is to stop, within `tasks.leaving_when`.
    """
    part, kept = on_all_rows(problem, m, block, ctx)
    alpha = np.zeros(block.n_rows)
    if len(kept) == 0:
        return np.zeros(len(part.lean)), alpha, 0.0
    if problem.loss.smooth:
        w, found = solve_squared(part, FINAL * ctx.tol)
    else:
        rows = PathRows(part)  # the path begins at w = 0, in the middle of the box
        w, _ = follow(part, rows, np.zeros(len(part.lean)), 0.0, 1.0, FINAL * ctx.tol)
        found = rows.alpha
    alpha[kept] = found
    return w, alpha, _relative_gap(part, w, found, problem.loss.smooth)


def _relative_gap(part: Subproblem, w: np.ndarray, alpha: np.ndarray, smooth: bool) -> float:
    """(P - D) / P at these weights and this alpha."""
    slack, v = np.maximum(part.slacks(w), 0.0), part.pull(alpha)
    primal = 0.5 * float(w @ w) + float((part.C * (slack * slack if smooth else slack)).sum())
    dual = float((alpha - (0.25 * alpha * alpha / part.C if smooth else 0.0)).sum()) - 0.5 * float(v @ v)
    return (primal - dual) / max(primal, _TINY)
