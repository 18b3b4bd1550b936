"""Two cases that ended scikit-learn's LinearSVC, inside a budget: long rows of float32, and one-hot rows of int8.

    python scripts/stress/large_memory_cases.py             a tenth of both, some minutes
    python scripts/stress/large_memory_cases.py --share 1   9.0 M x 5 float32, and 5 GB of int8
    python scripts/stress/large_memory_cases.py --share 1 --cage     where the kernel holds the fit to it
    python scripts/stress/large_memory_cases.py --smoke

9.0 M x 5 of float32 ended in a segmentation fault (scikit-learn issue 17262), dense one-hot rows of int8 took eight
times their bytes (18825).  Here both are written as .npy files, which the estimator is given as memory maps: it must
train within `--memory` on top of the process as it is, counted as anonymous memory (a map's pages are the system's,
and come and go), and prove its gap.  --cage fits in a process of its own under a hard limit of `--memory` and 256 MiB
for that process, page cache included.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from bigsvm.peak_memory import PeakMemory
from bigsvm.sklearn import LinearSVC
from bigsvm.units import MIB, parse_bytes, show_bytes

_PIECE = 100_000  # rows
_BASE = 256 * MIB  # of a process and its libraries
_CAGE = Path(__file__).with_name("memory_cage.py")


def long_rows(n_samples: int, path: Path) -> np.ndarray:
    """float32, 5 features within [-1, 1]; labels by a planted direction, a tenth of them drawn anew."""
    rng = np.random.default_rng(0)
    X = np.lib.format.open_memmap(path, "w+", np.float32, (n_samples, 5))
    y = np.empty(n_samples, np.int8)
    for start in range(0, n_samples, _PIECE):
        piece = rng.uniform(-1.0, 1.0, (min(_PIECE, n_samples - start), 5)).astype(np.float32)
        X[start : start + len(piece)] = piece
        y[start : start + len(piece)] = noisy(piece @ np.array([1.0, -2.0, 0.5, 0.0, 1.0]), rng)
    X.flush()
    return y


def one_hot(n_samples: int, path: Path) -> np.ndarray:
    """int8, 20 variables of 25 values each, as 500 columns of 0 and 1."""
    rng = np.random.default_rng(1)
    weight = rng.standard_normal(500)
    X = np.lib.format.open_memmap(path, "w+", np.int8, (n_samples, 500))
    y = np.empty(n_samples, np.int8)
    for start in range(0, n_samples, _PIECE):
        columns = rng.integers(0, 25, (min(_PIECE, n_samples - start), 20)) + 25 * np.arange(20)
        piece = np.zeros((len(columns), 500), np.int8)
        np.put_along_axis(piece, columns, 1, axis=1)
        X[start : start + len(piece)] = piece
        y[start : start + len(piece)] = noisy(weight[columns].sum(axis=1), rng)
    X.flush()
    return y


def noisy(score: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Signs, a tenth of them drawn anew."""
    return np.where(rng.random(len(score)) < 0.1, rng.integers(0, 2, len(score)), score > 0).astype(np.int8)


def trained(path: Path, y: np.ndarray, budget: str, tol: float, solver: str) -> dict[str, Any]:
    """One fit of a map: seconds, memory and gap."""
    X = np.load(path, mmap_mode="r")
    found = LinearSVC(C=0.01, tol=tol, memory=budget, threads=1, max_iter=10_000, solver=solver)
    clone(found).fit(X[:2000], y[:2000])  # libraries and compiled loops are loaded before memory is counted
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        wall, cpu = time.perf_counter(), time.process_time()
        with PeakMemory() as memory:
            found.fit(X, y)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    held = memory.document(parse_bytes(budget))
    return {
        "shape": X.shape,
        "bytes": X.nbytes,
        "wall": wall,
        "cpu": cpu,
        "passes": found.passes_,
        "gap": found.relative_gap_,
        "held": held["peak_anon_bytes"] - held["base_bytes"],
        "budget": held["budget_bytes"],
    }


def caged(path: Path, y: np.ndarray, budget: str, tol: float, solver: str) -> dict[str, Any]:
    """`trained` in a process of its own, which the kernel ends where it holds more.  Raises SystemExit then."""
    labels = path.with_suffix(".y.npy")
    np.save(labels, y)
    limit = str(parse_bytes(budget) + _BASE)
    fit = [
        str(Path(__file__).resolve()),
        "--fit",
        str(path),
        "--memory",
        budget,
        "--tol",
        repr(tol),
        "--solver",
        solver,
    ]
    done = subprocess.run(
        [sys.executable, str(_CAGE), limit, "--", sys.executable, *fit], capture_output=True, text=True, check=False
    )
    labels.unlink()
    if done.returncode:
        raise SystemExit(f"the fit ended with {done.returncode} under {limit} bytes\n{done.stdout}{done.stderr}")
    told, cage = {}, {}
    for line in (done.stdout + done.stderr).splitlines():
        if line.startswith("{"):
            found = json.loads(line)
            told, cage = (told, found) if "limit_bytes" in found else (found, cage)
    most = next((cage[key] for key in cage if "max_usage" in key or "peak" in key), None)
    return {**told, "caged": f"{cage['kind']} of {show_bytes(cage['limit_bytes'])}, peak {most and show_bytes(most)}"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--share", type=float, default=0.1, help="of 9,000,000 x 5 float32 and of 10,000,000 x 500 int8"
    )
    parser.add_argument("--cases", default="float32,int8")
    parser.add_argument("--memory", default="256MiB")
    parser.add_argument("--tol", type=float, default=1e-2, help="of the estimator")
    parser.add_argument("--solver", default="auto", help="of the estimator")
    parser.add_argument("--work", type=Path, default=None)
    parser.add_argument("--cage", action="store_true", help="under a limit that the kernel enforces")
    parser.add_argument("--fit", type=Path, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--smoke", action="store_true", help="a few thousand rows")
    asked = parser.parse_args()
    if asked.fit is not None:
        print(
            json.dumps(
                trained(asked.fit, np.load(asked.fit.with_suffix(".y.npy")), asked.memory, asked.tol, asked.solver)
            )
        )
        return 0
    if asked.smoke:
        asked.share, asked.memory = 1e-4, "16MiB"
    failed, summary = 0, []
    with tempfile.TemporaryDirectory(dir=asked.work) as folder:
        for name, make, n_samples in (("float32", long_rows, 9_000_000), ("int8", one_hot, 10_000_000)):
            if name not in asked.cases.split(","):
                continue
            path = Path(folder) / f"{name}.npy"
            y = make(max(int(asked.share * n_samples), 1), path)
            told = (caged if asked.cage else trained)(path, y, asked.memory, asked.tol, asked.solver)
            path.unlink()
            rows, columns = told["shape"]
            within = told["held"] <= told["budget"]
            failed += not within
            summary.append(
                f"{rows:,} x {columns} of {name}: {show_bytes(told['held'])} of {asked.memory}, "
                f"{told['cpu']:.0f} s CPU, gap {told['gap']:.1e}"
            )
            print(
                f"{name}: {rows:,} x {columns}, {show_bytes(told['bytes'])}: gap {told['gap']:.1e} proved in "
                f"{told['cpu']:.1f} s CPU, {told['wall']:.1f} s, {told['passes']:.1f} passes; anonymous memory "
                f"{show_bytes(told['held'])} of {asked.memory}{'' if within else ': TOO MUCH'}"
                f"{'; in a ' + told['caged'] if asked.cage else ''}"
            )  # fmt: skip
    print("; ".join(summary))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
