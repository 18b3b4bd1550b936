"""A fit from its plan to its result: plan, compile, open the rows, run the loop, and make the model that was proved."""

from __future__ import annotations

import dataclasses
import math
import platform
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
from bigsvm.machine import anonymous_bytes, return_freed_memory, trim_heap
from bigsvm.model.model_rows import rows_of
from bigsvm.model.named_columns import label_column_of, weight_column_of
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
from bigsvm.run.fit.scales import found_scale_warning, known_scale_warning
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
from bigsvm.store.checks import naming_lines
from bigsvm.store.copy.scratch import is_tmpfs, make_scratch
from bigsvm.store.delegated import check_unchanged
from bigsvm.store.identity import Identity
from bigsvm.store.survey import Survey
from bigsvm.store.transforms.label_sets import LABEL_SETS


@np.errstate(all="ignore")  # what overflows makes the gap infinite, and so the proof tells of it
@naming_lines
def fit_store(
    store: RowBlocks,
    config: FitConfig,
    emit: Emit = silent,
    checkpoints: Checkpoints | None = None,
    resume: bool = False,
    folded: FoldedModels | None = None,
) -> FitResult:
    """Train on `store` as `config` says, within its memory budget, until the gap is proved; then calibrate if asked.

    checkpoints : where the state is saved from time to time, and when a signal stops the run; None: nowhere
    resume : continue from the newest checkpoint, if there is one; the result has the same bytes as without a stop
    folded : the rows that each model of `C_path` is trained on, for a search; only with the solver dcd

    Raises
    ------
    Interrupted : SIGTERM, SIGINT or SIGHUP came, and the state was saved.
    PlanRefused : memory or scratch is too small.
    DataError : bad rows, a missing or damaged chunk, or a class without held-out rows (for calibration).
    OutputError : scratch cannot be written.
    UsageError, Unsupported : options that exclude each other, or that no solver supports.
    """
    if config.calibrate is None:
        return _trained(store, store.identity, config, emit, checkpoints, resume, folded)
    if store.classes is None:
        raise UsageError("probabilities are of classes, and the store holds targets", store.uri)
    if LABEL_SETS in store.recipe:
        make_problem(config, store)  # raises the error: rows with several labels have no probabilities
    curves.load(config.calibrate)  # import libraries before memory is counted
    rows: Any = held_out_for(store, config)
    # The result has the identity of the store: which of its rows are held out follows from the options.
    result = _trained(rows, store.identity, config, emit, checkpoints, resume, folded)
    stop = Stop()

    def note(event: Any) -> None:
        if isinstance(event, Warned):
            result.warnings.append(event.message)
        emit(event)

    with stop_on_signals(stop):
        found = calibrated(result.model, store, config, note, stop)
    trim_heap()  # the model is saved next, which is measured with the fit
    result.model.about["calibration"] = found
    # Objective, gap and epochs are those of the rows that were trained on; `n_samples` and content are the store's.
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
    """`fit_store` without calibration.  asked_of : the identity that the result records"""
    return_freed_memory()
    began, before = time.monotonic(), anonymous_bytes()
    stop = Stop()
    note = _Notes(emit, stop)
    begun_with = checkpoints.solver_of_auto(versions()) if checkpoints is not None and resume else None
    ready = _make_ready(store, config, folded, begun_with, note)
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
        check_unchanged(store)  # rows in memory and in a working copy are not read from the store again
        staged_at = time.monotonic()
        if not store.content:
            _warn(found_scale_warning(data, data.refs(plan.extent_rows), plan, store.feature_names), note)
        problem = _problem_of_rows(plan, config, store, survey)
        if folded is not None:
            problem = folded.applied(problem, data)
        ctx = make_context(data, survey, plan, config, mapper, budget, scratch, stack, note)
        begun = begin(problem, plan, ctx, stack, note)
        note(BudgetReport(budget.limit, budget.report()))
        prover = begun.prover
        loop = Loop(
            begun.problem, plan.solver, begun.state, config, ctx, prover, survey.data_bytes, stop, checkpoints, note
        )  # fmt: skip
        if folded is not None and folded.others_wait:
            loop.give_up_soon()
        identity = ProblemIdentity(
            asked_of, survey.content_fingerprint, _asked(config, folded, earlier), plan.decisive(), versions()
        )
        if checkpoints is not None:
            checkpoints.identity = identity.document()
        resumed = _go_on(loop, checkpoints, resume, note)
        with note.in_training(), loop.shown():
            proved = not resumed and earlier is not None and _starts_proved(loop, earlier)
            status = "converged" if proved else loop.run()
        problem = prover.checked(begun.problem)
        _warn(problem.kernel.unproved, note)
        about, figures = _about(store, data, survey, problem, plan, config, earlier, loop, status)
        model = prover.model(problem, data, about)
        if config.no_dual:
            for vector in prover.alpha:
                vector.close()
            prover.alpha = []
        assert prover.written is not None
        if plan.mode == "streamed":
            check_unchanged(store)
        result = FitResult(
            status, model, prover.written, figures, note.warnings, identity, prover.alpha, data.working_row
        )
        memory.sample()
        result.memory = memory.document(plan.budget_bytes)
        result.loaded_bytes = max(memory.base_bytes - before, 0)
    result.stopped_by = stop.by
    result.seconds = {
        "total": time.monotonic() - began,
        "plan": ready.planned - began,
        "compile": note.compiling_s,
        "staging": staged_at - ready.compiled,
        "solving": loop.solving_s,
        "io_wait": ctx.reads.waited_s,
        "certify": prover.seconds,
        "checkpoints": 0.0 if checkpoints is None else checkpoints.seconds,
    }
    note(FitEnded(status, result.document()))
    return result


