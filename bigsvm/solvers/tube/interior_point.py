"""`interior-point`: the epsilon-insensitive loss with any form of the bias, for few features and columns of any scales.

With rows in memory a step is the solution of a model (`in_memory.py`); if rows stream it is one reading of all rows
(`streamed.py`).  The models are solved one after another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from bigsvm.problem.certificate import Certificate
from bigsvm.problem.problem import Problem, zero_weights
from bigsvm.solvers.base import WEIGHTS, DataShape, Need, Point, SmallFit, SolverBase, StepInfo
from bigsvm.solvers.context import Context
from bigsvm.solvers.primal.hessian import too_many_features
from bigsvm.solvers.tube.in_memory import needs_in_memory, solve_model
from bigsvm.solvers.tube.streamed import READINGS, StreamedTube, streamed_needs
from bigsvm.solvers.tube.tube import FINAL, NARROW
from bigsvm.solvers.weights import columns
from bigsvm.store.state.vectors import RowVector
from bigsvm.tasks import PassLeft, leaving_when

_LAST_PASSES = 2  # the present one, and that of the proof
_PASSES = 200.0  # of a small fit: more than any needs


@dataclass
class InteriorState:
    """What a resumed run needs.

    w : (n_features + 1,) or (n_features + 1, n_models);  alpha : RowVector float64, (n_samples, n_models)
    solved : models that are solved;  told : models that were solved when `change` was asked last
    path : the present model, if rows stream
    """

    problem: Problem = field(metadata={"derived": True})
    w: np.ndarray
    alpha: RowVector
    path: StreamedTube | None
    solved: int = 0
    told: int = 0


@dataclass(frozen=True)
class InteriorPoint(SolverBase):
    """Hyperparameters of `interior-point`, which minimises |w|^2 / 2 + sum_i C_i max(0, |t_i - f(x_i)| - epsilon).

    max_features : int    largest number of features; the matrices have (n_features + 1)^2 entries

    Source: Mehrotra, SIAM J. Optimization 2 (1992); for linear SVM Ferris and Munson, SIAM J. Optimization 13 (2002).
    """

    name: ClassVar[str] = "interior-point"
    losses: ClassVar[tuple[str, ...]] = ("epsilon_insensitive",)
    biases: ClassVar[tuple[str, ...]] = ("augmented", "none", "free")

    max_features: int = NARROW

    def refusal(self, shape: DataShape) -> str | None:
        """Refuse too many features for a Hessian."""
        return too_many_features(self.name, shape, self.max_features)

    def small_fits(self, tol: float, resident: bool) -> list[SmallFit]:
        """One: the tolerance does not change which loops are called."""
        return [SmallFit(passes=_PASSES)]

    def weight_bytes(self, tol: float, regression: bool) -> int:
        """Always float64."""
        return 8

    def needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """Named amounts in bytes; of rows that stream, what grows with them may go to disk."""
        return [
            Need(WEIGHTS, 8 * (shape.n_features + 1) * shape.n_models),
            Need("alpha", 8 * shape.n_samples * shape.n_models, may_spill=True),
            *([Need("folds of the rows", 2 * shape.n_samples)] if shape.folded else []),
            *(needs_in_memory(shape) if resident else streamed_needs(shape)),
        ]

    def init(self, problem: Problem, ctx: Context) -> InteriorState:
        """w = 0, alpha = 0."""
        w = zero_weights(ctx.data.n_features, problem.n_models)
        path = None if ctx.resident else StreamedTube.new(problem, ctx, writes=True)
        return InteriorState(problem, w, ctx.vector("alpha", problem.n_models), path)

    def before_load(self, state: InteriorState, tree: Any, ctx: Context) -> None:
        """Nothing to do: a new state has the same arrays as a saved one."""

    def step(self, problem: Problem, state: InteriorState, ctx: Context) -> StepInfo:
        """Solve a model on rows in memory, or read all rows that stream once."""
        n, m = ctx.data.n_samples, state.solved
        if m == problem.n_models:  # the proof has failed, and there is no better point
            return StepInfo(FINAL * ctx.tol, n, 0, ask_certificate=True, exhausted=True)
        try:
            if state.path is not None:
                over = state.path.read(problem, m, state.alpha, ctx)
                state.path.put_weights(problem, columns(state.w)[:, m])
            else:
                with leaving_when(lambda: ctx.stopping() or ctx.expired()):
                    block = ctx.data.read(ctx.refs[0])
                    columns(state.w)[:, m], state.alpha.values[:, m] = solve_model(problem, m, block, ctx)
                over = True
        except PassLeft as left:
            if state.path is None and not ctx.stopping():  # --max-time is over
                columns(state.w)[:, m], state.alpha.values[:, m] = left.reached
                return StepInfo(math.inf, n, n, ask_certificate=False)
            return StepInfo.left(math.inf, n)
        state.solved = m + over
        done = state.solved == problem.n_models
        message = "" if done else self._told_of_limit(state, ctx)
        gap = FINAL * ctx.tol if done or state.path is None else state.path.relative
        return StepInfo(gap, n, n, ask_certificate=done, message=message)

    @staticmethod
    def _told_of_limit(state: InteriorState, ctx: Context) -> str:
        """A warning if a limit ends the fit after this reading of rows that stream, before its solution; else ''."""
        path, models = state.path, state.problem.n_models
        limit = "--max-time" if ctx.expired() else "--max-passes"
        last = ctx.sweeps_left is not None and ctx.sweeps_left <= _LAST_PASSES
        if path is None or not (last or ctx.expired()) or path.relative <= ctx.tol:
            return ""
        each = "" if models == 1 else f" for each of {models:,} models"
        return (
            f"interior-point: {limit} ends it before the solution, which takes 30 to {READINGS} passes{each} if rows "
            f"stream: use a larger {limit}, or more --memory, so that rows are read once"
        )

    def forecast(self, state: InteriorState) -> float:
        """Infinite: a proof is asked for once all models are solved."""
        return math.inf

    def points(self, state: InteriorState) -> list[Point]:
        """The present w and alpha; alpha of a model that is not solved yet is made feasible."""
        if state.path is not None and state.solved < state.problem.n_models:
            state.path.even(state.alpha.values[:, state.solved])
        return [Point(state.problem, state.w, state.alpha)]

    def learn(
        self, state: InteriorState, certificate: Certificate, rebuilt: Sequence[np.ndarray], of: Sequence[np.ndarray]
    ) -> None:
        """Nothing to learn: w is no sum that could have gathered rounding errors."""

    def change(self, state: InteriorState) -> str:
        """It goes on as long as one model after another is solved."""
        if state.solved <= state.told:
            return ""
        state.told = state.solved
        return f"interior-point: {state.solved:,} of {state.problem.n_models:,} models are solved"

    def finish(self, state: InteriorState) -> None:
        """Give back what only training needs."""
        if state.path is not None:
            state.path.close()
            state.path = None
