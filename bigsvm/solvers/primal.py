"""What the primal solvers share: a point, its slacks, the best dual point, and steps of look and move.

A look is one reading of all rows: slacks and gradient at w, and what they prove.  A move is another: products
with the new direction, then an exact line search that needs two numbers a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from bigsvm.problem.certificate import Certificate
from bigsvm.problem.problem import Problem, zero_weights
from bigsvm.solvers.base import Context, DataShape, Need, Point, StepInfo
from bigsvm.solvers.row_pass import PassLeft, Weights, row_pass
from bigsvm.solvers.row_state import NaturalDual, RowState, new_rows, row_needs

_ROUNDING = 1e-14  # steps shorter than this, relative to w, go nowhere
_WIDE = 8  # arrays as large as w: the point, gradient, direction, best dual point, and sums of tasks


class Known(Protocol):
    """Knows alpha of some rows better than their slacks do."""

    def put(self, piece: slice, alpha: np.ndarray) -> None:
        """Write what is known of the rows of a piece into their alpha, (n_rows, n_models)."""
        ...


@dataclass
class DualPoint:
    """The running convex combination of the dual points that gradients gave (`algorithms` 1.3).

    linear, squares : float64, (n_models,)   sum_i alpha_i and sum_i D_i alpha_i^2 / 2
    v : float64, shape of w   sum_i alpha_i y_i [x_i, bias]
    """

    linear: np.ndarray
    squares: np.ndarray
    v: np.ndarray

    def value(self, problem: Problem) -> np.ndarray:
        """D(alpha) of each model."""
        return self.linear - 0.5 * squared_norm(problem, self.v) - self.squares


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


def columns(a: np.ndarray) -> np.ndarray:
    """A view with the models on the last axis."""
    return a if a.ndim == 2 else a[:, None]


def regularised(problem: Problem, w: np.ndarray) -> np.ndarray:
    """w without what costs nothing: its last entry where the bias is free; a copy only there."""
    if problem.bias != "free":
        return w
    without = w.copy()
    without[-1] = 0.0
    return without


def squared_norm(problem: Problem, w: np.ndarray) -> np.ndarray:
    """||w||^2 of each model as the regulariser sees it."""
    return inner(problem, w, w)


def inner(problem: Problem, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a.b of each model, without an unregularised bias."""
    stop = -1 if problem.bias == "free" else None
    return np.atleast_1d(np.einsum("j...,j...->...", a[:stop], b[:stop]))


def new_state(problem: Problem, ctx: Context, with_slopes: bool = True) -> PrimalState:
    """w = 0, alpha = 0."""
    m, d = problem.n_models, ctx.data.n_features

    def zeros() -> np.ndarray:
        return zero_weights(d, m)

    return PrimalState(
        problem=problem,
        w=zeros(),
        rows=new_rows(problem, ctx, with_slopes),
        dual=DualPoint(np.zeros(m), np.zeros(m), zeros()),
        gradient=zeros(),
        direction=zeros(),
        primal=np.full(m, np.inf),
    )


