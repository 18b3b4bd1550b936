"""What a night has reached, on disk: so a run that was killed is taken up where it was, and never mistaken for another.

WORK/fit.json         what the record and the checkpoints in WORK/candidate.run belong to, written before the fit
WORK/candidate.json   what WORK/candidate.model is the answer to, written after it; deleted when its outcome is told
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bigsvm.files.atomic import write_bytes
from bigsvm.model.whole_models import model_fingerprint
from bigsvm.observe.jsonl import plain
from bigsvm.run.fit.fit import versions

FIT, CANDIDATE = "fit.json", "candidate.json"
MODEL, RUN = "candidate.model", "candidate.run"


def begin_fit(folder: Path, problem: str, start: dict[str, Any]) -> None:
    """Note what is trained now, and what it starts from.  Raises OutputError."""
    _write(folder / FIT, {"problem": problem, "versions": versions(), "start": start})


def began_fit(folder: Path, problem: str) -> dict[str, Any] | None:
    """What the last fit that began starts from, where it was of the same problem, by the same programs; else None."""
    noted = _read(folder / FIT)
    same = noted.get("problem") == problem and noted.get("versions") == versions()
    return noted.get("start") if same else None


def note_candidate(folder: Path, problem: str, status: str, result: dict[str, Any]) -> None:
    """Note what the saved candidate is.  Raises OutputError."""
    about = {
        "problem": problem, "versions": versions(), "status": status, "result": plain(result),
        "model_fingerprint": model_fingerprint(folder / MODEL),
    }  # fmt: skip
    _write(folder / CANDIDATE, about)


def noted_candidate(folder: Path, problem: str) -> dict[str, Any] | None:
    """What was noted of the candidate that lies there, where it is that of this problem and still the same model."""
    about = _read(folder / CANDIDATE)
    try:
        same = about["problem"] == problem and about["versions"] == versions()
        if same and about["model_fingerprint"] == model_fingerprint(folder / MODEL):
            return about
    except (KeyError, OSError):
        pass
    return None


def forget_candidate(folder: Path) -> None:
    """Its outcome was told: a later run of the same problem begins anew."""
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
