"""The hand-over of a fit that does not converge: from `dcd` to working sets, and from working sets to `dcd`.

The weights and the best dual point of the one solver are the start of the other.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from bigsvm.machine import trim_heap
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import DataShape
from bigsvm.solvers.context import Context
from bigsvm.solvers.dcd.dual_cd import DualCD
from bigsvm.solvers.dcd.dual_cd_state import DualCDState
from bigsvm.solvers.newton_ws.capacity import least_rows, working_bytes
from bigsvm.solvers.newton_ws.progress import STUCK, TOO_MANY
from bigsvm.solvers.newton_ws.working_problem import Measured
from bigsvm.solvers.newton_ws.working_state import WorkingState
from bigsvm.solvers.primal.newton import Newton
from bigsvm.solvers.primal.primal_state import PrimalState
from bigsvm.solvers.tube.classes import STEPS, newton_work, work
from bigsvm.solvers.weights import columns, squared_norm
from bigsvm.store.blocks import row_bytes
from bigsvm.units import MIB

_POOR = 0.4  # share of P at w = 0 above which weights of dcd are no start for Newton's method
_INSIDE = 0.75  # share of the capacity within which all rows inside the margin are kept (`working_set`)
# The work of working sets (`tube.classes.work`), in Newton steps: fewer if the first working set holds all rows.  Sets
# with scaled columns need 5 to 100 epochs of dcd; 7494 x 16 rows of numbers up to 100 need some 100,000.
_STEPS, _STEPS_OF_ALL = 25, STEPS
_OPENING_PASSES = 40.0  # the same for rows on disk, in passes of dcd
_PASSES = 8.0  # passes of working sets that count as that work; on disk they need 4 to 8


class _AfterDcd(Newton):
    """Newton's method after `dcd`: it begins at the best multiple of its weights."""

    def move(self, state: PrimalState, ctx: Context) -> None:
        """Move; models whose P is hardly smaller than at 0 begin there, as without dcd.

        From 0 the first step is that of least squares on all rows, which is near the optimum where classes overlap.
        """
        first = state.iteration == 0 and isinstance(state, WorkingState) and state.given_up and state.started
        super().move(state, ctx)
        if first:
            rows, problem = state.rows, state.problem
            nothing = np.sum([rows.costs(problem, piece).sum(axis=0) for piece in rows.pieces()], axis=0)
            primal = 0.5 * squared_norm(problem, state.w) + rows.losses(problem)
            columns(state.w)[:, primal > _POOR * nothing] = 0.0


DCD, NEWTON = DualCD(), _AfterDcd()
IN_SHORT = DualCD(max_sweeps_per_step=4)
"""dcd where its first epochs decide who goes on."""


def shape_of(problem: Problem, ctx: Context) -> DataShape:
    """The shape of the data, from which `capacity` counts bytes."""
    data = ctx.data
    nnz = data.nnz if data.nnz is not None else int(row_bytes(data) * data.n_samples / 8)  # the estimate of the plan
    entry = data.dtype.itemsize + (data.index_dtype.itemsize if data.layout == "csr" else 0)
    return DataShape(
        data.n_samples, data.n_features, nnz, problem.n_models, entry_bytes=entry, n_costs=problem.n_costs,
        smooth_loss=problem.loss.smooth,
    )  # fmt: skip


def worth(problem: Problem, ctx: Context) -> float:
    """The work that working sets are thought to need: epochs of dcd over rows in memory, or its passes on disk."""
    if not ctx.resident:
        return _OPENING_PASSES
    shape = replace(shape_of(problem, ctx), n_models=1, n_costs=1)  # each model has sets, and epochs, of its own
    rows, sparse = least_rows(shape, True), ctx.data.layout == "csr"
    steps = _STEPS if rows < shape.n_samples else _STEPS_OF_ALL
    return work(shape.n_samples, shape.n_features, shape.nnz, sparse, steps, rows)


def worth_newton(state: WorkingState, ctx: Context) -> float:
    """The work that Newton's method is thought to need from the weights of dcd, in epochs of dcd over rows in memory.

    Rows with alpha above 0 are about those that violate.
    """
    assert state.opening is not None
    shape = shape_of(state.problem, ctx)
    inside = np.mean([np.count_nonzero(group.alpha.values) / group.alpha.values.size for group in state.opening.groups])
    sparse = ctx.data.layout == "csr"
    return newton_work(shape.n_samples, shape.n_features, shape.nnz, sparse, float(inside))


def dcd_is_nearer(state: WorkingState, ctx: Context) -> bool:
    """Whether dcd is now expected to arrive before working sets.

    That is so if dcd was not tried before, if working sets do not move any more, or if they have done as much work as
    dcd still needed, at its rate, when it was given up.  The rate of working sets tells nothing: their gap stays the
    same for some passes and then falls all at once.  By this rule the total time is at most about twice that of the
    faster of the two.
    """
    turn = min(state.left * _PASSES / worth(state.problem, ctx), TOO_MANY)
    return state.left == 0.0 or state.stuck > STUCK or state.passes >= turn


def too_few(found: Measured, problem: Problem, ctx: Context) -> str:
    """A clause for a message: how many rows inside the margin do not fit, and the memory that would do; '' for none."""
    # Models of a class at several costs share most of their rows.
    inside = sum(found.sides[1][problem.positive == k].max() for k in np.unique(problem.positive))
    missing = min(int(inside / _INSIDE), ctx.data.n_samples) - found.capacity
    if missing <= 0:
        return ""
    memory = -(-(ctx.budget.limit + working_bytes(shape_of(problem, ctx), missing, found.entry_bytes)) // MIB)
    return f": {missing:,} more rows should fit beside the {found.capacity:,} that do, about --memory {memory}MiB"


def give_up(state: WorkingState) -> None:
    """End the state of the dcd that went first, and release its vectors."""
    if state.opening is not None:
        for group in state.opening.groups:
            if group.momentum is not None:
                group.momentum.alpha.close()
            group.alpha.close()
        DCD.finish(state.opening)
        state.opening = None
        trim_heap()


def hand_over(state: WorkingState) -> None:
    """Let working sets take over from dcd: its w becomes the direction, its alpha the best dual point.

    w equals w(alpha) but for rounding, which the first proof removes.  For a smooth loss alpha is not used: D needs the
    costs of the rows too, which are not known yet, and the first pass gives a dual point of its own.
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
    give_up(state)


def fall_back(state: WorkingState, ctx: Context) -> DualCDState:
    """Let dcd take over: its state starts at the best dual point and the w of that point."""
    problem = state.problem
    alpha, V = state.rows.alpha, columns(state.dual.v)
    pieces = list(state.rows.pieces())  # before `close` releases the vectors that they are computed from
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
    for vectors in (state.place, state.extra):
        if vectors is not None:
            vectors.close()
    state.rows.close()
