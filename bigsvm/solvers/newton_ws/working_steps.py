"""Working sets: a step of `newton-ws` is a pass over all rows, and the solution of the problem on the rows it keeps.

The first direction comes from a sample of the rows, solved in memory, or with rows in memory and the hinge loss from a
few Newton steps for the squared hinge loss (`tube/first_weights`).  Then each pass measures the direction on all
rows, moves w to the minimum of P along it, and keeps the rows that lie near their hyperplanes: the *working set*
(`working_pass`, `working_set`).  All other rows are *folded* into one vector (`subproblem`).  The problem on the kept
rows is solved in memory to any accuracy.  Its solution gives the next direction, and a dual point of the whole
problem: alpha of the kept rows from the solution, C for folded rows inside the margin, 0 for the others.  So the gap
is known after each pass, without reading the rows again.

Several models share the capacity of the working set, and a row that several of them keep counts once.  A model whose
gap is small enough rests, and leaves its capacity to the others.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bigsvm.machine import trim_heap
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import StepInfo
from bigsvm.solvers.context import Context
from bigsvm.solvers.newton_ws.capacity import Room, least_rows, room_of_shard, rows_in, working_bytes
from bigsvm.solvers.newton_ws.hand_over import (
    shape_of,
)
from bigsvm.solvers.newton_ws.progress import STUCK, does_not_fall
from bigsvm.solvers.newton_ws.shards.sharded_working import PassOnShards, ShardedWorkingRows
from bigsvm.solvers.newton_ws.working_pass import WorkingPass
from bigsvm.solvers.newton_ws.working_problem import Measured, PassHere, Passing, mixed, shares_gone
from bigsvm.solvers.newton_ws.working_state import WorkingState
from bigsvm.solvers.primal.dual_point import Known, mix_dual
from bigsvm.solvers.primal.line_search import Step
from bigsvm.solvers.primal.primal_state import PrimalSolver
from bigsvm.solvers.tube.first_weights import put_downhill, put_first_weights
from bigsvm.solvers.weights import columns, inner, squared_norm
from bigsvm.tasks import PassLeft, leaving_when

_TOO_SHORT = 2  # passes left at which w = 0 is the start: one finds a working set, the other carries its proof
_SAMPLED = 1e-2  # relative gap to which the sample is solved; its sampling error is larger
_INNER = 0.02  # share of the present gap to which a working set is solved
_FINAL = 0.1  # share of the tolerance to which a working set is solved at most
# Factor on the target for each pass in which w did not move.  With a free bias, alpha of one class is scaled down until
# sum y alpha = 0, which may cost D more than `_FINAL` allows; then only a better solution closes the gap.
_DEEPER = 0.1
_FAR, _NEAR = 1.0, 0.1  # start value of mu: for a cold start, and for a start near the solution
_CLOSE = 0.05  # relative gap from which a solution starts at w instead of at 0
_SHORT, _BOLD = 0.1, 0.9  # step lengths: below the first far rows join the problem, from the second they leave it
_TINY = np.finfo(float).tiny
# Passes (by whether the loss is smooth) in which the gap must halve; else the rows that matter are taken not to fit.
# The fold of a smooth loss keeps the curvature of its rows, so the steps are at least as good as Newton steps, and
# converge if they get the time.
HALVED_IN = {False: 3, True: 12}
_GROWTH = 2  # the capacity grows by 2 ** _GROWTH; rows that do not fit seldom fit one of twice the size
_DONE = 0.5  # share of the tolerance; a model with a smaller gap rests


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
class WorkingSets(PrimalSolver):
    """Template of `newton-ws`: passes over the rows, and solutions of the working sets that they find."""

    working_rows: int = 0
    max_features: int = 2000

    def step(self, problem: Problem, state: WorkingState, ctx: Context) -> StepInfo:
        """One pass, and the solution of the working set that it found."""
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
        patience = HALVED_IN[problem.loss.smooth]
        state.gaps = [*state.gaps, self.update_gaps(state) / np.maximum(state.primal, _TINY)][-patience - 1 :]
        state.primals = [*state.primals, state.primal.copy()][-patience - 1 :]
        state.passes += 1
        done = state.estimate <= ctx.tol
        message = "" if done else self.after_pass(state, ctx, found)
        state.rows.end_step()
        exhausted = state.stuck > STUCK and state.fallback is None
        return StepInfo(
            state.estimate, n, n, ask_certificate=done, exhausted=exhausted, collectable=collectable, message=message
        )

    def after_pass(self, state: WorkingState, ctx: Context, found: Measured) -> str:
        """What to do about a gap that is still too large; a message, or ''.  found : the working set of this pass"""
        self.stalls(state, ctx)
        return ""

    def stalls(self, state: WorkingState, ctx: Context, at_once: bool = False) -> bool:
        """Whether the gap does not fall, though the capacity cannot grow; where it can, enlarge it.

        at_once : bool   the answer is yes, without a look at the gap
        """
        patience = HALVED_IN[state.problem.loss.smooth]
        if at_once or not does_not_fall(state.gaps, patience, _DONE * ctx.tol):
            return at_once
        capacity, grown = (self._room(ctx, state.problem, state.growth + more).most for more in (0, 1))
        if grown <= capacity:
            return True
        state.growth, state.stuck = state.growth + 1, 0
        state.gaps, state.primals = state.gaps[-1:], state.primals[-1:]
        return False

    def _end_at_once(self, state: WorkingState, ctx: Context, steps: list[Step], done: np.ndarray) -> None:
        """End a fit whose time is over after these steps: move along the directions of models that were solved, too."""
        if _here(ctx) and state.direction.any():
            state.rows.advance(steps)
            with suppress(PassLeft):  # if the run is to stop by now, w stays
                self._pass(state, ctx, done)
        state.direction[...] = 0.0
        state.rows.begin_again()

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
