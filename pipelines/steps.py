"""The steps of a retraining job: plain functions, each of which works on folders and can be run alone.

detect   has the data or the problem changed since the last promotion?
fit      train, and save the candidate beside the record of its run
judge    hold the saved candidate against the gates and the current model
promote  make it current
record   one line about the job's run
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bigsvm.cli.record import EVENTS, RUN, recorded
from bigsvm.errors import DataError, MissingInput, OutputError
from bigsvm.events import Emit, fan_out, silent
from bigsvm.files import locks
from bigsvm.model import versions as registry
from bigsvm.observe.jsonl import JsonlFile, plain
from bigsvm.run.apply.evaluate import evaluate
from bigsvm.run.fit.fit import fit_store
from bigsvm.run.fit.problem_identity import asked_digest
from bigsvm.run.proof.certify import certify_model
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.formats.opener import open_store
from pipelines.config import Job


@dataclass(frozen=True)
class Found:
    """What there is to train on, and whether that is anything new."""

    store: RowBlocks
    problem: str
    """Digest of the rows' identity and of every option that changes the model."""
    changed: bool
    reason: str


@dataclass(frozen=True)
class Candidate:
    """A trained model that nobody reads yet."""

    path: Path
    status: str
    result: dict[str, Any]


@dataclass(frozen=True)
class Gate:
    """One demand on a candidate."""

    name: str
    passed: bool
    value: Any
    limit: Any
    message: str


@dataclass
class Verdict:
    """All gates that were looked at, and the figures behind them."""

    gates: list[Gate] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return bool(self.gates) and all(gate.passed for gate in self.gates)

    @property
    def refusals(self) -> list[Gate]:
        return [gate for gate in self.gates if not gate.passed]

    def ask(self, name: str, passed: bool, value: Any, limit: Any, message: str) -> bool:
        """Add a gate; whether it was passed."""
        self.gates.append(Gate(name, passed, value, limit, message))
        return passed


@contextmanager
def alone(job: Job) -> Iterator[None]:
    """One run of a job at a time.  Raises OutputError where another one is going on."""
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write: {error.strerror}", str(job.folder)) from error
    with locks.alone(job.folder / "lock", "the folder of this job"):
        yield


def detect(job: Job) -> Found:
    """Open the store and compare it, and the problem, with those of the last promotion.

    A rollback changes nothing here: what people took back is not put forward again until the data change.

    Raises
    ------
    MissingInput : no store. DataError : it is bad, or has fewer rows than the job asks for.
    """
    store = _rows(job, job.store)
    if store.n_samples < job.min_rows:
        raise DataError(f"{store.n_samples} rows, and the job asks for at least {job.min_rows}", job.store)
    problem = asked_digest(store.identity, job.fit)
    promoted = [entry for entry in registry.history(job.registry) if entry["action"] == "promote"]
    if not promoted or registry.current(job.registry) is None:
        return Found(store, problem, True, "nothing was promoted yet")
    last = promoted[-1]["metrics"]
    if last.get("store_fingerprint") != store.fingerprint:
        return Found(store, problem, True, "the store has changed")
    if last.get("problem") != problem:
        return Found(store, problem, True, "the options of the fit have changed")
    return Found(store, problem, False, "store and options are those of the last promotion")


def fit(job: Job, found: Found, emit: Emit = silent) -> Candidate:
    """Train on what was found; the model is WORK/candidate.model and its record WORK/candidate.run."""
    path, run = job.folder / "candidate.model", job.folder / "candidate.run"
    for name in (EVENTS, RUN):
        (run / name).unlink(missing_ok=True)
    about = {"store": job.store, "model": str(path), "config": dataclasses.asdict(job.fit)}
    with recorded(run, about) as written, JsonlFile(run / EVENTS) as events:
        result = fit_store(found.store, job.fit, fan_out([emit, events]))
        try:
            result.save_model(path, overwrite=True)
        finally:
            result.close()
        document = result.document(str(path), str(run))
        written.update(status=result.status, result=document)
    return Candidate(path, result.status, document)


