"""The loop: plan, open the rows, then step, certify, decide, until a proof or a limit ends it."""

from __future__ import annotations

import dataclasses
import math
import platform
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

import bigsvm
from bigsvm.budget import MemoryBudget
from bigsvm.config import FitConfig
from bigsvm.errors import DataError
from bigsvm.events import (
    BudgetReport,
    CertificateMade,
    Emit,
    EpochEnd,
    FitEnded,
    FitStarted,
    Warned,
    silent,
)
from bigsvm.machine import core_count, return_freed_memory
from bigsvm.problem.certificate import Certificate
from bigsvm.problem.problem import Problem, make_problem
from bigsvm.run.certify import models_document
from bigsvm.run.mapper import open_mapper
from bigsvm.run.memory import PeakMemory
from bigsvm.run.outcome import FitResult, linear_model
from bigsvm.run.plan import Plan, make_plan
from bigsvm.run.proofs import Prover
from bigsvm.run.rows import open_rows
from bigsvm.run.scratch import is_tmpfs, scratch_folder
from bigsvm.run.sizes import READ_DEPTH
from bigsvm.run.warm import warm
from bigsvm.solvers.base import Context
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.survey import Survey

_FIRST_CHECK = 4  # passes before the first proof rides along; then each time they have doubled
_STALLED = 20  # proofs in a row that find neither a better primal nor a better dual point
_RIDE_BELOW = 6.0  # forecasts above the tolerance by less than this let a proof ride along


@dataclass
class Clock:
    """Seconds of a run, by kind of work.  Displays only: nothing is decided by them but --max-time."""

    began: float
    staging: float = 0.0
    solving: float = 0.0

    def total(self) -> float:
        return time.monotonic() - self.began


def fit_store(store: RowBlocks, config: FitConfig, emit: Emit = silent) -> FitResult:
    """Train on `store` as `config` says, within its memory budget, until the gap is proved.

    Raises
    ------
    PlanRefused : it cannot fit; DataError : rows are bad or a chunk is missing or damaged;
    OutputError : scratch cannot be written; UsageError, Unsupported : the request makes no sense.
    """
    return_freed_memory()
    clock = Clock(time.monotonic())
    warnings: list[str] = []

    def note(event: Any) -> None:
        if isinstance(event, Warned):
            warnings.append(event.message)
        emit(event)

    for message in getattr(store, "warnings", ()):
        note(Warned(message))
    plan = make_plan(store, config)
    note(FitStarted(plan.document(), dataclasses.asdict(config), store.fingerprint, versions()))
    warm(store, plan)
    budget = MemoryBudget(plan.budget_bytes)
    with ExitStack() as stack:
        mapper = stack.enter_context(open_mapper(config))
        memory = stack.enter_context(PeakMemory())
        scratch = scratch_folder(config)
        if plan.scratch_bytes and is_tmpfs(scratch):
            note(Warned(f"the scratch folder {scratch} is in memory (tmpfs): say --scratch DIR on a disk"))
        data, survey = stack.enter_context(open_rows(store, plan, config, scratch, budget, mapper, note))
        clock.staging = clock.total()
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
            arena_bytes=plan.arena_bytes,
            arena_sweeps=plan.arena_sweeps,
            arena_packed=plan.arena_packed,
            spilled=plan.spilled,
            buffers=plan.buffers(data),
            bytes_read=survey.data_bytes if plan.resident else 0,
        )
        fixed = [need for need in plan.needs if not need.may_spill and need.what != "resident data"]
        for need in fixed:
            stack.enter_context(budget.reserve(need.what, need.nbytes))
        state = plan.solver.init(problem, ctx)
        note(BudgetReport(budget.limit, budget.report()))
        prover = Prover(plan.solver, state, ctx, plan.certificate_workers)
        status, visits = _loop(problem, plan, config, state, ctx, prover, survey.data_bytes, clock, note)
        plan.solver.finish(state)
        result = _result(store, data, survey, problem, plan, config, visits, ctx, prover, status, warnings)
        memory.sample()
        result.memory = memory.document(plan.budget_bytes)
    result.seconds = {
        "total": clock.total(),
        "staging": clock.staging,
        "solving": clock.solving,
        "io_wait": ctx.io_wait_s,
        "certify": prover.seconds,
    }
    note(FitEnded(status, result.document()))
    return result


