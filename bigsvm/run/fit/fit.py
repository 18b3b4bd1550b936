"""A fit from its plan to its result: rows are opened, the loop runs, the model of the last proof comes back."""

from __future__ import annotations

import dataclasses
import math
import platform
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

import bigsvm
from bigsvm.budget import MemoryBudget
from bigsvm.config import FitConfig
from bigsvm.errors import DataError, Interrupted
from bigsvm.events import (
    COMPILING,
    BudgetReport,
    Emit,
    FitEnded,
    FitStarted,
    Warned,
    WorkAdvanced,
    WorkEnded,
    WorkStarted,
    silent,
)
from bigsvm.machine import core_count, return_freed_memory
from bigsvm.model.linear_model import Model
from bigsvm.problem.problem import Problem, make_problem
from bigsvm.run.copies.column_copy import staged_columns
from bigsvm.run.copies.scratch import is_tmpfs, make_scratch
from bigsvm.run.execute.mapper import open_mapper
from bigsvm.run.execute.memory import PeakMemory
from bigsvm.run.execute.signals import Stop, stop_on_signals
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.kernel_outcome import kernel_figures, kernel_model
from bigsvm.run.fit.loop import Loop
from bigsvm.run.fit.open_rows import open_rows
from bigsvm.run.fit.outcome import FitResult, about_model, how_it_ended, linear_model
from bigsvm.run.fit.plan import Plan, make_plan
from bigsvm.run.fit.problem_identity import ProblemIdentity, result_options
from bigsvm.run.fit.scales import found_scale_warning, known_scale_warning
from bigsvm.run.fit.sizes import READ_DEPTH
from bigsvm.run.fit.warm import warm
from bigsvm.run.proof.kernel_check import checked_kernel, reading_of
from bigsvm.run.proof.kernel_prover import KernelProver
from bigsvm.run.proof.prover import Prover
from bigsvm.run.proof.saved_problem import models_document
from bigsvm.solvers.base import Context
from bigsvm.solvers.kernel.base import KernelSolver
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.columns.column_blocks import ColumnBlocks, ResidentColumns
from bigsvm.store.survey import Survey
from bigsvm.units import MIB


def fit_store(
    store: RowBlocks,
    config: FitConfig,
    emit: Emit = silent,
    checkpoints: Checkpoints | None = None,
    resume: bool = False,
) -> FitResult:
    """Train on `store` as `config` says, within its memory budget, until the gap is proved.

    checkpoints : where the state is saved, by time and when a signal stops the run
    resume : go on from the newest checkpoint, to the same bytes as if the run had never stopped; without one, begin

    Raises
    ------
    Interrupted : SIGTERM, SIGINT or SIGHUP came, and the state was saved.
    PlanRefused : it cannot fit; DataError : rows are bad or a chunk is missing or damaged;
    OutputError : scratch cannot be written; UsageError, Unsupported : the request makes no sense.
    """
    return_freed_memory()
    began = time.monotonic()
    warnings: list[str] = []

    stop = Stop()

    def note(event: Any) -> None:
        if isinstance(event, Warned):
            warnings.append(event.message)
        emit(event)
        if stop and isinstance(event, WorkAdvanced):  # while rows are read or staged: what is there is kept
            raise Interrupted(f"stopped by {stop.by} before training began", hint="the same command goes on")

    for message in getattr(store, "warnings", ()):
        note(Warned(message))
    plan = make_plan(store, config)
    planned = time.monotonic()
    note(FitStarted(plan.document(), dataclasses.asdict(config), store.fingerprint, versions()))
    said = known_scale_warning(store) if config.kernel != "precomputed" else None
    if said:
        note(Warned(said))
    note(WorkStarted(COMPILING, 0, ""))
    warm(store, plan)
    compiled = time.monotonic()
    note(WorkEnded(COMPILING, compiled - planned))
    budget = MemoryBudget(plan.budget_bytes)
    with ExitStack() as stack:
        stack.enter_context(stop_on_signals(stop))
        mapper = stack.enter_context(open_mapper(config))
        memory = stack.enter_context(PeakMemory())
        scratch = make_scratch(config)
        if plan.scratch_bytes and is_tmpfs(scratch):
            note(Warned(f"the scratch folder {scratch} is in memory (tmpfs): say --scratch DIR on a disk"))
        data, survey = stack.enter_context(open_rows(store, plan, config, scratch, budget, mapper, note))
        staged_at = time.monotonic()
        if not getattr(store, "content", None) and config.kernel != "precomputed":
            said = found_scale_warning(data, data.refs(plan.extent_rows))
            if said:
                note(Warned(said))
        counts = survey.class_counts(store)
        problem = make_problem(config, store, counts) if config.class_weight == "balanced" else plan.problem
        _check_classes(problem, counts, store)
        ctx = Context(
            data=data,
            refs=data.refs(plan.extent_rows),
            resident=plan.resident,
            mapper=mapper,
            budget=budget,
            seed=config.seed,
            parallel=plan.parallel,
            threads=config.threads or core_count(),
            read_depth=READ_DEPTH,
            group_blocks=plan.group_blocks,
            proof_refs=data.refs(plan.extent_rows * plan.group_blocks),
            workdir=scratch,
            tol=config.tol,
            columns=column_access(data, plan, config, scratch, budget, stack, note),
            pass_workers=plan.certificate_workers,
            arena_bytes=plan.arena_bytes,
            arena_sweeps=plan.arena_sweeps,
            arena_packed=plan.arena_packed,
            cache_bytes=plan.cache.memory_bytes,
            cache_disk_bytes=plan.cache.disk_bytes,
            spilled=plan.spilled,
            buffers=plan.buffers(data),
            bytes_read=survey.data_bytes if plan.resident else 0,
        )
        kernel = checked_kernel(
            problem.kernel, data, reading_of(ctx, note), budget,
            plan.decides_kernel and problem.kernel.definite.how != "assumed",
        )  # fmt: skip
        problem = dataclasses.replace(problem, kernel=kernel)
        fixed = [need for need in plan.needs if not need.may_spill and need.what != "resident data"]
        for need in fixed:
            stack.enter_context(budget.reserve(need.what, need.nbytes))
        state = plan.solver.init(problem, ctx)
        note(BudgetReport(budget.limit, budget.report()))
        prover: Prover | KernelProver
        if isinstance(plan.solver, KernelSolver):
            prover = KernelProver(plan.solver, state, ctx)
        else:
            prover = Prover(plan.solver, state, ctx, plan.certificate_workers)
        loop = Loop(problem, plan.solver, state, config, ctx, prover, survey.data_bytes, stop, checkpoints, note)
        identity = ProblemIdentity(
            store.identity, survey.content_fingerprint, result_options(config), plan.resolved(), versions()
        )
        if checkpoints is not None:
            checkpoints.identity = identity.document()
            saved = checkpoints.newest() if resume else None
            for damage in checkpoints.damaged:
                note(Warned(f"a checkpoint is not whole: {damage}"))
            if saved is not None:
                loop.resume(saved)
        status = loop.run()
        if isinstance(prover, KernelProver):
            problem = dataclasses.replace(problem, kernel=prover.kernel)
            if prover.kernel.unproved:
                note(Warned(prover.kernel.unproved))
        figures = _figures(store, survey, problem, plan, config, loop.at.visits, ctx, prover)
        figures.update(how_it_ended(status, loop.at.rule, config.max_passes is not None))
        about = about_model(problem, data, prover.written, plan, config, survey, status)
        model: Model
        if isinstance(prover, KernelProver):
            figures.update(kernel_figures(state, prover))
            model = kernel_model(state, prover, data, about)
            plan.solver.finish(state)
        else:
            plan.solver.finish(state)
            model = linear_model(problem, prover.w, prover.scale, data, about)
        if config.no_dual:
            for vector in prover.alpha:
                vector.close()
            prover.alpha = []
        assert prover.written is not None
        result = FitResult(status, model, prover.written, figures, warnings, identity, prover.alpha, data.working_row)
        memory.sample()
        result.memory = memory.document(plan.budget_bytes)
    result.seconds = {
        "total": time.monotonic() - began,
        "plan": planned - began,
        "compile": compiled - planned,
        "staging": staged_at - compiled,
        "solving": loop.solving_s,
        "io_wait": ctx.io_wait_s,
        "certify": prover.seconds,
        "checkpoints": 0.0 if checkpoints is None else checkpoints.seconds,
    }
    note(FitEnded(status, result.document()))
    return result


