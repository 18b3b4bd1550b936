"""One pass of dual coordinate descent over rows that stream from disk, one group of blocks after another.

The rows of a group are visited once, in random order.  Those that still violate enter the row buffer, which is swept
between the groups.  Groups of models share the reading and the row buffer; each has its own w and alpha, and may run on
its own thread.  The first pass takes the blocks in their order, later passes in a random order given by (seed, pass).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.compiled.linear.dual_cd import EXACT, GAP, LOSS, PG_MAX, PG_MIN, BlockRows, dual_cd_visit
from bigsvm.compiled.shared.rows import sqnorms
from bigsvm.compiled.shared.visiting import VisitingOrder, rows_of
from bigsvm.problem.deferred import adds_groups
from bigsvm.problem.problem import Problem
from bigsvm.solvers.block_order import groups_at_random, groups_in_order
from bigsvm.solvers.context import Context
from bigsvm.solvers.dcd.active_row_buffer import (
    ActiveRowBuffer,
    SweepPart,
    holds_alpha,
    parts_due,
)
from bigsvm.solvers.dcd.rounding import row_buffer_of
from bigsvm.store.blocks import Block, BlockGroup, Matrix, readonly_view
from bigsvm.store.read_ahead import ReadAhead

if TYPE_CHECKING:
    from bigsvm.solvers.dcd.dual_cd_state import DualCDState, ModelGroup

_BEFORE_ALL = SweepPart(-1)  # the sweep of `settle`, numbered apart from those of the pass

MixedRuns = Callable[[Matrix, Problem], int]
"""(rows, problem) -> the `mixed` of `compiled/shared/visiting.py`, which says how randomly the rows are visited."""


class PassSums(NamedTuple):
    """Statistics of a pass.

    sums : for each group of models (gap, loss), float64, shape (n_proofs, 2), as rows showed them when visited
    visits : row visits
    """

    sums: list[np.ndarray]
    visits: int


class _Work(NamedTuple):
    """A group of blocks as every group of models visits it.

    start : first row, part of the key of the order;  key : (seed, pass)
    """

    start: int
    rows: BlockRows
    key: tuple[int, int]


def streamed_pass(state: DualCDState, mixed_runs: MixedRuns, ctx: Context) -> int:
    """Visit every row once; after a pause, only the groups of blocks after the first `state.done`.

    `state.sweep` is the number of the pass.  The statistics are left in the groups of models, where `pass_sums` adds
    them up.  The first pass fills `state.cost`, if momentum needs it.

    Returns 0 when the pass is complete, else the number of groups of blocks that are done: `ctx.pause` interrupted it.
    """
    models, cost, number, done = state.groups, state.cost, state.sweep, state.done
    groups = groups_in_order(ctx) if number == 0 else groups_at_random(ctx, number)
    if state.row_buffer is None and ctx.row_buffer_bytes > 0:
        state.row_buffer = row_buffer_of(state, ctx)
    elif done == 0 and state.row_buffer is not None:
        state.row_buffer.begin_pass()
    runs = [_Run(place, each, mixed_runs, done == 0) for place, each in enumerate(models)]
    also = adds_groups(ctx.deferred, done)
    with (
        held_alpha(state, ctx),
        ReadAhead(ctx.data, groups[done:], ctx.read_depth, ctx.buffers, also) as source,
        ThreadPoolExecutor(min(ctx.threads, len(models)), "bigsvm-models") as pool,
    ):
        kept = _KeptRows(state, runs, ctx, map if len(runs) == 1 else pool.map)
        paused = False
        for group, block in source:
            if paused:  # asking for one group more lets the deferred proofs finish the group before
                break
            ctx.charge(block.nbytes)
            work = _work(models[0].problem, group, block, (ctx.seed, number))
            if cost is not None and number == 0:
                cost.values[work.rows.at, 0] = models[0].problem.y_and_cost(block)[1]
            if done == 0:
                kept.settle(work.key)
            kept.take(work, done, len(groups))
            done += 1
            paused = done < len(groups) and ctx.pause()
    ctx.reads.waited_s += source.waited_s
    for run in runs:
        run.close()
    return done if done < len(groups) else 0


def held_alpha(state: DualCDState, ctx: Context) -> AbstractContextManager[None]:
    """A block in which the row buffer holds alpha of its rows, if alpha is on disk."""
    if state.row_buffer is None or not holds_alpha([group.problem for group in state.groups], ctx):
        return nullcontext()
    return state.row_buffer.holding([group.alpha for group in state.groups])


def pass_sums(models: list[ModelGroup]) -> PassSums:
    """The statistics of a pass: of rows that stream as they were visited, of buffered rows from the last sweep."""
    sums = []
    for group in models:
        seen = [*group.seen, group.row_buffer_stats[:, (GAP, LOSS)]]
        each = range(group.problem.n_proofs)
        sums.append(np.array([[math.fsum(part[m, k] for part in seen) for k in range(2)] for m in each]))
    return PassSums(sums, sum(group.visits for group in models) // len(models))


def _work(problem: Problem, group: BlockGroup, block: Block, key: tuple[int, int]) -> _Work:
    X = readonly_view(block.X)
    sqnorm = block.sqnorm
    if sqnorm is None:
        sqnorm = np.empty(block.n_rows)
        sqnorms(X, sqnorm)
    at = rows_of(np.array([(ref.start, ref.stop) for ref in group.refs]), block.n_rows)
    rows = BlockRows(X, problem.y_of(block), writable(block.sample_weight), sqnorm, at)
    return _Work(group.start, rows, key)


def writable(sample_weight: np.ndarray | None) -> np.ndarray:
    """Sample weights as a writeable array, empty for None: compiled loops then see one type for maps and arrays."""
    if sample_weight is None:
        return np.empty(0)
    return sample_weight if sample_weight.flags.writeable else sample_weight.copy()


class _Run:
    """One group of models in one pass.  place : the number of the group"""

    def __init__(self, place: int, models: ModelGroup, mixed_runs: MixedRuns, begins: bool) -> None:
        self._place, self._mixed_runs = place, mixed_runs
        self.models, self.problem = models, models.problem
        if begins:
            m = self.problem.n_proofs
            models.seen, models.row_buffer_stats, models.visits = np.empty((0, m, 2)), np.zeros((m, 4)), 0
            models.spread[...] = -math.inf, math.inf
        self._seen: list[np.ndarray] = list(models.seen)

    @property
    def ahead(self) -> bool:
        """Whether a step of momentum came before the pass, so that alpha may be infeasible."""
        return self.models.momentum is not None and bool(self.models.momentum.theta.any())

    def close(self) -> None:
        """Write the statistics to the state, for a checkpoint."""
        self.models.seen = np.array(self._seen).reshape(-1, self.problem.n_proofs, 2)

    def visit(self, work: _Work) -> tuple[np.ndarray, np.ndarray]:
        """Visit the rows of a group of blocks: (rows within it in the order of visits, violation of each row)."""
        models, problem = self.models, self.problem
        rows, n = work.rows, len(work.rows.at)
        order, score, stats = np.empty(n, np.int64), np.empty(n, np.float32), np.empty((problem.n_proofs, 4))
        key = VisitingOrder(self._mixed_runs(rows.X, problem), *work.key, work.start)
        visited = dual_cd_visit(
            rows, problem.dual_models, models.alpha.values, models.w, models.active.values[:, 0], EXACT, key, order,
            stats, score,
        )  # fmt: skip
        models.visits += visited
        self._note(stats)
        return order[:visited], score

    def sweep(self, row_buffer: ActiveRowBuffer, order: np.ndarray, begins: bool, score: np.ndarray | None) -> None:
        """Sweep a part of the row buffer.

        begins : it is the first part of a sweep, so that statistics start anew
        order, score : as for `ActiveRowBuffer.sweep`
        """
        models = self.models
        stats = row_buffer.sweep(self.problem, models.alpha.values, models.w, order, score=score, group=self._place)
        models.row_buffer_stats = stats if begins else _together(models.row_buffer_stats, stats)
        models.visits += len(order)

    def _note(self, stats: np.ndarray) -> None:
        spread = self.models.spread
        np.maximum(spread[:, PG_MAX], stats[:, PG_MAX], out=spread[:, PG_MAX])
        np.minimum(spread[:, PG_MIN], stats[:, PG_MIN], out=spread[:, PG_MIN])
        self._seen.append(stats[:, (GAP, LOSS)])
        if len(self._seen) > 512:
            self._seen = [np.sum(self._seen, axis=0)]


def _together(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Two arrays of statistics (`dual_cd_visit`) merged into one."""
    both = one + other
    both[:, PG_MAX] = np.maximum(one[:, PG_MAX], other[:, PG_MAX])
    both[:, PG_MIN] = np.minimum(one[:, PG_MIN], other[:, PG_MIN])
    return both


