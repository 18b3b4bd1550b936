"""The state that primal solvers share, and the template of their iterations, which consist of a look and a move.

A look reads all rows once, and computes slacks, gradient and a dual point at w.  A move reads all rows once for their
products with the new direction; the exact line search that follows needs only two numbers for each row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from bigsvm.problem.certificate import Certificate
from bigsvm.problem.problem import Problem, zero_weights
from bigsvm.solvers.base import WEIGHTS, DataShape, Need, Point, Rule, SmallFit, SolverBase, StepInfo
from bigsvm.solvers.context import Context
from bigsvm.solvers.primal.dual_point import DualPoint, mix_dual
from bigsvm.solvers.primal.row_pass import Curvature, Weights, row_pass
from bigsvm.solvers.primal.row_state import RowState, new_rows, row_needs
from bigsvm.solvers.primal.shards.shard_state import PrimalShard
from bigsvm.solvers.primal.shards.sharded_rows import ShardedRows, sums_need
from bigsvm.solvers.weights import columns, inner, regularised, squared_norm
from bigsvm.store.state.vectors import RowVector
from bigsvm.tasks import PassLeft, leaving_when

_ROUNDING = 1e-14  # length of a step, relative to w, up to which w counts as unchanged
_WIDE = 8  # arrays as large as w: the point, gradient, direction, best dual point, and sums of tasks
_CENTRED = 4  # more of them if rows count as centred: the means; and w, a direction and sums for stored rows


@dataclass
class PrimalState:
    """The state of a primal solver, from which a run can be resumed.

    w, gradient, direction : float64, (n_features + 1,) or (n_features + 1, n_models)
    rows : RowState          slacks, products and alpha of the rows
    dual : DualPoint         the best dual point
    primal : float64, (n_models,)   P(w)
    moving : bool            a direction was chosen, and the next step moves along it
    estimate : float         largest relative gap;  step_norm : float   largest ||w_{k+1} - w_k|| of the last move
    iteration : int          moves so far;  stuck : int   moves in a row that did not change w
    visits : int             rows visited in the present step
    extra : state that only one solver has
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
    """The state at w = 0, alpha = 0.  rows : those to use; None: new vectors in this process"""
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
    """The largest gap / primal of all models, (n_models,) both; 0 if P is 0, or if rounding made the gap negative."""
    return max(float(np.divide(gaps, primal, out=np.zeros_like(gaps), where=primal > 0).max()), 0.0)


def start_at_costless_bias(state: PrimalState) -> bool:
    """Before the first move, set a free bias with which w = 0 has P = 0, if there is one.

    True if it was set; the slacks must then be computed anew.
    """
    if state.iteration > 0 or state.w.any():
        return False
    columns(state.w)[-1] = state.rows.costless_bias(state.problem) / (state.problem.constant_feature or 1.0)
    return bool(state.w.any())


class PrimalSolver(SolverBase):
    """Template of all solvers with a `PrimalState`."""

    def start_at(self, state: Any, w: np.ndarray | None) -> list[RowVector]:
        """Start at w."""
        assert w is not None
        state.w[...] = w
        return []

    def small_fits(self, tol: float, resident: bool) -> list[SmallFit]:
        """A single small fit, because the tolerance does not change which loops are called."""
        return [SmallFit()]

    def weight_bytes(self, tol: float, regression: bool) -> int:
        """Always float64."""
        return 8

    def refusal(self, shape: DataShape) -> str | None:
        """None: every shape is accepted."""
        return None

    def before_load(self, state: Any, tree: Any, ctx: Context) -> None:
        """Nothing to do: a new state has the same arrays as a saved one."""

    def gaps(self, state: PrimalState) -> np.ndarray:
        """P minus the best dual value, or minus 0 if that is larger; float64, (n_models,)."""
        return np.asarray(state.primal - np.maximum(state.dual.value(state.problem), 0.0))

    def update_gaps(self, state: PrimalState) -> np.ndarray:
        """Set `estimate` from the gaps, and return these; float64, (n_models,)."""
        gaps = self.gaps(state)
        state.estimate = largest_relative(gaps, state.primal)
        return gaps

    def arrived(self, state: PrimalState, norms: np.ndarray) -> None:
        """Record a move.  norms : float64, (n_models,)   lengths of the changes of w"""
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
        return [state.rows.point(state.problem, state.w)]

    def learn(
        self, state: Any, certificate: Certificate, rebuilt: Sequence[np.ndarray], of: Sequence[np.ndarray]
    ) -> None:
        """Remove rounding errors from v of the best dual point, by the one that the proof has rebuilt."""
        state.dual.v[...] = rebuilt[0]

    def finish(self, state: Any) -> None:
        """Release what only training needs."""
        state.rows.close()


