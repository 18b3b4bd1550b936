"""bigsvm fit: trains a model."""

from __future__ import annotations

import filecmp
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.job import CHECKPOINTS, Job, check_same_fit, digest_of, finished_job, has_checkpoint, is_unfinished
from bigsvm.cli.options import add, config_of, fit_options, take_rows
from bigsvm.cli.page import check_page, report_run
from bigsvm.cli.record import EVENTS, LOCK, REPORT, RUN, recorded, run_folder, write_record
from bigsvm.cli.session import Session
from bigsvm.cli.types import OutputPath, Source
from bigsvm.errors import Interrupted, OutputError, UsageError
from bigsvm.events import CertificateMade, EpochEnd, Event, FitStarted
from bigsvm.report.track import check_mlflow, not_tracked, track
from bigsvm.units import parse_seconds, show_bytes

if TYPE_CHECKING:
    from bigsvm.run.fit.outcome import FitResult

_ELSEWHERE = "choose another folder for the record of the fit: --run FOLDER"
SENTENCES = {
    "converged": "converged: proved to be within {gap} of the optimum (asked: {tol:g})",
    "paper_rule": "the solver's own stop rule is met: {rule}; the gap is {gap} ({certificate})",
    "kkt": "the optimality conditions hold: {rule}; no gap can be proved for this kernel",
    "stopped": "stopped before the tolerance: the gap is {gap} ({certificate}), asked: {tol:g}",
    "stalled": "stalled before the tolerance: the gap is {gap} ({certificate}), asked: {tol:g}",
    "interrupted": "interrupted: the gap is {gap} ({certificate}), asked: {tol:g}",
}


@bigsvm_command(
    help="Train a support vector machine on STORE and prove how close to the optimum it is.\n\n"
    "The data may be many times larger than --memory.  Exit code 0: the tolerance is proved; 4: the fit "
    "stopped before that."
)
@click.argument("store", type=Source())
@add(fit_options)
@click.option("-o", "--model", type=OutputPath(), metavar="DIR", help="Model to write.  [default: STEM.model]")
@click.option("--run", type=OutputPath(), metavar="DIR", help="Record of the run.  [default: MODEL.run]")
@click.option("--resume", is_flag=True, help="Continue from the run's last checkpoint, if there is one.")
@click.option(
    "--checkpoint-every", metavar="DUR", default="60s", show_default=True, help="Time between checkpoints, such as 5m."
)
@click.option("--overwrite", is_flag=True, help="Replace an existing model and record.")
@click.option(
    "--report",
    type=OutputPath(),
    metavar="FILE",
    help="Write an HTML page about the run (bigsvm report).",
)
@click.option(
    "--mlflow", metavar="EXPERIMENT", help="Log the run to MLflow (MLFLOW_TRACKING_URI): options, figures, model, page."
)
@click.option("--allow-unconverged", is_flag=True, help="Exit with 0 instead of 4.")
@click.pass_context
def command(
    ctx: click.Context,
    session: Session,
    store: str,
    label: str | None,
    weight: str | None,
    empty_chunks: Any,
    model: Path | None,
    run: Path | None,
    resume: bool,
    checkpoint_every: str,
    overwrite: bool,
    allow_unconverged: bool,
    **options: Any,
) -> int:
    report, mlflow = options.pop("report"), options.pop("mlflow")
    chosen: dict[str, Any] = {name: list(v) if isinstance(v, tuple) else v for name, v in take_rows(options).items()}
    config = config_of(ctx, options)
    model = model or Path(stem_of(store) + ".model")
    run = run or model.parent / f"{model.name}.run"
    every = parse_seconds(checkpoint_every)
    job = Job(store, label, weight, model, run, config, every, overwrite, allow_unconverged, chosen, report, mlflow)
    if empty_chunks != "refuse":  # remembered beside the store's digests, for this run and for its resumption
        from bigsvm.store.formats.opener import open_store

        session.warn_of(open_store(store, label=label, weight=weight, empty_chunks=empty_chunks, **chosen))
    return train(session, job, resume)