class _Notes:
    """The `emit` of a fit: passes events on, and remembers the warnings and the seconds of compilation.

    It raises Interrupted if `stop` is set while rows are read or staged.  The loop of the fit saves its state first.
    """

    def __init__(self, emit: Emit, stop: Stop) -> None:
        self._emit, self._stop = emit, stop
        self.warnings: list[str] = []
        self.compiling_s = 0.0
        self._training = False

    @contextmanager
    def in_training(self) -> Iterator[None]:
        """The code in the block checks for a stop itself."""
        self._training = True
        try:
            yield
        finally:
            self._training = False

    def __call__(self, event: Any) -> None:
        if isinstance(event, Warned):
            self.warnings.append(event.message)
        if isinstance(event, WorkEnded) and event.what == COMPILING:
            self.compiling_s += event.seconds
        self._emit(event)
        if self._stop and isinstance(event, WorkAdvanced) and not self._training:  # finished segments are kept
            raise Interrupted(f"stopped by {self._stop.by} before training began", hint="the same command goes on")


class _Ready(NamedTuple):
    """A fit that is planned and compiled.

    earlier : the model of --warm-start, or None;  planned, compiled : times at which that was done (`time.monotonic`)
    """

    plan: Plan
    earlier: Earlier | None
    planned: float
    compiled: float


def _make_ready(
    store: RowBlocks, config: FitConfig, folded: FoldedModels | None, begun_with: str | None, note: Emit
) -> _Ready:
    """Plan the fit and compile its code.  All errors that can be found without reading rows are raised here.

    begun_with : the solver that 'auto' chose when the fit began that now goes on; None: a new fit, or it was named
    """
    plan, path = make_plan(store, config, folded=folded is not None, begun_with=begun_with), config.warm_start
    for message in (*store.warnings, *unused_options(config, plan.solver.name, plan.shards)):
        note(Warned(message))
    if folded is not None:
        plan = dataclasses.replace(plan, problem=folded.applied(plan.problem))
    earlier = None if path is None else open_earlier(path, plan.solver, plan.problem, store)
    planned = time.monotonic()
    note(FitStarted(plan.document(), dataclasses.asdict(config), store.fingerprint, versions()))
    _warn(known_scale_warning(store, plan), note)
    note(WorkStarted(COMPILING, 0, "functions"))
    precompile(store, plan, config, note)
    compiled = time.monotonic()
    note(WorkEnded(COMPILING, compiled - planned))
    store.forget()  # chunks kept from reading labels must not be counted as memory of the base
    return _Ready(plan, earlier, planned, compiled)


