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
from bigsvm.machine import return_freed_memory
from bigsvm.problem.certificate import Certificate, keep_best
from bigsvm.problem.problem import Problem, make_problem
from bigsvm.run.certify import certify_view, models_document
from bigsvm.run.mapper import open_mapper
from bigsvm.run.memory import PeakMemory
from bigsvm.run.outcome import FitResult, linear_model
from bigsvm.run.plan import READ_DEPTH, Plan, make_plan
from bigsvm.run.rows import open_rows
from bigsvm.run.scratch import is_tmpfs, scratch_folder
from bigsvm.run.warm import warm
from bigsvm.solvers.base import Context
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.survey import Survey

_FIRST_CHECK = 2  # sweeps of streamed data before the first proof; then each time they have doubled


@dataclass
class Clock:
    """Seconds of a run, by kind of work.  Displays only: nothing is decided by them but --max-time."""

    began: float
    staging: float = 0.0
    solving: float = 0.0
    certify: float = 0.0

    def total(self) -> float:
        return time.monotonic() - self.began


@dataclass
class Progress:
    """What a run has spent and reached."""

    visits: int = 0
    certificate_bytes: int = 0
    certificate: Certificate | None = None
    w: np.ndarray | None = None
    """The primal point that `certificate` speaks of."""


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
    warm(store, plan.problem.n_models)
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
            refs=data.refs(plan.block_rows),
            resident=plan.resident,
            mapper=mapper,
            budget=budget,
            seed=config.seed,
            parallel=plan.parallel,
            read_depth=READ_DEPTH,
            group_blocks=plan.group_blocks,
            proof_refs=data.refs(plan.block_rows * plan.group_blocks),
            workdir=scratch,
            tol=config.tol,
            bytes_read=survey.data_bytes if plan.resident else 0,
        )
        fixed = [need for need in plan.needs if not need.may_spill and need.what != "resident data"]
        for need in fixed:
            stack.enter_context(budget.reserve(need.what, need.nbytes))
        state = plan.solver.init(problem, ctx)
        note(BudgetReport(budget.limit, budget.report()))
        progress = Progress()
        status = _loop(problem, plan, config, state, ctx, progress, survey.data_bytes, clock, note)
        result = _result(store, data, survey, problem, plan, config, state, ctx, progress, status, warnings)
        memory.sample()
        result.memory = memory.document(plan.budget_bytes)
    result.seconds = {
        "total": clock.total(),
        "staging": clock.staging,
        "solving": clock.solving,
        "io_wait": ctx.io_wait_s,
        "certify": clock.certify,
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
    state: Any,
    ctx: Context,
    progress: Progress,
    status: str,
    warnings: list[str],
) -> FitResult:
    """The model of the last proof, and the figures of the run."""
    certificate, w = progress.certificate, progress.w
    assert certificate is not None
    assert w is not None
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
        "epochs": progress.visits / store.n_samples,
        "certificate_passes": progress.certificate_bytes / survey.data_bytes,
        "bytes_read": ctx.bytes_read,
        "data_bytes": survey.data_bytes,
        "scratch_bytes": plan.scratch_bytes,
        "n_support": int(certificate.n_support.sum()),
        "kernel_rows": {"computed": 0, "ram_hits": 0, "disk_hits": 0},
        "models": models_document(problem, certificate),
    }
    if config.lam is not None:
        figures["objective_mean"] = math.fsum(certificate.primal) * config.lam
    model = linear_model(problem, w, data, certificate, plan, config, survey, status)
    alpha = plan.solver.view(state).alpha
    if config.no_dual and alpha is not None:
        alpha.close()
        alpha = None
    return FitResult(status, model, certificate, figures, warnings, alpha, data.row_order)


def _loop(
    problem: Problem,
    plan: Plan,
    config: FitConfig,
    state: Any,
    ctx: Context,
    progress: Progress,
    data_bytes: int,
    clock: Clock,
    emit: Emit,
) -> str:
    """Step, and prove when it is due; the status that ended it."""
    n = ctx.data.n_samples
    next_check = float(_FIRST_CHECK)
    limit = config.max_passes or math.inf
    while True:
        epochs, passes = progress.visits / n, ctx.bytes_read / data_bytes
        # Rows in memory are not read again: there the limit counts visits, as it would have counted passes.
        spent = epochs if ctx.resident else passes
        ctx.sweeps_left = None if math.isinf(limit) else max(int(limit - spent), 1)
        before = clock.total()
        info = plan.solver.step(problem, state, ctx)
        clock.solving += clock.total() - before
        progress.visits += info.visits
        epochs, passes = progress.visits / n, ctx.bytes_read / data_bytes
        emit(EpochEnd(epochs, passes, info.n_active, info.gap_estimate, clock.total()))
        spent = epochs if ctx.resident else passes
        # What the next step and the proof after it will cost, and a proof now.
        proof = 0.0 if ctx.resident else 1.0
        due = info.ask_certificate or epochs >= next_check
        out_of_passes = spent + due * proof + 1.0 + proof > limit
        out_of_time = config.max_time is not None and clock.total() > config.max_time
        if not (due or out_of_passes or out_of_time):
            continue
        next_check = max(next_check, 2.0 * epochs)
        certificate = _prove(problem, plan, state, ctx, progress, clock)
        emit(
            CertificateMade(
                epochs,
                ctx.bytes_read / data_bytes,
                float(certificate.primal.sum()),
                float(certificate.dual.sum()),
                certificate.relative_gap,
                clock.total(),
            )
        )
        if certificate.relative_gap <= config.tol:
            return "converged"
        if info.exhausted:
            return "stalled"
        if out_of_passes or out_of_time:
            return "stopped"


def _prove(problem: Problem, plan: Plan, state: Any, ctx: Context, progress: Progress, clock: Clock) -> Certificate:
    """Certify the solver's point, keep the best of both sides, and tell the solver what was learnt."""
    before, read = clock.total(), ctx.bytes_read
    view = plan.solver.view(state)
    found, v = certify_view(problem, view, ctx, plan.certificate_workers)
    certificate, better = keep_best(found, progress.certificate)
    if progress.w is None:
        progress.w = view.w.copy()
    else:
        np.copyto(progress.w, view.w, where=better)
    progress.certificate = certificate
    if not np.all(np.isfinite(certificate.primal)):
        raise DataError(
            "the objective overflows: the values are too large", ctx.data.uri, "scale the features to about [-1, 1]"
        )
    progress.certificate_bytes += ctx.bytes_read - read
    clock.certify += clock.total() - before
    plan.solver.learn(problem, state, certificate, v)
    return certificate


def versions() -> dict[str, str]:
    """What computed: recorded with a run, so that it can be repeated."""
    import numba

    return {
        "bigsvm": bigsvm.__version__,
        "numpy": np.__version__,
        "numba": numba.__version__,
        "python": platform.python_version(),
    }
