"""A fit from its plan to its result: rows are opened, the loop runs, the model of the last proof comes back."""

from __future__ import annotations

import dataclasses
import math
import platform
import time
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

import bigsvm
from bigsvm.budget import MemoryBudget
from bigsvm.config import FitConfig
from bigsvm.errors import DataError, Interrupted, UsageError
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
from bigsvm.machine import return_freed_memory
from bigsvm.model.model_rows import rows_of
from bigsvm.peak_memory import PeakMemory
from bigsvm.problem.folded import FoldedModels
from bigsvm.problem.problem import Problem, make_problem
from bigsvm.run.apply import curves
from bigsvm.run.apply.calibrate import calibrated, held_out_for, held_out_rows
from bigsvm.run.execute.mapper import open_mapper
from bigsvm.run.execute.signals import Stop, stop_on_signals
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.gamma import with_gamma
from bigsvm.run.fit.loop import Loop
from bigsvm.run.fit.open_rows import open_rows
from bigsvm.run.fit.outcome import FitResult, about_model, how_it_ended
from bigsvm.run.fit.plan import Plan, make_plan
from bigsvm.run.fit.precompile import precompile
from bigsvm.run.fit.problem_identity import ProblemIdentity, result_options
from bigsvm.run.fit.scales import found_scale_warning, known_scale_warning, minds_scales
from bigsvm.run.fit.training import begin, make_context
from bigsvm.run.proof.prover import Prover
from bigsvm.run.proof.saved_problem import models_document
from bigsvm.run.start.earlier import Earlier, open_earlier
from bigsvm.run.start.known_rows import check_rows
from bigsvm.run.start.take_over import take_over
from bigsvm.run.start.unused_options import unused_options
from bigsvm.run.workers.worker_memory import worker_bytes
from bigsvm.solvers.context import Context
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.copy.scratch import is_tmpfs, make_scratch
from bigsvm.store.identity import Identity
from bigsvm.store.survey import Survey
from bigsvm.store.transforms.label_sets import LABEL_SETS


def fit_store(
    store: RowBlocks,
    config: FitConfig,
    emit: Emit = silent,
    checkpoints: Checkpoints | None = None,
    resume: bool = False,
    folded: FoldedModels | None = None,
) -> FitResult:
    """Train on `store` as `config` says, within its memory budget, until the gap is proved; then calibrate if asked.

    checkpoints : where the state is saved, by time and when a signal stops the run
    resume : go on from the newest checkpoint, to the same bytes as if the run had never stopped; without one, begin
    folded : which rows each of the models is trained on, where C_path names them; solver dcd alone

    Raises
    ------
    Interrupted : SIGTERM, SIGINT or SIGHUP came, and the state was saved.
    PlanRefused : it cannot fit; DataError : rows are bad or a chunk is missing or damaged, or no held-out row is of a
        class; OutputError : scratch cannot be written; UsageError, Unsupported : the request makes no sense.
    """
    if config.calibrate is None:
        return _trained(store, store.identity, config, emit, checkpoints, resume, folded)
    if store.classes is None:
        raise UsageError("probabilities are of classes, and the store holds targets", store.uri)
    if LABEL_SETS in store.recipe:
        make_problem(config, store)  # which says that there are none
    curves.load(config.calibrate)  # before memory is counted
    rows: Any = held_out_for(store, config)
    # What is asked for is of the store: which of its rows are held out follows from the options.
    result = _trained(rows, store.identity, config, emit, checkpoints, resume, folded)
    stop = Stop()

    def note(event: Any) -> None:
        if isinstance(event, Warned):
            result.warnings.append(event.message)
        emit(event)

    with stop_on_signals(stop):
        found = calibrated(result.model, store, config, note, stop)
    result.model.about["calibration"] = found
    # The objective, the gap and `epochs` are of these rows; `n_samples` and the content are the store's.
    result.figures["n_trained"] = store.n_samples - held_out_rows(store, config)
    result.figures["calibration"] = {"method": found["method"], **found["held_out"]}
    return result


