"""Results that are written down as they come, so that a long run goes on where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Journal:
    """JSON lines: the first says what the run is, each other one is [key, result].

    Raises
    ------
    SystemExit : the file is of another run (65).
    """

    def __init__(self, path: Path, protocol: dict[str, Any]) -> None:
        self._path = path
        self._found: dict[str, Any] = {}
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(protocol) + "\n")
            return
        text = path.read_text()
        whole = text[: text.rfind("\n") + 1]  # a line that was cut off is done again
        lines = whole.splitlines()
        if not lines or json.loads(lines[0]) != json.loads(json.dumps(protocol)):
            raise SystemExit(_other(path))
        if whole != text:
            path.write_text(whole)
        self._found = dict(json.loads(line) for line in lines[1:])

    def __call__(self, key: str, work: Callable[[], Any]) -> Any:
        """The result of `key`: the one that is there, else that of `work`, written down."""
        if key not in self._found:
            result = json.loads(json.dumps(work()))
            with self._path.open("a") as file:
                file.write(json.dumps([key, result]) + "\n")
            self._found[key] = result
        return self._found[key]


def _other(path: Path) -> int:
    import sys

    sys.stderr.write(f"reproduce: {path} is of a run with other options\n  say --journal FILE, or remove it\n")
    return 65