def mix_dual(state: PrimalState, weights: Weights, V: np.ndarray, known: Known | None = None, tol: float = 0.0) -> None:
    """Move the best dual point to the best mixture of it and the one that `weights` give at the present slacks.

    known : says what some rows have instead of what `weights` give
    V : what the rows of the new point sum up to.  D depends on alpha through three sums only, so that the best
    mixture is known before alpha is touched.
    tol : a new point whose own relative gap is as small is taken alone: in a mixture every row that ever weighed
    something has alpha > 0
    """
    problem, rows, dual = state.problem, state.rows, state.dual
    diag = 2.0 * problem.loss.diag_factor  # squares = sum diag alpha^2 / (4 C)
    shares = _balance(problem, rows, weights, known)
    sums = []
    for piece in rows.pieces():
        new, old, C = (
            _scaled(problem, rows, weights, known, shares, piece),
            rows.alpha.values[piece],
            rows.costs(problem, piece),
        )
        quarter = np.divide(0.5 * diag, 2.0 * C, out=np.zeros_like(C), where=C > 0)
        sums.append([new.sum(axis=0), (quarter * new * new).sum(axis=0), (quarter * new * old).sum(axis=0)])
    linear, squares, cross = (
        np.array([math.fsum(column) for column in part]) for part in np.array(sums).transpose(1, 2, 0)
    )
    change = V - dual.v
    rise = linear - dual.linear - inner(problem, dual.v, change) - 2.0 * (cross - dual.squares)
    bend = squared_norm(problem, change) + 2.0 * (dual.squares - 2.0 * cross + squares)
    theta = np.clip(np.divide(rise, bend, out=np.zeros_like(rise), where=bend > 0), 0.0, 1.0)
    alone = linear - 0.5 * squared_norm(problem, V) - squares
    balanced = True if shares is None else shares.min(axis=0) >= 1.0 - _ROUNDING  # else V is not quite its own
    theta[balanced & (state.primal - alone <= tol * state.primal)] = 1.0
    if not theta.any():
        return
    for piece in rows.pieces():
        new, old = _scaled(problem, rows, weights, known, shares, piece), rows.alpha.values[piece]
        rows.alpha.values[piece] = np.where(theta == 1.0, new, old + theta * (new - old))
    dual.squares = (1 - theta) ** 2 * dual.squares + 2 * theta * (1 - theta) * cross + theta**2 * squares
    dual.linear = (1 - theta) * dual.linear + theta * linear
    dual.v += change * (theta if change.ndim == 2 else theta[0])


def _alpha(problem: Problem, rows: RowState, weights: Weights, known: Known | None, piece: slice) -> np.ndarray:
    alpha = weights.alpha(rows.s.values[piece], rows.costs(problem, piece))
    if known is not None:
        known.put(piece, alpha)
    return alpha


def _scaled(
    problem: Problem, rows: RowState, weights: Weights, known: Known | None, shares: np.ndarray | None, piece: slice
) -> np.ndarray:
    alpha = _alpha(problem, rows, weights, known, piece)
    if shares is not None:
        alpha = alpha * np.where(rows.signs(problem, piece) > 0, shares[0], shares[1])
    return alpha


def _balance(problem: Problem, rows: RowState, weights: Weights, known: Known | None) -> np.ndarray | None:
    """Factors (2, n_models) of the positive and negative rows that make sum y alpha = 0, where the bias is free."""
    if problem.bias != "free":
        return None
    sums = []
    for piece in rows.pieces():
        alpha = _alpha(problem, rows, weights, known, piece)
        positive = rows.signs(problem, piece) > 0
        sums.append([np.where(positive, alpha, 0.0).sum(axis=0), np.where(positive, 0.0, alpha).sum(axis=0)])
    totals = np.array([[math.fsum(column) for column in part] for part in np.array(sums).transpose(1, 2, 0)])
    lighter = totals.min(axis=0)
    return np.divide(lighter, totals, out=np.zeros_like(totals), where=totals > 0)