def column_access(
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


def _check_classes(problem: Problem, counts: np.ndarray, store: RowBlocks) -> None:
    """Refuse what has nothing to separate: fewer than two classes with rows that weigh something."""
    if problem.regression:
        return
    taking_part = problem.classes[(counts > 0) & (problem.class_weight > 0)]
    if len(taking_part) < 2:
        which = f"only class {taking_part[0]} takes" if len(taking_part) else "no class takes"
        raise DataError(f"{which} part: every other row has weight 0", store.uri)


def _figures(
    store: RowBlocks,
    survey: Survey,
    problem: Problem,
    plan: Plan,
    config: FitConfig,
    visits: int,
    ctx: Context,
    prover: Prover | KernelProver,
) -> dict[str, Any]:
    """The figures of the run."""
    certificate = prover.written
    assert certificate is not None
    figures = {
        "solver": plan.solver.name,
        "loss": problem.loss.name,
        "bias": problem.bias,
        "kernel": problem.kernel.name,
        "C": float(problem.C[0]),
        "seed": config.seed,
        "n_samples": store.n_samples,
        "n_features": store.n_features,
        "nnz": survey.nnz,
        "classes": problem.classes.tolist(),
        "store_fingerprint": store.fingerprint,
        "content_fingerprint": survey.content_fingerprint,
        "objective": math.fsum(certificate.primal),
        "dual_objective": math.fsum(certificate.dual),
        "duality_gap": math.fsum(certificate.gap),
        "relative_gap": certificate.relative_gap,
        "certificate": certificate.kind,
        "passes": ctx.bytes_read / survey.data_bytes,
        "epochs": visits / store.n_samples,
        "certificate_passes": prover.bytes_read / survey.data_bytes,
        "bytes_read": ctx.bytes_read,
        "data_bytes": survey.data_bytes,
        "scratch_bytes": plan.scratch_bytes,
        "n_support": int(certificate.n_support.sum()),
        "kernel_rows": {"computed": 0, "ram_hits": 0, "disk_hits": 0},
        "models": models_document(problem, certificate),
    }
    if config.C_path is not None:
        figures["C_path"] = config.C_path
    if config.lam is not None:
        figures["objective_mean"] = math.fsum(certificate.primal) * config.lam
    return figures


def versions() -> dict[str, str]:
    """What computed: recorded with a run, so that it can be repeated."""
    import numba

    return {
        "bigsvm": bigsvm.__version__,
        "numpy": np.__version__,
        "numba": numba.__version__,
        "python": platform.python_version(),
    }
