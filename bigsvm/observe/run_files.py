"""The folder of a run: names of its files, and reading them during the run or later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bigsvm.errors import DataError, MissingInput

EVENTS, LOCK, REPORT, RUN = "events.jsonl", "lock", "report.html", "run.json"


def is_run(folder: Path) -> bool:
    """Whether a folder is the record of a run; also of one that has just begun."""
    return any((folder / name).is_file() for name in (EVENTS, RUN, LOCK))


def read_record(folder: Path) -> dict[str, Any]:
    """run.json; empty if it does not exist yet.

    Raises
    ------
    DataError : it is not a JSON object.
    MissingInput : it cannot be read.
    """
    try:
        document = json.loads((folder / RUN).read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise MissingInput(f"cannot be read: {error.strerror}", str(folder / RUN)) from error
    except ValueError as error:
        raise DataError(f"run.json is not JSON: {error}", str(folder)) from error
    if not isinstance(document, dict):
        raise DataError("run.json is not the record of a run", str(folder))
    return document
