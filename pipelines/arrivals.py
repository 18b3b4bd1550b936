"""New rows that are delivered as files: each file is appended to the store exactly once, even after kills.

WORK/arrivals.json names the files in the store, the file that is being appended, and the rows of the store before that.
The manifest of the store records its content before each append, and the digest of the appended file.  So a run that
was killed between the append and its entry here can be distinguished from one that was killed before, whoever else
appends rows meanwhile.
"""

from __future__ import annotations

import errno
import glob
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bigsvm.errors import DataError, MissingInput, ReadFailed
from bigsvm.events import Emit, Warned, silent
from bigsvm.files.atomic import file_digest, write_bytes
from bigsvm.run.apply.scoring import budget_of
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.ingest.ingest import ingest
from pipelines.config import Job
from pipelines.gates.judging import open_rows

NOTES = "arrivals.json"


def waiting(job: Job) -> list[Path]:
    """The files whose rows are not in the store yet, by name.

    Raises DataError where one that is there has changed since its rows were added, or is no file, or the notes are
    damaged; MissingInput where one cannot be read.
    """
    return _waiting(job, _settled(job), silent) if job.arrivals is not None else []


def append(job: Job, emit: Emit = silent) -> dict[str, int]:
    """Append the rows of every waiting file to the store; returns file -> number of rows.

    Raises
    ------
    MissingInput : there is no store yet.
    DataError : a file is bad (names file and line); the files before it are in the store, it and the later ones are
        not.
    OutputError, BudgetExceeded : as for `bigsvm ingest --append`.
    """
    if job.arrivals is None:
        return {}
    notes, added = _settled(job), {}
    n_noted, waits = len(notes["added"]), _waiting(job, notes, emit)
    if len(notes["added"]) > n_noted:
        _write(job, notes)
    for path in waits:
        digest, store = _digest(path, job.arrivals.files), open_rows(job, job.store)
        if (part := _part_with(store, digest)) is not None:  # another job has added it meanwhile
            notes["added"][str(path)] = part
            _write(job, notes)
            continue
        before = _stands(store)
        notes["pending"] = {"name": str(path), "digest": digest, **before}
        _write(job, notes)
        result = ingest(
            str(path), job.store, append=True, source_digest=digest, label=job.arrivals.label,
            weight=job.arrivals.weight, from_format=job.arrivals.from_format, zero_based=job.arrivals.zero_based,
            memory=budget_of(job.fit).limit, emit=emit,
        )  # fmt: skip
        added[str(path)] = int(result["n_appended"])
        notes = _done(notes)
        _write(job, notes)
    return added


def _waiting(job: Job, notes: dict[str, Any], emit: Emit) -> list[Path]:
    """A file is known by its bytes: the folder may be reached by another path, and a file be renamed.

    A file that the notes lack counts as added, and is put into the notes, if the store says that its rows were
    appended: the notes are lost, or another job appends the same files to the same store.  Raises as `_digest` and
    `waiting` do.
    """
    assert job.arrivals is not None
    store: RowBlocks | None = None
    by_digest = {known["digest"]: name for name, known in notes["added"].items()}
    found = []
    for name in sorted(glob.glob(job.arrivals.files)):
        known, digest = notes["added"].get(name), _digest(Path(name), job.arrivals.files)
        if known is not None and digest != known["digest"]:
            hint = "deliver rows that came later under another name"
            raise DataError("changed since its rows were put into the store", name, hint)
        if known is None and digest in by_digest:
            emit(Warned(f"{name} has the bytes of {by_digest[digest]}, whose rows are in the store: not added again"))
        elif known is None:
            store = store or open_rows(job, job.store)
            if (part := _part_with(store, digest)) is None:
                found.append(Path(name))
            else:
                notes["added"][name] = part
                emit(
                    Warned(
                        f"{name}: the store says that its rows were added, although {NOTES} does not: not added again"
                    )
                )
            by_digest[digest] = name
    return found


