"""Working-set Newton (`newton-ws`): for few features, any number of rows and any C; it needs a handful of passes.

A step is a pass over the rows and the solution of the working set that it found (`working_steps`).  This module says
which steps of other solvers come before and after.

If the rows that matter do not fit in memory, working sets may lead nowhere.  P never rises, because the line search
is exact, and the best dual point is kept (`dual_point`), but the two may stop approaching each other.  If the gap of no
unfinished model has halved in some passes, `dcd` takes over from the best dual point.  With the hinge loss it does so
only if P has not fallen either (`progress`).

On well-scaled columns with moderate C, `dcd` needs less work than one solution of a working set; on columns of
different scales or with large C it needs a thousand times as much.  So `dcd` may go first (`opening`).  It hands over
after as much work as working sets are thought to need, or when at its rate it would still need that much.  The total
time is then at most about twice that of the faster of the two.  `dcd` takes over a second time only if it is expected
to arrive first, so there are at most two hand-overs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bigsvm.compiled.shared.coded import call_all
from bigsvm.problem.certificate import Certificate
from bigsvm.problem.deferred import DEFERRED_ALPHA
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import WEIGHTS, DataShape, Keeps, Need, Point, SmallFit, StartsFrom, StepInfo
from bigsvm.solvers.context import Context
from bigsvm.solvers.newton_ws.capacity import least_rows, matrix_bytes, working_bytes
from bigsvm.solvers.newton_ws.hand_over import (
    DCD,
    IN_SHORT,
    NEWTON,
    close,
    dcd_is_nearer,
    fall_back,
    give_up,
    hand_over,
    too_few,
    worth,
    worth_newton,
)
from bigsvm.solvers.newton_ws.progress import stands
from bigsvm.solvers.newton_ws.shards.sharded_working import ShardedWorkingRows
from bigsvm.solvers.newton_ws.subproblem import SLICES
from bigsvm.solvers.newton_ws.working_problem import Measured
from bigsvm.solvers.newton_ws.working_state import WorkingState
from bigsvm.solvers.newton_ws.working_steps import HALVED_IN, WorkingSets
from bigsvm.solvers.primal.hessian import hessian_needs, too_many_features
from bigsvm.solvers.primal.kept_hessian import KeptHessian, kept_needs
from bigsvm.solvers.primal.primal_state import new_state
from bigsvm.solvers.primal.row_state import row_needs
from bigsvm.solvers.primal.shards.sharded_rows import sums_need
from bigsvm.store.state.vectors import RowVector
from bigsvm.units import counted

_FEW = 16  # rows of the working set of a small fit, so that most of its rows are folded
_FIRST_PASSES = 8.0  # passes of dcd over rows on disk before its rate is trusted
_FIRST_EPOCHS = 4.0  # the same in epochs over rows in memory: 2M x 100 dense rows have a gap of 0.9998 after one of 38
_TOLD = 1 / 40  # share of the work of Newton's method before the rate of dcd is held against it
_ENDLESS = 1e6  # epochs from which the message no longer quotes the forecast
_CLOSE = 0.05  # relative gap from which working sets begin at the weights of dcd
_SOON = 0.1  # factor by which the next pass is assumed to shrink the gap, a cautious guess


@dataclass(frozen=True)
class NewtonWS(WorkingSets):
    """Hyperparameters of `newton-ws`.

    working_rows : int    rows of the working set; 0: as many as the memory holds
    max_features : int    largest number of features; the matrices have (n_features + 1)^2 entries
    fallback : bool       let dcd take over if the gap does not fall
    fallback_after : int  passes after which dcd takes over in any case; 0: only if the gap does not fall
    opening : str         'dcd': dcd goes first (unless the bias is free), until it has done as much work as working
                          sets are thought to need, or would still need as much;  'none': working sets from the start
    then : str            'newton': Newton's method on all rows (as `newton`) follows the opening, not working sets; for
                          the squared hinge loss and rows in memory;  'sets': working sets
    """

    name: ClassVar[str] = "newton-ws"
    losses: ClassVar[tuple[str, ...]] = ("hinge", "squared_hinge")
    biases: ClassVar[tuple[str, ...]] = ("augmented", "none", "free")
    can_defer: ClassVar[bool] = True
    starts_from: ClassVar[StartsFrom] = "weights"
    in_shards: ClassVar[bool] = True
    shards_if_asked: ClassVar[bool] = True  # never by default: on several shards nothing can be handed over to dcd

    fallback: bool = True
    fallback_after: int = 0
    opening: str = "none"
    then: str = "sets"

    def __post_init__(self) -> None:
        if self.working_rows < 0:
            raise ValueError(f"working_rows must not be negative: {self.working_rows!r}")
        if self.fallback_after < 0:
            raise ValueError(f"fallback_after must be a number of passes, not {self.fallback_after}")
        if self.opening not in ("none", "dcd"):
            raise ValueError(f"opening must be none or dcd, not {self.opening!r}")
        if self.then not in ("sets", "newton"):
            raise ValueError(f"then must be sets or newton, not {self.then!r}")

    @property
    def keeps_rows(self) -> Keeps:
        return "always"

    def refusal(self, shape: DataShape) -> str | None:
        """Refuse too many features for a Hessian, and options that bring in dcd when rows are on shards."""
        if self._newton and (shape.shards > 1 or not shape.smooth_loss):
            return f"solver {self.name!r} with then=newton is for the squared hinge loss, on one shard"
        if shape.shards > 1 and (self.opening == "dcd" or self.fallback_after):
            which = "opening=dcd" if self.opening == "dcd" else "fallback_after"
            return f"solver {self.name!r} on shards hands nothing over to dcd: leave out {which}, or use --shards 1"
        return too_many_features(self.name, shape, self.max_features)

    def small_fits(self, tol: float, resident: bool) -> list[SmallFit]:
        """Small fits that keep all rows, that fold most of them, and that hand over to dcd (with dcd's type of w)."""
        few, at_once = ("working_rows", _FEW), ("opening", "none")
        dcd = DCD.small_fits(tol, resident)
        first = dcd if self.opening == "dcd" else []
        if resident and self._newton:
            return [*first, SmallFit(options=(at_once,))]
        handed, giving_up = (few, at_once, ("fallback_after", 1)), SmallFit().passes
        return [
            *first,
            SmallFit(options=(at_once,)),
            SmallFit(options=(few, ("fallback", False), at_once)),
            *([fit._replace(options=handed, load=False, passes=giving_up) for fit in dcd] if self.fallback else []),
        ]

    def needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """Named amounts in bytes; what grows with the rows may go to disk."""
        wide, n = 8 * (shape.n_features + 1) * shape.n_models, shape.n_samples
        return [
            Need(WEIGHTS, wide),
            Need("gradients", 10 * wide),
            *self._needs_of_steps(shape, resident),
            *sums_need(shape, matrix_bytes(shape) // SLICES + 2 * wide),
            *row_needs(shape),
            Need("row places", n * shape.n_models, may_spill=True),
            Need(DEFERRED_ALPHA, 8 * n * shape.n_models, may_spill=True),
            *(DCD.needs(shape, resident) if self.opening == "dcd" else []),
        ]

    def _needs_of_steps(self, shape: DataShape, resident: bool) -> list[Need]:
        if resident and self._newton:
            return [*hessian_needs(shape), *kept_needs(shape)]
        return [
            Need("Hessian", matrix_bytes(shape), held="worker"),
            Need("working set", working_bytes(shape, least_rows(shape, resident)), held="shard"),
        ]

    @property
    def _newton(self) -> bool:
        return self.then == "newton"

    def init(self, problem: Problem, ctx: Context) -> WorkingState:
        """Start at w = 0, alpha = 0; if `opening` says so, with dcd."""
        if not ctx.resident:
            call_all(ctx.data.dtype, ctx.data.index_dtype, ctx.data.layout)
        m = problem.n_models
        if ctx.shards > 1:
            given = vars(new_state(problem, ctx, rows=ShardedWorkingRows(problem, ctx, self._room(ctx, problem, 0))))
            return WorkingState(**given, careful=np.zeros(m, bool), tol=ctx.tol)
        given = {**vars(new_state(problem, ctx)), "place": ctx.vector("row places", m, np.uint8)}
        state = WorkingState(**given, careful=np.zeros(m, bool), tol=ctx.tol, newton=self._newton and ctx.resident)
        if state.newton:
            state.extra = KeptHessian.new(problem, state.rows, ctx)
        if self.opening == "dcd" and problem.bias != "free":
            state.opening = DCD.init(problem, ctx)
            state.pace.see(0.0, np.ones(1))
        return state

    def start_at(self, state: WorkingState, w: np.ndarray | None) -> list[RowVector]:
        """Make w the first direction: the first pass measures it from 0, and moves to the minimum of P along it."""
        assert w is not None
        give_up(state)
        state.direction[...] = w
        state.started = True
        if state.newton:
            self._follow_direction(state)
        return []

    def before_load(self, state: WorkingState, tree: Any, ctx: Context) -> None:
        """Allocate what a saved state has and a new one lacks: the state of dcd, before or after working sets."""
        if tree["opening"] is None:
            give_up(state)
        elif state.opening is not None:
            DCD.before_load(state.opening, tree["opening"], ctx)
        if tree["fallback"] is not None:
            state.fallback = fall_back(state, ctx)
            DCD.before_load(state.fallback, tree["fallback"], ctx)

    def step(self, problem: Problem, state: WorkingState, ctx: Context) -> StepInfo:
        """One pass and the solution of the working set that it found, or one step of dcd."""
        if state.opening is not None and state.given_up and not ctx.deferred:  # deferred proofs use vectors of dcd
            self._take_over(state, ctx)
        if state.opening is not None:
            return self._open(problem, state, ctx)
        if state.fallback is not None:
            return DCD.step(problem, state.fallback, ctx)
        if state.newton:
            return NEWTON.step(problem, state, ctx)
        return super().step(problem, state, ctx)

    def _open(self, problem: Problem, state: WorkingState, ctx: Context) -> StepInfo:
        """One step of dcd, which is given up after enough work, or if it is expected to need as much again."""
        assert state.opening is not None
        info, data = (IN_SHORT if state.newton else DCD).step(problem, state.opening, ctx), ctx.data
        if info.paused or state.given_up:
            return info
        state.opened += info.visits
        done = state.opened / data.n_samples if ctx.resident else float(state.opening.sweep)
        state.pace.see(done, np.array([info.gap_estimate]))
        enough = worth_newton(state, ctx) if state.newton else worth(problem, ctx)
        first = max(_FIRST_EPOCHS, _TOLD * enough * state.newton) if ctx.resident else _FIRST_PASSES
        told = done >= first
        left = float(state.pace.by_ratio(np.array([ctx.tol]))[0]) if told else 0.0
        if info.gap_estimate <= ctx.tol or not (info.exhausted or done > enough or left > enough):
            return info
        state.given_up, state.left = True, left
        if state.newton:  # it is no sign of trouble
            return replace(info, exhausted=False, ask_certificate=False)
        unit = "epochs" if ctx.resident else "passes"
        needs = f"dcd would need {left:,.0f} more at its present rate"
        needs = needs if left < _ENDLESS else "the gap of dcd hardly falls"
        message = f"newton-ws: after {done:,.0f} {unit} {needs}: working sets take over"
        return replace(info, exhausted=False, ask_certificate=False, message=message)

    def _take_over(self, state: WorkingState, ctx: Context) -> None:
        """Go on from dcd.

        The first direction leads to the weights of dcd if dcd has come close, or if the rows stream.  The samples of a
        stream are small, and one of kddcup99 led nowhere.  Newton's method begins at 0 if the gap of dcd hardly fell:
        on pixels of 0 to 255 its weights led to more steps.
        """
        state.started = not ctx.resident or bool(state.pace.least[0] <= _CLOSE)
        hand_over(state)
        if state.newton:
            state.started = state.left <= _ENDLESS
            if state.started:
                self._follow_direction(state)
            else:
                state.direction[...] = 0.0

    @staticmethod
    def _follow_direction(state: WorkingState) -> None:
        """Let Newton's method begin with a search along the direction from w = 0, where all slacks are 1."""
        for piece in state.rows.pieces():
            state.rows.s.values[piece] = 1.0
        state.moving = True

    def change(self, state: WorkingState) -> str:
        """Let working sets take over from dcd, if they have not done so yet.

        `worth` may call them dear (many features, few entries) where dcd never arrives.
        """
        if state.opening is None or state.given_up:
            return ""
        state.given_up, state.left = True, math.inf
        others = "Newton's method takes over" if state.newton else "working sets take over"
        return f"newton-ws: dcd would not reach the tolerance: {others}"

    def after_pass(self, state: WorkingState, ctx: Context, found: Measured) -> str:
        """If the gap does not fall, enlarge the capacity or let dcd take over; the message of a hand-over, else ''."""
        as_asked = state.passes == self.fallback_after
        if not self.stalls(state, ctx, at_once=as_asked):
            return ""
        if ctx.shards > 1 or not (as_asked or stands(state)) or not self._hands_back(state, as_asked, ctx):
            return ""
        state.fallback = fall_back(state, ctx)
        if as_asked:
            return f"newton-ws: after {counted(state.passes, 'pass', 'passes')} dcd goes on, as asked"
        problem = state.problem
        patience = HALVED_IN[problem.loss.smooth]
        return f"newton-ws: the gap has not halved in {patience} passes, dcd goes on{too_few(found, problem, ctx)}"

    def _hands_back(self, state: WorkingState, given: bool, ctx: Context) -> bool:
        """Whether dcd takes over: if asked for, or if expected to arrive first.  dcd has no free bias."""
        return self.fallback and state.problem.bias != "free" and (given or dcd_is_nearer(state, ctx))

    def forecast(self, state: WorkingState) -> float:
        """The relative gap that a proof of the present point is expected to show."""
        if state.dual_cd is not None:
            return DCD.forecast(state.dual_cd)
        if state.newton:
            return NEWTON.forecast(state)
        if state.estimate <= state.tol:
            return state.estimate
        return max(_SOON * state.estimate, 1.01 * state.tol)

    def points(self, state: WorkingState) -> list[Point]:
        """The present w if its gap is small enough, else w + direction, which the next pass measures."""
        if state.dual_cd is not None:
            return DCD.points(state.dual_cd)
        if state.newton:
            return NEWTON.points(state)
        w = state.w if state.estimate <= state.tol else state.w + state.direction
        return [state.rows.point(state.problem, w)]

    def last_points(self, state: WorkingState) -> list[Point]:
        """As `points`; as `newton` has them, if that has taken over."""
        return NEWTON.last_points(state) if state.dual_cd is None and state.newton else self.points(state)

    def learn(
        self, state: WorkingState, certificate: Certificate, rebuilt: Sequence[np.ndarray], of: Sequence[np.ndarray]
    ) -> None:
        """Remove rounding errors from the V of the best dual point, if that is still the one that was proved."""
        if state.dual_cd is not None:
            if len(of) == len(state.dual_cd.groups):
                DCD.learn(state.dual_cd, certificate, rebuilt, of)
        elif of[0] is state.w:
            state.dual.v[...] = rebuilt[0]

    def take_proved(self, state: WorkingState, proved: np.ndarray) -> None:
        """Pass the proved models on to dcd, if it is training: its resting models become active if a proof fails."""
        if state.dual_cd is not None:
            DCD.take_proved(state.dual_cd, proved)

    def finish(self, state: WorkingState) -> None:
        """Release what only training needs."""
        if state.dual_cd is not None:
            DCD.finish(state.dual_cd)
        if state.fallback is None:
            close(state)