def _trained(
    store: RowBlocks,
    asked_of: Identity,
    config: FitConfig,
    emit: Emit,
    checkpoints: Checkpoints | None,
    resume: bool,
    folded: FoldedModels | None,
) -> FitResult:
    """`fit_store` without a calibration; `asked_of`: the rows that the result says it is of."""
    return_freed_memory()
    began = time.monotonic()
    warnings: list[str] = []
    compiling: list[float] = []
    stop = Stop()

    def note(event: Any) -> None:
        if isinstance(event, Warned):
            warnings.append(event.message)
        if isinstance(event, WorkEnded) and event.what == COMPILING:
            compiling.append(event.seconds)
        emit(event)
        if stop and isinstance(event, WorkAdvanced):  # while rows are read or staged: what is there is kept
            raise Interrupted(f"stopped by {stop.by} before training began", hint="the same command goes on")

    ready = _make_ready(store, config, folded, note)
    plan, earlier = ready.plan, ready.earlier
    budget = MemoryBudget(plan.budget_bytes)
    with ExitStack() as stack:
        stack.enter_context(stop_on_signals(stop))
        mapper = stack.enter_context(open_mapper(config))
        if not mapper.in_process:
            mapper.check(
                store, make_scratch(config) if plan.shares_scratch else None, worker_bytes(plan, mapper.n_workers)
            )
        if earlier is not None and earlier.alpha is not None:
            check_rows(earlier, store, plan.piece_rows, mapper, note)
        memory = stack.enter_context(PeakMemory())
        plan, config = with_gamma(store, plan, config, note)
        scratch = make_scratch(config)
        if plan.scratch_bytes and is_tmpfs(scratch):
            note(Warned(f"the scratch folder {scratch} is in memory (tmpfs): use --scratch DIR on a disk"))
        data, survey = stack.enter_context(open_rows(store, plan, config, scratch, budget, mapper, note))
        staged_at = time.monotonic()
        if not store.content and config.kernel != "precomputed":
            _warn(found_scale_warning(data, data.refs(plan.extent_rows), minds_scales(plan), store.feature_names), note)
        counts = survey.class_counts(store)
        problem = make_problem(config, store, counts) if config.class_weight == "balanced" else plan.problem
        _check_classes(problem, survey, store)
        if folded is not None:
            problem = folded.applied(problem, data)
        ctx = make_context(data, survey, plan, config, mapper, budget, scratch, stack, note)
        begun = begin(problem, plan, ctx, stack, note)
        note(BudgetReport(budget.limit, budget.report()))
        prover = begun.prover
        loop = Loop(
            begun.problem, plan.solver, begun.state, config, ctx, prover, survey.data_bytes, stop, checkpoints, note
        )  # fmt: skip
        identity = ProblemIdentity(
            asked_of, survey.content_fingerprint, _asked(config, folded), plan.decisive(), versions()
        )
        if checkpoints is not None:
            checkpoints.identity = identity.document()
        started = None
        if not _go_on(loop, checkpoints, resume, note) and earlier is not None:
            started = take_over(earlier, plan.solver, begun.problem, begun.state, prover, ctx)
        proved = started is not None and loop.begin_at(started.certificate, started.visits)
        status = "converged" if proved else loop.run()
        problem = prover.checked(begun.problem)
        _warn(problem.kernel.unproved, note)
        figures = _figures(store, survey, problem, plan, config, loop.at.visits, ctx, prover)
        limited, starts_another = config.max_passes is not None, problem.loss.nu is None
        figures.update(how_it_ended(status, loop.at.rule, limited, not plan.resident, starts_another))
        about = about_model(problem, data, prover.written, plan, config, survey, status)
        if kept := rows_of(store):
            about["rows"] = kept
        if earlier is not None:
            about["warm_start"] = figures["warm_start"] = earlier.document()
        figures.update(prover.figures())
        model = prover.model(problem, data, about)
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
        "plan": ready.planned - began,
        "compile": sum(compiling),
        "staging": staged_at - ready.compiled,
        "solving": loop.solving_s,
        "io_wait": ctx.reads.waited_s,
        "certify": prover.seconds,
        "checkpoints": 0.0 if checkpoints is None else checkpoints.seconds,
    }
    note(FitEnded(status, result.document()))
    return result


