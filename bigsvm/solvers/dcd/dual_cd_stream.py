"""One pass of dual coordinate descent over rows that stream from disk, one group of blocks after another.

Each group is visited once, in a random order; the row buffer takes the rows that still violate, and is swept between
arrivals.  Groups of models share the reading and nothing else: each has its weights, its alpha and its row buffer,
and may run on a thread of its own.  The first pass takes the blocks in their order, every later one in a random
order of (seed, pass).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigsvm.compiled.linear.dual_cd import EXACT, GAP, LOSS, PG_MAX, PG_MIN, BlockRows, dual_cd_visit
from bigsvm.compiled.shared.rows import sqnorms
from bigsvm.compiled.shared.visiting import VisitingOrder
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import Context
from bigsvm.solvers.block_order import groups_at_random, groups_in_order
from bigsvm.solvers.dcd.active_row_buffer import ActiveRowBuffer, make_row_buffer
from bigsvm.store.blocks import Block, BlockGroup, Matrix, readonly_view
from bigsvm.store.read_ahead import ReadAhead
from bigsvm.store.state.vectors import RowVector

if TYPE_CHECKING:
    from bigsvm.solvers.dcd.dual_cd_state import ModelGroup

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
    sweeps: range  # numbers of the row buffer sweeps that follow
    first: bool  # of the pass


def streamed_pass(
    models: list[ModelGroup], cost: RowVector | None, number: int, done: int, mixed_runs: MixedRuns, ctx: Context
) -> int:
    """Visit every row once, or the groups of rows after the first `done`; `number` is the pass.

    Returns how many groups of rows of the pass are done: fewer than all where `ctx.pause` said so.  What was seen
    is in the groups of models, `pass_sums` adds it up.  `cost` is filled where there is one.
    """
    groups = groups_in_order(ctx) if number == 0 else groups_at_random(ctx, number)
    row_buffer_bytes = ctx.row_buffer_bytes // len(models)
    runs = [_Run(group_of_models, ctx, row_buffer_bytes, mixed_runs, done == 0) for group_of_models in models]
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
        paused = False
        for group, block in source:
            if paused:  # only now have the proofs, too, seen the rows of the group before
                break
            ctx.charge(block.nbytes)
            due = range(done * ctx.row_buffer_sweeps // len(groups), (done + 1) * ctx.row_buffer_sweeps // len(groups))
            work = _work(models[0].problem, group, block, (ctx.seed, number), due, done == 0)
            if cost is not None and number == 0:
                cost.values[work.rows.at, 0] = models[0].problem.y_and_cost(block)[1]
            if len(runs) == 1:
                runs[0].take(work)
            else:
                list(pool.map(lambda run, work=work: run.take(work), runs))
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


def _work(
    problem: Problem, group: BlockGroup, block: Block, key: tuple[int, int], due: range, first: bool
) -> _Work:  # fmt: skip
    X = readonly_view(block.X)
    sqnorm = block.sqnorm
    if sqnorm is None:
        sqnorm = np.empty(block.n_rows)
        sqnorms(X, sqnorm)
    at = np.concatenate([np.arange(ref.start, ref.stop) for ref in group.refs])
    rows = BlockRows(X, problem.y_of(block), writable(block.sample_weight), sqnorm, at)
    return _Work(group.start, rows, key, due, first)


def writable(sample_weight: np.ndarray | None) -> np.ndarray:
    """Sample weights as kernels take them: one numba type, whether they are a map or not; empty for ones."""
    if sample_weight is None:
        return np.empty(0)
    return sample_weight if sample_weight.flags.writeable else sample_weight.copy()


class _Run:
    """One group of models in one pass."""

    def __init__(
        self, models: ModelGroup, ctx: Context, row_buffer_bytes: int, mixed_runs: MixedRuns, begins: bool
    ) -> None:
        self._mixed_runs = mixed_runs
        self.models, self.problem, self.data = models, models.problem, ctx.data
        self._row_buffer_bytes, self._packed, self._sweeps = (
            row_buffer_bytes,
            ctx.row_buffer_packed,
            ctx.row_buffer_sweeps,
        )
        if begins:
            m = self.problem.n_proofs
            models.seen, models.row_buffer_stats, models.visits = np.empty((0, m, 2)), np.zeros((m, 4)), 0
            models.spread[...] = -math.inf, math.inf
            if models.row_buffer is not None:
                models.row_buffer.begin_pass()
        self._seen: list[np.ndarray] = list(models.seen)

    def close(self) -> None:
        """What was seen goes to the state, which may be saved now."""
        self.models.seen = np.array(self._seen).reshape(-1, self.problem.n_proofs, 2)

    def take(self, work: _Work) -> None:
        """Visit the rows, keep those that violate, sweep the row buffer as often as is due."""
        models, problem = self.models, self.problem
        if work.first:
            self._settle(work.key)
        rows, n = work.rows, len(work.rows.at)
        order, score, stats = np.empty(n, np.int64), np.empty(n, np.float32), np.empty((problem.n_proofs, 4))
        alpha, streams = models.alpha.values, models.active.values[:, 0]
        key = VisitingOrder(self._mixed_runs(rows.X, problem), *work.key, work.start)
        visited = dual_cd_visit(
            rows, problem.dual_models, alpha, models.w, streams, EXACT, key, order, stats, score
        )  # fmt: skip
        models.visits += visited
        self._note(stats)
        row_buffer = self._row_buffer()
        if row_buffer is None:
            return
        row_buffer.admit(rows, order[:visited], score, streams)
        for number in work.sweeps:
            models.row_buffer_stats = row_buffer.sweep(problem, alpha, models.w, work.key, number)
            models.visits += row_buffer.n

    def _settle(self, key: tuple[int, int]) -> None:
        """Visit the buffered rows before any may leave: where the pass starts ahead, alpha is infeasible."""
        models = self.models
        if models.row_buffer is not None and models.momentum is not None and models.momentum.theta.any():
            models.row_buffer.sweep(self.problem, models.alpha.values, models.w, key, self._sweeps)
            models.visits += models.row_buffer.n

    def _note(self, stats: np.ndarray) -> None:
        spread = self.models.spread
        np.maximum(spread[:, PG_MAX], stats[:, PG_MAX], out=spread[:, PG_MAX])
        np.minimum(spread[:, PG_MIN], stats[:, PG_MIN], out=spread[:, PG_MIN])
        self._seen.append(stats[:, (GAP, LOSS)])
        if len(self._seen) > 512:
            self._seen = [np.sum(self._seen, axis=0)]

    def _row_buffer(self) -> ActiveRowBuffer | None:
        if self._row_buffer_bytes == 0:
            return None
        if self.models.row_buffer is None:
            self.models.row_buffer = make_row_buffer(self._row_buffer_bytes, self.data, self._packed)
        return self.models.row_buffer
