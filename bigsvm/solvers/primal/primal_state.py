"""The state of primal solvers, and the template of those that use the full gradient.

A step consists of a move and a look, each of which reads all rows once.  A move computes the products of all rows with
the direction, and then searches along it exactly, which needs two numbers for each row.  A look computes slacks and
gradient at w, and from them a dual point.
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

_ROUNDING = 1e-14  # steps shorter than this, relative to w, are rounding errors
_WIDE = 8  # arrays as large as w: the point, gradient, direction, best dual point, and sums of tasks
_CENTRED = 4  # further arrays if `Problem.centre` is set: the means, and w, a direction and sums converted with them


@dataclass
class PrimalState:
    """Everything that a resumed run needs.

    w, gradient, direction : float64, (n_features + 1,) or (n_features + 1, n_models)
    rows : slacks, products and alpha of the rows;  dual : the best dual point
    primal : float64, (n_models,)   P(w)
    moving : a direction was chosen, and the next step begins with a move along it
    estimate : the largest relative gap;  step_norm : ||w_{k+1} - w_k|| of the last move, the largest
    iteration : moves so far;  stuck : moves in a row that were too short to matter
    visits : row visits of the unfinished step
    extra : further state of one solver
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
    """w = 0, alpha = 0.  rows : of the state; None: new ones, in this process"""
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
    """The largest of gaps / primal, both (n_models,).  A ratio is 0 if P is 0, or if rounding made the gap negative."""
    return max(float(np.divide(gaps, primal, out=np.zeros_like(gaps), where=primal > 0).max()), 0.0)


def point_of(problem: Problem, w: np.ndarray, rows: RowState) -> Point:
    """The point (w, alpha), with alpha collected from the shards if there are any."""
    if isinstance(rows, ShardedRows):
        rows.collect()
        return Point(problem, w, rows.alpha, on_shards=rows.prove)
    return Point(problem, w, rows.alpha)


def start_at_costless_bias(state: PrimalState) -> bool:
    """Before the first move, set a free bias so that w = 0 has the least losses.

    True if it was changed, so that slacks must be computed again.
    """
    if state.iteration > 0 or state.w.any():
        return False
    columns(state.w)[-1] = state.rows.costless_bias(state.problem) / (state.problem.constant_feature or 1.0)
    return bool(state.w.any())


class PrimalSolver(SolverBase):
    """Base class of solvers whose state is a PrimalState."""

    def start_at(self, state: Any, w: np.ndarray | None) -> list[RowVector]:
        """Start at w."""
        assert w is not None
        state.w[...] = w
        return []

    def small_fits(self, tol: float, resident: bool) -> list[SmallFit]:
        """One, since the same code is called for all data of a shape."""
        return [SmallFit()]

    def weight_bytes(self, tol: float, regression: bool) -> int:
        """Always float64."""
        return 8

    def refusal(self, shape: DataShape) -> str | None:
        """Any shape is supported, unless a subclass says otherwise."""
        return None

    def before_load(self, state: Any, tree: Any, ctx: Context) -> None:
        """Nothing to do: a new state has all arrays of a saved one."""

    def gaps(self, state: PrimalState) -> np.ndarray:
        """P(w) minus the best dual value, (n_models,)."""
        return np.asarray(state.primal - np.maximum(state.dual.value(state.problem), 0.0))

    def update_gaps(self, state: PrimalState) -> np.ndarray:
        """Update `state.estimate`; returns `gaps`."""
        gaps = self.gaps(state)
        state.estimate = largest_relative(gaps, state.primal)
        return gaps

    def arrived(self, state: PrimalState, norms: np.ndarray) -> None:
        """Update counters after a move.  norms : ||w_{k+1} - w_k||, (n_models,)"""
        state.step_norm = float(np.max(norms))
        reach = np.sqrt((columns(state.w) ** 2).sum(axis=0))
        state.stuck = 0 if np.any(norms > _ROUNDING * reach) else state.stuck + 1
        state.iteration += 1
        state.moving = False

    def forecast(self, state: Any) -> float:
        """The relative gap that a proof of the present point is expected to show."""
        return state.estimate

    def points(self, state: Any) -> list[Point]:
        """The present w, with the best dual point."""
        return [point_of(state.problem, state.w, state.rows)]

    def learn(
        self, state: Any, certificate: Certificate, rebuilt: Sequence[np.ndarray], of: Sequence[np.ndarray]
    ) -> None:
        """Replace w(alpha) of the dual point by the one that the proof computed, without rounding errors."""
        state.dual.v[...] = rebuilt[0]

    def finish(self, state: Any) -> None:
        """Give back what only training needs."""
        state.rows.close()


