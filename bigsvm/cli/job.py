"""The request for a fit, compared with the record of a run: is that run unfinished, finished, or another fit?"""

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
_OVER = ("converged", "paper_rule", "kkt", "stopped", "stalled")  # statuses of a run that wrote its model


@dataclasses.dataclass(frozen=True)
class Job:
    """The request for a fit: everything that `bigsvm resume` needs to continue it."""

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
    """Further keywords of `open_store`, beside label and weight, as JSON."""
    report: Path | None = None
    """The page to write about the run at its end."""
    mlflow: str | None = None
    """The MLflow experiment that the run is logged to at its end."""

    def open(self) -> RowBlocks:
        """Open the store."""
        from bigsvm.run.start.targets import open_for

        columns = {"label": self.label, "weight": self.weight}
        return open_for(self.store, self.config.regression, **columns, **{"split": "recorded", **self.rows})

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
    if not ((run / EVENTS).exists() or (run / RUN).exists()):  # on a full disk only one of them may exist
        return (run / LOCK).exists()  # killed before its first event, or still running
    try:
        return json.loads((run / RUN).read_bytes()).get("status") in ("error", "interrupted", "running")
    except (OSError, ValueError, AttributeError):  # killed before it could say how it ended
        return True


def finished_job(job: Job) -> tuple[str, dict[str, Any]] | None:
    """(status, result) of the recorded run, if it is over and made the model that `job` would make, which is there.

    So a scheduler may repeat a command at any time, also with other cores, another scratch folder, or the rows in
    another place; if the model is finished, nothing is done again.  None if there is no such run.

    Raises DataError if a file of the model has changed since it was written; OutputError if the rows, or the model that
    the run started from, have changed.
    """
    record, was = _recorded(job.run)
    status, result = record.get("status"), record.get("result")
    if status not in _OVER or not isinstance(result, dict) or not was:
        return None
    # A run that was stopped may have been stopped by --max-time, and would get further with more time.
    names = (*MODEL_OPTIONS, "max_time") if status == "stopped" else MODEL_OPTIONS
    if _first_other(was, job.document(), names) is not None:
        return None
    # The model is recognised by its digest, because it may have been moved, with its record or without.
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
        hint = "bigsvm fit ... -o NEW.model starts from that model as it is now"
        what = f"the run had ended, and the model {job.config.warm_start} that it started from has changed since"
        raise OutputError(what, str(job.run), hint)
    check_files(job.model, "bigsvm fit ... --overwrite trains it again")
    for name, place in (("model", job.model), ("run", job.run)):
        if os.path.realpath(was[name]) != os.path.realpath(place):
            result = {**result, name: str(place)}
    return status, result


def _first_other(was: dict[str, Any], now: dict[str, Any], names: tuple[str, ...]) -> tuple[str, Any, Any] | None:
    """The first difference between two jobs (`Job.document`) that asks for another fit: (name, was, is); else None.

    names : the options that count.  The selection of rows always counts, the path of the store never does.  Nothing
        else in a job (threads, scratch, checkpoints, pages, exit code) changes what is trained
    """
    was, now = ({**document, **document["config"]} for document in (was, now))
    for name in ("label", "weight", "rows", *names):
        if was[name] != now[name]:
            return name, was[name], now[name]
    return None


def _starts_elsewhere(job: Job, result: dict[str, Any]) -> bool:
    """Whether the model of --warm-start exists and is not the one that the recorded run started from."""
    start = job.config.warm_start
    if start is None or not (Path(start) / "model.json").exists():
        return False
    from bigsvm.run.start.earlier import model_digest

    begun = (result.get("warm_start") or {}).get("model")
    return model_digest(start) not in (
        begun,
        model_digest(str(job.model)),
    )  # a registry may have promoted this very model since


def has_checkpoint(run: Path) -> bool:
    """Whether a stopped run left a checkpoint."""
    return (run / CHECKPOINTS).is_dir() and any((run / CHECKPOINTS).iterdir())


def check_same_fit(job: Job) -> None:
    """Raise DataError if the checkpoint is of another fit than `job`, before its record is touched."""
    if not has_checkpoint(job.run):
        return
    _, was = _recorded(job.run)
    if not was:
        return  # there is no record; the checkpoint itself will be compared
    other = _first_other(was, job.document(), RESULT_OPTIONS)
    if other is not None:
        name, before, asked = other
        what = f"the stopped run is of another fit: {name} was {before!r} and is {asked!r}"
        hint = f"bigsvm resume {job.run} continues it; --overwrite without --resume begins a new fit"
        raise DataError(what, str(job.run), hint)
    if was["store"] != job.document()["store"]:  # the store may have been moved, so compare the rows
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
    """run.json, and the `Job.document` in it; both empty if they cannot be read."""
    try:
        record = json.loads((run / RUN).read_bytes())
        return record, Job.of(record["job"]).document()
    except (OSError, ValueError, KeyError, TypeError, DataError):
        return {}, {}


def digest_of(model: Path) -> str:
    """SHA-256 of model.json, which holds the digests of all other files of a model; '' if it cannot be read."""
    try:
        return hashlib.sha256((model / "model.json").read_bytes()).hexdigest()
    except OSError:
        return ""