class _Ready(NamedTuple):
    """A fit that was planned and whose code is compiled.

    earlier : the model to start from, if one was named;  planned, compiled : when that was done
    """

    plan: Plan
    earlier: Earlier | None
    planned: float
    compiled: float


def _make_ready(store: RowBlocks, config: FitConfig, folded: FoldedModels | None, note: Emit) -> _Ready:
    """Plan the fit and compile what it will call; whatever can be refused without reading rows is refused here."""
    plan, path = make_plan(store, config, folded=folded is not None), config.warm_start
    for message in (*store.warnings, *unused_options(config, plan.solver.name, plan.shards)):
        note(Warned(message))
    if folded is not None:
        plan = dataclasses.replace(plan, problem=folded.applied(plan.problem))
    earlier = None if path is None else open_earlier(path, plan.solver, plan.problem, store)
    planned = time.monotonic()
    note(FitStarted(plan.document(), dataclasses.asdict(config), store.fingerprint, versions()))
    if config.kernel != "precomputed":
        _warn(known_scale_warning(store, minds_scales(plan)), note)
    note(WorkStarted(COMPILING, 0, ""))
    precompile(store, plan, config, note)
    compiled = time.monotonic()
    note(WorkEnded(COMPILING, compiled - planned))
    store.forget()  # what was kept from reading labels and metadata is none of the base
    return _Ready(plan, earlier, planned, compiled)


def _asked(config: FitConfig, folded: FoldedModels | None) -> dict[str, Any]:
    """Every option that changes what the models say."""
    return result_options(config) if folded is None else {**result_options(config), "folds": folded.document()}


def _warn(message: str | None, emit: Emit) -> None:
    """Say it, where there is something to say."""
    if message:
        emit(Warned(message))


def _go_on(loop: Loop, checkpoints: Checkpoints | None, resume: bool, emit: Emit) -> bool:
    """Take the loop to the newest checkpoint where that is asked for and there is one, and tell of damaged ones."""
    if checkpoints is None:
        return False
    saved = checkpoints.newest() if resume else None
    for damage in checkpoints.damaged:
        emit(Warned(f"a checkpoint is damaged: {damage}"))
    if saved is not None:
        loop.resume(saved)
    return saved is not None


def _check_classes(problem: Problem, survey: Survey, store: RowBlocks) -> None:
    """Refuse what has nothing to learn from: no row that weighs something, or fewer than two classes with one."""
    counts = survey.class_counts(store)
    if problem.regression or problem.one_class:
        if survey.counts and not any(survey.counts.values()):
            raise DataError("no row takes part: every row has weight 0", store.uri)
        return
    if problem.member is not None:
        has, total = problem.member.astype(np.int64) @ counts, int(counts.sum())
        for name, n in zip(problem.classes.tolist(), has.tolist(), strict=True):
            if n in (0, total):
                which = "every row" if n else "no row"
                raise DataError(f"{which} that takes part has label {name!r}", store.uri, "leave it out of --labels")
        return
    taking_part = problem.classes[(counts > 0) & (problem.class_weight > 0)].tolist()
    if len(taking_part) < 2:
        which = f"only class {taking_part[0]!r} takes" if taking_part else "no class takes"
        raise DataError(f"{which} part: every other row has weight 0", store.uri)


def _figures(
    store: RowBlocks,
    survey: Survey,
    problem: Problem,
    plan: Plan,
    config: FitConfig,
    visits: int,
    ctx: Context,
    prover: Prover,
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
    if "chosen" in store.recipe:
        figures["chosen"] = dict(store.recipe["chosen"])
    if ctx.mapper.traffic is not None:
        figures["cluster"] = ctx.mapper.traffic.document()
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
