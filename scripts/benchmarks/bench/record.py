"""What a benchmark leaves for README and docs: a JSON file with the commit that was measured."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]


def commit() -> str:
    """The commit of the checkout, with a mark where the program differs from it."""
    short = _git("rev-parse", "--short=7", "HEAD")
    return f"{short} (changed)" if _git("status", "--porcelain", "--", "bigsvm", "scripts") else short


def meter() -> str:
    """What was measured on: processor, cores, and how busy it was (load of the last 15 minutes)."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), platform.machine())
    return f"{model}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[2]:.1f} at the end"


def command() -> str:
    """This process' command, without the folders of whoever runs it, and without `--figures`."""
    given = sys.argv[1:]
    if "--figures" in given:
        at = given.index("--figures")
        given = given[:at] + given[at + 2 :]
    words = [Path(word).name if word.startswith("/") else word for word in given]
    program = Path(sys.argv[0]).resolve()
    return shlex.join([str(program.relative_to(ROOT)) if program.is_relative_to(ROOT) else program.name, *words])


def write_figures(path: Path, rows: list[Any], **more: Any) -> None:
    """Write what `bench/passages.py` reads; `more` stands beside the rows."""
    document = {"commit": commit(), "command": command(), "machine": meter(), **more, "rows": rows}
    path.write_text(dumped(document))


def dumped(document: dict[str, Any]) -> str:
    """As JSON, a row a line: a second measurement then changes the lines that differ."""
    head = {name: value for name, value in document.items() if name != "rows"}
    lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in document["rows"])
    text = json.dumps(head, indent=1, ensure_ascii=False).removesuffix("\n}")
    return f'{text},\n "rows": [\n{lines}\n ]\n}}\n'


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or ("unknown" if words[0] == "rev-parse" else "")
