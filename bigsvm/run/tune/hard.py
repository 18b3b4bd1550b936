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
from bigsvm.run.path import by_products_in_memory
from bigsvm.run.tune.grid import Candidate
from bigsvm.store.blocks import RowBlocks

_EASY = 1.0
"""C up to which coordinate descent is fast for any rows, if these are about of unit length."""
_OF_LARGE_C = ("newton", "newton-cg", "newton-ws")
"""Solvers of a single fit whose cost hardly grows with C."""


def hard_in_memory(store: RowBlocks, config: FitConfig, grid: Sequence[Candidate]) -> list[int]:
    """Indices of the candidates for which `dcd` would be slow, and a single fit would take another solver in memory.

    Rows in memory need no shared passes, so these candidates are trained by the solver of a single fit, fold by fold.
    """
    found = []
    for number, candidate in enumerate(grid):
        plan = _alone(store, config, [candidate]) if candidate.C > _EASY else None
        if plan is None:
            continue
        # A plan that opens with dcd stays with dcd, unless that turns out to be slow.
        by_other = plan.solver.name in _OF_LARGE_C and getattr(plan.solver, "opening", "") != "dcd"
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
        whole, first = (plan and (_method(plan), plan.resident) for plan in plans)
        if len(part) == 1 or whole == first:
            at += 1
        else:
            parts[at : at + 1] = [part[: len(part) // 2], part[len(part) // 2 :]]
    return [some for part in parts for some in one_after_another(store, config, grid, part)]


def _method(plan: Plan) -> str:
    """The method that trains in the end: Newton's, of a single C with or without epochs of dcd before it, is one."""
    return "newton" if getattr(plan.solver, "then", "") == "newton" else plan.solver.name


def one_after_another(
    store: RowBlocks, config: FitConfig, grid: Sequence[Candidate], numbers: list[int]
) -> list[list[int]]:
    """The candidates one by one where a fit of all would be by `newton-cg` in memory; else all together.

    There are no passes to share then, and all models of a fit take part in each product until the last one is solved
    (tutorial, C = 10, 100, 1000, a fold: 38 CPU seconds together, 10.5 one by one, 5.9 if each starts from the last).

    numbers : indices of candidates that differ in C alone
    """
    whole = _plan(store, config, [grid[number] for number in numbers]) if len(numbers) > 1 else None
    if whole is None or not by_products_in_memory(whole):
        return [numbers] if numbers else []
    return [[number] for number in numbers]


def starts_from_the_last(store: RowBlocks, config: FitConfig, grid: Sequence[Candidate], number: int) -> bool:
    """Whether the fit of this candidate alone gains by the weights of the model of the next smaller C."""
    plan = _plan(store, config, [grid[number]])
    return plan is not None and by_products_in_memory(plan)


def _alone(store: RowBlocks, config: FitConfig, candidates: Sequence[Candidate]) -> Plan | None:
    """The plan of one fit of these candidates apart from all others; None if the memory is too small.

    candidates : they differ in C alone
    """
    return _plan(store, config, candidates) if config.solver == "auto" else None


def _plan(store: RowBlocks, config: FitConfig, candidates: Sequence[Candidate]) -> Plan | None:
    """The plan of one fit of these candidates, which differ in C alone; None if the memory is too small."""
    costs = [candidate.C for candidate in candidates]
    # Class weights only scale C, and those of folds are not known yet.
    own = dataclasses.replace(candidates[0].config(config), class_weight=None, C=max(costs), C_path=costs)
    try:
        return make_plan(store, own)
    except PlanRefused:
        return None
