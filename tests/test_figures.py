"""Figures of README and docs come from files that name their commit, and from nowhere else."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
FIGURES = sorted(path for folder in ("figures", "plots") for path in (ROOT / "docs" / folder).glob("*.json"))


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """scripts/figures.py."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("figures")


def test_the_pages_are_what_the_script_writes() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "figures.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_figures_that_were_written_by_hand_are_noticed(figures: ModuleType) -> None:
    text = (ROOT / "README.md").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("| dense, 2M x 100 |")]
    edited = text.replace(line, re.sub(r"\d+\.\d s", "0.1 s", line))
    assert edited != text
    assert figures.rewritten(edited) == text
    assert figures.by_hand(text) == []
    assert figures.by_hand(f"{text}\n| mine | 0.1 s |\n") == ["| mine | 0.1 s |"]
    with pytest.raises(ValueError, match="no passage is called 'speed'"):
        figures.rewritten("<!-- figures: speed -->\n<!-- /figures -->")


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_file_of_figures_names_its_commit_and_its_command(path: Path) -> None:
    document = json.loads(path.read_text())
    rows = [row for row in document["rows"] if isinstance(row, dict) and "commit" in row]
    for one in rows or [document]:
        assert re.match(r"[0-9a-f]{7}", one["commit"])
    assert document["rows"]
    for one in (document, *rows):
        command = one.get("command", "")
        assert not command or (ROOT / command.split()[0]).exists()


def test_what_is_written_is_read_again(figures: ModuleType) -> None:
    document = {"commit": "1234567", "machine": "x", "rows": [{"a": 1.5, "b": "é"}, {"a": None}, [1, "2"]]}
    assert json.loads(figures.dumped(document)) == document