def _asked(config: FitConfig, folded: FoldedModels | None, earlier: Earlier | None) -> dict[str, Any]:
    """All options that change the models.  The model that the fit starts from counts as it was when it was opened."""
    asked = result_options(config)
    if earlier is not None:
        asked["warm_start"] = earlier.digest
    return asked if folded is None else {**asked, "folds": folded.document()}


def _warn(message: str | None, emit: Emit) -> None:
    """Emit a warning, unless `message` is None or empty."""
    if message:
        emit(Warned(message))


def _go_on(loop: Loop, checkpoints: Checkpoints | None, resume: bool, emit: Emit) -> bool:
    """Restore the newest checkpoint if `resume`, and warn of damaged ones.  True if a checkpoint was restored."""
    if checkpoints is None:
        return False
    saved = checkpoints.newest() if resume else None
    for damage in checkpoints.damaged:
        emit(Warned(f"a checkpoint is damaged: {damage}"))
    if saved is not None:
        loop.resume(saved)
    return saved is not None


def _starts_proved(loop: Loop, earlier: Earlier) -> bool:
    """Begin where the earlier model ended.  True if that point meets the tolerance already."""
    start = take_over(earlier, loop.solver, loop.problem, loop.state, loop.prover, loop.ctx)
    return start is not None and loop.begin_at(start.certificate, start.visits)


def _problem_of_rows(plan: Plan, config: FitConfig, store: RowBlocks, survey: Survey) -> Problem:
    """The problem of the plan, with balanced weights of the classes if asked for.  Raises DataError."""
    counts = survey.class_counts(store)
    problem = make_problem(config, store, counts) if config.class_weight == "balanced" else plan.problem
    _check_classes(problem, survey, store)
    return problem


def _check_classes(problem: Problem, survey: Survey, store: RowBlocks) -> None:
    """Raise DataError if all rows have weight 0, or if fewer than two classes have rows of positive weight."""
    counts = survey.class_counts(store)
    if problem.regression or problem.one_class:
        if survey.counts and not any(survey.counts.values()):
            raise DataError("no row takes part: every row has weight 0", store.uri, "check the column of weights")
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
        raise DataError(f"{which} part: every other row has weight 0", store.uri, "check weights of rows and classes")


def _about(
    store: RowBlocks, data: RowBlocks, survey: Survey, problem: Problem, plan: Plan, config: FitConfig,
    earlier: Earlier | None, loop: Loop, status: str,
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """What model.json says beside the problem, and the figures of the result, after the loop has ended."""
    prover, ctx = loop.prover, loop.ctx
    figures = _figures(store, survey, problem, plan, config, loop.at.visits, ctx, prover)
    limited, starts_another = config.max_passes is not None, problem.loss.nu is None
    figures.update(how_it_ended(status, loop.at.rule, limited, not plan.resident, starts_another))
    assert prover.written is not None
    about = about_model(problem, data, prover.written, plan, config, survey, status)
    columns = {"label_column": "" if problem.one_class else label_column_of(store)}
    columns["weight_column"] = weight_column_of(store)
    kept = {**rows_of(store), **{name: column for name, column in columns.items() if column}}
    if kept:
        about["rows"] = kept
    about["weighted"] = bool(store.has_weights)
    if earlier is not None:
        about["warm_start"] = figures["warm_start"] = earlier.document()
    figures.update(prover.figures())
    return about, figures


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
    """The figures of the `result` document that all fits have."""
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
    """The versions of the programs that compute, recorded with a run so that it can be repeated."""
    import numba

    return {
        "bigsvm": bigsvm.__version__,
        "numpy": np.__version__,
        "numba": numba.__version__,
        "python": platform.python_version(),
    }
