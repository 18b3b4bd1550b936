"""The fit of a night: it continues from its checkpoint, and a finished candidate is not trained again."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bigsvm.cli.job import CHECKPOINTS, digest_of, has_checkpoint
from bigsvm.cli.record import EVENTS, RUN, recorded
from bigsvm.errors import DataError, Interrupted, OutputError
from bigsvm.events import Emit, Warned, fan_out, silent
from bigsvm.files.atomic import check_replaceable
from bigsvm.model.model_files import MARKS
from bigsvm.observe.jsonl import JsonlFile
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.fit import fit_store, versions
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.delegated import check_chunks
from pipelines import journal
from pipelines.config import Job
from pipelines.start import Start, choose

_FINAL = ("converged", "paper_rule", "kkt", "stalled")
"""Statuses that a repeated fit would reach again; a fit that was stopped by a limit might get further."""


@dataclass(frozen=True)
class Found:
    """The training rows, and whether they or the options have changed."""

    store: RowBlocks
    problem: str
    """Digest of the identity of the rows and of every option that changes the model."""
    changed: bool
    reason: str


@dataclass(frozen=True)
class Candidate:
    """A trained model that is not current yet.

    how : 'trained', 'resumed' from a checkpoint, or 'kept' from a run that was killed or refused
    """

    path: Path
    status: str
    result: dict[str, Any]
    how: str = "trained"


class NightlyCheckpoints(Checkpoints):
    """The checkpoints of an unattended fit: one that cannot be resumed causes a warning, not an error."""

    def __init__(self, folder: Path, every_s: float, emit: Emit) -> None:
        super().__init__(folder, {}, every_s)
        self._emit = emit
        self.resumed = False

    def newest(self) -> dict[str, Any] | None:
        """The tree of the newest checkpoint of this fit; None if there is none."""
        try:
            state = super().newest()
        except DataError as error:
            self._emit(Warned(f"the fit starts again: {error.what}"))
            self.clear()
            return None
        self.resumed = state is not None
        return state


def stands_at(job: Job, found: Found) -> str:
    """How a fit would begin: 'kept' (finished candidate), 'resumed' from a checkpoint, or 'trained' from the start."""
    about = journal.noted_candidate(job.folder, found.problem)
    if about is not None and about["status"] in _FINAL:
        return "kept"
    return "trained" if _stopped_at(job, found) is None else "resumed"


def begun_with(job: Job, doing: str) -> str | None:
    """The solver that 'auto' chose when the fit began that would be resumed; None for others.  doing : `stands_at`"""
    checkpoints = Checkpoints(job.folder / journal.RUN / CHECKPOINTS, {}, job.checkpoint_every_s)
    return checkpoints.solver_of_auto(versions()) if doing == "resumed" else None


def start_of(job: Job, found: Found) -> Start:
    """The start of the fit; a stopped fit keeps its start, whichever model is current by now."""
    return _stopped_at(job, found) or choose(job, found.store)


def _stopped_at(job: Job, found: Found) -> Start | None:
    """The start of a stopped fit; None if there is none that can be resumed."""
    if not has_checkpoint(job.folder / journal.RUN):
        return None
    return Start.of(journal.began_fit(job.folder, found.problem))


def fit(job: Job, found: Found, emit: Emit = silent) -> Candidate:
    """Train on the rows that were found; writes WORK/candidate.model and its record WORK/candidate.run.

    If it was killed and is called again, it resumes from the newest checkpoint, and gives the same bytes.  An existing
    candidate of the same rows, options and versions is kept.

    Raises
    ------
    DataError : the rows are not what the store says.
    OutputError : something else lies where the candidate is to be, or it cannot be written.
    """
    path, run = job.folder / journal.MODEL, job.folder / journal.RUN
    start = stands_at(job, found)
    if start == "kept":
        about = journal.noted_candidate(job.folder, found.problem)
        assert about is not None
        check_chunks(found.store)
        return Candidate(path, about["status"], about["result"], "kept")
    _check_place(path)
    begins = start_of(job, found)
    if begins.why_not:
        emit(Warned(f"the fit starts from zero: {begins.why_not}"))
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
            how = "continues from its checkpoint" if has_checkpoint(run) else "begins the fit again"
            error.hint = f"the next run of the job {how}"
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


def _check_place(path: Path) -> None:
    """Raise OutputError, before hours of training, if something that is no model lies where it is to be written."""
    try:
        check_replaceable(path, True, MARKS, "model")
    except OutputError as error:
        raise OutputError(error.what, str(path), f"move {path} away: nights write their candidates there") from error
