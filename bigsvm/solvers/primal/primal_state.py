"""What the primal solvers share: a point, its slacks, the best dual point, and steps of look and move.

A look is one reading of all rows: slacks and gradient at w, and what they prove.  A move is another: products
with the new direction, then an exact line search that needs two numbers a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from bigsvm.problem.certificate import Certificate
from bigsvm.problem.problem import Problem, zero_weights
from bigsvm.solvers.base import DataShape, Need, Point, Rule, SmallFit, SolverBase, StepInfo
from bigsvm.solvers.context import Context
from bigsvm.solvers.primal.dual_point import DualPoint, mix_dual
from bigsvm.solvers.primal.row_pass import Curvature, Weights, row_pass
from bigsvm.solvers.primal.row_state import RowState, new_rows, row_needs
from bigsvm.solvers.primal.shard_state import PrimalShard
from bigsvm.solvers.primal.sharded_rows import ShardedRows, sums_need
from bigsvm.solvers.weights import columns, inner, regularised, squared_norm
from bigsvm.store.state.vectors import RowVector
from bigsvm.tasks import PassLeft

_ROUNDING = 1e-14  # steps shorter than this, relative to w, go nowhere
_WIDE = 8  # arrays as large as w: the point, gradient, direction, best dual point, and sums of tasks
_CENTRED = 4  # more where rows count as centred: the means, and what w, a direction and sums are beside them


@dataclass
class PrimalState:
    """All that a resumed run needs of a primal solver.

    w : float64, (n_features + 1,) or (n_features + 1, n_models);  gradient, direction : likewise
    moving : a direction was chosen and waits to be followed
    primal, dual_value : float64, (n_models,)   P(w) and the best dual value
    visits : of the step that is going on
    estimate : the largest relative gap;  step_norm : ||w_{k+1} - w_k|| of the last move, the largest
    extra : what one solver keeps beside
    """

    problem: Problem = field(metadata={"derived": True})
    w: np.ndarray
    rows: RowState
    dual: DualPoint
    gradient: np.ndarray
    direction: np.ndarray
    primal: np.ndarray
    moving: bool = False
    seen: bool = False
    estimate: float = math.inf
    step_norm: float = math.inf
    iteration: int = 0
    stuck: int = 0
    visits: int = 0
    extra: Any = None


def new_state(
    problem: Problem, ctx: Context, with_slopes: bool = True, rows: RowState | None = None
) -> PrimalState:  # fmt: skip
    """w = 0, alpha = 0, of such rows; where none are given of rows that are here."""
    m, d = problem.n_models, ctx.data.n_features
    if rows is None:
        rows = new_rows(problem, ctx, with_slopes)

    def zeros() -> np.ndarray:
        return zero_weights(d, m)

    return PrimalState(
        problem=problem,
        w=zeros(),
        rows=rows,
        dual=DualPoint(np.zeros(m), np.zeros(m), zeros()),
        gradient=zeros(),
        direction=zeros(),
        primal=np.full(m, np.inf),
    )


def largest_relative(gaps: np.ndarray, primal: np.ndarray) -> float:
    """The largest of gaps / primal, both (n_models,); 0 where a primal value is, or rounding made a gap negative."""
    return max(float(np.divide(gaps, primal, out=np.zeros_like(gaps), where=primal > 0).max()), 0.0)


def point_of(problem: Problem, w: np.ndarray, rows: RowState) -> Point:
    """w with the alpha of rows that are here or on shards."""
    if isinstance(rows, ShardedRows):
        rows.collect()
        return Point(problem, w, rows.alpha, on_shards=rows.prove)
    return Point(problem, w, rows.alpha)


def start_at_costless_bias(state: PrimalState) -> bool:
    """Whether b was moved, before anything else, to where w = 0 costs nothing: slacks are then to be read again."""
    if state.iteration > 0 or state.w.any():
        return False
    columns(state.w)[-1] = state.rows.costless_bias(state.problem) / (state.problem.constant_feature or 1.0)
    return bool(state.w.any())


class PrimalSolver(SolverBase):
    """What all solvers with a PrimalState share."""

    def start_at(self, state: Any, w: np.ndarray | None) -> list[RowVector]:
        """The first look is at w."""
        assert w is not None
        state.w[...] = w
        return []

    def small_fits(self, tol: float, resident: bool) -> list[SmallFit]:
        """One: nothing but the shape of the data decides what is called."""
        return [SmallFit()]

    def weight_bytes(self, tol: float, regression: bool) -> int:
        """Always float64."""
        return 8

    def refusal(self, shape: DataShape) -> str | None:
        """Why such data are not for this solver, if so."""
        return None

    def before_load(self, state: Any, tree: Any, ctx: Context) -> None:
        """A new state has room for a saved one."""

    def gaps(self, state: PrimalState) -> np.ndarray:
        """What the primal value and the best dual one leave open, (n_models,)."""
        return np.asarray(state.primal - np.maximum(state.dual.value(state.problem), 0.0))

    def update_gaps(self, state: PrimalState) -> np.ndarray:
        """Set the estimate from the primal value and the best dual one; their differences, (n_models,)."""
        gaps = self.gaps(state)
        state.estimate = largest_relative(gaps, state.primal)
        return gaps

    def arrived(self, state: PrimalState, norms: np.ndarray) -> None:
        """Book-keeping of a move of such norms, (n_models,)."""
        state.step_norm = float(np.max(norms))
        reach = np.sqrt((columns(state.w) ** 2).sum(axis=0))
        state.stuck = 0 if np.any(norms > _ROUNDING * reach) else state.stuck + 1
        state.iteration += 1
        state.moving = False

    def forecast(self, state: Any) -> float:
        """The relative gap that a proof of the present point is expected to show."""
        return state.estimate

    def points(self, state: Any) -> list[Point]:
        """The point that was looked at, and the best dual point."""
        return [point_of(state.problem, state.w, state.rows)]

    def learn(
        self, state: Any, certificate: Certificate, rebuilt: Sequence[np.ndarray], of: Sequence[np.ndarray]
    ) -> None:
        """Take the rounding out of what is known of the dual point."""
        state.dual.v[...] = rebuilt[0]

    def finish(self, state: Any) -> None:
        """Give back what only training needs."""
        state.rows.close()


class FullGradient(PrimalSolver):
    """Template of the solvers whose iteration is a look at all rows and a move along one direction.

    A subclass says what a row weighs (`weights`), and the direction (`direction`).
    """

    curvature: ClassVar[Curvature] = "none"
    """What of the Hessian a look sums up."""
    move_reads: ClassVar[int] = 1
    """Readings of the rows that a move takes."""
    sums_products: ClassVar[bool] = False
    """It follows sums of products that were measured one after another."""
    shard: ClassVar[type[PrimalShard]] = PrimalShard
    """What its shards can do."""
    patience: ClassVar[int] = 1
    """Moves in a row that may lead nowhere before no progress is believed possible."""

    def needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """Bytes by name; per-row needs may go to disk."""
        wide = 8 * (shape.n_features + 1) * shape.n_models
        centre = [Need("means", _CENTRED * wide)] if shape.centred else []
        sums = sums_need(shape, 2 * wide)
        return [
            Need("w", wide), Need("gradients", _WIDE * wide), *centre, *self.more_needs(shape), *sums, *row_needs(shape)
        ]  # fmt: skip

    def more_needs(self, shape: DataShape) -> list[Need]:
        """Needs of one solver beside those of all."""
        return []

    def weights(self, problem: Problem) -> Weights:
        """What each row weighs in the gradient, and in the dual point that it gives."""
        return problem.loss

    def init(self, problem: Problem, ctx: Context) -> PrimalState:
        """w = 0, alpha = 0."""
        rows = None if ctx.shards == 1 else self.sharded(problem, ctx)
        return new_state(problem, ctx, rows=rows)

    def sharded(self, problem: Problem, ctx: Context) -> ShardedRows:
        """Rows on shards."""
        return ShardedRows(problem, ctx, self.sums_products, self.weights(problem), self.shard)

    def step(self, problem: Problem, state: PrimalState, ctx: Context) -> StepInfo:
        """Follow the direction chosen last, then look where that led."""
        n = ctx.data.n_samples
        try:
            if state.moving:
                self.move(state, ctx)
                state.visits += n * self.move_reads
            self.look(state, ctx)
            state.visits += n
        except PassLeft:
            return StepInfo(state.estimate, n, 0, ask_certificate=False, paused=True)
        visits, state.visits = state.visits, 0
        if isinstance(state.rows, ShardedRows):
            state.rows.save()
        return StepInfo(
            state.estimate, n, visits,
            ask_certificate=state.estimate <= ctx.tol,
            exhausted=state.stuck > self.patience,
            rule=self.rule(state), gaps=self.gaps(state), primal=state.primal,
        )  # fmt: skip

    def look(self, state: PrimalState, ctx: Context) -> None:
        """Slacks, gradient and dual point at w, and the direction to follow next."""
        problem, weights = state.problem, self.weights(state.problem)
        V, H = self.read(state, ctx)
        if start_at_costless_bias(state):
            V, H = self.read(state, ctx)
        state.primal = 0.5 * squared_norm(problem, state.w) + state.rows.losses(problem)
        state.gradient = regularised(problem, state.w) - V
        if problem.bias != "free" or state.iteration > 0:  # before the first move b is nowhere near its best
            mixing = state.rows if isinstance(state.rows, ShardedRows) else None
            mix_dual(state, weights, V, tol=ctx.tol, mixing=mixing)
        self.update_gaps(state)
        self.direction(state, H)
        state.moving = True

    def read(self, state: PrimalState, ctx: Context) -> tuple[np.ndarray, np.ndarray | None]:
        """The pass of a look: slacks at w, and V and H as `row_pass` gives them."""
        problem = state.problem
        if isinstance(state.rows, ShardedRows):
            return state.rows.look(state.w, self.curvature)
        return row_pass(
            ctx, problem, state.rows, state.w.shape, w=state.w, weights=self.weights(problem),
            curvature=self.curvature,
        )  # fmt: skip

    def direction(self, state: PrimalState, H: np.ndarray | None) -> None:
        """Set `state.direction`, one of descent, from the gradient (and Hessian) of the present point."""
        raise NotImplementedError

    def move(self, state: PrimalState, ctx: Context) -> None:
        """Measure the direction, search along it exactly, go there; then to the best free bias."""
        problem, rows, d = state.problem, state.rows, state.direction
        self.measure(state, ctx)
        steps = rows.search(problem, inner(problem, state.w, d), squared_norm(problem, d))
        rows.advance(steps)
        lengths = np.array([step.length for step in steps])
        columns(state.w)[...] += columns(d) * lengths
        if problem.bias == "free":
            columns(state.w)[-1] += rows.settle_bias(problem) / problem.constant_feature
        self.moved(state, lengths)

    def measure(self, state: PrimalState, ctx: Context) -> None:
        """The pass of a move: products of the rows with the direction."""
        if isinstance(state.rows, ShardedRows):
            state.rows.measure(state.direction)
        else:
            row_pass(ctx, state.problem, state.rows, state.direction.shape, d=state.direction)

    def moved(self, state: PrimalState, lengths: np.ndarray) -> None:
        """Book-keeping of a move by `lengths` along the direction."""
        self.arrived(state, lengths * np.sqrt((columns(state.direction) ** 2).sum(axis=0)))

    def rule(self, state: PrimalState) -> Rule | None:
        """The stop rule of the solver's paper, where it holds."""
        return None
