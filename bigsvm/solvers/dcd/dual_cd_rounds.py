"""Dual coordinate descent in rounds of K blocks, as pure tasks that run on any mapper (`round_shares.py`)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.compiled.linear.dual_cd import GAP, LOSS, BlockRows, dual_cd_visit
from bigsvm.compiled.shared.rows import sqnorms
from bigsvm.compiled.shared.visiting import VisitingOrder, mixed_runs_of
from bigsvm.solvers.base import Context
from bigsvm.solvers.block_order import groups_at_random
from bigsvm.solvers.dcd.dual_cd_stream import PassSums, writable
from bigsvm.solvers.dcd.round_shares import Share, Update, rows_of, run_rounds
from bigsvm.store.blocks import BlockGroup, RowBlocks, readonly_view

if TYPE_CHECKING:
    from bigsvm.solvers.dcd.dual_cd_state import DualCDState


def round_pass(state: DualCDState, ctx: Context) -> PassSums:
    """Visit every row once, K groups of blocks a round; a group of models after the other."""
    sqnorm = state.sqnorm
    assert sqnorm is not None
    groups = groups_at_random(ctx, state.sweep)
    sums, visits = [], 0
    for models in state.groups:

        def share(data: RowBlocks, group: BlockGroup, w: np.ndarray, sigma: float, models: Any = models) -> Share:
            local = {"alpha": models.alpha.get(group), "sqnorm": sqnorm.get(group)}
            return Share(data, group, models.problem, local, w, sigma, (ctx.seed, state.sweep))

        seen, visits = [], 0
        for group, update in run_rounds(round_task, groups, share, models.w, ctx):
            models.alpha.put(group, update.local["alpha"])
            sqnorm.put(group, update.local["sqnorm"])
            seen.append(update.stats[:, (GAP, LOSS)])
            visits += update.visits
        each = range(models.problem.n_models)
        sums.append(np.array([[math.fsum(part[m, k] for part in seen) for k in range(2)] for m in each]))
    return PassSums(sums, visits)


def round_task(share: Share) -> Update:
    """Task: one sweep over a group against the round's w.  Pure."""
    block = rows_of(share)
    X = readonly_view(block.X)
    problem, n = share.problem, block.n_rows
    local = {name: np.array(array) for name, array in share.local.items()}
    w = share.w.copy()
    sqnorm = local["sqnorm"][:, 0]
    if sqnorm[0] < 0:  # norms are never negative: these rows were not seen yet
        sqnorms(X, sqnorm)
    stats = np.empty((problem.n_models, 4))
    rows = BlockRows(X, problem.y_of(block), writable(block.sample_weight), sqnorm, np.arange(n))
    key = VisitingOrder(mixed_runs_of(X, problem.constant_feature != 0.0), *share.key, share.group.start)
    visits = dual_cd_visit(
        rows, problem.dual_models, local["alpha"], w, np.empty(0, np.uint8), share.sigma, key, np.empty(n, np.int64),
        stats, np.empty(0, np.float32),
    )  # fmt: skip
    return Update(local, (w - share.w) / share.sigma, stats, visits, block.nbytes)
