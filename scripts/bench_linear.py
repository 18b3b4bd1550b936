#!/usr/bin/env python3
"""Linear solvers on the same problems in one run: bigsvm (in memory, and out of core) beside LIBLINEAR.

Every solver runs in a process of its own, alternating, `--repeats` times; the table shows medians.  Objectives and
gaps are computed here, by one evaluator, from the weights that each solver leaves: `gap` is (P - best D) / P with the
best dual value that any run of bigsvm proved for the problem.  Seconds are training only: reading text into
LIBLINEAR's nodes and ingesting into a store are left out, reading the store is not.

    scripts/bench_linear.py                          synthetic, 1,000,000 sparse rows
    scripts/bench_linear.py --data a.npz --labels y.npy
    scripts/bench_linear.py --smoke                  seconds, for the test suite

LIBLINEAR needs the extra `bench`; without it only bigsvm is measured.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import bigsvm
from bigsvm.run.demo import write_problem

LOSSES = {"hinge": "3", "squared_hinge": "1"}


def run_bigsvm(store: Path, loss: str, tol: float, memory: str) -> dict[str, Any]:
    """One fit in this process: seconds, passes, memory, and the weights."""
    result = bigsvm.fit(store, loss=loss, tol=tol, memory=memory, scratch=str(store.parent / "scratch"))
    memory_used = result.memory["peak_anon_bytes"] - result.memory["base_bytes"]
    weights = np.append(result.model.coef[0], result.model.intercept[0])
    return {
        "seconds": result.seconds["total"] - (0 if "GiB" in memory else result.seconds["staging"]),
        "staging_s": result.seconds["staging"],
        "passes": result.figures["passes"],
        "epochs": result.figures["epochs"],
        "memory_bytes": memory_used,
        "dual": result.figures["dual_objective"],
        "w": weights,
    }


def run_liblinear(store: Path, loss: str, eps: float) -> dict[str, Any]:
    """One training of the C library on the same rows, in memory."""
    from liblinear.liblinearutil import parameter, problem, train

    from bigsvm.machine import anonymous_bytes

    X, y = load(store)
    before = anonymous_bytes()
    rows = problem(y, X.astype(np.float64), bias=1)
    began = time.monotonic()
    model = train(rows, parameter(f"-s {LOSSES[loss]} -c 1 -B 1 -e {eps} -q"))
    seconds = time.monotonic() - began
    w, b = model.get_decfun()
    sign = 1.0 if model.get_labels()[0] == max(model.get_labels()) else -1.0
    held = anonymous_bytes() - before
    return {"seconds": seconds, "memory_bytes": held, "w": sign * np.append(w, b)}


def load(store: Path) -> tuple[sparse.csr_matrix, np.ndarray]:
    """All rows of a store as SciPy's matrix, and labels of -1 and 1."""
    rows = bigsvm.open_store(store)
    block = rows.read(rows.refs(rows.n_samples)[0])
    X = sparse.csr_matrix(tuple(block.X), shape=(rows.n_samples, rows.n_features))
    return X, np.where(block.y == 1, 1.0, -1.0)


def objective(X: sparse.csr_matrix, y: np.ndarray, loss: str, w: np.ndarray) -> float:
    """P(w) for C = 1 with the bias entry last."""
    padded = np.zeros(X.shape[1])
    padded[: len(w) - 1] = w[:-1]
    slack = np.maximum(1 - y * (X @ padded + w[-1]), 0)
    return 0.5 * float(w @ w) + float(np.sum(slack if loss == "hinge" else slack**2))


def child(arguments: list[str]) -> dict[str, Any]:
    """Run this script again in its own process; weights come back in a file."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.npz"
        subprocess.run([sys.executable, __file__, "--child", *arguments, str(out)], check=True)
        with np.load(out, allow_pickle=False) as stored:
            return {key: stored[key] if key == "w" else float(stored[key]) for key in stored.files}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--data", help="rows to use instead of the synthetic ones: what `bigsvm ingest` reads")
    parser.add_argument("--labels", help="their label column or file")
    parser.add_argument("--memory", default="64MiB", help="budget of the out-of-core run")
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--work", help="folder for stores and scratch; a temporary one by default")
    parser.add_argument("--json", help="file for the figures")
    parser.add_argument("--smoke", action="store_true", help="a few seconds, to see that it works")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        kind, store, loss, parameter, out = options.child
        if kind == "liblinear":
            measured = run_liblinear(Path(store), loss, float(parameter))
        else:
            measured = run_bigsvm(Path(store), loss, options.tol if kind == "bigsvm" else float(kind), parameter)
        np.savez(out, **measured)
        return
    if options.smoke:
        options.rows, options.repeats, options.memory = 3000, 1, "32MiB"
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        store = Path(folder) / "rows.zarr"
        if options.data:
            bigsvm.ingest(options.data, store, label=options.labels)
        else:
            write_problem(store, options.rows)
        report(options, store)


def report(options: argparse.Namespace, store: Path) -> None:
    """Run every solver on a store and print the table."""
    X, y = load(store)
    data_bytes = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    solvers = [
        ("bigsvm, in memory", str(options.tol), "4GiB"),
        ("bigsvm, out of core", str(options.tol), options.memory),
    ]
    try:
        import liblinear  # noqa: F401
    except ImportError:
        sys.stderr.write("LIBLINEAR is not installed (extra `bench`): only bigsvm is measured\n")
    else:
        solvers += [(f"LIBLINEAR -e {eps}", "liblinear", eps) for eps in ("0.3", "0.1")]
    figures: list[dict[str, Any]] = []
    for loss in LOSSES:
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name, _, _ in solvers}
        for _ in range(options.repeats):  # alternating, so that a busy minute hits everybody
            for name, kind, parameter in solvers:
                runs[name].append(child([kind, str(store), loss, parameter]))
        best_dual = max(run["dual"] for found in runs.values() for run in found if "dual" in run)
        for name, found in runs.items():
            P = objective(X, y, loss, found[0]["w"])
            figures.append(
                {
                    "loss": loss,
                    "solver": name,
                    "seconds": statistics.median(run["seconds"] for run in found),
                    "passes": found[0].get("passes"),
                    "memory_bytes": max(run["memory_bytes"] for run in found),
                    "objective": P,
                    "gap": (P - best_dual) / P,
                }
            )
    write = sys.stdout.write
    write(f"{X.shape[0]:,} x {X.shape[1]:,}, {X.nnz:,} non-zeros, {data_bytes / 2**20:.0f} MiB; C = 1, B = 1; ")
    write(f"{platform.machine()}, medians of {options.repeats}\n\n")
    write("| loss | solver | seconds | memory, MiB | gap | passes |\n|---|---|---|---|---|---|\n")
    for row in figures:
        passes = f"{row['passes']:.0f}" if row["passes"] else "in RAM"
        memory = row["memory_bytes"] / 2**20
        write(
            f"| {row['loss']} | {row['solver']} | {row['seconds']:.2f} | {memory:.0f} | {row['gap']:.1e} | {passes} |\n"
        )
    if options.json:
        Path(options.json).write_text(json.dumps({"data_bytes": data_bytes, "rows": figures}, indent=1))


if __name__ == "__main__":
    main()
