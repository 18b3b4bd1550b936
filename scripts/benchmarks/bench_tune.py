"""A search of 16 values of C in 5 folds: beside GridSearchCV in memory, and how often it reads rows that stream.

In memory, the same rows, folds and values of C by scikit-learn's GridSearchCV over LinearSVC (its defaults, and where
that says something else `dual=True`) and by `bigsvm.tune` at several tolerances, in turns, one thread each; the order
changes from round to round.  Neither fits the chosen C on all rows.  Seconds are medians, of the processor and of the
clock.  `worse` is by how much the objective of the worst of our models is above that of scikit-learn's, relative;
`better` by how much the worst of theirs is above ours.  (Below 0: not one is above.)

Streamed, a store of ten times the budget: bytes of rows that the search reads, the reading that scores held-out rows
included, in readings of the whole store; beside a fit on all rows at C = 1 and one at its largest C.  The proved gap of
each model is printed, a line for each C.

    python scripts/benchmarks/bench_tune.py --json tune.json    # or --smoke
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import sklearn
import sklearn.svm
from bench_standard import problem
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

import bigsvm
from bigsvm.store.ingest.ingest import ingest
from bigsvm.units import MIB, show_bytes

FOLDS = 5
LOSSES = ("squared_hinge", "hinge")
LEAST = 16 * MIB
"""Of memory that a fit is given, whatever the rows are."""


def unit_rows(n_samples: int, n_features: int, each: int) -> tuple[sp.csr_matrix, np.ndarray]:
    """Rows like a bag of words, of unit length, float32 with int32 indices; planted labels with noise."""
    X, y = problem(n_samples, n_features, each)
    length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)))
    X = sp.csr_matrix(sp.diags_array(1.0 / length) @ X, dtype=np.float32)
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X, y


def objective(w: np.ndarray, b: float, C: float, loss: str, X: Any, y: np.ndarray) -> float:
    """P of a model on the rows that it was trained on, as LIBLINEAR has it."""
    slack = np.maximum(0.0, 1.0 - y * (X @ w + b))
    return float(0.5 * (w @ w + b * b) + C * np.sum(slack**2 if loss == "squared_hinge" else slack))


def timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """(what it gives, processor seconds, wall seconds)."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = call()
    return found, time.process_time() - cpu, time.perf_counter() - wall


