"""The epsilon-insensitive loss by an interior-point method, for a regression in which sweeps take long.

Tables as they come have columns of different scales, and dual coordinate descent may then need 100,000 epochs.  With a
large C it may need thousands on columns of one scale.  An interior-point method needs about ten iterations, whatever
the scales and C are.  Sweeps go first, and end where they have cost about as much as a solution.

A row with the target t is two rows of a hinge loss, one above the tube and one below.  Their slacks are
t - epsilon - f(x) and f(x) - t - epsilon, and alpha of the row is the difference of their dual variables.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from bigsvm.compiled.linear.hessian import triangle_size
from bigsvm.compiled.shared.rows import n_rows_of, take_rows
from bigsvm.problem.loss import Loss
from bigsvm.problem.problem import Problem
from bigsvm.solvers.context import Context
from bigsvm.solvers.dcd.dual_cd_state import DualCDState, ModelGroup
from bigsvm.solvers.gathered import picked_rows
from bigsvm.solvers.newton_ws.held_rows import Held
from bigsvm.solvers.newton_ws.interior import ROW_ARRAYS, PathRows, follow
from bigsvm.solvers.newton_ws.subproblem import SLICES, Subproblem
from bigsvm.solvers.weights import columns
from bigsvm.store.blocks import Block, Matrix, readonly_view
from bigsvm.tasks import PassLeft, leaving_when

_NARROW = 500  # features, at most: an iteration factors a matrix of this order
# The cost of a solution in epochs: 80 for 8,000 x 12 rows, 150 for 100,000 x 12, 270 for 50,000 x 100, 950 for
# 20,000 x 300.  Where sweeps were not done by then, they took up to a hundred times as long (C = 100).
_EPOCHS, _EPOCHS_A_FEATURE = 100, 3
_FINAL = 0.1  # share of the tolerance to which the problem is solved
_ARRAYS = ROW_ARRAYS + 8  # float64 numbers of each of the two rows that stand for a row
_LEAST_PIECES = 32  # pieces of the rows: the addresses of the entries of one take less than `_COPIED` - 1 of the rows
_PIECE = 1 << 28  # multiplications with a piece in an iteration, at most: a signal waits for that long
_COPIED = 1.25  # room for rows that are copied, over that of all rows


@dataclass(kw_only=True)
class Tube(Subproblem):
    """The problem of one regression: C, far and side have two entries for each row, of `codes` there is one.

    side : float64, (2 n_rows,)   t - epsilon of each row, then -t - epsilon: what alpha counts in D
    """

    def slacks(self, w: np.ndarray) -> np.ndarray:
        """t - epsilon - f(x) of every row, then f(x) - t - epsilon; float64, (2 n_rows,)."""
        return self.side - self.products(w)

    def products(self, d: np.ndarray) -> np.ndarray:
        """x.d + bias d_last of every row, then the same with the opposite sign; float64, (2 n_rows,)."""
        found = self.margins(d, 0.0, 1.0)
        return np.concatenate([found, -found])

    def pull(self, coefficients: np.ndarray) -> np.ndarray:
        """The sum of [x_i, bias] times the difference of both coefficients of row i; float64, (n_features + 1,)."""
        return self.summed(self.difference(coefficients))

    def add_hessian(self, h: np.ndarray, H: list[np.ndarray]) -> None:
        """Put the triangle of the sum of [x_i, bias] [x_i, bias]' times both h of row i into H[0]."""
        n = len(self.codes)
        super().add_hessian(h[:n] + h[n:], H)

    def difference(self, coefficients: np.ndarray) -> np.ndarray:
        """What belongs to a row above the tube, less what belongs to it below; float64, (n_rows,)."""
        n = len(self.codes)
        return coefficients[:n] - coefficients[n:]


def solves(loss: Loss, n_features: int) -> bool:
    """Whether the method is for this loss and so many features, if all rows are in memory."""
    return loss.regression and not loss.smooth and n_features <= _NARROW


def epochs(ctx: Context) -> int:
    """The epochs of `dcd` that cost about as much as a solution."""
    return _EPOCHS + _EPOCHS_A_FEATURE * ctx.data.n_features


