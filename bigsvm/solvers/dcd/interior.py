"""The hand-over from `dcd` to an interior-point method (`solvers/tube`) where sweeps take long.

With rows in memory the method takes part of a step, and may solve classes, too.  If rows stream it solves a regression,
and each step is one reading of theirs (`StreamedTube`).
"""

from __future__ import annotations

import numpy as np

from bigsvm.solvers.context import Context
from bigsvm.solvers.dcd.dual_cd_state import DualCDState, ModelGroup
from bigsvm.solvers.dcd.slow_sweeps import bytes_in_float64, put_in_float64
from bigsvm.solvers.tube.classes import bytes_for_classes, solve_classes
from bigsvm.solvers.tube.in_memory import bytes_to_solve, solve_model
from bigsvm.solvers.tube.streamed import READINGS, StreamedTube
from bigsvm.solvers.tube.tube import FINAL
from bigsvm.solvers.weights import columns
from bigsvm.store.blocks import Block
from bigsvm.tasks import PassLeft, leaving_when

# The cost of a solution in epochs: 80 for 8,000 x 12 rows, 150 for 100,000 x 12, 270 for 50,000 x 100, 950 for
# 20,000 x 300.  Where sweeps were not done by then, they took up to a hundred times as long (C = 100).
_EPOCHS, _EPOCHS_A_FEATURE = 100, 3


def epochs(ctx: Context) -> int:
    """The epochs of `dcd` (if rows stream, its passes) that cost about as much as a solution."""
    return _EPOCHS + _EPOCHS_A_FEATURE * ctx.data.n_features if ctx.resident else READINGS


def solve(state: DualCDState, ctx: Context) -> int:
    """Put the solution of each model that is still trained into w and alpha.

    Returns 0; or, if the method has no room, the bytes that memory lacks, and then nothing is changed.
    Raises PassLeft if the run is to stop, or if a checkpoint is due between two models.  Models that are solved by then
    (`DualCDState.finished`) stay solved, and the next call goes on with the others.  When --max-time is over, the
    others stay as they are.
    """
    block, problem = ctx.data.read(ctx.refs[0]), state.groups[0].problem
    if problem.regression:
        nbytes, wider = bytes_to_solve(problem, block, ctx), 0
    else:
        nbytes, wider = bytes_for_classes(problem, block, ctx), bytes_in_float64(state)
    room = ctx.budget.try_reserve("interior-point method", nbytes + wider)
    if room is None:
        return nbytes + wider - ctx.budget.free
    room.release()
    if not problem.regression:  # the rounding of float32 counts C times
        put_in_float64(state, ctx)
    models = [(group, m) for group in state.groups for m in np.flatnonzero(group.moves).tolist()]
    before = state.finished
    with ctx.budget.reserve("interior-point method", nbytes), leaving_when(lambda: ctx.stopping() or ctx.expired()):
        for group, m in models[before:]:
            if state.finished > before:  # where checkpoints are due all the time, each call solves one model
                if ctx.expired():
                    break
                if ctx.pause():
                    raise PassLeft
            try:
                _solve_one(group, m, block, ctx)
            except PassLeft:
                if ctx.stopping():
                    raise
                break
            state.finished += 1
    if state.finished == 0 < len(models):
        return 0
    for group in state.groups:
        group.still, group.estimate = False, FINAL * ctx.tol
        group.reactivate()
        if group.momentum is not None:
            group.momentum.remember(group.w, group.alpha)
    state.estimates = (FINAL * ctx.tol, state.estimates[0])
    return 0


def _solve_one(group: ModelGroup, m: int, block: Block, ctx: Context) -> None:
    """Put the solution of a model into w and alpha, unless it is no better than the point of the sweeps."""
    w, alpha = columns(group.w), group.alpha.values
    if group.problem.regression:
        w[:, m], alpha[:, m] = solve_model(group.problem, m, block, ctx)
        return
    found, duals, gap = solve_classes(group.problem, m, block, ctx)
    if gap <= max(ctx.tol, group.estimate):
        w[:, m], alpha[:, m] = found, duals


def begin(state: DualCDState, ctx: Context) -> None:
    """Let the method take over rows that stream, from the next step on."""
    state.path = StreamedTube.new(state.groups[0].problem, ctx)
    state.waiting = [place for place, (group, m) in enumerate(_models(state)) if group.moves[m]]


def read(state: DualCDState, ctx: Context) -> bool:
    """The next reading of rows that stream; True if the models are solved, so that `dcd` goes on from there.

    Raises PassLeft if the run is to stop; the reading then begins again.
    """
    path = state.path
    assert path is not None
    group, m = _models(state)[state.waiting[path.solved]]
    if path.read(group.problem, m, group.alpha, ctx):
        path.put_weights(group.problem, columns(group.w)[:, m])
        if path.solved == len(state.waiting):
            path.close()
            state.path = None
            for each in state.groups:
                each.estimate = FINAL * ctx.tol
            state.estimates = (FINAL * ctx.tol, state.estimates[0])
    return state.path is None


def _models(state: DualCDState) -> list[tuple[ModelGroup, int]]:
    return [(group, m) for group in state.groups for m in range(group.problem.n_models)]
