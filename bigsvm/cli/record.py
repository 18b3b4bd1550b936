"""The record of a run on disk: run.json beside events.jsonl.

Times, hosts and paths belong here, not in a model.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bigsvm.cli.failures import failure_of
from bigsvm.errors import Interrupted
from bigsvm.observe.run_files import EVENTS, LOCK, REPORT, RUN

__all__ = ["EVENTS", "LOCK", "REPORT", "RUN", "recorded", "run_folder", "write_record"]


@contextmanager
def run_folder(run: Path) -> Iterator[None]:
    """The folder of a run, ours alone while the block runs (`locks.folder_alone`).  Raises OutputError."""
    from bigsvm.files.locks import folder_alone

    with folder_alone(run, LOCK, "the run"):
        yield


@contextmanager
def recorded(run: Path, about: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A dictionary that becomes run.json when the block ends, well or not.

    A run that was refused before its first event leaves nothing, and gets none.
    """
    document = {
        "schema_version": 1,
        "status": "error",
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": platform.node(),
        **about,
    }
    try:
        yield document
    except BaseException as error:
        failure = failure_of(error)
        document.update(error=str(failure.said), exit_code=failure.code)
        if failure.code == Interrupted.code:
            document["status"] = "interrupted"
        raise
    finally:
        # What began has a record of how it ended, also where the disk had no room for its events.
        if (run / EVENTS).exists() or (run / RUN).exists():
            document["ended"] = datetime.now(UTC).isoformat(timespec="seconds")
            write_record(run, document)


def write_record(run: Path, document: dict[str, Any]) -> None:
    """Write run.json, whole or not at all."""
    from bigsvm.files.atomic import write_bytes
    from bigsvm.observe.jsonl import plain

    write_bytes(run / RUN, json.dumps(plain(document), indent=1, allow_nan=False).encode() + b"\n")