class FullGradient:
    """Template of the solvers whose iteration is a look at all rows and a move along one direction.

    A subclass says what a row weighs (`weights`), and the direction (`direction`).
    """

    rides: ClassVar[bool] = False
    with_hessian: ClassVar[bool] = False
    patience: ClassVar[int] = 1
    """Moves in a row that may lead nowhere before no progress is believed possible."""

    def weight_bytes(self, tol: float, parallel: int) -> int:
        """Always float64."""
        return 8

    def refusal(self, shape: DataShape) -> str | None:
        """Why such data are not for this solver, if so."""
        return None

    def needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """Bytes by name; per-row needs may go to disk."""
        wide = 8 * (shape.n_features + 1) * shape.n_models
        return [Need("w", wide), Need("gradients", _WIDE * wide), *self.more_needs(shape), *row_needs(shape)]

    def more_needs(self, shape: DataShape) -> list[Need]:
        """Needs of one solver beside those of all."""
        return []

    def weights(self, problem: Problem) -> Weights:
        """What each row weighs in the gradient, and in the dual point that it gives."""
        return NaturalDual(problem.loss.code)

    def init(self, problem: Problem, ctx: Context) -> PrimalState:
        """w = 0, alpha = 0."""
        return new_state(problem, ctx)

    def before_load(self, state: PrimalState, tree: Any, ctx: Context) -> None:
        """A new state has room for a saved one."""

    def step(self, problem: Problem, state: PrimalState, ctx: Context) -> StepInfo:
        """Follow the direction chosen last, then look where that led."""
        n = ctx.data.n_samples
        try:
            if state.moving:
                self.move(state, ctx)
                state.visits += n
            self.look(state, ctx)
            state.visits += n
        except PassLeft:
            return StepInfo(state.estimate, n, 0, ask_certificate=False, paused=True)
        visits, state.visits = state.visits, 0
        return StepInfo(
            state.estimate, n, visits,
            ask_certificate=state.estimate <= ctx.tol,
            exhausted=state.stuck > self.patience,
            rule_met=self.rule_met(state),
        )  # fmt: skip

    def look(self, state: PrimalState, ctx: Context) -> None:
        """Slacks, gradient and dual point at w, and the direction to follow next."""
        problem, weights = state.problem, self.weights(state.problem)
        V, H = self.read(state, ctx)
        state.primal = 0.5 * squared_norm(problem, state.w) + state.rows.losses(problem)
        state.gradient = regularised(problem, state.w) - V
        if problem.bias != "free" or state.iteration > 0:  # before the first move b is nowhere near its best
            mix_dual(state, weights, V, tol=ctx.tol)
        dual = np.maximum(state.dual.value(problem), 0.0)
        gaps = np.divide(state.primal - dual, state.primal, out=np.zeros_like(dual), where=state.primal > 0)
        state.estimate = max(float(gaps.max()), 0.0)
        self.direction(state, H)
        state.moving = True

    def read(self, state: PrimalState, ctx: Context) -> tuple[np.ndarray, np.ndarray | None]:
        """The pass of a look: slacks at w, and V and H as `row_pass` gives them."""
        problem = state.problem
        return row_pass(
            ctx, problem, state.rows, state.w.shape, w=state.w, weights=self.weights(problem),
            hessian=self.with_hessian,
        )  # fmt: skip

    def direction(self, state: PrimalState, H: np.ndarray | None) -> None:
        """Set `state.direction`, one of descent, from the gradient (and Hessian) of the present point."""
        raise NotImplementedError

    def move(self, state: PrimalState, ctx: Context) -> None:
        """Measure the direction, search along it exactly, go there; then to the best free bias."""
        problem, rows, d = state.problem, state.rows, state.direction
        row_pass(ctx, problem, rows, d.shape, d=d)
        steps = rows.search(problem, inner(problem, state.w, d), squared_norm(problem, d))
        rows.advance(steps)
        lengths = np.array([step.length for step in steps])
        columns(state.w)[...] += columns(d) * lengths
        if problem.bias == "free":
            columns(state.w)[-1] += rows.settle_bias(problem) / problem.constant_feature
        self.moved(state, lengths)

    def moved(self, state: PrimalState, lengths: np.ndarray) -> None:
        """Book-keeping of a move by `lengths` along the direction."""
        self.arrived(state, lengths * np.sqrt((columns(state.direction) ** 2).sum(axis=0)))

    def arrived(self, state: PrimalState, norms: np.ndarray) -> None:
        """Book-keeping of a move of such norms, (n_models,)."""
        state.step_norm = float(np.max(norms))
        reach = np.sqrt((columns(state.w) ** 2).sum(axis=0))
        state.stuck = 0 if np.any(norms > _ROUNDING * reach) else state.stuck + 1
        state.iteration += 1
        state.moving = False

    def rule_met(self, state: PrimalState) -> bool:
        """Whether the stop rule of the solver's paper holds."""
        return False

    def forecast(self, state: PrimalState) -> float:
        """The relative gap that a proof of the present point is expected to show."""
        return state.estimate

    def points(self, state: PrimalState) -> list[Point]:
        """The point that was looked at, and the best dual point."""
        return [Point(state.problem, state.w, state.rows.alpha)]

    def learn(
        self, state: PrimalState, certificate: Certificate, rebuilt: Sequence[np.ndarray], of: Sequence[np.ndarray]
    ) -> None:
        """Take the rounding out of what is known of the dual point."""
        state.dual.v[...] = rebuilt[0]

    def finish(self, state: PrimalState) -> None:
        """Give back what only training needs."""
        state.rows.close()
