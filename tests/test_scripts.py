"""Benchmarks are run on request, and their code here, so that it cannot rot."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.mark.slow
def test_bench_linear_smoke(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "bench_linear.py"), "--smoke", "--json", str(tmp_path / "figures.json")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "| hinge | bigsvm, in memory |" in done.stdout
    rows = json.loads((tmp_path / "figures.json").read_text())["rows"]
    assert all(row["gap"] <= 1e-3 for row in rows if row["solver"].startswith("bigsvm"))
