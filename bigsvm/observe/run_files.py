"""The folder of a run: names of its files, and reading them during the run or later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bigsvm.errors import DataError, MissingInput
from bigsvm.files.paths import not_there

EVENTS, LOCK, REPORT, RUN = "events.jsonl", "lock", "report.html", "run.json"


def is_run(folder: Path) -> bool:
    """Whether a folder is the record of a run; also of one that has just begun."""
    return any((folder / name).is_file() for name in (EVENTS, RUN, LOCK))


def no_run_here(folder: Path) -> MissingInput:
    """The error for a folder that is not the record of a run; its hint names the run of a model, if it lies beside."""
    beside = folder.parent / f"{folder.name}.run"  # not `with_name`, which refuses "."
    if is_run(beside):
        return MissingInput("no record of a run here", str(folder), f"is it {beside}?")
    if not folder.exists():
        return not_there("no record of a run here", str(folder))
    hint = "a run is a folder with run.json, such as MODEL.run; bigsvm plot shows a search"
    return MissingInput("no record of a run here", str(folder), hint)


_WITHOUT = "without run.json, what the events tell is shown"


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
        raise DataError(f"run.json is not JSON: {error}", str(folder), _WITHOUT) from error
    if not isinstance(document, dict):
        raise DataError("run.json is not the record of a run", str(folder), _WITHOUT)
    return document
