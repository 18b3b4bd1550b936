"""Results that are written down as they come, each with what it cost, so that a long run goes on where it was stopped.

All papers do it in the same way: `journal_of(asked, "<paper>", protocol)`, then `journal(key, work)` for every part.
"""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


class Journal:
    """JSON lines: the first says what the run is, each other one is [key, result, [seconds, CPU seconds]].

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
        for line in lines[1:]:
            key, result, _ = json.loads(line)
            self._found[key] = result

    def __call__(self, key: str, work: Callable[[], Any]) -> Any:
        """The result of `key`: the one that is there, else that of `work`, written down."""
        if key not in self._found:
            began = time.perf_counter(), time.process_time()
            result = json.loads(json.dumps(work()))
            cost = [round(time.perf_counter() - began[0], 3), round(time.process_time() - began[1], 3)]
            with self._path.open("a") as file:
                file.write(json.dumps([key, result, cost]) + "\n")
            self._found[key] = result
        return self._found[key]


def journal_of(asked: Namespace, name: str, protocol: dict[str, Any]) -> Journal:
    """The journal of a run with this protocol and these data: <parts>/<name>.jsonl."""
    data = "made up" if asked.smoke else str(asked.data.resolve())
    return Journal(asked.parts / f"{name}.jsonl", {**protocol, "data": data})


def journals_of(name: str, folder: Path) -> list[Path]:
    """The journals of a paper: <name>.jsonl, and <name>-<what>.jsonl of its further runs."""
    return sorted([*folder.glob(f"{name}.jsonl"), *folder.glob(f"{name}-*.jsonl")])


def costs(paths: Sequence[Path]) -> dict[str, dict[str, dict[str, float]]]:
    """By journal and by kind of part, which is its key up to the first "/": how many, their seconds and CPU seconds.

    Parts that an earlier start of the run did count with what they took then.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for path in paths:
        kinds = found.setdefault(path.stem, {})
        for line in path.read_text().splitlines()[1:]:
            key, _, (seconds, cpu) = json.loads(line)
            kind = kinds.setdefault(key.split("/")[0], {"parts": 0, "seconds": 0.0, "cpu_seconds": 0.0})
            kind["parts"] += 1
            kind["seconds"] = round(kind["seconds"] + seconds, 3)
            kind["cpu_seconds"] = round(kind["cpu_seconds"] + cpu, 3)
    return found


def total(cost: dict[str, dict[str, dict[str, float]]]) -> dict[str, float]:
    """Parts, seconds and CPU seconds of what `costs` found."""
    kinds = [kind for journal in cost.values() for kind in journal.values()]
    return {key: sum(kind[key] for kind in kinds) for key in ("parts", "seconds", "cpu_seconds")}


def _other(path: Path) -> int:
    import sys

    sys.stderr.write(f"reproduce: {path} is of a run with other options or data\n  say --parts DIR, or remove it\n")
    return 65
