"""A fit as it was asked for, and what its record says: stopped, over, or another fit's."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigsvm.cli.record import EVENTS, LOCK, RUN
from bigsvm.config import MODEL_OPTIONS, RESULT_OPTIONS, FitConfig
from bigsvm.errors import DataError, OutputError, UsageError

if TYPE_CHECKING:
    from bigsvm.store.blocks import RowBlocks

CHECKPOINTS = "checkpoint"
_OVER = ("converged", "paper_rule", "kkt", "stopped", "stalled")


@dataclasses.dataclass(frozen=True)
class Job:
    """A fit as it was asked for: all that `bigsvm resume` needs to go on with it."""

    store: str
    label: str | None
    weight: str | None
    model: Path
    run: Path
    config: FitConfig
    checkpoint_every_s: float
    overwrite: bool
    allow_unconverged: bool
    rows: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What is read as rows, beside label and weight: further keywords of `open_store`, as JSON has them."""
    report: Path | None = None
    """A page about the run, made at its end."""
    mlflow: str | None = None
    """The experiment of MLflow that the run goes to at its end."""

    def open(self) -> RowBlocks:
        """The rows."""
        from bigsvm.store.formats.opener import open_store

        return open_store(self.store, label=self.label, weight=self.weight, **{"split": "recorded", **self.rows})

    def document(self) -> dict[str, Any]:
        """As JSON, paths absolute."""
        return {
            **dataclasses.asdict(self),
            "store": str(Path(self.store).absolute()) if "://" not in self.store else self.store,
            "model": str(self.model.absolute()),
            "run": str(self.run.absolute()),
            "report": None if self.report is None else str(self.report.absolute()),
        }

    @classmethod
    def of(cls, document: dict[str, Any]) -> Job:
        """From `document()`.  Raises DataError where it is none."""
        try:
            values = dict(document)
            values.update(model=Path(values["model"]), run=Path(values["run"]), config=FitConfig.of(**values["config"]))
            if values.get("report") is not None:
                values["report"] = Path(values["report"])
            return cls(**values)
        except (KeyError, TypeError, UsageError) as error:
            raise DataError(f"not the record of a fit: {error}", RUN) from error


def is_unfinished(run: Path) -> bool:
    """Whether a folder is the record of a run that wrote no model: interrupted, failed or killed."""
    if not ((run / EVENTS).exists() or (run / RUN).exists()):  # a full disk may have no room for events
        return (run / LOCK).exists()  # killed, or still alive, before its first event
    try:
        return json.loads((run / RUN).read_bytes()).get("status") in ("error", "interrupted", "running")
    except (OSError, ValueError, AttributeError):  # killed before it could say how it ended
        return True


def finished_job(job: Job) -> tuple[str, dict[str, Any]] | None:
    """(status, result) of a job that would make the very same model, where it is over and that model is there.

    So a scheduler may send the command again, whatever instant the former one died in, and whatever it has for this
    attempt: other cores, another scratch folder, the rows in another place.

    Raises DataError where a file of the model changed since it was written, OutputError where the rows did, or the
    model that it began with.
    """
    record, was = _recorded(job.run)
    status, result = record.get("status"), record.get("result")
    if status not in _OVER or not isinstance(result, dict) or not was:
        return None
    # Only a fit that was stopped may have been stopped by the clock, and would come further with more time.
    names = (*MODEL_OPTIONS, "max_time") if status == "stopped" else MODEL_OPTIONS
    if _first_other(was, job.document(), names) is not None:
        return None
    # The model is known by what it is: it may have been moved, with its record or without.
    if not record.get("model_digest") or record["model_digest"] != digest_of(job.model):
        return None
    from bigsvm.model.model_files import check_files

    store = job.open()
    if record.get("identity", {}).get("data") != store.identity.document():
        if job.overwrite:
            return None
        hint = f"bigsvm fit {job.store} -o NEW.model trains on the rows as they are"
        what = f"the run had ended, and the rows of {job.store} have changed since"
        if was["store"] != job.document()["store"]:
            what = f"the run had ended, on other rows than those of {job.store}"
        raise OutputError(what, str(job.run), hint)
    if _starts_elsewhere(job, result):
        if job.overwrite:
            return None
        hint = "bigsvm fit ... -o NEW.model begins where that is now"
        what = f"the run had ended, and the model {job.config.warm_start} that it began with is another now"
        raise OutputError(what, str(job.run), hint)
    check_files(job.model, "bigsvm fit ... --overwrite trains it again")
    for name, place in (("model", job.model), ("run", job.run)):
        if os.path.realpath(was[name]) != os.path.realpath(place):
            result = {**result, name: str(place)}
    return status, result


def _first_other(was: dict[str, Any], now: dict[str, Any], names: tuple[str, ...]) -> tuple[str, Any, Any] | None:
    """The first thing in which two jobs, as `Job.document` has them, ask for other fits: (name, was, is).

    names : the options that count; what is read as rows always does, and where it lies never does

    What else a job says (its threads, scratch, checkpoints, pages, exit code) changes nothing of what is trained.
    """
    was, now = ({**document, **document["config"]} for document in (was, now))
    for name in ("label", "weight", "rows", *names):
        if was[name] != now[name]:
            return name, was[name], now[name]
    return None


def _starts_elsewhere(job: Job, result: dict[str, Any]) -> bool:
    """Whether the model to start from is there, and another than that which a run started from."""
    start = job.config.warm_start
    if start is None or not (Path(start) / "model.json").exists():
        return False
    from bigsvm.run.start.earlier import model_digest

    begun = (result.get("warm_start") or {}).get("model")
    return model_digest(start) not in (begun, model_digest(str(job.model)))  # a registry may name this very model now


def has_checkpoint(run: Path) -> bool:
    """Whether a stopped run left something to go on from."""
    return (run / CHECKPOINTS).is_dir() and any((run / CHECKPOINTS).iterdir())


def check_same_fit(job: Job) -> None:
    """Refuse to go on with another fit's checkpoint, before its record is touched.  Raises DataError."""
    if not has_checkpoint(job.run):
        return
    _, was = _recorded(job.run)
    if not was:
        return  # the checkpoint itself says what it belongs to
    other = _first_other(was, job.document(), RESULT_OPTIONS)
    if other is not None:
        name, before, asked = other
        what = f"the stopped run is of another fit: {name} was {before!r} and is {asked!r}"
        hint = f"bigsvm resume {job.run} continues it; --overwrite without --resume begins a new fit"
        raise DataError(what, str(job.run), hint)
    if was["store"] != job.document()["store"]:  # which may have been moved: the rows are what counts
        from bigsvm.run.fit.checkpoint import Checkpoints
        from bigsvm.store.identity import first_difference

        rows = Checkpoints(job.run / CHECKPOINTS, {}, 0.0).rows()
        differs = None if rows is None else first_difference(rows, job.open().identity.document())
        if differs:
            hint = "name the store of the run; bigsvm fit ... --overwrite begins a new fit"
            raise DataError(
                f"the stopped run is of other rows than those of {job.store}: {differs}", str(job.run), hint
            )


def _recorded(run: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """run.json, and its job as `Job.document` has it; both empty where there is none that can be read."""
    try:
        record = json.loads((run / RUN).read_bytes())
        return record, Job.of(record["job"]).document()
    except (OSError, ValueError, KeyError, TypeError, DataError):
        return {}, {}


def digest_of(model: Path) -> str:
    """SHA-256 of a model.json, which has the digests of all other files; '' where none can be read."""
    try:
        return hashlib.sha256((model / "model.json").read_bytes()).hexdigest()
    except OSError:
        return ""
