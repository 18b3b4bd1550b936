"""The arrays of `dcd`: their sizes, which a plan counts before the fit, and a new state, which allocates them."""

from __future__ import annotations

import math

import numpy as np

from bigsvm.problem.deferred import DEFERRED_ALPHA
from bigsvm.problem.problem import Problem, zero_weights
from bigsvm.solvers.base import WEIGHTS, DataShape, Need
from bigsvm.solvers.context import Context
from bigsvm.solvers.dcd.dual_cd_state import (
    DualCDState,
    ModelGroup,
    all_live,
    bytes_active,
    groups_of_models,
    open_thresholds,
)
from bigsvm.solvers.dcd.momentum import Momentum
from bigsvm.solvers.dcd.shards.moved_alpha import moved_bytes
from bigsvm.solvers.dcd.shards.sharded_pass import ShardedGroup
from bigsvm.tasks import FAN_IN

LEAP_ALPHA, LEAP_W, ROW_COSTS = "alpha of the last leap", "w of the last leap", "row costs"


def needs_of(shape: DataShape, resident: bool, leaps: bool, keeps_rows: bool) -> list[Need]:
    """Bytes by name; per-row needs may go to disk.

    leaps : passes may begin with a step of momentum;  keeps_rows : there may be a row buffer
    """
    n, m = shape.n_samples, shape.n_models
    groups = groups_of_models(m, shape.shards, resident and shape.folded, shape.joint)
    each, streams = [bytes_active(g, resident, shape.joint) for g in groups], not resident and shape.shards == 1
    needs = [
        Need(WEIGHTS, shape.weight_bytes * (shape.n_features + 1) * m),
        Need("alpha", 8 * n * m, may_spill=True),
        *([Need("folds of the rows", 2 * n)] if shape.folded else []),  # by store row, and by working row
        Need("active rows", n * (each[0] if streams else sum(each)), may_spill=True),
    ]
    costs = leaps and shape.weighted and not (shape.regression or shape.joint)
    if resident:
        needs.append(Need("row norms", 8 * n, may_spill=True))
        if shape.folded and leaps and not (shape.regression or shape.joint):
            needs.append(Need(LEAP_W, shape.weight_bytes * (shape.n_features + 1) * m))
            needs.append(Need(DEFERRED_ALPHA, 8 * n * m, may_spill=True))
            needs += [Need(ROW_COSTS, 8 * n, may_spill=True)] if costs else []
    elif shape.shards > 1:
        held = FAN_IN * (math.ceil(math.log(shape.shards, FAN_IN)) + 1) + 2
        share = shape.shards + 6  # the last change of each shard; six for work, among them the mean of w
        needs.append(Need("sums of shards", (held + share) * shape.weight_bytes * (shape.n_features + 1) * m))
        needs.append(Need("stiffness of features", shape.shards * (4 + 1) * shape.n_features))  # and their buckets
        needs.append(Need("sums of a deferred proof", (shape.shards + held) * 8 * (shape.n_features + 1) * m))
        needs.append(Need(DEFERRED_ALPHA, 8 * n * m, may_spill=True))
        a_row = sum(moved_bytes(g.stop - g.start, shape.weighted, shape.regression, n) for g in groups)
        needs.append(Need("steps of a round", -(-n // shape.rounds) * a_row))
        if leaps and not keeps_rows:
            needs.append(Need(LEAP_W, shape.weight_bytes * (shape.n_features + 1) * m))
            needs.append(Need(LEAP_ALPHA, 8 * n * m, may_spill=True))
    else:
        needs.append(Need(DEFERRED_ALPHA, 8 * n * m, may_spill=True))  # alpha before the pass, for momentum too
        if costs:
            needs.append(Need(ROW_COSTS, 8 * n, may_spill=True))
    return needs


def new_state(
    problem: Problem, ctx: Context, dtype: type, leaps: bool, keeps_rows: bool, eps: float, target: float
) -> DualCDState:  # fmt: skip
    """alpha = 0, w = 0, every row active.

    dtype : of w;  leaps, keeps_rows : as in `needs_of`;  eps, target : as in `ModelGroup`
    """
    weighted = ctx.data.has_weights or bool(np.any(problem.class_weight != 1.0))
    leaps = leaps and _can_leap(problem, ctx, keeps_rows, weighted)
    groups: list[ModelGroup] = []
    searched = ctx.resident and problem.axis is not None
    streams = not ctx.resident and ctx.shards == 1
    for models in groups_of_models(problem.n_models, ctx.shards, searched, problem.joint):
        m = models.stop - models.start
        part = problem.of_models(models)
        w = zero_weights(ctx.data.n_features, m, dtype)
        alpha = ctx.vector("alpha", m)
        if streams and groups:
            active = groups[0].active
        else:
            bits = np.dtype(f"u{bytes_active(models, ctx.resident, problem.joint)}")
            active = ctx.vector("active rows", 1, bits, all_live(part.n_proofs) if ctx.resident else 1)
        ahead = ctx.vector(DEFERRED_ALPHA if ctx.shards == 1 else LEAP_ALPHA, m) if leaps else None
        groups.append(
            ModelGroup(
                problem=part,
                w=w,
                alpha=alpha,
                active=active,
                thresholds=open_thresholds(part.n_proofs),
                floor=np.zeros(part.n_proofs),
                eps=eps,
                target=target,
                spread=np.tile([-math.inf, math.inf], (part.n_proofs, 1)),
                fruitless=np.zeros(part.n_proofs, np.int64),
                momentum=None if ahead is None else Momentum.new(w, ahead),
                moves=np.ones(m, np.uint8) if part.axis is None else part.axis.moves,
            )
        )
    sqnorm = ctx.vector("row norms", 1, fill=-1) if ctx.resident else None
    cost = ctx.vector(ROW_COSTS, 1) if leaps and weighted else None
    shards = [ShardedGroup(group, ctx, len(groups)) for group in groups] if ctx.shards > 1 else None
    return DualCDState(0, groups, sqnorm, cost, shrinks=ctx.resident, shards=shards)


def _can_leap(problem: Problem, ctx: Context, keeps_rows: bool, weighted: bool) -> bool:
    """Whether the rows and the problem allow steps of momentum.  weighted : rows or classes have weights"""
    if problem.regression or problem.joint:
        return False
    if ctx.resident and problem.axis is None:
        return False
    # On shards the calling process takes the step of momentum, and does not know the weights of rows.
    if ctx.shards > 1 and (keeps_rows or problem.bias != "none" or weighted):
        return False
    # Momentum knows one cost of each row, the same for all models.
    return problem.axis is None or problem.axis.same_weights
