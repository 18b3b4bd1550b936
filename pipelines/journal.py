"""The progress of a night on disk, from which a killed run continues, and by which it is identified.

WORK/fit.json         identifies the fit whose record and checkpoints are in WORK/candidate.run; written before it
WORK/candidate.json   identifies the fit that made WORK/candidate.model; written after it, deleted when it was reported
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bigsvm.files.atomic import write_bytes
from bigsvm.model.model_files import model_fingerprint
from bigsvm.observe.jsonl import plain
from bigsvm.run.fit.fit import versions

FIT, CANDIDATE = "fit.json", "candidate.json"
MODEL, RUN = "candidate.model", "candidate.run"


def begin_fit(folder: Path, problem: str, start: dict[str, Any]) -> None:
    """Record the fit that begins, and its start.  Raises OutputError."""
    _write(folder / FIT, {"problem": problem, "versions": versions(), "start": start})


def began_fit(folder: Path, problem: str) -> dict[str, Any] | None:
    """The start of the last fit, if it was of the same problem and the same versions; else None."""
    noted = _read(folder / FIT)
    same = noted.get("problem") == problem and noted.get("versions") == versions()
    return noted.get("start") if same else None


def note_candidate(folder: Path, problem: str, status: str, result: dict[str, Any]) -> None:
    """Record the saved candidate.  Raises OutputError."""
    about = {
        "problem": problem, "versions": versions(), "status": status, "result": plain(result),
        "model_fingerprint": model_fingerprint(folder / MODEL),
    }  # fmt: skip
    _write(folder / CANDIDATE, about)


def noted_candidate(folder: Path, problem: str) -> dict[str, Any] | None:
    """The record of the candidate, if it is of this problem, and the model has not changed; else None."""
    about = _read(folder / CANDIDATE)
    try:
        same = about["problem"] == problem and about["versions"] == versions()
        if same and about["model_fingerprint"] == model_fingerprint(folder / MODEL):
            return about
    except (KeyError, OSError):
        pass
    return None


def forget_candidate(folder: Path) -> None:
    """Delete the record after its outcome was reported; a later run of the same problem starts again."""
    (folder / CANDIDATE).unlink(missing_ok=True)
    (folder / FIT).unlink(missing_ok=True)


def _write(path: Path, document: dict[str, Any]) -> None:
    write_bytes(path, json.dumps(document, indent=1, allow_nan=False).encode() + b"\n")


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