class _KeptRows:
    """Passes rows on to all groups of models, and keeps the row buffer that they share.

    The score of a row is its largest violation in any group.  All groups must have visited a group of blocks before
    rows are admitted or evicted, so that the number of threads does not matter.
    """

    def __init__(self, state: DualCDState, runs: list[_Run], ctx: Context, each: Callable[..., Iterator[Any]]) -> None:
        self._state, self._runs, self._ctx, self._each = state, runs, ctx, each

    def settle(self, key: tuple[int, int]) -> None:
        """After a step of momentum, sweep the row buffer once, so that alpha of no evicted row is infeasible."""
        row_buffer = self._state.row_buffer
        ahead = [run for run in self._runs if run.ahead]
        if row_buffer is None or not ahead:
            return
        stats = [run.models.row_buffer_stats for run in ahead]
        self._sweep(row_buffer, ahead, key, _BEFORE_ALL)
        for run, before in zip(ahead, stats, strict=True):  # this sweep does not count for the estimate of the gap
            run.models.row_buffer_stats = before

    def take(self, work: _Work, turn: int, turns: int) -> None:
        """Visit a group of blocks, admit the rows that violate, and sweep the part of the row buffer that is due.

        turn, turns : number of this group, and of all groups of the pass
        """
        found = list(self._each(lambda run: run.visit(work), self._runs))
        row_buffer = self._state.row_buffer
        if row_buffer is None:
            return
        # The order is the same in all groups of models: it depends on the key and on which rows are buffered.
        order, score = found[0]
        for _, other in found[1:]:
            score = np.maximum(score, other)
        row_buffer.offer(work.rows, order, score, self._runs[0].models.active.values[:, 0])
        for part in parts_due(turn, turns, self._ctx.row_buffer_sweeps):
            self._sweep(row_buffer, self._runs, work.key, part)

    def _sweep(self, row_buffer: ActiveRowBuffer, runs: list[_Run], key: tuple[int, int], part: SweepPart) -> None:
        order, begins = row_buffer.order(key, part), part.first == 0
        if len(self._runs) == 1:
            runs[0].sweep(row_buffer, order, begins, None)
        else:
            scores = np.zeros((len(runs), row_buffer.n), np.float32)
            list(self._each(lambda run, score: run.sweep(row_buffer, order, begins, score), runs, scores))
            row_buffer.take_scores(scores, order)
        if part.ends:
            row_buffer.end_sweep()