def _digest(path: Path, pattern: str) -> str:
    """Of a file that `pattern` matches.  What is none, or may not be read, is so every night: its name and a remedy.

    Raises MissingInput, DataError; ReadFailed where the disk fails.
    """
    away = f"move it away, or let it not match {pattern}"
    try:
        return file_digest(path)
    except FileNotFoundError as error:
        if path.is_symlink():
            raise MissingInput("a link to nothing", str(path), f"put its file there; or {away}") from error
        raise MissingInput("it was taken away while it was looked at", str(path), "run again") from error
    except PermissionError as error:
        raise MissingInput(
            f"cannot be read: {error.strerror}", str(path), f"may this user read it? Or {away}"
        ) from error
    except OSError as error:
        if path.is_file():
            raise ReadFailed(f"cannot be read: {error.strerror}", str(path), "check the disk, and run again") from error
        if error.errno == errno.ELOOP:
            raise MissingInput("a link to itself", str(path), away) from error
        kind = "a folder" if path.is_dir() else "a pipe or a device"
        raise DataError(f"is {kind}, and no file with rows", str(path), away) from error


def _settled(job: Job) -> dict[str, Any]:
    """The notes, in which a file that a killed run has appended counts as added.  Nothing is written.

    Raises DataError if the notes are damaged, or belong to another store.
    """
    path = job.folder / NOTES
    try:
        found = json.loads(path.read_bytes())
        notes = {"added": dict(found["added"]), "pending": found["pending"]}
        held = {name: (one["n_samples"], one["content_fingerprint"]) for name, one in notes["added"].items()}
        pending = notes["pending"]
        before = None if pending is None else (pending["n_samples"], pending["content_fingerprint"])
    except FileNotFoundError:
        return {"added": {}, "pending": None}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        hint = "restore it, because it records which files are in the store; or move those files away and delete it"
        raise DataError("not the notes of a job", str(path), hint) from error
    store = open_rows(job, job.store)
    now = _stands(store)
    told = store.content.get("parts", ())
    parts = {(part["n_samples"], part["content_fingerprint"]) for part in told}
    for name, stood in held.items():
        if stood not in parts:
            hint = f"delete {path}: then all files in the folder are added to this store"
            raise DataError(f"it is not the store that the rows of {name} were added to", job.store, hint)
    if before in parts:
        since = [part for part in told if part["n_samples"] >= pending["n_samples"]]
        if any(part.get("added") == pending["digest"] for part in since):
            return _done(notes)
        if any("added" not in part for part in since):
            what = (
                f"an earlier version of bigsvm added rows without recording whether they are those of {pending['name']}"
            )
            hint = f"look at its last rows; delete {path}, and move away the files whose rows are in the store"
            raise DataError(what, job.store, hint)
        return {**notes, "pending": None}
    if before is not None and before != tuple(now.values()):
        hint = f"delete {path}, and move away the files whose rows are in the store"
        raise DataError(f"the store was replaced while the rows of {pending['name']} were added", job.store, hint)
    return {**notes, "pending": None}


def _stands(store: RowBlocks) -> dict[str, Any]:
    """The rows of a store, as recorded in the notes.  Raises MissingInput if it was not made by ingest."""
    if store.content_fingerprint is None or "content_fingerprint" not in store.content:
        hint = "rows can be appended only to a store that bigsvm ingest made"
        raise MissingInput("rows cannot be appended to it", store.uri, hint)
    return {"n_samples": store.n_samples, "content_fingerprint": store.content["content_fingerprint"]}


def _part_with(store: RowBlocks, digest: str) -> dict[str, Any] | None:
    """The notes about the file of this digest, if its rows were appended to the store; else None."""
    for part in store.content.get("parts", ()):
        if part.get("added") == digest:
            stood = {name: part[name] for name in ("n_samples", "content_fingerprint")}
            return {"digest": digest, **stood, "at": datetime.now(UTC).isoformat(timespec="seconds")}
    return None


def _done(notes: dict[str, Any]) -> dict[str, Any]:
    """The notes after the pending file was appended."""
    about = {**notes["pending"], "at": datetime.now(UTC).isoformat(timespec="seconds")}
    return {"added": {**notes["added"], about.pop("name"): about}, "pending": None}


def _write(job: Job, notes: dict[str, Any]) -> None:
    write_bytes(job.folder / NOTES, json.dumps(notes, indent=1).encode() + b"\n")
