"""The JSON Schema of events.jsonl, which `python -m bigsvm.observe.schema` prints."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SCHEMA = Path(__file__).with_name("events.schema.json")


def event_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of one line of events.jsonl (docs/events.md)."""
    found: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    sys.stdout.write(SCHEMA.read_text(encoding="utf-8"))