def train(session: Session, job: Job, resume: bool) -> int:
    """Run or resume a fit, and report its result; returns the exit code."""
    from bigsvm.files.locks import check_free

    check_places(job)
    # First of all: while another process works on the run, its record is neither finished nor stopped.
    check_free(job.run / LOCK, "the run")
    if job.report is not None:
        check_page(job.report, job.overwrite or resume)
    if job.mlflow is not None:
        check_mlflow()
    finished = finished_job(job) if resume else None
    if finished is not None:
        return _report_finished(session, job, *finished)
    if resume:
        check_same_fit(job)
    _check_outputs(job, resume)
    return _run_fit(session, job, resume)


def _report_finished(session: Session, job: Job, status: str, document: dict[str, Any]) -> int:
    """Report a run that had ended before, as if it ended now."""
    from bigsvm.run.fit.outcome import exit_code

    after_run(session, job)
    said = f"{summary(status, document, job.config.tol)}\n\nThe run had already ended, and nothing was repeated."
    return session.finish(document, said, status, exit_code(status, job.allow_unconverged), made=True)


def _check_outputs(job: Job, resume: bool) -> None:
    """Raise OutputError if the model or the record would replace something that the user wants to keep."""
    from bigsvm.run.tune.folder import is_search

    model, run = job.model, job.run
    unfinished = is_unfinished(run)
    # A run that is resumed may have written its model just before it was killed.
    if not (resume and unfinished and model.exists()):
        check_output(model, job.overwrite, ("model.json",), "model")
    if is_search(run) and not (resume and (run / RUN).is_file()):  # its lock and checkpoints have the names of a run's
        raise OutputError("holds a search, which --overwrite does not replace", str(run), _ELSEWHERE)
    # The record of a run that ended without a model may be replaced: then a job is simply started again.
    unfinished = unfinished and not model.exists()
    if unfinished and has_checkpoint(run) and not (resume or job.overwrite):  # it may be hours of work
        hint = f"bigsvm resume {run} continues it; --overwrite starts again"
        raise OutputError("holds the checkpoint of a stopped fit", str(run), hint)
    marks, kind = (EVENTS, RUN, CHECKPOINTS, LOCK), "record of a run"
    try:
        check_output(run, job.overwrite or resume or unfinished, marks, kind)
    except OutputError as error:
        # Another name would be that of the model, if --run is not given; and --overwrite is for records alone.
        if error.hint.startswith("choose another name") and not any((run / mark).exists() for mark in marks):
            error.hint = _ELSEWHERE
        raise


def _run_fit(session: Session, job: Job, resume: bool) -> int:
    """Fit, write model and record, and report the result."""
    model, run = job.model, job.run

    from bigsvm.observe.jsonl import JsonlFile, plain
    from bigsvm.run.apply.held_out import add_held_out
    from bigsvm.run.fit.checkpoint import Checkpoints
    from bigsvm.run.fit.fit import fit_store

    data = job.open()
    session.warn_of(data)
    with run_folder(run):
        _check_outputs(job, resume)  # again: the same command may have run elsewhere while the rows were opened
        checkpoints = Checkpoints(run / CHECKPOINTS, {}, job.checkpoint_every_s, f"bigsvm resume {run}")
        if not resume:
            checkpoints.clear()
            for name in (EVENTS, RUN, REPORT):
                (run / name).unlink(missing_ok=True)
        uri = job.store if "://" in job.store else data.uri  # of a remote store not the path of its local copy
        about = {"store": uri, "model": str(model.absolute()), "job": job.document()}
        with recorded(run, about) as record, JsonlFile(run / EVENTS) as events:
            reached = Reached(job)
            with reached.told_of_a_stop(), session.watching(events) as emit:

                def started(event: Event) -> None:
                    emit(event)
                    reached(event)
                    if isinstance(event, FitStarted):  # from here on a killed run can be resumed
                        write_record(run, {**record, "status": "running"})

                result = fit_store(data, job.config, started, checkpoints, resume)
                session.exit_code = result.exit_code(job.allow_unconverged)
                save_once(result, model, job.overwrite)
                add_held_out(result, data, job.config, emit)
            record["model_digest"] = digest_of(model)
            checkpoints.clear()
            session.warn_of(result)
            document = result.document(str(model), str(run))
            record.update(status=result.status, result=document, identity=plain(result.identity.document()))
        after_run(session, job)
    said = summary(result.status, document, job.config.tol)
    return session.finish(document, said, result.status, session.exit_code, made=True)