def by_grid_search(X: Any, y: np.ndarray, fold: np.ndarray, Cs: list[float], loss: str, dual: Any) -> dict[str, Any]:
    """GridSearchCV; the objectives of its models are computed outside of its time."""
    kept: list[tuple[float, np.ndarray, float]] = []

    def scored(model: Any, X: Any, y: np.ndarray) -> float:
        kept.append((model.C, model.coef_.ravel().copy(), float(model.intercept_[0])))
        return float(model.score(X, y))

    splits = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(FOLDS)]
    search = GridSearchCV(
        sklearn.svm.LinearSVC(loss=loss, dual=dual), {"C": Cs}, cv=splits, refit=False, scoring=scored
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found, cpu, wall = timed(lambda: search.fit(X, y))
    gave_up = sum(issubclass(one.category, ConvergenceWarning) for one in said)
    P = np.empty((len(Cs), FOLDS))
    for number, (C, w, b) in enumerate(kept):  # a candidate after another, each over the folds
        rows = splits[number % FOLDS][0]
        P[Cs.index(C), number % FOLDS] = objective(w, b, C, loss, X[rows], y[rows])
    scores = found.cv_results_["mean_test_score"]
    return {"cpu": cpu, "wall": wall, "P": P, "scores": scores, "said": f"{gave_up} of {P.size} gave up"}


def by_tune(X: Any, y: np.ndarray, fold: np.ndarray, Cs: list[float], loss: str, tol: float) -> dict[str, Any]:
    """`bigsvm.tune`."""
    found, cpu, wall = timed(lambda: bigsvm.tune((X, y), Cs=Cs, fold=fold, loss=loss, tol=tol, threads=1))
    P = np.array([row.objectives for row in found.rows])
    scores = np.array([row.mean("accuracy") for row in found.rows])
    gap = max(max(row.gaps) for row in found.rows)
    return {"cpu": cpu, "wall": wall, "P": P, "scores": scores, "said": f"{found.status}, largest gap {gap:.1e}"}


def in_memory(X: Any, y: np.ndarray, Cs: list[float], loss: str, tols: list[float], rounds: int) -> dict[str, Any]:
    """Medians of each, and their objectives beside one another."""
    fold = np.random.default_rng(1).permutation(len(y)) % FOLDS
    ways: dict[str, Callable[[], dict[str, Any]]] = {
        "GridSearchCV": lambda: by_grid_search(X, y, fold, Cs, loss, "auto" if loss == "squared_hinge" else True)
    }
    if loss == "squared_hinge" and X.shape[0] >= X.shape[1]:  # else `auto` says so, too
        ways["GridSearchCV, dual=True"] = lambda: by_grid_search(X, y, fold, Cs, loss, True)
    for tol in tols:
        ways[f"tune --tol {tol:g}"] = lambda tol=tol: by_tune(X, y, fold, Cs, loss, tol)  # type: ignore[misc]
        by_tune(X[: 40 * FOLDS], y[: 40 * FOLDS], fold[: 40 * FOLDS], Cs, loss, tol)  # compiled before it is timed
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in list(ways)[:: 1 if number % 2 == 0 else -1]:
            runs[name].append(ways[name]())
    table = {}
    for name, of_way in runs.items():
        last = of_way[-1]
        line: dict[str, Any] = {key: statistics.median(run[key] for run in of_way) for key in ("cpu", "wall")}
        line["said"] = last["said"]
        for other in (known for known in runs if name.startswith("tune") and not known.startswith("tune")):
            theirs, base = runs[other][-1], [run["cpu"] for run in runs[other]]
            pairs = [known / run["cpu"] for known, run in zip(base, of_way, strict=True)]
            line[f"times as fast as {other}"] = statistics.median(pairs)
            line[f"worse than {other}"] = float(np.max(last["P"] / theirs["P"] - 1.0))
            line[f"better than {other}"] = float(np.max(theirs["P"] / last["P"] - 1.0))
            line[f"accuracy beside {other}"] = float(np.max(np.abs(last["scores"] - theirs["scores"])))
        table[name] = line
    return table


def streamed(X: Any, y: np.ndarray, Cs: list[float], loss: str, times: float, work: Path) -> dict[str, Any]:
    """Bytes read, in units of the rows'."""
    store = work / f"{loss}.zarr"
    ingest((X, y), store)
    data = X.data.nbytes + X.indices.nbytes
    options: dict[str, Any] = {
        "loss": loss,
        "memory": max(int(data / times), LEAST),
        "threads": 1,
        "scratch": str(work),
    }
    found, cpu, wall = timed(lambda: bigsvm.tune(store, Cs=Cs, folds=FOLDS, **options))
    memory = found.figures["memory"]
    told: dict[str, Any] = {
        "bytes of X": data, "memory": options["memory"], "cpu": cpu, "wall": wall,
        "tune": found.figures["passes"] + 1.0,
        "held": memory["peak_anon_bytes"] - memory["base_bytes"],
        "said": f"{found.status}, {found.figures['n_models']} models by {found.figures['solver']}",
        "gaps": {f"{row.candidate.C:.4g}": row.gaps for row in found.rows},
    }  # fmt: skip
    for C in sorted({min(Cs, key=lambda C: abs(np.log(C))), max(Cs)}):
        one = bigsvm.fit(str(store), C=C, solver=found.figures["solver"], **options)
        told[f"one fit at C = {C:.4g}"] = one.figures["passes"]
        told[f"bytes of the search over those of one fit at C = {C:.4g}"] = told["tune"] / one.figures["passes"]
        one.close()
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--features", type=int, default=20_000)
    parser.add_argument("--each", type=int, default=30, help="entries of a row, before equal ones are one")
    parser.add_argument("--Cs", default="-3,1,16", help="exponents of the least and largest C, and how many")
    parser.add_argument("--tols", default="1e-3,1e-6")
    parser.add_argument("--losses", default=",".join(LOSSES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", default="memory,streamed")
    parser.add_argument("--stream-rows", type=int, default=700_000)
    parser.add_argument("--stream-features", type=int, default=4_000)
    parser.add_argument("--times", type=float, default=10.0, help="the store over the budget")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--work", type=Path, default=None)
    parser.add_argument("--smoke", action="store_true", help="a small problem")
    asked = parser.parse_args()
    if asked.smoke:
        asked.rows, asked.features, asked.each, asked.Cs, asked.rounds, asked.tols = 300, 40, 6, "-1,0,2", 1, "1e-3"
        asked.losses, asked.parts = "hinge", "memory"
    low, high, number = (float(part) for part in asked.Cs.split(","))
    Cs = np.logspace(low, high, int(number)).tolist()
    told: dict[str, Any] = {"scikit-learn": sklearn.__version__, "Cs": Cs, "folds": FOLDS}
    if "memory" in asked.parts.split(","):
        X, y = unit_rows(asked.rows, asked.features, asked.each)
        told["memory"] = {"shape": list(X.shape), "entries": int(X.nnz)}
        for loss in asked.losses.split(","):
            tols = [float(tol) for tol in asked.tols.split(",")]
            told["memory"][loss] = in_memory(X, y, Cs, loss, tols, asked.rounds)
            print(f"{loss}, {X.shape[0]:,} x {X.shape[1]:,} in memory, {len(Cs)} values of C, {FOLDS} folds")
            for name, line in told["memory"][loss].items():
                print(f"  {name}: {line['cpu']:.2f} s CPU, {line['wall']:.2f} s; {line['said']}")
                for key in (key for key in line if key not in ("cpu", "wall", "said")):
                    print(f"    {key}: {line[key]:.3g}")
    if "streamed" in asked.parts.split(","):
        X, y = unit_rows(asked.stream_rows, asked.stream_features, asked.each)
        told["streamed"] = {"shape": list(X.shape), "entries": int(X.nnz)}
        for loss in asked.losses.split(","):
            with tempfile.TemporaryDirectory(dir=asked.work) as folder:
                found = streamed(X, y, Cs, loss, asked.times, Path(folder))
            told["streamed"][loss] = found
            print(f"{loss}, {X.shape[0]:,} x {X.shape[1]:,}, {show_bytes(found['bytes of X'])} on disk")
            for key in (key for key in found if key not in ("bytes of X", "gaps")):
                shown = found[key] if isinstance(found[key], str) else f"{found[key]:.4g}"
                print(f"  {key}: {shown}")
            for C, gaps in found["gaps"].items():
                print(f"  gaps at C = {C}: {' '.join(f'{gap:.1e}' for gap in gaps)}")
    if asked.json is not None:
        asked.json.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