class FullGradient(PrimalSolver):
    """Template of solvers that move along one direction, which they choose from the full gradient.

    A subclass implements `direction`, and may override `weights`.
    """

    curvature: ClassVar[Curvature] = "none"
    """The part of the Hessian that a look computes."""
    move_reads: ClassVar[int] = 1
    """Readings of the rows in a move."""
    sums_products: ClassVar[bool] = False
    """A direction is a sum of vectors whose products are computed one after another (conjugate gradients)."""
    shard: ClassVar[type[PrimalShard]] = PrimalShard
    """The class of the state of a shard."""
    patience: ClassVar[int] = 1
    """Number of moves in a row that may be too short before the fit counts as stalled."""

    def needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """Bytes by name; per-row needs may go to disk."""
        wide = 8 * (shape.n_features + 1) * shape.n_models
        centre = [Need("means", _CENTRED * wide)] if shape.centred else []
        sums = sums_need(shape, 2 * wide)
        return [
            Need("w", wide), Need("gradients", _WIDE * wide), *centre, *self.more_needs(shape), *sums, *row_needs(shape)
        ]  # fmt: skip

    def more_needs(self, shape: DataShape) -> list[Need]:
        """Further needs of a subclass."""
        return []

    def weights(self, problem: Problem) -> Weights:
        """The function from slacks to the weights of rows in the gradient, which are also a dual point."""
        return problem.loss

    def init(self, problem: Problem, ctx: Context) -> PrimalState:
        """w = 0, alpha = 0."""
        rows = None if ctx.shards == 1 else self.sharded(problem, ctx)
        return new_state(problem, ctx, rows=rows)

    def sharded(self, problem: Problem, ctx: Context) -> ShardedRows:
        """The rows, on shards."""
        return ShardedRows(problem, ctx, self.sums_products, self.weights(problem), self.shard)

    def step(self, problem: Problem, state: PrimalState, ctx: Context) -> StepInfo:
        """A move along the direction chosen last, then a look."""
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
        """Compute slacks, gradient and a dual point at w, and choose the next direction."""
        problem, weights = state.problem, self.weights(state.problem)
        V, H = self.read(state, ctx)
        if start_at_costless_bias(state):
            V, H = self.read(state, ctx)
        state.primal = 0.5 * squared_norm(problem, state.w) + state.rows.losses(problem)
        state.gradient = regularised(problem, state.w) - V
        if problem.bias != "free" or state.iteration > 0:  # before the first move b is far from its optimum
            mixing = state.rows if isinstance(state.rows, ShardedRows) else None
            mix_dual(state, weights, V, tol=ctx.tol, mixing=mixing)
        self.update_gaps(state)
        self.direction(state, H)
        state.moving = True

    def read(self, state: PrimalState, ctx: Context) -> tuple[np.ndarray, np.ndarray | None]:
        """The reading of a look: computes slacks at w, and returns V and H of `row_pass`."""
        problem = state.problem
        if isinstance(state.rows, ShardedRows):
            return state.rows.look(state.w, self.curvature)
        return row_pass(
            ctx, problem, state.rows, state.w.shape, w=state.w, weights=self.weights(problem),
            curvature=self.curvature,
        )  # fmt: skip

    def direction(self, state: PrimalState, H: np.ndarray | None) -> None:
        """Set `state.direction`, a direction of descent, from the gradient (and Hessian) at w."""
        raise NotImplementedError

    def move(self, state: PrimalState, ctx: Context) -> None:
        """Search exactly along the direction and move w; then set a free bias to its optimum."""
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
        """The reading of a move: products of the rows with the direction."""
        if isinstance(state.rows, ShardedRows):
            state.rows.measure(state.direction)
        else:
            row_pass(ctx, state.problem, state.rows, state.direction.shape, d=state.direction)

    def moved(self, state: PrimalState, lengths: np.ndarray) -> None:
        """Update counters after a move of step lengths `lengths`, (n_models,)."""
        self.arrived(state, lengths * np.sqrt((columns(state.direction) ** 2).sum(axis=0)))

    def rule(self, state: PrimalState) -> Rule | None:
        """The stop rule of the solver's paper, if it is met; else None."""
        return None