class Reached:
    """Collects from events how far a fit has come: the result document if it is interrupted (exit code 75)."""

    def __init__(self, job: Job) -> None:
        config = job.config
        self._found: dict[str, Any] = {
            "model": str(job.model), "run": str(job.run), "solver": config.solver, "loss": config.loss,
            "bias": config.bias, "kernel": config.kernel, "C": config.C, "seed": config.seed,
            "certificate": "none", "passes": 0.0, "epochs": 0.0,
        }  # fmt: skip

    def __call__(self, event: Event) -> None:
        if isinstance(event, FitStarted):
            known = ("solver", "n_samples", "n_features", "nnz", "data_bytes", "scratch_bytes")
            self._found.update({name: event.plan[name] for name in known if name in event.plan})
            self._found["store_fingerprint"] = event.store_fingerprint
        elif isinstance(event, EpochEnd | CertificateMade):
            self._found.update(passes=event.passes, epochs=event.epochs)
        if isinstance(event, CertificateMade):  # an estimate, because the fit has moved since
            gap = event.objective - event.dual_objective
            self._found.update(
                objective=event.objective, dual_objective=event.dual_objective, duality_gap=gap,
                relative_gap=event.relative_gap, certificate="estimate",
            )  # fmt: skip

    @contextmanager
    def told_of_a_stop(self) -> Iterator[None]:
        """Attach what was reached to an Interrupted that is raised in the block."""
        try:
            yield
        except Interrupted as error:
            error.reached = self._found
            raise


def after_run(session: Session, job: Job) -> None:
    """Write the page and log to MLflow, if asked for.  A failure of MLflow is only a warning.

    Raises OutputError if the page cannot be written, which says where the model is.
    """
    from bigsvm.files.space import cannot_write

    refused: OutputError | None = None
    if job.report is not None:
        try:
            report_run(job.run, job.report)
        except OSError as error:
            refused = cannot_write(job.report, error)
        except OutputError as error:
            refused = error
    if job.mlflow is not None:
        failed = track(job.run, job.mlflow)
        if failed:
            session.warn(not_tracked(job.run, job.mlflow, failed))
    if refused is not None:
        what = f"{refused.what}; the fit is done, and its model is written: {job.model}"
        later = shlex.join(["bigsvm", "report", str(job.run), "-o", str(job.report)])
        raise OutputError(what, refused.where, f"free space there, or choose another file, then: {later}")


def check_places(job: Job) -> None:
    """Refuse, before any work, a model or a record that would be inside the store, or inside one another.

    RUN/model is allowed as the place of the model, so that a run can be kept in one folder.

    Raises UsageError, OutputError; DataError if an existing record does not consist of plain files.
    """
    from bigsvm.files.outputs import check_apart
    from bigsvm.files.paths import check_own_files

    model, run = os.path.realpath(job.model), os.path.realpath(job.run)
    if model == run:
        raise UsageError("the model and the record of its run cannot be one folder", str(job.run))
    outputs = {"the model": job.model, "the record of the run": job.run}
    if job.report is not None and job.report.absolute().parent != job.run.absolute():
        outputs["the report"] = job.report
    if job.config.warm_start is not None and os.path.realpath(job.config.warm_start) == model:
        hint = "give the new model another name: resuming the run needs the old one"
        raise UsageError("the model would replace the one that it starts from", str(job.model), hint)
    together = [outputs]
    if model == os.path.join(run, "model"):
        together = [{what: path} for what, path in outputs.items()]
    for apart in together:
        check_apart(apart, {"the store": job.store})
    check_own_files(job.run, "run")


def save_once(result: FitResult, model: Path, overwrite: bool) -> None:
    """Write the model, unless the same model is there already, from a run that was killed after writing it.

    Raises OutputError: another model is there, or it cannot be written.
    """
    from bigsvm.files.atomic import remove, temporary_name

    if overwrite or not model.exists():
        result.save_model(model, overwrite=overwrite)
        return
    ours = temporary_name(model)
    try:
        result.save_model(ours)
        # model.json has the digests of all other files.
        same = (model / "model.json").is_file() and filecmp.cmp(ours / "model.json", model / "model.json", False)
    finally:
        remove(ours)
    if not same:
        raise OutputError("another model is there", str(model), "choose another name or use --overwrite")


