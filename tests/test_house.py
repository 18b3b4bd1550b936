"""Lint, layout and types, as the tools see the tree that is tested."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "command",
    [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]],
    ids=lambda command: " ".join(command[:2]),
)
def test_tools_are_content(command: list[str]) -> None:
    if importlib.util.find_spec(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_the_readme_has_its_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    for mark in ("<!-- demo -->", "<!-- tests -->"):
        found = re.search(re.escape(mark) + r"\s*```(?:bash|sh)?\n(.+?)\n```", text, re.DOTALL)
        assert found is not None, mark
        assert len(found[1].splitlines()) == 1, "one command, one line"


def test_scripts_have_a_smoke_test() -> None:
    for script in (ROOT / "scripts").glob("bench_*.py"):
        assert "--smoke" in script.read_text(), script.name
