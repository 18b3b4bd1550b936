"""Which solver a budget allows, with the arithmetic of its plan, and the smallest budget that is not refused."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from bigsvm.config import FitConfig
from bigsvm.errors import Unsupported, UsageError
from bigsvm.problem.problem import Problem
from bigsvm.run.fit.sizes import Sizes, data_bytes_of
from bigsvm.run.proof.kernel_check import check_needs
from bigsvm.solvers.base import DataShape, Need, Solver
from bigsvm.solvers.dcd.active_row_buffer import packs
from bigsvm.solvers.registry import SOLVERS, Choice, choose_solvers
from bigsvm.solvers.shards import rounds_of
from bigsvm.store.blocks import RowBlocks
from bigsvm.units import MIB


class Chosen(NamedTuple):
    """A solver, why it was chosen, and the memory of a fit as a function of the budget.

    shape : of the data, with the `weight_bytes` of this solver
    packed : values in the row buffer are rounded to 16 bits
    whole : sizes if all rows are in memory;  streamed : sizes if rows stream
    """

    solver: Solver
    why: str
    shape: DataShape
    packed: bool
    whole: Sizes
    streamed: Sizes

    @property
    def least(self) -> int:
        """The smallest budget that this solver works in, in whole MiB."""
        streamed = self.streamed.least_memory()
        return streamed if self.shape.shards > 1 else min(streamed, _whole_mib(self.whole.resident_bytes()))

    def keeps_all_rows(self, budget: int) -> bool:
        """Whether all rows are in memory in this budget.  It follows from content and dtype, not from chunks."""
        return self.shape.shards == 1 and self.whole.resident_from() <= budget

    def wanted(self, budget: int) -> int:
        """0 if `budget` is enough, else the budget that would be, in whole MiB.

        If the budget keeps all rows, but reading the chunks of this store needs more, then more is asked for, although
        a fit whose rows stream could do with less: the model must not depend on the chunks.
        """
        if budget < self.least:
            return self.least
        needed = self.whole.resident_bytes()
        return _whole_mib(needed) if self.keeps_all_rows(budget) and needed > budget else 0


def choose(
    store: RowBlocks, config: FitConfig, problem: Problem, shape: DataShape, budget: int, begun_with: str | None = None
) -> Chosen:
    """The first preference whose smallest plan fits `budget`; the last one if none fits.

    begun_with : the solver that 'auto' takes instead if it still solves the problem, because the fit began with it

    Raises UsageError if shards are asked for and no preferred solver supports them.
    """
    found = _first_that_fits(store, config, problem, shape, budget)
    if begun_with in (None, found.solver.name) or config.solver != "auto":
        return found
    try:
        return _first_that_fits(store, config, problem, shape, budget, begun_with)
    except (Unsupported, UsageError):
        return found  # the checkpoint will be refused, and the message names both solvers


def _first_that_fits(
    store: RowBlocks, config: FitConfig, problem: Problem, shape: DataShape, budget: int, only: str | None = None
) -> Chosen:
    """See `choose`.  only : the solver that is taken; None: any"""
    in_memory = Sizes(store, shape, (), config.stage, False).resident_from() <= budget
    if in_memory and config.shards is None:
        shape = dataclasses.replace(shape, shards=1)  # rows in memory are fast enough
    packed = packs(problem, config.tol) and store.dtype.itemsize > 1
    checks = [*check_needs(problem.kernel, store.n_samples), *_table(problem)]
    choices = choose_solvers(config, shape, in_memory)
    if only is not None:
        # With the options that 'auto' gives it, if it still is one of its preferences.
        preferred = [choice for choice in choices if choice.solver.name == only][:1]
        choices = preferred or choose_solvers(dataclasses.replace(config, solver=only), shape, in_memory)
        choices = [choice._replace(why="'auto' chose it when the fit began") for choice in choices]
    if config.shards is not None and shape.shards > 1:
        named = choices[0].solver
        # newton-ws cannot hand over to dcd on shards.  Whether it is faster then was not measured, so 'auto' avoids it.
        named_alone = config.solver != "auto"
        choices = [
            choice for choice in choices if choice[0].in_shards and (named_alone or not choice[0].shards_if_asked)
        ]
        if not choices:
            raise _knows_no_shards(config, named)
        choices = _said_of_whole(choices, choose_solvers(config, dataclasses.replace(shape, shards=1), in_memory)[0])
    for choice in choices:
        solver, why, kept_bytes = choice
        weight_bytes = solver.weight_bytes(config.tol, shape.regression)
        apart = solver.in_shards and (config.shards is not None or not solver.shards_if_asked)
        found = dataclasses.replace(shape, weight_bytes=weight_bytes, shards=shape.shards if apart else 1)
        if solver.in_rounds:
            found = dataclasses.replace(found, rounds=rounds_of(config, found, data_bytes_of(store), solver))
        streamed = Sizes(store, found, (*solver.needs(found, False), *checks), config.stage, packed)
        if streamed.least_memory() + kept_bytes <= budget:
            break
    whole = Sizes(store, found, (*solver.needs(found, True), *checks), config.stage, packed)
    return Chosen(solver, why, found, packed, whole, streamed)


def least_memory(
    store: RowBlocks, config: FitConfig, problem: Problem, shape: DataShape, chosen: Chosen,
    begun_with: str | None = None,
) -> int:  # fmt: skip
    """The smallest budget that is known to work, in bytes.

    A smaller budget may mean another solver, which may need more than that: so the choice is made again until it fits.
    """
    least = chosen.least
    while more := choose(store, config, problem, shape, least, begun_with).wanted(least):
        least = more
    return least


def _said_of_whole(choices: list[Choice], whole: Choice) -> list[Choice]:
    """The choices for shards, with the solver that would be chosen without shards named in their reasons."""
    if whole.solver.name == choices[0].solver.name:
        return choices
    said = f"without --shards it would be {whole.solver.name}"
    return [choice._replace(why=f"{choice.why}; {said}") for choice in choices]


def _knows_no_shards(config: FitConfig, solver: Solver) -> UsageError:
    """The error for a solver that does not support shards; its hint names those that do."""
    why = ": each of its steps is along a column, of which every shard has a part" if solver.column_access else ""
    able = [
        name
        for name, other in SOLVERS.items()
        if other.in_shards and config.loss in other.losses and config.bias in other.biases
    ]
    would = f", or use --solver {' or '.join(able)}" if able and not config.of_kernel else ""
    return UsageError(
        f"solver {solver.name!r} does not train shards of the rows{why}", hint=f"leave out --shards{would}"
    )


def _table(problem: Problem) -> list[Need]:
    """The table of label sets, if rows have several labels; every task holds a copy."""
    return [] if problem.member is None else [Need("sets of labels", problem.member.nbytes)]


def _whole_mib(nbytes: int) -> int:
    return -(-nbytes // MIB) * MIB