def stem_of(store: str) -> str:
    """`a9a` for `/data/a9a.zarr/`, so that the model is `a9a.model` here; of a pattern, the folder that it lies in.

    A folder called `*.model` would be dangerous: `rm -r` of that name removes every model.
    """
    scheme, separator, name = store.rstrip("/").rpartition("://")
    if separator and scheme.lower() in ("http", "https"):
        name = name.partition("?")[0]
    path = Path(name)
    while any(mark in path.name for mark in "*?["):
        path = path.parent
    return path.stem.strip(".") or "bigsvm"


def check_output(path: Path, overwrite: bool, marks: tuple[str, ...], kind: str) -> None:
    """Raise OutputError, before any work, if `path` could not be written after it."""
    from bigsvm.files.atomic import check_replaceable
    from bigsvm.files.outputs import check_folder

    check_replaceable(path, overwrite, marks, kind)
    check_folder(path.absolute().parent)


def summary(status: str, result: dict[str, Any], tol: float) -> str:
    """The result for people: one sentence, then a table."""
    gap = text.number(result.get("relative_gap"), 3)
    sentence = SENTENCES.get(status, status).format(
        gap=gap, tol=tol, certificate=result.get("certificate"), rule=_rule(result)
    )
    if "hint" in result:
        sentence += f"\nhint: {result['hint']}"
    shape = f"{text.counted(result['n_samples'], 'row')} x {text.counted(result['n_features'], 'feature')}"
    entries = f"{text.counted(result['nnz'], 'entry', 'entries')}, {show_bytes(result['data_bytes'])}"
    lines = [
        ("data", f"{shape}, {entries}"),
        ("chosen", text.chosen(result)),
        ("problem", f"{result['loss']}, C = {result['C']:g}, bias {result['bias']}"),
        ("kernel", None if result["kernel"] == "linear" else text.kernel(result["kernel"])),
        ("solver", result["solver"]),
        ("objective", f"{result['objective']:.10g}   dual {text.number(result['dual_objective'], 10)}"),
        ("relative gap", f"{gap} ({result['certificate']})"),
        ("work", f"{result['passes']:.1f} passes over the data, {result['epochs']:.1f} epochs"),
        ("trained on", _trained_on(result)),
        ("held out", _held_out(result.get("held_out"))),
        ("support", text.counted(result["n_support"], "row")),
        ("kernel rows", _kernel_rows(result.get("kernel_rows"))),
        ("time", text.seconds(result.get("seconds"))),
        ("memory", text.memory(result.get("memory"))),
        ("model", result["model"]),
        ("record", result["run"]),
    ]
    return sentence + "\n" + text.rows(lines)


def _trained_on(result: dict[str, Any]) -> str | None:
    """The number of rows that were trained on, if some were held out for --calibrate."""
    if "n_trained" not in result:
        return None
    n_held = result["n_samples"] - result["n_trained"]
    held = f"{text.counted(n_held, 'other is', 'others are')} held out for the probabilities"
    return f"{text.counted(result['n_trained'], 'row')}; {held}"


def _held_out(found: dict[str, Any] | None) -> str | None:
    """The quality of the model on held-out rows; None if there are none."""
    if found is None:
        return None
    if "subset_accuracy" in found:
        good = f"all labels right {text.number(found['subset_accuracy'], 5)}"
    else:
        good = f"R2 {text.number(found['r2'])}" if "r2" in found else f"accuracy {text.number(found['accuracy'], 5)}"
    return f"{good} on {text.counted(found['n_rows'], 'other row')}"


def _rule(result: dict[str, Any]) -> str:
    """The stop rule that was met, with its value and tolerance."""
    from bigsvm.solvers.base import OWN_END, STEPS

    rule = result.get("rule") or {"name": "", "value": None, "tolerance": None}
    value, tolerance = text.number(rule["value"], 3), text.number(rule["tolerance"], 3)
    if rule["name"] == OWN_END:
        return f"{rule['name']}, at a violation of {value} (tolerance {tolerance})"
    if rule["name"] == STEPS:
        return f"{value} steps (asked: {tolerance})"
    return f"{rule['name']} {value} (tolerance {tolerance})"


def _kernel_rows(counts: dict[str, int] | None) -> str | None:
    """Where kernel rows came from; None if the solver uses none."""
    if not counts or not any(counts.values()):
        return None
    kept = f"{text.count(counts['ram_hits'])} found in memory, {text.count(counts['disk_hits'])} on disk"
    return f"{text.count(counts['computed'])} computed, {kept}"
