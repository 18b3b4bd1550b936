"""Working-set Newton (`newton-ws`): for few features, any number of rows and any C; it needs a handful of passes.

The first direction comes from a sample of the rows, solved in memory, or with rows in memory and the hinge loss from a
few Newton steps for the squared hinge loss (`tube/first_weights`).  Then each pass measures the direction on all
rows, moves w to the minimum of P along it, and keeps the rows that lie near their hyperplanes: the *working set*
(`working_pass`, `working_set`).  All other rows are *folded* into one vector (`subproblem`).  The problem on the kept
rows is solved in memory to any accuracy.  Its solution gives the next direction, and a dual point of the whole
problem: alpha of the kept rows from the solution, C for folded rows inside the margin, 0 for the others.  So the gap
is known after each pass, without reading the rows again.

If the rows that matter do not fit in memory, the direction may lead nowhere.  P never rises, because the line search
is exact, and the best dual point is kept (`dual_point`), but the two may stop approaching each other.  If the gap has
not halved in some passes, `dcd` takes over from the best dual point.  With the hinge loss it does so only if P has
not fallen either (`progress`).

On well-scaled columns with moderate C, `dcd` needs less work than one solution of a working set; on columns of
different scales or with large C it needs a thousand times as much.  So `dcd` may go first (`opening`).  It hands over
after as much work as working sets are thought to need, or when at its rate it would still need that much.  The total
time is then at most about twice that of the faster of the two.  `dcd` takes over a second time only if it is expected
to arrive first, so there are at most two hand-overs.

Several models share the capacity of the working set, and a row that several of them keep counts once.  A model whose
gap is small enough rests, and leaves its capacity to the others.  If no remaining model halves its gap, `dcd` takes
over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bigsvm.compiled.shared.coded import call_all
from bigsvm.machine import trim_heap
from bigsvm.problem.certificate import Certificate
from bigsvm.problem.deferred import DEFERRED_ALPHA
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import WEIGHTS, DataShape, Keeps, Need, Point, SmallFit, StartsFrom, StepInfo
from bigsvm.solvers.context import Context
from bigsvm.solvers.newton_ws.capacity import Room, least_rows, matrix_bytes, room_of_shard, rows_in, working_bytes
from bigsvm.solvers.newton_ws.hand_over import (
    DCD,
    IN_SHORT,
    NEWTON,
    close,
    dcd_is_nearer,
    fall_back,
    give_up,
    hand_over,
    shape_of,
    too_few,
    worth,
    worth_newton,
)
from bigsvm.solvers.newton_ws.progress import STUCK, does_not_fall, stands
from bigsvm.solvers.newton_ws.sharded_working import PassOnShards, ShardedWorkingRows
from bigsvm.solvers.newton_ws.subproblem import SLICES
from bigsvm.solvers.newton_ws.working_pass import WorkingPass
from bigsvm.solvers.newton_ws.working_problem import Measured, PassHere, Passing, mixed, shares_gone
from bigsvm.solvers.newton_ws.working_state import WorkingState
from bigsvm.solvers.primal.dual_point import Known, mix_dual
from bigsvm.solvers.primal.hessian import KeptHessian, hessian_needs, kept_needs, too_many_features
from bigsvm.solvers.primal.line_search import Step
from bigsvm.solvers.primal.primal_state import PrimalSolver, new_state
from bigsvm.solvers.primal.row_state import row_needs
from bigsvm.solvers.primal.sharded_rows import sums_need
from bigsvm.solvers.tube.first_weights import put_downhill, put_first_weights
from bigsvm.solvers.weights import columns, inner, squared_norm
from bigsvm.store.state.vectors import RowVector
from bigsvm.tasks import PassLeft, leaving_when
from bigsvm.units import counted

_TOO_SHORT = 2  # passes left at which w = 0 is the start: one finds a working set, the other carries its proof
_SAMPLED = 1e-2  # relative gap to which the sample is solved; its sampling error is larger
_INNER = 0.02  # share of the present gap to which a working set is solved
_FINAL = 0.1  # share of the tolerance to which a working set is solved at most
# Factor on the target for each pass in which w did not move.  With a free bias, alpha of one class is scaled down until
# sum y alpha = 0, which may cost D more than `_FINAL` allows; then only a better solution closes the gap.
_DEEPER = 0.1
_FAR, _NEAR = 1.0, 0.1  # start value of mu: for a cold start, and for a start near the solution
_CLOSE = 0.05  # relative gap from which a solution starts at w instead of at 0, and working sets at the w of dcd
_SHORT, _BOLD = 0.1, 0.9  # step lengths: below the first far rows join the problem, from the second they leave it
_TINY = np.finfo(float).tiny
# Passes (by whether the loss is smooth) in which the gap must halve; else the rows that matter are taken not to fit.
# The fold of a smooth loss keeps the curvature of its rows, so the steps are at least as good as Newton steps, and
# converge if they get the time.
_HALVED_IN = {False: 3, True: 12}
_GROWTH = 2  # the capacity grows by 2 ** _GROWTH; rows that do not fit seldom fit one of twice the size
_DONE = 0.5  # share of the tolerance; a model with a smaller gap rests
_FEW = 16  # rows of the working set of a small fit, so that most of its rows are folded
_FIRST_PASSES = 8.0  # passes of dcd over rows on disk before its rate is trusted
_FIRST_EPOCHS = 4.0  # the same in epochs over rows in memory: 2M x 100 dense rows have a gap of 0.9998 after one of 38
_TOLD = 1 / 40  # share of the work of Newton's method before the rate of dcd is held against it
_ENDLESS = 1e6  # epochs from which the message no longer quotes the forecast
_SOON = 0.1  # factor by which the next pass is assumed to shrink the gap, a cautious guess


def _is_short(ctx: Context) -> bool:
    """Whether the limit of passes leaves no time to look for a first direction."""
    return ctx.sweeps_left is not None and ctx.sweeps_left <= _TOO_SHORT


def _leaves(ctx: Context) -> Callable[[], bool]:
    """Whether to leave a step: if the run is to stop, or if --max-time is over and all rows are in memory.

    The model is then that of the present step, as far as it came.  A pass over streamed rows is worth its end.
    """
    return (lambda: ctx.stopping() or ctx.expired()) if ctx.resident else ctx.stopping


def _here(ctx: Context) -> bool:
    """Whether all rows are in the memory of this process."""
    return ctx.resident and ctx.shards == 1


class _Solved(NamedTuple):
    """The dual point of solved working sets, as `mix_dual` takes it.

    V : float64, shape of w   sum_i alpha_i y_i [x_i, bias]
    known : alpha of the rows;  None if they are on shards, which know it
    stays : bool, (n_models,)   models whose best dual point does not change
    """

    V: np.ndarray
    known: Known | None
    stays: np.ndarray


@dataclass(frozen=True)
class NewtonWS(PrimalSolver):
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

    working_rows: int = 0
    max_features: int = 2000
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
        n, before = ctx.data.n_samples, ctx.bytes_read
        began, moved = state.held(), False
        reached = began
        try:
            with leaving_when(_leaves(ctx)):
                if state.passes == 0 and not state.started and not _is_short(ctx):
                    self._look_for_direction(state, ctx)
                    reached = state.held()
                done_before = self._done(state, ctx)
                found, steps = self._pass(state, ctx, done_before)
                moved = True
                solved = self._solve(state, ctx, found, steps, done_before)
        except PassLeft:
            over = not ctx.stopping()  # --max-time, so nothing is repeated
            if over and moved:
                self._end_at_once(state, ctx, steps, done_before)
            else:
                state.put_back(reached if over else began)
            ctx.uncharge(before)  # limits count what an undisturbed run reads
            return StepInfo(state.estimate, n, 0, ask_certificate=False, paused=not over)
        collectable = bool(ctx.deferred)
        # From here on the step cannot be left: the rows do not keep the slacks and alpha that it began at.
        state.rows.advance(steps)
        mix_dual(state, problem.loss, solved.V, solved.known, ctx.tol, solved.stays)
        self.update_gaps(state)
        if not ctx.resident:
            trim_heap()  # returns what the solution freed, before rows are read again
        patience = _HALVED_IN[problem.loss.smooth]
        state.gaps = [*state.gaps, self.update_gaps(state) / np.maximum(state.primal, _TINY)][-patience - 1 :]
        state.primals = [*state.primals, state.primal.copy()][-patience - 1 :]
        state.passes += 1
        done = state.estimate <= ctx.tol
        message = "" if done else self._grow_or_hand_over(problem, state, ctx, found)
        state.rows.end_step()
        exhausted = state.stuck > STUCK and state.fallback is None
        return StepInfo(
            state.estimate, n, n, ask_certificate=done, exhausted=exhausted, collectable=collectable, message=message
        )

    def _end_at_once(self, state: WorkingState, ctx: Context, steps: list[Step], done: np.ndarray) -> None:
        """End a fit whose time is over after these steps: move along the directions of models that were solved, too."""
        if _here(ctx) and state.direction.any():
            state.rows.advance(steps)
            with suppress(PassLeft):  # if the run is to stop by now, w stays
                self._pass(state, ctx, done)
        state.direction[...] = 0.0
        state.rows.begin_again()

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

    def _grow_or_hand_over(self, problem: Problem, state: WorkingState, ctx: Context, found: Measured) -> str:
        """If the gap does not fall, enlarge the capacity or let dcd take over; the message of a hand-over, else ''."""
        patience, as_asked = _HALVED_IN[problem.loss.smooth], state.passes == self.fallback_after
        if not (as_asked or does_not_fall(state.gaps, patience, _DONE * ctx.tol)):
            return ""
        capacity, grown = (self._room(ctx, problem, state.growth + more).most for more in (0, 1))
        if grown > capacity and not as_asked:
            state.growth, state.stuck = state.growth + 1, 0
            state.gaps, state.primals = state.gaps[-1:], state.primals[-1:]
            return ""
        if ctx.shards > 1 or not (as_asked or stands(state)):
            return ""
        if not self._hands_back(state, as_asked, ctx):
            return ""
        state.fallback = fall_back(state, ctx)
        if as_asked:
            return f"newton-ws: after {counted(state.passes, 'pass', 'passes')} dcd goes on, as asked"
        return f"newton-ws: the gap has not halved in {patience} passes, dcd goes on{too_few(found, problem, ctx)}"

    def _hands_back(self, state: WorkingState, given: bool, ctx: Context) -> bool:
        """Whether dcd takes over: if asked for, or if expected to arrive first.  dcd has no free bias."""
        return self.fallback and state.problem.bias != "free" and (given or dcd_is_nearer(state, ctx))

    def _room(self, ctx: Context, problem: Problem, growth: int) -> Room:
        """What the working set may take.  With all rows in memory a pass is cheap, so it grows only if it must."""
        n, shape = ctx.data.n_samples, shape_of(problem, ctx)
        rows = least_rows(shape, ctx.resident)
        if not ctx.resident:
            whole = Room(min(self.working_rows or n, n), working_bytes(shape, rows) + ctx.row_buffer_bytes, shape)
            return whole if ctx.shards == 1 else room_of_shard(whole, ctx.shards)
        most = rows + rows_in(ctx.row_buffer_bytes, shape)
        rows *= shape.n_models // shape.n_costs  # the rows near the margin differ from class to class
        return Room(min(self.working_rows or rows << _GROWTH * growth, most, n), 0, shape)

    def _look_for_direction(self, state: WorkingState, ctx: Context) -> None:
        """Make the first direction lead from 0 to weights near the solution.

        With the hinge loss and rows in memory they are those of a few steps for the squared hinge loss on all rows;
        else, or if memory lacks, those of a sample.
        """
        problem = state.problem
        if _here(ctx) and not problem.loss.smooth and put_first_weights(columns(state.direction), problem, ctx):
            return
        self._solve_sample(state, ctx)

    def _solve_sample(self, state: WorkingState, ctx: Context) -> None:
        """Make the direction lead from 0 to the solution on a sample, with C over the share sampled.

        If --max-time is over meanwhile it leads to where the solution was left, and models without one go along the
        gradient.  Raises PassLeft if the run is to stop.
        """
        problem, w = state.problem, columns(state.w)
        found, share = self._new_pass(state, ctx).sample()
        state.entry_bytes = found.entry_bytes
        for m in range(problem.n_models):
            posed = found.posed(m, np.zeros(len(w)), w[:, m], scale=1.0 / share)
            target = _SAMPLED * _NEAR * posed.costs
            try:
                columns(state.direction)[:, m] = posed.minimum(w[:, m], target, _FAR)
            except PassLeft as left:
                if ctx.stopping():
                    raise
                if left.reached is not None:
                    columns(state.direction)[:, m] = left.reached
                if _here(ctx):
                    put_downhill(columns(state.direction), problem, ctx)
                break

    def _new_pass(self, state: WorkingState, ctx: Context) -> Passing:
        """The next pass over the rows, which are here or on shards."""
        if isinstance(state.rows, ShardedWorkingRows):
            return PassOnShards(state.rows, state.w.shape, state.passes)
        assert state.place is not None
        room = self._room(ctx, state.problem, state.growth)
        passing = WorkingPass(
            ctx, state.problem, state.rows, state.place, state.w.shape, room, state.entry_bytes, state.passes
        )  # fmt: skip
        passing.found.wider = float(1 << _GROWTH * state.growth)
        return PassHere(passing, ctx.threads)

    def _done(self, state: WorkingState, ctx: Context) -> np.ndarray:
        """bool, (n_models,): models whose gap is small enough, so that they rest; all False if all are."""
        if state.passes == 0:
            return np.zeros(state.problem.n_models, bool)
        done = np.asarray(self.update_gaps(state) <= _DONE * ctx.tol * state.primal)
        return done & ~done.all()

    def _pass(self, state: WorkingState, ctx: Context, done: np.ndarray) -> tuple[Measured, list[Step]]:
        """Measure the direction on all rows, choose the working set, and move w to the minimum of P along it.

        The rows still have the slacks before this step.
        """
        problem, rows, d = state.problem, state.rows, state.direction
        columns(d)[:, done] = 0.0
        found = self._new_pass(state, ctx).read(state.w, d, done)
        state.entry_bytes = found.entry_bytes
        steps = rows.search(problem, inner(problem, state.w, d), squared_norm(problem, d))
        lengths = np.array([step.length for step in steps])
        columns(state.w)[...] += columns(d) * lengths
        state.primal = 0.5 * squared_norm(problem, state.w) + rows.losses_at(problem, steps)
        self.arrived(state, lengths * np.sqrt((columns(d) ** 2).sum(axis=0)))
        return found, steps

    def _solve(
        self, state: WorkingState, ctx: Context, found: Measured, steps: list[Step], done: np.ndarray
    ) -> _Solved:  # fmt: skip
        """Solve the working set after these steps: set the next direction, and return the dual point that it gives."""
        w, d = columns(state.w), columns(state.direction)
        lengths = np.array([step.length for step in steps])
        crowded = (state.passes == 0) & (found.sides[1] > found.capacity)  # the rows inside the margin do not fit
        state.careful = np.where(state.careful, lengths < _BOLD, (lengths < _SHORT) | crowded)
        gaps = self.update_gaps(state)
        targets = np.maximum(_FINAL * ctx.tol * state.primal, _INNER * np.minimum(gaps, 0.5 * state.primal))
        targets *= _DEEPER**state.stuck
        measured = found.moved(lengths)
        leans = [columns(lean) for lean in measured.leans]
        reached, V = mixed(leans, shares_gone(lengths)), leans[-1].copy()
        d[...] = 0.0  # if the step is left, models without a solution end at the minimum of P that they moved to
        unbalanced = np.zeros(len(done), bool)
        for m in np.flatnonzero(~done).tolist():
            lean, at = V[:, m].copy(), w[:, m].copy()
            posed = measured.posed(m, reached[:, m], at, sampled=bool(state.careful[m]))
            start, mu = (at, _NEAR) if gaps[m] <= _CLOSE * state.primal[m] else (np.zeros_like(at), _FAR)
            solution = posed.minimum(start, float(targets[m]), mu)
            d[:, m] = solution - w[:, m]
            if measured.F is not None or (state.passes > 0 and posed.crossed()):
                # A dual point needs the alpha of folded rows fixed, and no row that stands for many others.
                posed = measured.posed(m, lean, at, bends=False)
                posed.minimum(solution, float(targets[m]), _NEAR)
            added, balanced = posed.dual(V[-1, m])
            unbalanced[m] = not balanced
            V[:, m] += added
        return _Solved(V.reshape(state.w.shape), measured.known, done | unbalanced)

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