def _check_classes(problem: Problem, counts: np.ndarray, store: RowBlocks) -> None:
    """Refuse what has nothing to separate: fewer than two classes with rows that weigh something."""
    taking_part = problem.classes[(counts > 0) & (problem.class_weight > 0)]
    if len(taking_part) < 2:
        which = f"only class {taking_part[0]} takes" if len(taking_part) else "no class takes"
        raise DataError(f"{which} part: every other row has weight 0", store.uri)


def _result(
    store: RowBlocks,
    data: RowBlocks,
    survey: Survey,
    problem: Problem,
    plan: Plan,
    config: FitConfig,
    visits: int,
    ctx: Context,
    prover: Prover,
    status: str,
    warnings: list[str],
) -> FitResult:
    """The model of the last proof, and the figures of the run."""
    certificate = prover.certificate
    assert certificate is not None
    figures = {
        "solver": plan.solver.name,
        "loss": problem.loss.name,
        "bias": problem.bias,
        "kernel": "linear",
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
    if config.lam is not None:
        figures["objective_mean"] = math.fsum(certificate.primal) * config.lam
    model = linear_model(problem, prover.w, data, certificate, plan, config, survey, status)
    if config.no_dual:
        for vector in prover.alpha:
            vector.close()
        prover.alpha = []
    return FitResult(status, model, certificate, figures, warnings, prover.alpha, data.working_row)


def _loop(
    problem: Problem,
    plan: Plan,
    config: FitConfig,
    state: Any,
    ctx: Context,
    prover: Prover,
    data_bytes: int,
    clock: Clock,
    emit: Emit,
) -> tuple[str, int]:
    """Step, and prove when it is due; the status that ended it, and the row visits.

    On rows that stream, a proof rides on the next pass while the tolerance is near or the passes have doubled,
    and has a pass of its own only when the solver expects it to succeed.  Once that expectation failed, proofs
    only ride: at most one pass is spent on a proof alone, unless a limit ends the run.
    """
    n = ctx.data.n_samples
    visits, steps, next_check, alone = 0, 0, float(_FIRST_CHECK), True
    best, fruitless = (math.inf, -math.inf), 0
    limit = config.max_passes or math.inf
    rides = not ctx.resident and ctx.parallel == 1

    def spent() -> float:
        # Rows in memory are not read again: there the limit counts visits, as it would have counted passes.
        return visits / n if ctx.resident else ctx.bytes_read / data_bytes

    def report(certificate: Certificate) -> bool:
        nonlocal best, fruitless
        primal, dual = float(certificate.primal.sum()), float(certificate.dual.sum())
        fruitless = fruitless + 1 if (primal, dual) == best else 0
        best = primal, dual
        passes = ctx.bytes_read / data_bytes
        emit(CertificateMade(visits / n, passes, primal, dual, certificate.relative_gap, clock.total()))
        return certificate.relative_gap <= config.tol

    while True:
        ctx.sweeps_left = None if math.isinf(limit) else max(int(limit - spent()), 1)
        before = clock.total()
        info = plan.solver.step(problem, state, ctx)
        clock.solving += clock.total() - before
        visits, steps = visits + info.visits, steps + 1
        emit(EpochEnd(visits / n, ctx.bytes_read / data_bytes, info.n_active, info.gap_estimate, clock.total()))
        if info.rode and report(prover.dismount()):
            return "converged", visits
        # What the next step and the proof after it will cost.
        out_of_passes = spent() + (1.0 if ctx.resident else 2.0) > limit
        out_of_time = config.max_time is not None and clock.total() > config.max_time
        exhausted = info.exhausted or fruitless >= _STALLED
        ending = out_of_passes or out_of_time or exhausted
        counted = visits / n if ctx.resident else steps
        due = counted >= next_check
        if due:
            next_check = 2.0 * counted
        forecast = plan.solver.forecast(state)
        hopeful = info.ask_certificate or forecast <= config.tol
        if ending or (hopeful and alone) or (not rides and (due or hopeful)):
            alone = False
            if report(prover.prove()):
                return "converged", visits
            if ending:
                return ("stalled" if exhausted else "stopped"), visits
        elif rides and (due or forecast <= _RIDE_BELOW * config.tol):
            prover.mount()


def versions() -> dict[str, str]:
    """What computed: recorded with a run, so that it can be repeated."""
    import numba

    return {
        "bigsvm": bigsvm.__version__,
        "numpy": np.__version__,
        "numba": numba.__version__,
        "python": platform.python_version(),
    }
