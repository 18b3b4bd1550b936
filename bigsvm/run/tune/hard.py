"""Candidates of a search that `dcd` does not solve in reasonable time, and the fits that solve them.

How long `dcd` takes depends on C and on the scales of the columns.  A single fit would use another solver for them, or
let another solver take over.  All models of a search share the passes of `dcd`, so here hard candidates are trained by
fits of their own: those of large C at once, others after `dcd` has failed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from bigsvm.config import FitConfig
from bigsvm.errors import PlanRefused
from bigsvm.run.fit.plan import Plan, make_plan
from bigsvm.run.tune.grid import Candidate
from bigsvm.store.blocks import RowBlocks

_EASY = 1.0
"""C up to which coordinate descent is fast for any rows, if these are about of unit length."""


def hard_in_memory(store: RowBlocks, config: FitConfig, grid: Sequence[Candidate]) -> list[int]:
    """Indices of the candidates for which `dcd` would be slow, if rows with few features are in memory.

    Rows in memory need no shared passes, so these candidates are trained by the solver of a single fit, fold by fold.
    """
    found = []
    for number, candidate in enumerate(grid):
        plan = _alone(store, config, [candidate]) if candidate.C > _EASY else None
        if plan is None:
            continue
        # A plan that opens with dcd stays with dcd, unless that turns out to be slow.
        by_other = plan.solver.name in ("newton", "newton-ws") and getattr(plan.solver, "opening", "") != "dcd"
        if plan.resident and by_other:
            found.append(number)
    return found


def others_wait(store: RowBlocks, config: FitConfig, grid: Sequence[Candidate]) -> bool:
    """Whether a single fit of each candidate would use another solver than `dcd`, at once or if `dcd` is slow."""
    plans = [_alone(store, config, [candidate]) for candidate in grid]
    return all(plan is not None and plan.solver.name != "dcd" for plan in plans)


def together_as_alone(
    store: RowBlocks, config: FitConfig, grid: Sequence[Candidate], numbers: list[int]
) -> list[list[int]]:
    """The candidates in parts whose models can be trained in one fit by the solver that each would have alone.

    numbers : indices of candidates that differ in C alone
    """
    parts = [numbers] if numbers else []
    at = 0
    while at < len(parts):
        part = parts[at]
        plans = [_alone(store, config, [grid[number] for number in some]) for some in (part, part[:1])]
        whole, first = (plan and (plan.solver.name, plan.resident) for plan in plans)
        if len(part) == 1 or whole == first:
            at += 1
        else:
            parts[at : at + 1] = [part[: len(part) // 2], part[len(part) // 2 :]]
    return parts


def _alone(store: RowBlocks, config: FitConfig, candidates: Sequence[Candidate]) -> Plan | None:
    """The plan of one fit of these candidates apart from all others; None if the memory is too small.

    candidates : they differ in C alone
    """
    if config.solver != "auto":
        return None
    costs = [candidate.C for candidate in candidates]
    # Class weights only scale C, and those of folds are not known yet.
    own = dataclasses.replace(candidates[0].config(config), class_weight=None, C=max(costs), C_path=costs)
    try:
        return make_plan(store, own)
    except PlanRefused:
        return None
