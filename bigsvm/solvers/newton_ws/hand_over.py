"""Who goes on where a solver does not arrive: from `dcd` to working sets, and from these to `dcd`.

What the one knows goes over to the other: weights, and the best dual point.
"""

from __future__ import annotations

import math

import numpy as np

from bigsvm.machine import trim_heap
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import DataShape
from bigsvm.solvers.context import Context
from bigsvm.solvers.dcd.dual_cd import DualCD
from bigsvm.solvers.dcd.dual_cd_state import DualCDState
from bigsvm.solvers.newton_ws.capacity import working_bytes
from bigsvm.solvers.newton_ws.progress import STUCK, TOO_MANY
from bigsvm.solvers.newton_ws.working_set import WorkingSet
from bigsvm.solvers.newton_ws.working_state import WorkingState
from bigsvm.solvers.weights import columns
from bigsvm.store.blocks import row_bytes
from bigsvm.units import MIB

DCD = DualCD()
_INSIDE = 0.75  # of the rows that are kept, those inside the margin at most (`working_set`)
# Epochs of dcd that goes first, and multiples of d^3 multiplications beside: a solution's, in epochs over the entries.
# Scaled sets need 5 to 100 epochs; 7494 x 16 rows of numbers up to 100 need some 100,000.
_OPENING, _SOLUTIONS = 128, 200
_OPENING_PASSES = 40.0  # the same on disk, in passes
_PASSES = 8.0  # of working sets, which that is thought to be worth: on disk they need 4 to 8


def shape_of(problem: Problem, ctx: Context) -> DataShape:
    """The shape of the rows, as working sets count them."""
    data = ctx.data
    nnz = data.nnz if data.nnz is not None else int(row_bytes(data) * data.n_samples / 8)  # as the plan does
    entry = data.dtype.itemsize + (data.index_dtype.itemsize if data.layout == "csr" else 0)
    return DataShape(
        data.n_samples, data.n_features, nnz, problem.n_models, entry_bytes=entry, n_costs=problem.n_costs,
        smooth_loss=problem.loss.smooth,
    )  # fmt: skip


def worth(ctx: Context) -> float:
    """What working sets are thought to take, in the epochs of dcd over rows in memory, or in its passes on disk."""
    if not ctx.resident:
        return _OPENING_PASSES
    data = ctx.data
    return _OPENING + _SOLUTIONS * float(data.n_features) ** 3 / max(data.nnz or data.n_samples * data.n_features, 1)


def dcd_is_nearer(state: WorkingState, ctx: Context) -> bool:
    """Whether working sets have done as much work as dcd, given up for its rate, still needed; or it was not tried.

    Which of the two would be there first is not known: the gap of working sets stays, and then falls at once, so its
    rate says nothing.  As it is, nobody waits more than twice as long as for the better one.  Working sets that do not
    move any more have had their turn.
    """
    turn = min(state.left * _PASSES / worth(ctx), TOO_MANY)
    return state.left == 0.0 or state.stuck > STUCK or state.passes >= turn


def too_few(found: WorkingSet, problem: Problem, ctx: Context) -> str:
    """How many rows a working set lacks to hold those inside the margin, and the memory that would do; '' for none."""
    # Models of a class at several costs share most of their rows.
    inside = sum(found.sides[1][problem.positive == k].max() for k in np.unique(problem.positive))
    missing = min(int(inside / _INSIDE), ctx.data.n_samples) - found.capacity
    if missing <= 0:
        return ""
    memory = -(-(ctx.budget.limit + working_bytes(shape_of(problem, ctx), missing, found.entry_bytes)) // MIB)
    return f": {missing:,} more rows should fit beside the {found.capacity:,} that do, about --memory {memory}MiB"


def give_up(state: WorkingState) -> None:
    """dcd has gone first, and is done."""
    if state.opening is not None:
        for group in state.opening.groups:
            if group.momentum is not None:
                group.momentum.alpha.close()
            group.alpha.close()
        DCD.finish(state.opening)
        state.opening = None
        trim_heap()


def hand_over(state: WorkingState) -> None:
    """Working sets go on from dcd: its w is the first direction, and of the hinge loss alpha the best dual point.

    w is that of alpha but for its rounding, which the first proof takes out.  For a smooth loss D wants the costs of
    the rows as well, which are not known yet: the first pass gives a dual point of its own.
    """
    assert state.opening is not None
    rows, first = state.rows, 0
    for group in state.opening.groups:
        models = slice(first, first + group.problem.n_models)
        first = models.stop
        columns(state.direction)[:, models] = columns(group.w)
        if not state.problem.loss.smooth:
            for piece in rows.pieces():
                rows.alpha.values[piece, models] = group.alpha.values[piece]
    if not state.problem.loss.smooth:
        state.dual.v[...] = state.direction
        parts = [rows.alpha.values[piece].sum(axis=0) for piece in rows.pieces()]
        state.dual.linear[:] = [math.fsum(column) for column in np.transpose(parts)]
    state.started = True
    give_up(state)


def fall_back(state: WorkingState, ctx: Context) -> DualCDState:
    """What dcd goes on from: the best dual point and its w."""
    problem = state.problem
    alpha, V = state.rows.alpha, columns(state.dual.v)
    pieces = list(state.rows.pieces())  # which the rows are counted by that go now, all but alpha
    close(state)
    fallback = DCD.init(problem, ctx)
    first = 0
    for group in fallback.groups:
        models = slice(first, first + group.problem.n_models)
        first = models.stop
        columns(group.w)[...] = V[:, models]
        for piece in pieces:
            group.alpha.values[piece] = alpha.values[piece, models]
    alpha.close()
    trim_heap()
    return fallback


def close(state: WorkingState) -> None:
    if state.place is not None:
        state.place.close()
    state.rows.close()