def solve(state: DualCDState, ctx: Context) -> int:
    """Put the solution of each model that is still trained into w and alpha.

    Returns 0; or, if the method has no room, the bytes that memory lacks, and then nothing is changed.
    Raises PassLeft if the run is to stop, or if a checkpoint is due between two models.  Models that are solved by then
    (`DualCDState.finished`) stay solved, and the next call goes on with the others.  When --max-time is over, the
    others stay as they are.
    """
    block = ctx.data.read(ctx.refs[0])
    with_rows = block.X.nbytes if isinstance(block.X, np.ndarray) else sum(part.nbytes for part in block.X)
    left_out = state.groups[0].problem.axis is not None or not (
        block.sample_weight is None or np.all(block.sample_weight > 0.0)
    )
    nbytes = 2 * 8 * _ARRAYS * ctx.data.n_samples + (SLICES + 1) * 8 * triangle_size(ctx.data.n_features + 1)
    nbytes += int(_COPIED * with_rows) if left_out else 0
    room = ctx.budget.try_reserve("interior-point method", nbytes)
    if room is None:
        return nbytes - ctx.budget.free
    models = [(group, m) for group in state.groups for m in np.flatnonzero(group.moves).tolist()]
    before = state.finished
    with room, leaving_when(ctx.stopping):
        for group, m in models[before:]:
            if state.finished > before:  # where checkpoints are due all the time, each call solves one model
                if ctx.expired():
                    break
                if ctx.pause():
                    raise PassLeft
            _solve_model(group, m, block, ctx)
            state.finished += 1
    for group in state.groups:
        group.still, group.estimate = False, _FINAL * ctx.tol
        group.reactivate()
    state.estimates = (_FINAL * ctx.tol, state.estimates[0])
    return 0


def _solve_model(group: ModelGroup, m: int, block: Block, ctx: Context) -> None:
    problem, (t, cost) = group.problem, group.problem.y_and_cost(block)
    C = problem.C[m] * cost
    if (axis := problem.axis) is not None:
        C = np.where(axis.fold == axis.held_out[m], 0.0, axis.weight[m, 0] * C)
    kept, w = np.flatnonzero(C > 0.0), columns(group.w)
    parts = _parts(readonly_view(block.X), kept if len(kept) < len(C) else None, w.shape[0])
    if len(kept) < len(C):  # the method needs costs above 0
        t, C = t[kept], C[kept]
    tube = _tube(problem, parts, t, C, w.shape[0], ctx.threads)
    rows = PathRows(tube)
    found, _ = follow(tube, rows, np.zeros(w.shape[0]), 0.0, float(np.abs(t).mean()) or 1.0, _FINAL * ctx.tol)
    w[:, m], group.alpha.values[:, m] = found, 0.0
    group.alpha.values[kept, m] = tube.difference(rows.alpha)


def _parts(X: Matrix, kept: np.ndarray | None, width: int) -> list[Held]:
    """The rows of X, or copies of those that are kept, in an even number of pieces.

    Signals are answered between two pieces.  Copying takes room for the addresses of the entries of one piece.
    """
    n = n_rows_of(X) if kept is None else len(kept)
    pieces = max(_LEAST_PIECES, 2 * (n * width * width // _PIECE))
    ends = [n * k // pieces for k in range(pieces + 1)]
    if kept is None:
        return [take_rows(X, a, b) for a, b in itertools.pairwise(ends)]
    return [picked_rows(X, kept[a:b]) for a, b in itertools.pairwise(ends)]


def _tube(problem: Problem, parts: list[Held], t: np.ndarray, C: np.ndarray, width: int, threads: int) -> Tube:
    n, epsilon, zeros = len(t), problem.loss.epsilon, np.zeros(width)
    return Tube(
        parts=parts,  # as many on one thread: the sums have the same bits
        codes=np.ones(n, np.int32),
        C=np.concatenate([C, C]),
        far=np.zeros(2 * n, bool),
        side=np.concatenate([t - epsilon, -t - epsilon]),
        bias=problem.constant_feature,
        free=False,
        lean=zeros,
        at=zeros,
        threads=threads,
    )
