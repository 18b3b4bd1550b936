"""The steps of a retraining job: functions that work on folders, and can be called one by one.

arrive   append the rows of delivered files to the store
detect   has the data or the problem changed since the last promotion?
look     compare the rows with those of the last promotion: drift, class balance
fit      train, and save the candidate beside the record of its run
judge    compare the saved candidate with the gates and the current model
promote  make it current
record   write a line about the run of the job
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bigsvm.errors import DataError, OutputError
from bigsvm.events import Emit, silent
from bigsvm.files import locks
from bigsvm.files.appending import append_whole, json_line
from bigsvm.model import versions as registry
from bigsvm.observe.jsonl import plain
from bigsvm.run.fit.problem_identity import asked_digest
from bigsvm.store.delegated import check_chunks
from bigsvm.units import counted
from pipelines import journal, notify, tracking
from pipelines.arrivals import append as arrive
from pipelines.arrivals import waiting
from pipelines.config import Job
from pipelines.fitting import Candidate, Found, begun_with, fit, stands_at, start_of
from pipelines.gates.judging import judge, look, open_rows, promotions
from pipelines.gates.verdict import Gate, Verdict

CHANCES = 3
"""How often a candidate is judged if another model becomes current between its judgement and its promotion."""

__all__ = [
    "CHANCES", "Candidate", "Found", "Gate", "Verdict", "alone", "arrive", "begun_with", "detect", "fit", "judge",
    "look", "promote", "promoted_already", "promotions", "record", "stands_at", "start_of", "tell", "waiting",
]  # fmt: skip


@contextmanager
def alone(job: Job) -> Iterator[None]:
    """Allow one run of a job at a time.  Raises OutputError if another one is running."""
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write: {error.strerror}", str(job.folder)) from error
    with locks.alone(job.folder / "lock", "the folder of this job"):
        yield


def detect(job: Job) -> Found:
    """Open the store, and compare it and the problem with those of the last promotion.

    A rollback does not count as a change: what a user rolled back is not promoted again until the data change.  The
    fingerprint of a sealed store is that of its manifest, so the chunks are compared with it before the store counts as
    unchanged.

    Raises
    ------
    MissingInput : there is no store.  DataError : it is damaged, or has fewer rows than the job requires.
    """
    store = open_rows(job, job.store)
    if store.n_samples < job.min_rows:
        raise DataError(
            f"the store has {counted(store.n_samples, 'row')}, but the job requires at least {job.min_rows}", job.store
        )
    problem = asked_digest(store.identity, job.fit)
    promoted = promotions(job)
    if not promoted or registry.current(job.registry) is None:
        return Found(store, problem, True, "nothing was promoted yet")
    last = promoted[-1]["metrics"]
    if last.get("store_fingerprint") != store.fingerprint:
        return Found(store, problem, True, "the store has changed")
    if last.get("problem") != problem:
        return Found(store, problem, True, "the options of the fit have changed")
    check_chunks(store)
    return Found(store, problem, False, "store and options are those of the last promotion")


def promoted_already(job: Job, found: Found) -> int | None:
    """The current version, if it is the candidate of a run that was killed before it could report; else None."""
    about, version = journal.noted_candidate(job.folder, found.problem), registry.current_version(job.registry)
    last = (promotions(job) or [{}])[-1]
    same = about is not None and last.get("model_fingerprint") == about["model_fingerprint"]
    return version if same and last.get("version") == version else None


def promote(job: Job, found: Found, candidate: Path, verdict: Verdict, emit: Emit = silent) -> int:
    """Make a candidate current; returns its version.

    emit : receives a message if another process holds the registry

    Raises OutputError, DataError; `registry.CurrentMoved` if the verdict compared it with another model than the one
    that is current now.
    """
    if not verdict.passed:
        raise DataError("the candidate did not pass its gates", str(candidate))
    metrics = {**verdict.metrics, "store_fingerprint": found.store.fingerprint, "problem": found.problem}
    return registry.promote(
        job.registry,
        candidate,
        job.note or found.reason,
        metrics=plain(metrics),
        allow_other_shape=job.gates.allow_other_shape,
        over=verdict.current,
        emit=emit,
    )


def record(job: Job, document: dict[str, Any]) -> None:
    """Append a line about a run of the job to WORK/retrain.jsonl.  Raises OutputError."""
    entry = {"at": datetime.now(UTC).isoformat(timespec="seconds"), **plain(document)}
    path = job.folder / "retrain.jsonl"
    try:
        with open(path, "a+b", buffering=0) as file:
            append_whole(file, json_line(entry))
            os.fsync(file.fileno())
    except OSError as error:
        raise OutputError(f"cannot write: {error.strerror}", str(path)) from error


def tell(job: Job, document: dict[str, Any]) -> list[str]:
    """Record an outcome, notify whoever the job names, and log to MLflow; returns failures as sentences.

    Nothing is raised, because the outcome stands.
    """
    failed = []
    try:
        record(job, document)
    except OutputError as error:
        failed.append(str(error))
    return failed + notify.tell(job.notify, document) + tracking.tell(job, document)
