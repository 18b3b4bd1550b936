"""The memory promise of kernel fits, in fresh processes: at the plan's least memory, streamed, and in memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bigsvm
from bigsvm.cli.main import run
from bigsvm.units import MIB
from tests.products import WHOLE, each_of, on_request

CAGE = Path(__file__).parents[2] / "scripts" / "stress" / "memory_cage.py"
N, D = (30_000 if WHOLE else 9_000), 40
# What ends a fit, in passes over rows that stream, or of kernel values: it has taken all memory that it takes before.
TO_THE_END, SLOW, BY_BLOCKS = {"least": "2000", 96: "20"}, {"least": "150", 96: "0.2"}, {"least": "400", 96: "1"}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Rows with two classes and noise, with several, and with targets."""
    folder = tmp_path_factory.mktemp("memory")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D)).astype(np.float32)
    score = X[:, 0] + X[:, 1] ** 2 + 0.3 * rng.standard_normal(N)
    found = {}
    several = np.digitize(score, [-0.5, 0.3, 1.0, 1.8, 3.0])
    for name, y in (("classes", (score > 1.0).astype(np.int64)), ("several", several), ("targets", score)):
        np.savez(folder / f"{name}.npz", X=X, y=y)
        found[name] = folder / f"{name}.zarr"
        task = "regression" if name == "targets" else "classification"
        bigsvm.ingest(folder / f"{name}.npz", found[name], task=task)
    return found


def said(limit: int, *command: str) -> dict:
    """The result of a bigsvm command under a hard limit of memory."""
    done = subprocess.run(
        [sys.executable, str(CAGE), f"{limit}MiB", "--", sys.executable, "-m", "bigsvm", *command, "--json", "--quiet"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 4), done.stdout[-2000:] + done.stderr[-2000:]
    assert not json.loads(done.stderr.strip().splitlines()[-1]).get("oom_kills")
    return json.loads(done.stdout)["result"]


def planned(capsys: pytest.CaptureFixture[str], store: str, *options: str) -> int:
    """The least memory of a fit, bytes, as `plan` says."""
    assert run(["plan", store, *options, "--memory", "4GiB", "--json", "--quiet"]) == 0
    return json.loads(capsys.readouterr().out)["result"]["min_memory_bytes"]


def used(result: dict) -> float:
    """MiB above the base."""
    memory = result["memory"]
    assert memory["base_bytes"] <= 256 * MIB
    return (memory["peak_anon_bytes"] - memory["base_bytes"]) / MIB


@pytest.mark.slow
@each_of(
    name__options__passes=[
        ("classes", ["--solver", "smo", "--kernel", "rbf", "--tol", "1e-6"], TO_THE_END),
        ("several", ["--solver", "smo", "--kernel", "rbf"], TO_THE_END),
        ("targets", ["--solver", "smo", "--kernel", "rbf", "--loss", "epsilon_insensitive"], TO_THE_END),
        ("classes", ["--solver", "rosen", "--kernel", "rbf", "-c", "1000", "--gamma", "0.3"], SLOW),
        ("classes", ["--solver", "rosen-block", "--kernel", "rbf"], BY_BLOCKS),
        ("classes", ["--solver", "platt-smo", "--kernel", "rbf"], SLOW),
        *on_request(
            ("classes", ["--solver", "smo", "--kernel", "linear"], TO_THE_END),
            ("several", ["--solver", "smo", "--kernel", "linear", "--multi-class", "ovr", "-c", "0.1"], TO_THE_END),
        ),
    ],
    budget=["least", 96],
)
def test_a_kernel_fit_keeps_its_budget(
    stores: dict[str, Path],
    tmp_path: Path,
    name: str,
    options: list[str],
    passes: dict[str | int, str],
    budget: str | int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store, model = str(stores[name]), str(tmp_path / "m")
    if "--tol" not in options:
        options = [*options, "--tol", "1e-2"]
    least = planned(capsys, store, *options)
    mib = least // MIB if budget == "least" else int(budget)
    fit = ["--memory", f"{mib}MiB", "--max-passes", passes[budget], "--scratch", str(tmp_path / "scratch"), "-o", model]
    result = said(mib + 256, "fit", store, *options, *fit)
    assert used(result) <= mib
    proof = said(mib + 256, "certify", model, store, "--memory", f"{max(mib, 24)}MiB")
    assert used(proof) <= max(mib, 24)
    assert proof["relative_gap"] == pytest.approx(result["relative_gap"], rel=1e-4)
