"""The import contracts of the house, as pyproject.toml states them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_imports_point_down() -> None:
    pytest.importorskip("importlinter")
    tool = Path(sys.executable).with_name("lint-imports")
    command = [str(tool)] if tool.exists() else [shutil.which("lint-imports") or "lint-imports"]
    done = subprocess.run([*command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
