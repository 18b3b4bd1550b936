#!/usr/bin/env python3
"""Every linear solver, or one with a kernel, on a store larger than its budget: caged, killed, resumed, the same bytes.

For each solver: a fit in a hard cgroup of budget + 256 MiB (page cache included) says passes, bytes, memory above the
base and the proved gap; then fits are killed at random instants and resumed, and their models compared with that of
the undisturbed fit.

    scripts/stress/every_solver.py --memory 40MiB --times 10 --kills 5
    scripts/stress/every_solver.py --solvers smo,rosen-block --times 0.5      with an rbf kernel, of fewer rows
    scripts/stress/every_solver.py --smoke
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np
from kill_test import Trial
from memory_test import OVERHEAD, run

from bigsvm.config import KERNEL_SOLVERS
from bigsvm.solvers.registry import SOLVERS
from bigsvm.store.ingest.zarr_writer import ZarrWriter
from bigsvm.units import MIB, parse_bytes, show_bytes

N_FEATURES = 60
# Rows have classes, which `interior-point` does not tell apart.
LINEAR = [name for name in SOLVERS if name not in KERNEL_SOLVERS and name != "interior-point"]
OPTIONS = {"ssvm": {"smoothing": "50"}}
TOLERANCE = {"pegasos": "3e-2", "hyperpass-shrink": "1e-2", "pcd": "1e-2", "cd": "1e-2", "rosenbrock": "2e-1"}


def write_dense(path: Path, n_samples: int) -> None:
    """Dense rows with correlated features and a planted direction, a tenth of the labels wrong."""
    rng = np.random.default_rng(20_000)
    mixing = np.eye(N_FEATURES) + 0.1 * rng.standard_normal((N_FEATURES, N_FEATURES))
    direction = rng.standard_normal(N_FEATURES)
    with ZarrWriter(path, layout="dense", dtype=np.float32, n_features=N_FEATURES) as writer:
        for start in range(0, n_samples, 8192):
            rng = np.random.default_rng([20_000, start])
            X = rng.standard_normal((min(8192, n_samples - start), N_FEATURES)) @ mixing / 8
            y = np.where(X @ direction + 0.3 * rng.standard_normal(len(X)) > 0, 1.0, -1.0)
            y[rng.random(len(X)) < 0.1] *= -1.0
            writer.append(X.astype(np.float32), y)
        writer.finish()


def arguments_of(name: str) -> list[str]:
    """Solver, loss, cost, tolerance and options of a fit."""
    options = [text for key, value in OPTIONS.get(name, {}).items() for text in ("--set", f"{key}={value}")]
    tolerance = TOLERANCE.get(name, "1e-3")
    if name in KERNEL_SOLVERS:
        options += ["--kernel", "rbf", "--gamma", "0.1"]
    return ["--solver", name, "--loss", SOLVERS[name].losses[0], "--c", "0.01", "--tol", tolerance, *options]


class SolverTrial(Trial):
    """Kills of one solver's fits, on a store that is there."""

    def __init__(self, work: Path, store: Path, name: str, memory: int, seed: int) -> None:
        self.arguments, self.store, self.work = arguments_of(name), store, work
        self.prepare(memory=str(memory), seed=seed)

    def fit(self, name: str) -> list[str]:
        return [
            *(sys.executable, "-m", "bigsvm", "fit", str(self.store), *self.arguments, "--memory", self.memory),
            *("--checkpoint-every", "0.1s", "--quiet"),
            *("--scratch", str(self.work / "scratch"), "-o", str(self.work / f"{name}.model")),
        ]


def one_solver(name: str, store: Path, work: Path, budget: int, kills: int, seed: int) -> None:
    """The caged fit, then the kills."""
    fit = ["fit", store, *arguments_of(name), "--memory", budget, "--scratch", work / "scratch", "-o", work / "caged"]
    seconds, document = run([*fit, "--overwrite"], budget + OVERHEAD, work)
    result = document["result"]
    over = result["memory"]["peak_anon_bytes"] - result["memory"]["base_bytes"]
    sys.stdout.write(
        f"{name}: {result['passes']:.1f} passes, {show_bytes(result['bytes_read'])} read, {show_bytes(over)} above the "
        f"base, gap {result['relative_gap']:.1e}, {seconds:.1f} s\n"
    )
    sys.stdout.flush()
    if over > budget:
        raise SystemExit(f"{name}: {over} bytes above the base, the budget is {budget}")
    trial = SolverTrial(work, store, name, budget, seed)
    hits = sum(trial.one(f"{name}-{number}", signal.SIGKILL, False) for number in range(kills))
    terms = sum(trial.one(f"{name}-term{number}", signal.SIGTERM, False) for number in range(max(kills // 3, 1)))
    sys.stdout.write(
        f"{name}: {kills + max(kills // 3, 1)} of them byte-identical, {hits + terms} times hit while running\n"
    )
    sys.stdout.flush()


def main() -> None:
    """Run all solvers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--solvers", default=",".join(LINEAR), help="names, with commas between [linear ones]")
    parser.add_argument("--memory", type=parse_bytes, default=40 * MIB)
    parser.add_argument("--times", type=float, default=10, help="size of the data over the budget")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", help="folder on a disk; a temporary one by default")
    parser.add_argument("--smoke", action="store_true", help="a fifth of the budget, one kill, one solver")
    options = parser.parse_args()
    if options.smoke:
        options.times, options.kills, options.solvers = 0.2, 1, "hyperpass"
        SolverTrial.patience, SolverTrial.forks = math.inf, True
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        store = Path(folder) / "rows.zarr"
        write_dense(store, int(options.times * options.memory) // (4 * N_FEATURES + 16))
        for name in options.solvers.split(","):
            work = Path(folder) / name
            work.mkdir()
            one_solver(name, store, work, options.memory, options.kills, options.seed)
    sys.stdout.write(json.dumps({"solvers": options.solvers.split(","), "ok": True}) + "\n")


if __name__ == "__main__":
    main()
