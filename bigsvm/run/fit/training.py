"""What a fit holds between its plan and its loop: context, state and prover.

`fit_store` goes through here with the user's rows, `precompile` with a few rows of the same kind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from bigsvm.budget import MemoryBudget
from bigsvm.config import FitConfig
from bigsvm.events import Emit
from bigsvm.machine import core_count
from bigsvm.problem.problem import Problem
from bigsvm.run.copies.column_copy import staged_columns
from bigsvm.run.fit.plan import RESIDENT_DATA, Plan
from bigsvm.run.fit.sizes import READ_DEPTH
from bigsvm.run.proof.kernel_check import checked_kernel, reading_of
from bigsvm.run.proof.prover import Prover
from bigsvm.run.proof.provers import prover_of
from bigsvm.solvers.context import Context, ReadAccount
from bigsvm.solvers.kernel.whole_numbers import with_steps
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.columns.column_blocks import ColumnBlocks, ResidentColumns
from bigsvm.store.survey import Survey
from bigsvm.tasks import Mapper
from bigsvm.units import MIB


class Begun(NamedTuple):
    """A fit before its first step.

    problem : with what is known of its kernel on these rows
    state : the solver's;  prover : of its points
    """

    problem: Problem
    state: Any
    prover: Prover


def make_context(
    data: RowBlocks,
    survey: Survey,
    plan: Plan,
    config: FitConfig,
    mapper: Mapper,
    budget: MemoryBudget,
    scratch: Path,
    stack: ExitStack,
    emit: Emit,
) -> Context:
    """What the solver is lent: `data` in the blocks of `plan`.  A copy by columns stays until `stack` is closed."""
    ctx = Context(
        data=data,
        refs=data.refs(plan.extent_rows),
        resident=plan.resident,
        mapper=mapper,
        budget=budget,
        seed=config.seed,
        shards=plan.shards,
        rounds_per_pass=plan.rounds_per_pass,
        threads=config.threads or core_count(),
        read_depth=READ_DEPTH,
        group_blocks=plan.group_blocks,
        proof_refs=data.refs(plan.extent_rows * plan.group_blocks),
        workdir=scratch,
        tol=config.tol,
        columns=_column_access(data, plan, config, scratch, budget, stack, emit),
        pass_workers=plan.certificate_workers,
        row_buffer_bytes=plan.row_buffer_bytes,
        row_buffer_sweeps=plan.row_buffer_sweeps,
        row_buffer_packed=plan.row_buffer_packed,
        cache_bytes=plan.cache.memory_bytes,
        cache_disk_bytes=plan.cache.disk_bytes,
        spilled=plan.spilled,
        buffers=plan.buffers(data),
        reads=ReadAccount(survey.data_bytes if plan.resident else 0),
    )
    return with_steps(ctx, plan.problem.kernel, emit) if plan.solver.proof == "kernel" else ctx


def begin(problem: Problem, plan: Plan, ctx: Context, stack: ExitStack, emit: Emit) -> Begun:
    """Check the kernel on the rows, reserve what the plan counts until `stack` is closed, and make state and prover.

    Means of features are brought to the order that these have in the rows.

    Raises
    ------
    DataError : the kernel is refuted, or not symmetric.
    """
    decide = plan.decides_kernel and problem.kernel.definite.how != "assumed"
    kernel = checked_kernel(problem.kernel, ctx.data, reading_of(ctx, emit), ctx.budget, decide)
    centre = problem.centre and problem.centre.ordered(ctx.data.feature_order)
    problem = dataclasses.replace(problem, kernel=kernel, centre=centre)
    for need in plan.needs:
        if not need.may_spill and need.what != RESIDENT_DATA:
            stack.enter_context(ctx.budget.reserve(need.what, need.nbytes))
    state = plan.solver.init(problem, ctx)
    stack.callback(plan.solver.let_threads_go, state)  # a fit that was interrupted does not finish
    return Begun(problem, state, prover_of(plan.solver, state, ctx))


def _column_access(
    data: RowBlocks, plan: Plan, config: FitConfig, scratch: Path, budget: MemoryBudget, stack: ExitStack, emit: Emit
) -> Callable[[], ColumnBlocks]:
    """Makes the columns of `data` on the first call; they stay until `stack` is closed."""
    made: list[ColumnBlocks] = []

    def columns() -> ColumnBlocks:
        if not made and plan.resident:
            (ref,) = data.refs(data.n_samples)
            made.append(ResidentColumns(data.read(ref), data.n_features))
        elif not made:
            limit = config.scratch_limit_bytes()
            made.append(stack.enter_context(staged_columns(data, scratch, max(budget.free, MIB), limit, emit)))
        return made[0]

    return columns
