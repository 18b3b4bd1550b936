"""What helps `dcd` if sweeps over rows in memory take long: momentum, and w in float64.

Most fits of rows in memory end within a hundred epochs, and momentum would cost them as many as it saves.  Fits that go
on have a large C, or rows of very different norms.  There momentum (`momentum.py`) halves the epochs: 20news as it
comes took 461 in place of 1,081 (20 classes, hinge, C = 1), w8a with C = 100 478 in place of 924.

w is float32 at first, unless the tolerance is small.  If the classes can be separated and C is large, a margin that is
off by the rounding of w costs C times as much: D is at its maximum, and P remains far above it.  So where proofs find
no better dual value any more, w becomes float64.  20news, one class, C = 1,000 stalled at a gap of 6e-3.

Both take memory only if a fit gets there and the budget has room; without room the fit goes on as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsvm.solvers.context import Context
from bigsvm.solvers.dcd.dual_cd_arrays import LEAP_ALPHA, LEAP_W, ROW_COSTS
from bigsvm.solvers.dcd.dual_cd_state import DualCDState, ModelGroup
from bigsvm.solvers.dcd.momentum import Momentum
from bigsvm.units import MIB

_WIDE_W = "w in float64"
_EPOCHS = 100  # epochs after which momentum begins
# Estimate of the relative gap from which it does not.  Fits that hardly move, because columns differ in scale, would
# move a little faster, and so be called hopeless after a hundred times the work.
_HOPEFUL = 0.9
_SMALL_THINGS = 8 * MIB  # what plans count for them
_BESIDE_A_WEIGHT = 32  # bytes that plans count for each weight beside w, during a proof
_FRUITLESS = 2  # proofs in a row without a better dual value after which w becomes float64


def speed_up(state: DualCDState, ctx: Context, leaps: bool) -> str:
    """Begin what the fit needs by now, between two steps; returns a warning if memory lacks for it, else ''.

    leaps : the options allow momentum
    """
    n = max(ctx.data.n_samples, 1)
    late = any(group.swept >= _EPOCHS * n and group.estimate < _HOPEFUL for group in state.groups)
    if leaps and late and _may_leap(state) and sum(_bytes_to_leap(state, ctx)) <= free_bytes(state, ctx):
        _begin_momentum(state, ctx)
    if not any(_is_coarse(group) for group in state.groups):
        return ""
    needed = _bytes_to_widen(state)
    if needed <= free_bytes(state, ctx):
        _widen(state, ctx)
        return ""
    if leaps and _may_leap(state):  # momentum would take its part of a larger budget first
        needed = _bytes_to_widen(state, leaps) + sum(_bytes_to_leap(state, ctx))
    if state.lacking:
        return ""
    state.lacking, least = True, -(-(ctx.budget.limit + needed - free_bytes(state, ctx)) // MIB)
    return f"dcd: w is rounded to float32, which limits the gap; --memory {least}MiB has room for w in float64"


def see_proof(group: ModelGroup, dual: np.ndarray, gaps: np.ndarray) -> None:
    """Count the proofs in a row that found no better dual value.

    dual : float64, (n_proofs,)   the best dual values so far, before `floor` is raised to them
    gaps : float64, (n_proofs,)   relative gaps; a model whose gap is 0 is not counted
    """
    stays = (dual <= group.floor) & (gaps > 0.0)
    group.fruitless = np.where(stays, group.fruitless + 1, 0)


def bytes_in_float64(state: DualCDState) -> int:
    """The memory that `put_in_float64` reserves; 0 if w is float64."""
    return 0 if state.groups[0].w.dtype == np.float64 else _bytes_to_widen(state)


def put_in_float64(state: DualCDState, ctx: Context) -> None:
    """Make w float64, if it is not, for another method's solution.  Raises BudgetExceeded without room."""
    if bytes_in_float64(state):
        _widen(state, ctx)


def before_load(state: DualCDState, tree: Any, ctx: Context) -> None:
    """Allocate what a saved state has and a new one lacks: w in float64, and what momentum needs."""
    pairs = list(zip(state.groups, tree["groups"], strict=True)) if state.shrinks else []
    if any(group.w.dtype != saved["w"].dtype for group, saved in pairs):
        _widen(state, ctx)
    if any(group.momentum is None and saved["momentum"] for group, saved in pairs):
        _begin_momentum(state, ctx)


def let_go(state: DualCDState) -> None:
    """Give back the memory."""
    for group in state.groups:
        if group.momentum is not None and state.shrinks:
            group.momentum.alpha.close()
    for room in state.rooms:
        room.release()
    state.rooms.clear()


def free_bytes(state: DualCDState, ctx: Context) -> int:
    """Bytes that nothing needs: of those that are not reserved, plans count some for proofs and for small things."""
    return ctx.budget.free - _SMALL_THINGS - _BESIDE_A_WEIGHT * sum(group.w.size for group in state.groups)


def _may_leap(state: DualCDState) -> bool:
    problem = state.groups[0].problem
    return problem.axis is None and not (problem.regression or problem.joint) and state.groups[0].momentum is None


def _weighted(state: DualCDState, ctx: Context) -> bool:
    return ctx.data.has_weights or bool(np.any(state.groups[0].problem.class_weight != 1.0))


def _bytes_to_leap(state: DualCDState, ctx: Context) -> tuple[int, int]:
    """The memory of copies of w, and of alpha with the costs of the rows."""
    costs = 8 * ctx.data.n_samples * _weighted(state, ctx)
    return sum(group.w.nbytes for group in state.groups), sum(g.alpha.values.nbytes for g in state.groups) + costs


def _begin_momentum(state: DualCDState, ctx: Context) -> None:
    """From now on sweeps begin ahead of where the last ones ended.  Raises BudgetExceeded without room."""
    state.rooms.append(ctx.budget.reserve(LEAP_W, _bytes_to_leap(state, ctx)[0]))
    if _weighted(state, ctx):
        state.cost = ctx.vector(ROW_COSTS, 1)
        state.cost.values[:, 0] = state.groups[0].problem.y_and_cost(ctx.data.read(ctx.refs[0]))[1]
    for group in state.groups:
        alpha = ctx.vector(LEAP_ALPHA, group.problem.n_models)
        group.momentum = Momentum.new(group.w, alpha)
        group.momentum.remember(group.w, group.alpha)


def _is_coarse(group: ModelGroup) -> bool:
    """Whether float32 keeps a model of the group from its tolerance."""
    moves = group.moves if len(group.moves) == len(group.fruitless) else np.ones(len(group.fruitless), bool)
    return group.w.dtype == np.float32 and bool(np.any((group.fruitless >= _FRUITLESS) & (moves != 0)))


def _bytes_to_widen(state: DualCDState, leaps: bool = False) -> int:
    """The memory of w in float64, and of that of the last leap.  Plans count the best point of a proof in float64.

    leaps : as if momentum had begun
    """
    return 8 * sum(group.w.size for group in state.groups) * (1 + (leaps or state.groups[0].momentum is not None))


def _widen(state: DualCDState, ctx: Context) -> None:
    """Make w of all groups float64.  Raises BudgetExceeded without room."""
    state.rooms.append(ctx.budget.reserve(_WIDE_W, _bytes_to_widen(state)))
    for group in state.groups:
        group.w = group.w.astype(np.float64)
        if group.momentum is not None:
            group.momentum.w = group.momentum.w.astype(np.float64)
