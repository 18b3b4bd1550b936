"""One pass of dual coordinate descent over rows that stream from disk, one group of blocks after another.

Each group is visited once, in a random order; the row buffer takes the rows that still violate, and is swept between
arrivals.  Groups of models share the reading and the row buffer: each has its weights and its alpha, and may run on a
thread of its own.  The first pass takes the blocks in their order, every later one in a random
order of (seed, pass).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.compiled.linear.dual_cd import EXACT, GAP, LOSS, PG_MAX, PG_MIN, BlockRows, dual_cd_visit
from bigsvm.compiled.shared.rows import sqnorms
from bigsvm.compiled.shared.visiting import VisitingOrder, rows_of
from bigsvm.problem.problem import Problem
from bigsvm.solvers.block_order import groups_at_random, groups_in_order
from bigsvm.solvers.context import Context
from bigsvm.solvers.dcd.active_row_buffer import ActiveRowBuffer, SweepPart, parts_due, shared_row_buffer
from bigsvm.store.blocks import Block, BlockGroup, Matrix, readonly_view
from bigsvm.store.read_ahead import ReadAhead

if TYPE_CHECKING:
    from bigsvm.solvers.dcd.dual_cd_state import DualCDState, ModelGroup

_BEFORE_ALL = SweepPart(-1)

MixedRuns = Callable[[Matrix, Problem], int]
"""How a group of rows is visited: see `visiting.fill_order`."""


class PassSums(NamedTuple):
    """What a pass saw of each group of models: stale gaps and losses, float64, shape (n_proofs, 2); visits."""

    sums: list[np.ndarray]
    visits: int


class _Work(NamedTuple):
    """A group of rows on its way to every group of models."""

    start: int
    rows: BlockRows
    key: tuple[int, int]


def streamed_pass(state: DualCDState, mixed_runs: MixedRuns, ctx: Context) -> int:
    """Visit every row once, or the groups of rows after the first `state.done`; `state.sweep` is the pass.

    Returns how many groups of rows of the pass are done: fewer than all where `ctx.pause` said so.  What was seen
    is in the groups of models, `pass_sums` adds it up.  `state.cost` is filled where there is one.
    """
    models, cost, number, done = state.groups, state.cost, state.sweep, state.done
    groups = groups_in_order(ctx) if number == 0 else groups_at_random(ctx, number)
    if done == 0 and state.row_buffer is not None:
        state.row_buffer.begin_pass()
    runs = [_Run(group_of_models, mixed_runs, done == 0) for group_of_models in models]
    seen = done

    def prove_deferred(block: Block, group: BlockGroup) -> None:
        nonlocal seen
        for proof in ctx.deferred:
            if proof.n_groups == seen:  # else it has seen the group before the run was interrupted
                proof.add(block, group)
        seen += 1

    also = prove_deferred if ctx.deferred else None
    with (
        ReadAhead(ctx.data, groups[done:], ctx.read_depth, ctx.buffers, also) as source,
        ThreadPoolExecutor(min(ctx.threads, len(models)), "bigsvm-models") as pool,
    ):
        kept = _KeptRows(state, runs, ctx, map if len(runs) == 1 else pool.map)
        paused = False
        for group, block in source:
            if paused:  # only now have the proofs, too, seen the rows of the group before
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


def pass_sums(models: list[ModelGroup]) -> PassSums:
    """(gap, loss) as the pass saw them, the row buffer's rows as its last sweep did."""
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
    """Sample weights as kernels take them: one numba type, whether they are a map or not; empty for ones."""
    if sample_weight is None:
        return np.empty(0)
    return sample_weight if sample_weight.flags.writeable else sample_weight.copy()


class _Run:
    """One group of models in one pass."""

    def __init__(self, models: ModelGroup, mixed_runs: MixedRuns, begins: bool) -> None:
        self._mixed_runs = mixed_runs
        self.models, self.problem = models, models.problem
        if begins:
            m = self.problem.n_proofs
            models.seen, models.row_buffer_stats, models.visits = np.empty((0, m, 2)), np.zeros((m, 4)), 0
            models.spread[...] = -math.inf, math.inf
        self._seen: list[np.ndarray] = list(models.seen)

    @property
    def ahead(self) -> bool:
        """The pass starts beyond where the last one ended, where alpha may be infeasible."""
        return self.models.momentum is not None and bool(self.models.momentum.theta.any())

    def close(self) -> None:
        """What was seen goes to the state, which may be saved now."""
        self.models.seen = np.array(self._seen).reshape(-1, self.problem.n_proofs, 2)

    def visit(self, work: _Work) -> tuple[np.ndarray, np.ndarray]:
        """Visit rows as they arrive: (the local rows in the order of visits, how much each violates)."""
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
        """Sweep some of the rows that were kept, `begins`: the first of a sweep; else as `ActiveRowBuffer.sweep`."""
        models = self.models
        stats = row_buffer.sweep(self.problem, models.alpha.values, models.w, order, score=score)
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
    """Statistics of the rows of two visits, as `dual_cd_visit` has them."""
    both = one + other
    both[:, PG_MAX] = np.maximum(one[:, PG_MAX], other[:, PG_MAX])
    both[:, PG_MIN] = np.minimum(one[:, PG_MIN], other[:, PG_MIN])
    return both


class _KeptRows:
    """Rows in the order of their arrival, and those among them that stay: the same for all groups of models.

    A row stays for the group that it violates most.  The groups wait for one another before rows come in or go, so
    that the number of threads has no say in which do.
    """

    def __init__(self, state: DualCDState, runs: list[_Run], ctx: Context, each: Callable[..., Iterator[Any]]) -> None:
        self._state, self._runs, self._ctx, self._each = state, runs, ctx, each

    def settle(self, key: tuple[int, int]) -> None:
        """Visit the buffered rows before any may leave: where the pass starts ahead, alpha is infeasible."""
        row_buffer = self._state.row_buffer
        ahead = [run for run in self._runs if run.ahead]
        if row_buffer is None or not ahead:
            return
        stats = [run.models.row_buffer_stats for run in ahead]
        self._sweep(row_buffer, ahead, key, _BEFORE_ALL)
        for run, before in zip(ahead, stats, strict=True):  # what is told of a pass is of its own sweeps
            run.models.row_buffer_stats = before

    def take(self, work: _Work, turn: int, turns: int) -> None:
        """Visit the rows, keep those that violate, sweep what is due of the row buffer in this of the pass' turns."""
        found = list(self._each(lambda run: run.visit(work), self._runs))
        row_buffer = self._row_buffer()
        if row_buffer is None:
            return
        # All groups have the same order: it follows from the key, and from which rows are in the row buffer.
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

    def _row_buffer(self) -> ActiveRowBuffer | None:
        state, ctx = self._state, self._ctx
        if state.row_buffer is None and ctx.row_buffer_bytes > 0:
            state.row_buffer = shared_row_buffer(len(state.groups), state.groups[0].problem, ctx)
        return state.row_buffer