class FullGradient(PrimalSolver):
    """Template of solvers whose iteration is a look at all rows and a move along one direction.

    A subclass implements `direction`, and `weights` if it does not use the loss of the problem.
    """

    looks_first: ClassVar[bool] = True
    curvature: ClassVar[Curvature] = "none"
    """The part of the Hessian that a look sums up."""
    move_reads: ClassVar[int] = 1
    """Readings of the rows in a move."""
    sums_products: ClassVar[bool] = False
    """Whether the direction is a sum of directions, whose products were computed one after another."""
    shard: ClassVar[type[PrimalShard]] = PrimalShard
    """The class of its shards."""
    patience: ClassVar[int] = 1
    """Moves in a row without a change of w after which no progress is expected."""
    hurries: ClassVar[bool] = False
    """Whether a look takes so much longer than a reading that it is left when --max-time is over (rows in memory)."""

    def needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """Named amounts in bytes; what grows with the rows may go to disk."""
        wide = 8 * (shape.n_features + 1) * shape.n_models
        centre = [Need("means", _CENTRED * wide)] if shape.centred else []
        sums = sums_need(shape, 2 * wide)
        return [
            Need(WEIGHTS, wide),
            Need("gradients", _WIDE * wide),
            *centre,
            *self.more_needs(shape),
            *sums,
            *self.needs_of_rows(shape),
        ]

    def needs_of_rows(self, shape: DataShape) -> list[Need]:
        """Needs of the vectors with an entry for each row."""
        return row_needs(shape)

    def more_needs(self, shape: DataShape) -> list[Need]:
        """Needs of this solver beyond those of the template."""
        return []

    def weights(self, problem: Problem) -> Weights:
        """The loss that gives alpha and curvature of each row from its slack."""
        return problem.loss

    def init(self, problem: Problem, ctx: Context) -> PrimalState:
        """Start at w = 0, alpha = 0."""
        rows = None if ctx.shards == 1 else self.sharded(problem, ctx)
        return new_state(problem, ctx, rows=rows)

    def sharded(self, problem: Problem, ctx: Context) -> ShardedRows:
        """The rows, if they lie on shards."""
        return ShardedRows(problem, ctx, self.sums_products, self.weights(problem), self.shard)

    def step(self, problem: Problem, state: PrimalState, ctx: Context) -> StepInfo:
        """Move along the direction that was chosen last, then look at the new point."""
        n = ctx.data.n_samples
        hurries = self.hurries and ctx.resident and ctx.shards == 1
        try:
            if state.moving:
                self.move(state, ctx)
                state.visits += n * self.move_reads
            if not hurries:
                self.look(state, ctx)
            elif not self._looked_in_time(state, ctx) or ctx.expired():
                self._end_at_once(state, ctx)
            state.visits += n
        except PassLeft:
            over = ctx.expired() and not ctx.stopping()
            return StepInfo(state.estimate, n, 0, ask_certificate=False, paused=not over)
        visits, state.visits = state.visits, 0
        state.rows.end_step()
        return StepInfo(
            state.estimate, n, visits,
            ask_certificate=state.estimate <= ctx.tol,
            exhausted=state.stuck > self.patience,
            rule=self.rule(state), gaps=self.gaps(state), primal=state.primal, readings=self.readings(state, ctx),
        )  # fmt: skip

    def readings(self, state: PrimalState, ctx: Context) -> int:
        """Readings of all rows that the next step takes; with all rows in memory, the epochs that it counts."""
        return self.move_reads + 1

    def last_points(self, state: PrimalState) -> list[Point]:
        """As `points`, but models whose w is still 0 have the direction that the first look has chosen."""
        (point,) = self.points(state)
        w, d, g = point.w.copy(), columns(state.direction), columns(state.gradient)
        W = columns(w)
        unmoved, known = ~W.any(axis=0), d.any(axis=0)
        W[:, unmoved] = np.where(known, d, -g)[:, unmoved]
        return [point._replace(w=w)]

    def look(self, state: PrimalState, ctx: Context) -> None:
        """Compute slacks, gradient and dual point at w, and choose the next direction."""
        V, H = self.read(state, ctx)
        if start_at_costless_bias(state):
            V, H = self.read(state, ctx)
        self._see(state, ctx, V)
        self.direction(state, H)
        state.moving = True

    def _see(self, state: PrimalState, ctx: Context, V: np.ndarray) -> None:
        """Set objective, gradient and dual point from the slacks and from their V (`read`)."""
        problem, weights = state.problem, self.weights(state.problem)
        state.primal = 0.5 * squared_norm(problem, state.w) + state.rows.losses(problem)
        state.gradient = regularised(problem, state.w) - V
        if problem.bias != "free" or state.iteration > 0:  # before the first move b is far from its optimum
            mix_dual(state, weights, V, tol=ctx.tol)
        self.update_gaps(state)

    def _looked_in_time(self, state: PrimalState, ctx: Context) -> bool:
        """Look, unless --max-time is over before the direction is known: then False, and w stays as it was."""
        control = replace(ctx.control, stopping=lambda: ctx.stopping() or ctx.expired())
        try:
            with leaving_when(ctx.expired):
                self.look(state, replace(ctx, control=control))
        except PassLeft:
            if ctx.stopping():
                raise
            return False
        return True

    def _end_at_once(self, state: PrimalState, ctx: Context) -> None:
        """End where --max-time is over: move along the direction, if there is one, and see the point without a Hessian.

        At w = 0 a move along the gradient leads to weights that tell the classes apart, in one more reading.
        """
        if not state.moving:
            self._glance(state, ctx)
            idle = ~columns(state.w).any(axis=0)
            columns(state.direction)[...] = np.where(idle, -columns(state.gradient), 0.0)
            state.moving = bool(idle.any())
        if state.moving:
            self.move(state, ctx)
            self._glance(state, ctx)

    def _glance(self, state: PrimalState, ctx: Context) -> None:
        """A look without a Hessian and without a direction."""
        problem, weights = state.problem, self.weights(state.problem)
        V, _ = row_pass(ctx, problem, state.rows, state.w.shape, w=state.w, weights=weights)
        self._see(state, ctx, V)

    def read(self, state: PrimalState, ctx: Context) -> tuple[np.ndarray, np.ndarray | None]:
        """The pass of a look: slacks at w; returns V and H of `row_pass`."""
        problem = state.problem
        if isinstance(state.rows, ShardedRows):
            return state.rows.look(state.w, self.curvature)
        return row_pass(
            ctx, problem, state.rows, state.w.shape, w=state.w, weights=self.weights(problem),
            curvature=self.curvature,
        )  # fmt: skip

    def direction(self, state: PrimalState, H: np.ndarray | None) -> None:
        """Set `state.direction`, a descent direction, from the gradient (and the Hessian H) at the present point."""
        raise NotImplementedError

    def move(self, state: PrimalState, ctx: Context) -> None:
        """Measure the direction, make the exact step along it, and then move a free bias to its optimum."""
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
        """Record a move.  lengths : float64, (n_models,)   steps along the direction"""
        self.arrived(state, lengths * np.sqrt((columns(state.direction) ** 2).sum(axis=0)))

    def rule(self, state: PrimalState) -> Rule | None:
        """The stop rule of the solver's paper, if it is met."""
        return None
