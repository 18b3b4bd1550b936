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

EVENTS, RUN = "events.jsonl", "run.json"


@contextmanager
def recorded(run: Path, about: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A dictionary that becomes run.json when the block ends, well or not.

    A run that was refused before its first event has no folder, and gets none.
    """
    from bigsvm.observe.jsonl import plain
    from bigsvm.store.files import write_bytes

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
        document["error"] = str(error) or type(error).__name__
        raise
    finally:
        if run.is_dir():
            document["ended"] = datetime.now(UTC).isoformat(timespec="seconds")
            text = json.dumps(plain(document), indent=1, allow_nan=False)
            write_bytes(run / RUN, text.encode() + b"\n")