def judge(job: Job, found: Found, candidate: Path, emit: Emit = silent) -> Verdict:
    """Hold a saved model against the gates; the dearer ones are asked only where the cheaper ones are passed.

    Nothing is taken from the run that made it: the model is read from disk, its gap is proved again
    (`gates.recertify`) and its metrics are measured on the holdout, as are the current model's.

    Raises
    ------
    DataError : the store, the holdout or the current model is bad.
    """
    verdict, gates = Verdict(), job.gates
    try:
        model = registry.check_model(candidate)
    except (DataError, MissingInput) as error:
        verdict.ask("sound", False, None, None, str(error))
        return verdict
    verdict.ask("sound", True, None, None, "it loads, its digests match, its numbers are finite")
    current_path = registry.current(job.registry)
    current = None if current_path is None else registry.check_model(current_path)
    if current is not None and not gates.allow_other_shape:
        difference = registry.shape_difference(model, current)
        text = difference or "features and classes are the current model's"
        if not verdict.ask("shape", difference is None, model.n_features, current.n_features, text):
            return verdict
    gap, kind = _gap(job, found, candidate, model.about, emit)
    verdict.metrics["relative_gap"] = gap
    passed = kind == "proved" and isinstance(gap, float) and 0 <= gap <= job.max_relative_gap
    text = f"relative gap {_shown(gap)} ({kind})"
    if kind != "proved" and model.about.get("status") == "kkt":
        passed = gates.allow_unproved
        text = "no gap can be proved for this kernel; the optimality conditions hold"
        text += "" if passed else ", which allow_unproved = true would accept"
    if not verdict.ask("gap", passed, gap, job.max_relative_gap, text):
        return verdict
    if job.holdout is not None:
        _judge_metrics(job, verdict, model, current, emit)
    return verdict


def promote(job: Job, found: Found, candidate: Path, verdict: Verdict) -> int:
    """Make a candidate current; its version.  Raises OutputError, DataError."""
    if not verdict.passed:
        raise DataError("the candidate did not pass its gates", str(candidate))
    metrics = {**verdict.metrics, "store_fingerprint": found.store.fingerprint, "problem": found.problem}
    return registry.promote(
        job.registry,
        candidate,
        job.note or found.reason,
        metrics=plain(metrics),
        allow_other_shape=job.gates.allow_other_shape,
    )


def record(job: Job, document: dict[str, Any]) -> None:
    """Append a line about a run of the job to WORK/retrain.jsonl.  Raises OutputError."""
    entry = {"at": datetime.now(UTC).isoformat(timespec="seconds"), **plain(document)}
    path = job.folder / "retrain.jsonl"
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OutputError(f"cannot write: {error.strerror}", str(path)) from error


def _rows(job: Job, path: str) -> RowBlocks:
    """A store of the job's; few whole numbers are values where the model is one of values."""
    return open_store(path, label=job.label, weight=job.weight, task="regression" if job.regression else "auto")


def _gap(job: Job, found: Found, candidate: Path, about: dict[str, Any], emit: Emit) -> tuple[float | None, str]:
    """(relative gap, what it is worth) of a saved model."""
    if job.gates.recertify:
        try:
            proof = certify_model(candidate, found.store, job.fit, emit)
        except DataError as error:
            return None, f"no proof: {error}"
        return proof["relative_gap"], proof["certificate"]
    claim = about.get("certificate") or {}
    gaps = claim.get("relative_gap") or [None]
    return (None if None in gaps else float(max(gaps))), str(claim.get("kind"))


def _judge_metrics(job: Job, verdict: Verdict, model: Any, current: Any, emit: Emit) -> None:
    """The gates that are measured on the holdout."""
    assert job.holdout is not None
    holdout = _rows(job, job.holdout)
    measured = evaluate(model, holdout, job.fit, emit)
    verdict.metrics.update({metric: measured[metric] for metric in job.metrics})
    verdict.metrics["holdout_rows"] = measured["n_rows"]
    verdict.metrics["holdout_fingerprint"] = holdout.fingerprint
    for metric, least in job.gates.minima().items():
        value = measured[metric]
        verdict.ask(f"min_{metric}", value is not None and value >= least, value, least, f"{metric} {_shown(value)}")
    for metric, most in job.gates.maxima().items():
        value = measured[metric]
        verdict.ask(f"max_{metric}", value is not None and value <= most, value, most, f"{metric} {_shown(value)}")
    if job.gates.max_drop is None or current is None:
        return
    other_columns = holdout.layout == "dense" and current.n_features != holdout.n_features
    if current.regression != model.regression or other_columns:  # allow_other_shape: nothing of theirs can be compared
        return
    metric = job.drop_metric
    value, former = measured[metric], evaluate(current, holdout, job.fit, emit)[metric]
    verdict.metrics[f"current_{metric}"] = former
    # A metric that the current model has not got cannot fall; one that the candidate has not got has fallen.
    fine = former is None or (value is not None and value >= former - job.gates.max_drop)
    limit = None if former is None else former - job.gates.max_drop
    text = f"{metric} {_shown(value)}, the current model's {_shown(former)}"
    verdict.ask("max_drop", fine, value, limit, text)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
