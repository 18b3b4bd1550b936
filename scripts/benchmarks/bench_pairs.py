#!/usr/bin/env python3
"""Ten classes with a kernel: bigsvm on rows that stream, all pairs of classes on the same readings, beside SVC.

mnist (60,000 x 784, dense float32, divided by 255), rbf with gamma 0.02, C = 10.  bigsvm has --memory, in which the
rows do not fit, and goes on until a gap of 1e-3 is proved.  scikit-learn's SVC has all memory, and its own rule, a
violation of 1e-3; it gets the rows dense and sparse, since which is faster depends on the set.  Each is one thread of
a process of its own; loading and compiling are left out.  CPU seconds count: they depend less than the clock on what
else runs.

    scripts/benchmarks/bench_pairs.py --data-dir ../shared/data --figures docs/figures/pairs.json
    scripts/benchmarks/bench_pairs.py --smoke                              seconds, on made-up data
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from bench.problems import open_problem
from bench.record import write_figures
from scipy import sparse

_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_C, _GAMMA = 10.0, 0.02
_COMPARED = 1000  # rows whose predictions are compared


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data-dir", type=Path, default=_BESIDE, help="folder of the real sets, with load.py [%(default)s]")
    add("--rows", type=int, help="the first so many rows [all]")
    add("--memory", default="256MiB", help="budget of bigsvm [%(default)s]")
    add("--work", type=Path, help="folder for store and scratch, on a disk; a temporary one by default")
    add("--figures", type=Path, help="file of docs/figures: what docs are made of")
    add("--smoke", action="store_true", help="a few seconds, on made-up data, to see that it works")
    add("--one", choices=list(RUNS), help=argparse.SUPPRESS)
    return parser.parse_args()


def rows_of(asked: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """X, dense float32, and y."""
    if asked.smoke:
        rng = np.random.default_rng(1)
        y = np.repeat(np.arange(3), 100)
        return (y[:, None] + rng.standard_normal((300, 4))).astype(np.float32), y
    spec = importlib.util.spec_from_file_location("load", asked.data_dir / "load.py")
    assert spec is not None
    assert spec.loader is not None
    loader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loader)
    X, y = loader.load("mnist")
    return (sparse.csr_matrix(X)[: asked.rows] / 255.0).astype(np.float32).toarray(), np.asarray(y)[: asked.rows]


def by_bigsvm(asked: argparse.Namespace) -> dict[str, Any]:
    """All pairs on the same readings."""
    import bigsvm
    from bigsvm.events import Event, FitStarted

    modes: list[str] = []

    def watch(event: Event) -> None:
        if isinstance(event, FitStarted):
            modes.append(event.plan["mode"])

    store = str(asked.work / "pairs" / "store.zarr")
    options = {"kernel": "rbf", "gamma": _GAMMA, "loss": "hinge", "bias": "free", "C": _C, "tol": 1e-3, "threads": 1}
    began = time.process_time()
    result = bigsvm.fit(store, emit=watch, memory=asked.memory, scratch=str(asked.work), **options)
    cpu, clock = time.process_time() - began, result.seconds
    X, _ = rows_of(asked)
    said = np.asarray(result.model.predict(X[:_COMPARED]))
    return {
        "status": result.status, "mode": modes[-1], "passes": result.figures["passes"], "cpu_seconds": cpu,
        "seconds": clock["solving"] + clock["certify"], "gap": result.certificate.relative_gap,
        "used_bytes": result.memory["peak_anon_bytes"] - result.memory["base_bytes"], "said": said.tolist(),
    }  # fmt: skip


def by_svc(asked: argparse.Namespace) -> dict[str, Any]:
    """scikit-learn's SVC on float64 rows, with a cache of 4 GB."""
    from sklearn.svm import SVC

    X, y = rows_of(asked)
    rows = X.astype(np.float64) if asked.one == "SVC, dense rows" else sparse.csr_matrix(X.astype(np.float64))
    cpu, clock = time.process_time(), time.perf_counter()
    model = SVC(C=_C, kernel="rbf", gamma=_GAMMA, tol=1e-3, cache_size=4000).fit(rows, y)
    cpu, clock = time.process_time() - cpu, time.perf_counter() - clock
    said = model.predict(rows[:_COMPARED])
    return {"cpu_seconds": cpu, "seconds": clock, "support": int(model.n_support_.sum()), "said": said.tolist()}


RUNS = {"bigsvm": by_bigsvm, "SVC, dense rows": by_svc, "SVC, sparse rows": by_svc}


def measure(name: str, asked: argparse.Namespace) -> dict[str, Any]:
    """One of them, in a process of its own with one thread."""
    given = [word for word in sys.argv[1:] if word != "--smoke"] + ["--smoke"] * asked.smoke
    done = subprocess.run(
        [sys.executable, __file__, *given, "--one", name, "--work", str(asked.work)], check=True,
        stdout=subprocess.PIPE, env={**os.environ, **dict.fromkeys(_THREADS, "1")}, text=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Measure both, and say how they compare."""
    asked = parse()
    if asked.one:
        sys.stdout.write(json.dumps(RUNS[asked.one](asked)) + "\n")
        return
    with tempfile.TemporaryDirectory(prefix="bench-pairs-", dir=asked.work) as folder:
        asked.work = Path(folder).resolve()
        X, y = rows_of(asked)
        np.save(asked.work / "X.npy", X)
        np.save(asked.work / "y.npy", y)
        open_problem(asked.work, "pairs", asked.work)
        rows: list[dict[str, Any]] = []
        ours: list[Any] = []
        for name in RUNS:
            rows.append({"solver": name, **measure(name, asked)})
            said = rows[-1].pop("said")
            ours = said if name == "bigsvm" else ours
            rows[-1]["alike"] = float(np.mean([a == b for a, b in zip(ours, said, strict=True)]))
            sys.stdout.write(json.dumps(rows[-1]) + "\n")
            if asked.figures:
                shape = {"n_samples": len(y), "n_features": X.shape[1], "classes": len(np.unique(y))}
                write_figures(asked.figures, rows, memory=asked.memory, **shape)


if __name__ == "__main__":
    main()
