"""The memory promise, in fresh processes: data several times the budget, a hard limit of budget + 256 MiB."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bigsvm.store.ingest.demo_rows import write_problem
from bigsvm.units import MIB

CAGE = Path(__file__).parents[2] / "scripts" / "stress" / "memory_cage.py"
BUDGET, ROWS = 32, 250_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 104 MiB of rows: more than three times the budget."""
    path = tmp_path_factory.mktemp("memory") / "rows.zarr"
    write_problem(path, ROWS)
    return path


def caged(*command: str) -> tuple[dict, dict]:
    """(JSON document, report of the cage) of a bigsvm command under budget + 256 MiB."""
    limit = f"{BUDGET + 256}MiB"
    done = subprocess.run(
        [sys.executable, str(CAGE), limit, "--", sys.executable, "-m", "bigsvm", *command, "--json", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    report = json.loads(done.stderr.strip().splitlines()[-1])
    assert not report.get("oom_kills")
    return json.loads(done.stdout), report


@pytest.mark.slow
def test_fit_keeps_its_budget_on_data_three_times_larger(store: Path, tmp_path: Path) -> None:
    model = str(tmp_path / "m")
    memory = f"{BUDGET}MiB"
    document, _ = caged(
        "fit", str(store), "--memory", memory, "--scratch", str(tmp_path / "scratch"), "-o", model, "--tol", "1e-2"
    )
    result = document["result"]
    assert result["data_bytes"] > 3 * BUDGET * MIB
    assert result["passes"] > 2
    used = result["memory"]
    assert used["budget_bytes"] == BUDGET * MIB
    assert used["base_bytes"] <= 256 * MIB
    assert used["peak_anon_bytes"] - used["base_bytes"] <= BUDGET * MIB
    proof, _ = caged("certify", model, str(store), "--memory", memory)
    assert proof["result"]["relative_gap"] == pytest.approx(result["relative_gap"], rel=1e-6)
    quality, _ = caged("evaluate", model, str(store), "--memory", memory)
    assert quality["result"]["accuracy"] > 0.8
    caged("predict", model, str(store), "--memory", memory, "-o", str(tmp_path / "labels.csv"))
    assert (tmp_path / "labels.csv").read_bytes().count(b"\n") == ROWS


@pytest.mark.slow
def test_ingest_keeps_memory_small(tmp_path: Path) -> None:
    line = b"1 " + b" ".join(b"%d:0.%d" % (j, j) for j in range(1, 400)) + b"\n"
    text = tmp_path / "rows.svm"
    with open(text, "wb") as file:
        for _ in range(60):
            file.write((line + line.replace(b"1 ", b"-1 ", 1)) * 150)
    assert text.stat().st_size > 48e6
    document, _ = caged("ingest", str(text), str(tmp_path / "rows.zarr"), "--memory", f"{BUDGET}MiB")
    assert document["result"]["n_samples"] == 18_000
