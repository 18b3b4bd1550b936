"""The fit of a night: it goes on from its checkpoint, and what is trained already is not trained again."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bigsvm.cli.job import CHECKPOINTS, digest_of
from bigsvm.cli.record import EVENTS, RUN, recorded
from bigsvm.errors import DataError, Interrupted
from bigsvm.events import Emit, Warned, fan_out, silent
from bigsvm.observe.jsonl import JsonlFile
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.fit import fit_store
from bigsvm.store.blocks import RowBlocks
from pipelines import journal
from pipelines.config import Job
from pipelines.start import Start, choose

_FINAL = ("converged", "paper_rule", "kkt", "stalled")
"""Ends that come again however often the same fit is run; one that a limit stopped may come further."""


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
    """A trained model that nobody reads yet.

    how : 'trained', 'resumed' from a checkpoint, or 'kept' from a run that was killed or refused
    """

    path: Path
    status: str
    result: dict[str, Any]
    how: str = "trained"


class NightlyCheckpoints(Checkpoints):
    """Of a fit that nobody attends: a checkpoint that cannot be gone on from is told of and left, not refused."""

    def __init__(self, folder: Path, every_s: float, emit: Emit) -> None:
        super().__init__(folder, {}, every_s)
        self._emit = emit
        self.resumed = False

    def newest(self) -> dict[str, Any] | None:
        """The tree of the newest checkpoint of this very fit; None where there is none."""
        try:
            state = super().newest()
        except DataError as error:
            self._emit(Warned(f"the fit begins anew: {error.what}"))
            self.clear()
            return None
        self.resumed = state is not None
        return state


def stands_at(job: Job, found: Found) -> str:
    """What a fit would begin with: 'kept' a finished candidate, 'resumed' from a checkpoint, or 'trained' anew."""
    about = journal.noted_candidate(job.folder, found.problem)
    if about is not None and about["status"] in _FINAL:
        return "kept"
    return "trained" if _stopped_at(job, found) is None else "resumed"


def start_of(job: Job, found: Found) -> Start:
    """Where the fit begins: one that was stopped keeps what it began with, whatever is current by now."""
    return _stopped_at(job, found) or choose(job, found.store)


def _stopped_at(job: Job, found: Found) -> Start | None:
    """What the fit that was stopped began with; None where there is none that can be gone on with."""
    checkpoints = job.folder / journal.RUN / CHECKPOINTS
    if not (checkpoints.is_dir() and any(checkpoints.iterdir())):
        return None
    return Start.of(journal.began_fit(job.folder, found.problem))


def fit(job: Job, found: Found, emit: Emit = silent) -> Candidate:
    """Train on what was found; the model is WORK/candidate.model and its record WORK/candidate.run.

    Killed at any instant and called again it goes on from its newest checkpoint, to the same bytes; a candidate that
    is there already, of the same rows, options and programs, is kept as it is.
    """
    path, run = job.folder / journal.MODEL, job.folder / journal.RUN
    start = stands_at(job, found)
    if start == "kept":
        about = journal.noted_candidate(job.folder, found.problem)
        assert about is not None
        return Candidate(path, about["status"], about["result"], "kept")
    begins = start_of(job, found)
    if begins.why_not:
        emit(Warned(f"the fit begins at zero: {begins.why_not}"))
    checkpoints = NightlyCheckpoints(run / CHECKPOINTS, job.checkpoint_every_s, emit)
    if start == "trained":
        checkpoints.clear()
        for name in (EVENTS, RUN):
            (run / name).unlink(missing_ok=True)
        journal.begin_fit(job.folder, found.problem, begins.document())
    config = begins.applied(job.fit)
    about = {"store": job.store, "model": str(path), "config": dataclasses.asdict(config)}
    with recorded(run, about) as written, JsonlFile(run / EVENTS) as events:
        try:
            result = fit_store(found.store, config, fan_out([emit, events]), checkpoints, resume=True)
        except Interrupted as error:
            error.hint = "the next run of the job goes on from its checkpoint"
            raise
        try:
            result.save_model(path, overwrite=True)
        finally:
            result.close()
        document = result.document(str(path), str(run))
        written.update(status=result.status, result=document, model_digest=digest_of(path))
    journal.note_candidate(job.folder, found.problem, result.status, document)
    checkpoints.clear()
    return Candidate(path, result.status, document, "resumed" if checkpoints.resumed else "trained")
