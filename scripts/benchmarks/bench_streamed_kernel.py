#!/usr/bin/env python3
"""A kernel on rows that do not fit: passes over the data to a proved gap, in a cgroup of budget + 256 MiB.

Dense float32 rows, a low-rank part and noise, divided by sqrt(features); labels by a curved border, a fiftieth of them
flipped.  The seeds of the rows are drawn at run time and are in the figures.  rbf with the default gamma, C = 1, to a
gap of 1e-3; the proof's readings count.

    scripts/benchmarks/bench_streamed_kernel.py --seeds 2 --figures docs/figures/kernels-streamed.json
    scripts/benchmarks/bench_streamed_kernel.py --csr DIR                  rows of a folder: X.npy and y.npy
    scripts/benchmarks/bench_streamed_kernel.py --smoke                    seconds, on few rows
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from bench.problems import open_problem
from bench.record import write_figures

from bigsvm.units import MIB, parse_bytes

CAGE = Path(__file__).resolve().parents[1] / "stress" / "memory_cage.py"
_BESIDES = 256 * MIB


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--rows", type=int, default=200_000)
    add("--features", type=int, default=100)
    add("--memory", nargs="+", default=["128MiB", "64MiB"], help="budgets [%(default)s]")
    add("--seeds", type=int, default=2, help="problems, whose seeds are drawn [%(default)s]")
    add("--csr", type=Path, help="folder with the rows, in place of drawn ones")
    add("--work", type=Path, help="folder for store and scratch, on a disk; a temporary one by default")
    add("--figures", type=Path, help="file of docs/figures: what docs are made of")
    add("--smoke", action="store_true", help="a few seconds, on few rows, to see that it works")
    return parser.parse_args()


def draw(folder: Path, rows: int, features: int, seed: int) -> None:
    """X.npy and y.npy."""
    rng = np.random.default_rng(seed)
    rank = max(features // 5, 1)
    mixing = rng.normal(size=(rank, features))
    hidden = rng.normal(size=(rows, rank))
    X = (hidden @ mixing / np.sqrt(rank) + 0.5 * rng.normal(size=(rows, features))) / np.sqrt(features)
    score = hidden @ rng.normal(size=rank) + 0.5 * (hidden[:, 0] ** 2 - 1.0) + 0.3 * rng.normal(size=rows)
    y = np.where(score > 0, 1, -1)
    y[rng.random(rows) < 0.02] *= -1
    folder.mkdir(parents=True)
    np.save(folder / "X.npy", X.astype(np.float32))
    np.save(folder / "y.npy", y.astype(np.int8))


def fit(store: Path, memory: str, work: Path) -> dict[str, Any]:
    """What `bigsvm fit` says, in a cage of its own, and the CPU seconds of the process."""
    model = work / f"{store.parent.name}-{memory}.model"
    command = [
        sys.executable,
        "-m",
        "bigsvm",
        "fit",
        str(store),
        "--kernel",
        "rbf",
        "--tol",
        "1e-3",
        "--threads",
        "1",
        "--memory",
        memory,
    ]
    command += ["--model", str(model), "--no-dual", "--scratch", str(work / "scratch"), "--quiet", "--json"]
    caged = [sys.executable, str(CAGE), str(parse_bytes(memory) + _BESIDES), "--", *command]
    before = _cpu()
    done = subprocess.run(caged, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"a fit in {memory} ended with {done.returncode}")
    said = json.loads(done.stdout)["result"]
    return {**said, "cpu_seconds": _cpu() - before}


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """All budgets on all problems."""
    asked = parse()
    if asked.smoke:
        asked.rows, asked.features, asked.memory, asked.seeds = 2000, 10, ["26MiB"], 1
    with tempfile.TemporaryDirectory(prefix="bigsvm-bench-", dir=asked.work) as folder:
        work, rows = Path(folder), []
        for _ in range(1 if asked.csr else asked.seeds):
            seed = None if asked.csr else secrets.randbelow(1 << 31)
            arrays = asked.csr or work / f"arrays-{seed}"
            if seed is not None:
                draw(arrays, asked.rows, asked.features, seed)
            problem = open_problem(arrays, f"problem-{seed}", work)
            for memory in asked.memory:
                said = fit(problem.store, memory, work)
                used = said["memory"]["peak_anon_bytes"] - said["memory"]["base_bytes"]
                row = {
                    "rows": problem.n_samples, "features": problem.n_features, "seed": seed,
                    "n_support": said["n_support"],
                    "memory_bytes": parse_bytes(memory), "used_bytes": used, "passes": said["passes"],
                    "seconds": said["seconds"]["total"],
                    "cpu_seconds": said["cpu_seconds"], "gap": said["relative_gap"],
                }  # fmt: skip
                rows.append(row)
                print(json.dumps(row), flush=True)
    if asked.figures:
        write_figures(asked.figures, rows)


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
