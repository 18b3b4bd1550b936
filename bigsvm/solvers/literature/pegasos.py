"""Pegasos, stochastic or plain subgradient descent on the hinge loss (`pegasos`; docs/mathematics.md 7.5).

It is a baseline that papers compare with.  The published method has no stop rule; here it ends by a proof.  Each
iterate is a mean of subgradients, so w = sum_i alpha_i y_i x_i for some alpha in the box, and the gap follows from the
slacks that a pass computes anyway.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bigsvm.compiled.linear.pegasos import (
    GAP,
    LOSS,
    LabelledRows,
    Models,
    ScaledPoint,
    StepLength,
    fold_scales,
    pegasos_visit,
)
from bigsvm.compiled.shared.visiting import VisitingOrder, mixed_runs_of
from bigsvm.problem.certificate import Certificate
from bigsvm.problem.problem import Problem, zero_weights
from bigsvm.solvers.base import STEPS, WEIGHTS, DataShape, Need, Point, Rule, SmallFit, SolverBase, StepInfo
from bigsvm.solvers.block_order import groups_at_random
from bigsvm.solvers.context import Context
from bigsvm.solvers.literature.pegasos_rows import PegasosShard, follow, gaps_and_cost
from bigsvm.solvers.primal.primal_state import largest_relative
from bigsvm.solvers.primal.row_pass import row_pass
from bigsvm.solvers.primal.row_state import RowState, row_needs, y_vector
from bigsvm.solvers.primal.shards.sharded_rows import ShardedRows, summed, sums_need
from bigsvm.solvers.weights import columns, squared_norm
from bigsvm.store.blocks import Block, BlockGroup, readonly_view
from bigsvm.store.read_ahead import ReadAhead
from bigsvm.tasks import PassLeft

_FIRST_CHECK = 4  # passes of mini-batches before the first proof whatever the estimate; then at each doubling
_WIDE = 6  # arrays as large as w in the batch method: the subgradient, its sum, and parts of tasks


@dataclass
class PegasosState:
    """The state from which a run can be resumed.

    w : float64, (n_features + 1,) or (n_features + 1, n_models)
    rows : alpha; in the batch method (all rows in a step) also slacks at w and costs, otherwise these are empty
    primal : float64, (n_models,)   P(w); with mini-batches, from slacks that were computed while w changed
    estimate : largest relative gap, from the same slacks;  share : proved gap / estimate, at the last proof
    iteration : number of steps
    total_cost : sum of the costs of all rows, nan until a pass has seen them

    Only in the batch method:
    pending : float64, shape of w   sum of C_i y_i x_i over the rows that violate at w
    looked : bool                   `pending` and the slacks belong to the present w, so that a step may follow

    Only with mini-batches:
    scale : float64, (n_models,)    factor by which w and alpha must be multiplied, in the middle of a pass
    sqnorm : float64, (n_models,)   ||w||^2 without that factor
    seen, done, epoch : int         rows visited since the start, groups of the present pass that are done, passes
    sums, cost_seen : gap and loss of each model, and costs, summed so far in the present pass
    next_check : int                passes after which a proof is asked for whatever the estimate
    """

    problem: Problem = field(metadata={"derived": True})
    w: np.ndarray
    rows: RowState
    primal: np.ndarray
    pending: np.ndarray
    scale: np.ndarray
    sqnorm: np.ndarray
    sums: np.ndarray
    total_cost: float = math.nan
    estimate: float = math.inf
    share: float = 1.0
    iteration: int = 0
    looked: bool = False
    seen: int = 0
    done: int = 0
    epoch: int = 0
    cost_seen: float = 0.0
    next_check: int = _FIRST_CHECK


@dataclass(frozen=True)
class Pegasos(SolverBase):
    """Hyperparameters of `pegasos`.

    With lambda = 1 / (C n_samples), step t takes a batch A of rows and sets

        w <- (1 - eta lambda) w + (eta / |A|) sum_{i in A, y_i w.x_i < 1} cost_i y_i x_i

    with eta = 1 / (lambda (t + offset)), and then projects w onto the ball ||w||^2 <= C sum_i cost_i, which contains
    the optimum (its squared radius is 1 / lambda if all costs are 1).

    batch : int         rows in a step; 0: all rows, which is the deterministic method, with one pass in a step and the
        exact P and gap of every iterate.  Otherwise rows come in an order drawn anew for every pass.  A batch ends at
        the latest where the rows that are read together end; if it is cut short, it counts as that fraction of a step
    offset : int        1, as in the tables of Do and Artieres; 0 as in Shalev-Shwartz, Singer and Srebro
    projection : bool   1 or 0.  In the first pass of mini-batches over rows with weights there is none: the ball is
        known once all costs were seen
    iterations : int    rule of --stop paper: end after as many steps (with their pass); 0: never
    """

    name: ClassVar[str] = "pegasos"
    losses: ClassVar[tuple[str, ...]] = ("hinge",)
    biases: ClassVar[tuple[str, ...]] = ("augmented", "none")
    paper_rule: ClassVar[bool] = True
    in_shards: ClassVar[bool] = True
    shards_if_asked: ClassVar[bool] = True  # only the batch method

    batch: int = 100
    offset: int = 1
    projection: bool = True
    iterations: int = 0

    def __post_init__(self) -> None:
        if self.batch < 0 or self.iterations < 0:
            raise ValueError("batch and iterations must not be negative")
        if self.offset not in (0, 1):
            raise ValueError(f"offset must be 0 or 1, not {self.offset}")

    def small_fits(self, tol: float, resident: bool) -> list[SmallFit]:
        """A single small fit, because the tolerance does not change which loops are called."""
        return [SmallFit()]

    def weight_bytes(self, tol: float, regression: bool) -> int:
        """Always float64."""
        return 8

    def refusal(self, shape: DataShape) -> str | None:
        """Refuse mini-batches on shards: each would need a sum over all shards, for a hundred rows."""
        if shape.shards == 1 or self.batch == 0:
            return None
        return f"solver {self.name!r} on shards takes a step a pass: use --set batch=0, or leave out --shards"

    def needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """Named amounts in bytes; what grows with the rows may go to disk."""
        n, m, wide = shape.n_samples, shape.n_models, 8 * (shape.n_features + 1) * shape.n_models
        if self.batch == 0:
            of_rows = row_needs(shape, with_slopes=shape.shards > 1)
            return [Need(WEIGHTS, wide), Need("subgradients", _WIDE * wide), *sums_need(shape, wide), *of_rows]
        return [
            Need(WEIGHTS, wide),
            Need("batch", 8 * min(self.batch, n) * m),
            Need("alpha", 8 * n * m, may_spill=True),
        ]

    def init(self, problem: Problem, ctx: Context) -> PegasosState:
        """Start at w = 0, alpha = 0."""
        m, d, n = problem.n_models, ctx.data.n_features, ctx.data.n_samples

        batch = self.batch == 0
        if ctx.shards > 1:
            rows: RowState = ShardedRows(problem, ctx, kind=PegasosShard)
        else:
            rows = RowState(
                s=ctx.vector("slacks", m * batch),
                p=ctx.vector("slopes", 0),
                alpha=ctx.vector("alpha", m),
                cost=ctx.vector("row costs", 1 * batch),
                y=y_vector(problem, ctx, 1 * batch),
            )
        state = PegasosState(
            problem=problem, w=zero_weights(d, m), rows=rows, primal=np.full(m, np.inf),
            pending=zero_weights(d if batch else 0, m), scale=np.ones(m), sqnorm=np.zeros(m), sums=np.zeros((m, 2)),
        )  # fmt: skip
        if not ctx.data.has_weights and np.all(problem.class_weight == 1.0):
            state.total_cost = float(n)
        return state

    def before_load(self, state: PegasosState, tree: object, ctx: Context) -> None:
        """Nothing to do: a new state has the same arrays as a saved one."""

    def step(self, problem: Problem, state: PegasosState, ctx: Context) -> StepInfo:
        """One pass: a step of the batch method and its slacks, or as many mini-batches as the rows give."""
        n = ctx.data.n_samples
        if self.batch == 0:
            try:
                self._batch_step(state, ctx)
            except PassLeft:
                return StepInfo.left(state.estimate, n)
            state.rows.end_step()
            ask = state.estimate <= ctx.tol
        else:
            if not self._mini_batches(state, ctx):
                return StepInfo.left(state.estimate, n)
            ask = self.forecast(state) <= ctx.tol or state.epoch >= state.next_check
            if state.epoch >= state.next_check:
                state.next_check = 2 * state.epoch
        met = 0 < self.iterations <= state.iteration
        rule = Rule.where(met, STEPS, state.iteration, self.iterations)
        return StepInfo(state.estimate, n, n, ask_certificate=ask, rule=rule)

    def forecast(self, state: PegasosState) -> float:
        """The relative gap that a proof of the present point is expected to show."""
        return state.share * state.estimate

    def points(self, state: PegasosState) -> list[Point]:
        """The last iterate and its mean of subgradients."""
        return [state.rows.point(state.problem, state.w)]

    def learn(
        self, state: PegasosState, certificate: Certificate, rebuilt: Sequence[np.ndarray], of: Sequence[np.ndarray]
    ) -> None:
        """How much fresh margins are worth beside stale ones; iterates do not depend on when proofs are made."""
        if self.batch and 0.0 < state.estimate < math.inf:
            state.share = certificate.relative_gap / state.estimate

    def finish(self, state: PegasosState) -> None:
        """Give back what only training needs."""
        state.rows.close()

    def _radius(self, state: PegasosState) -> np.ndarray:
        """Squared radius of the ball for the projection: ||w*||^2 = sum alpha - losses <= sum_i C_i at the optimum."""
        if not self.projection or math.isnan(state.total_cost):
            return np.full(state.problem.n_models, np.inf)
        return np.sqrt(state.problem.C * state.total_cost)

    def _batch_step(self, state: PegasosState, ctx: Context) -> None:
        """Take the step that the last look chose, then look: slacks, P(w), the gap, and the next step."""
        problem, rows = state.problem, state.rows
        if state.looked:
            self._follow(state)
        if isinstance(rows, ShardedRows):
            state.pending, _ = rows.look(state.w, "none")
            sums = summed(rows.ask(("gaps_and_cost",)).each)
        else:
            state.pending, _ = row_pass(ctx, problem, rows, state.w.shape, w=state.w, weights=problem.loss)
            sums = gaps_and_cost(problem, rows)
        state.looked, state.total_cost = True, float(sums[-1])
        state.primal = 0.5 * squared_norm(problem, state.w) + rows.losses(problem)
        state.estimate = largest_relative(sums[:-1], state.primal)

    def _follow(self, state: PegasosState) -> None:
        problem, rows, w = state.problem, state.rows, state.w
        state.iteration += 1
        theta = 1.0 / (state.iteration + self.offset)
        w *= 1.0 - theta
        w += theta * state.pending
        norm = np.sqrt(squared_norm(problem, w))
        radius = self._radius(state)
        shrink = np.divide(radius, norm, out=np.ones_like(norm), where=norm > radius)
        columns(w)[...] *= shrink
        if isinstance(rows, ShardedRows):
            rows.tell("follow_subgradient", [theta, shrink])
        else:
            follow(problem, rows, theta, shrink)
        state.looked = False

    def _mini_batches(self, state: PegasosState, ctx: Context) -> bool:
        """The rest of a pass; False where it was interrupted."""
        if ctx.resident:
            self._visit(state, ctx, BlockGroup(tuple(ctx.refs)), ctx.data.read(ctx.refs[0]))
        else:
            groups = groups_at_random(ctx, state.epoch)
            with ReadAhead(ctx.data, groups[state.done :], ctx.read_depth, ctx.buffers) as source:
                for group, block in source:
                    ctx.charge(block.nbytes)
                    self._visit(state, ctx, group, block)
                    state.done += 1
                    if state.done < len(groups) and ctx.pause():
                        break
            ctx.reads.waited_s += source.waited_s
            if state.done < len(groups):
                return False
        fold_scales(state.w, state.rows.alpha.values, state.scale, state.sqnorm)
        state.total_cost = state.cost_seen
        state.primal = 0.5 * squared_norm(state.problem, state.w) + state.sums[:, LOSS]
        state.estimate = largest_relative(state.sums[:, GAP], state.primal)
        state.epoch, state.done, state.cost_seen = state.epoch + 1, 0, 0.0
        state.sums[...] = 0.0
        return True

    def _visit(self, state: PegasosState, ctx: Context, group: BlockGroup, block: Block) -> None:
        problem, n = state.problem, ctx.data.n_samples
        X, (codes, cost) = readonly_view(block.X), problem.y_and_cost(block)
        at = np.empty(0, np.int64)
        if not ctx.resident:
            at = np.concatenate([np.arange(ref.start, ref.stop) for ref in group.refs])
        state.iteration += pegasos_visit(
            LabelledRows(X, codes, cost, at),
            Models(problem.positive, problem.C, problem.constant_feature, self._radius(state)),
            ScaledPoint(state.w, state.rows.alpha.values, state.scale, state.sqnorm),
            StepLength(n, min(self.batch, n), float(self.offset), state.seen),
            VisitingOrder(mixed_runs_of(X, True), ctx.seed, state.epoch, group.start),
            state.sums,
        )
        state.seen += block.n_rows
        state.cost_seen += float(cost.sum())
