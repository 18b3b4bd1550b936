"""Rosenbrock's method, coordinate descent and SSVM: accuracy and seconds, step lengths, iterations to a precision.

Liu, Liu and Gu, Control and Decision 24(12), 2009: 4/5 of the rows train, 1/5 test, C, eps1 and eps2 by 5-fold
cross-validation on the training rows.  They show one split; here are that many splits as the options say.
"""

from __future__ import annotations

import itertools
import math
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from bench.machine_speed import machine_speed

import bigsvm
from reproduction.journal import Journal
from reproduction.sets import DataSet
from reproduction.stepper import Stepper

TITLE = "Rosenbrock's method in the primal (Liu, Liu, Gu 2009)"
METHODS = {"rosenbrock": "R", "cd": "CD", "ssvm": "SSVM", "newton": "exact optimum"}
PAPER: dict[str, dict[str, tuple[float, float, float, float, float]]] = {
    "diabetes": {
        "rosenbrock": (0.1, 2, 1, 75.817, 2.625), "cd": (0.1, 0.1, 0.1, 75.817, 4.047),
        "ssvm": (0.1, 1, 0.1, 73.203, 6.923),
    },
    "balance": {
        "rosenbrock": (0.1, 1, 1, 96.0, 1.469), "cd": (0.01, 0.1, 0.1, 92.0, 1.985),
        "ssvm": (0.01, 0.01, 0.1, 91.726, 5.107),
    },
    "heart": {
        "rosenbrock": (0.0001, 0.1, 0.001, 85.185, 0.125), "cd": (0.1, 0.1, 0.1, 83.333, 0.719),
        "ssvm": (0.01, 0.1, 0.01, 81.481, 1.807),
    },
    "monks": {
        "rosenbrock": (0.001, 5, 0.01, 72.093, 0.042), "cd": (0.0001, 0.1, 0.1, 70.930, 0.125),
        "ssvm": (0.001, 0.1, 0.01, 65.116, 3.520),
    },
}  # fmt: skip
"""C, eps1, eps2, test accuracy in percent, seconds; which line of the paper is whose follows from their order."""
SIZES = {"diabetes": (766, 9), "balance": (625, 5), "heart": (270, 14), "monks": (429, 7)}
"""Rows, and columns with the bias."""
COSTS = tuple(10.0**k for k in range(-4, 2))
RULES = (0.01, 0.1, 1.0, 5.0)  # eps1
SEARCHES = (0.01, 0.1, 1.0)  # eps2
LIMIT = 100  # outer iterations
PRECISIONS = (1e-2, 1e-4, 1e-8)
_TOGETHER: dict[str, Any] = {"start": "ones", "line_search": "newton"}


@dataclass(frozen=True)
class Protocol:
    """How much of it to do."""

    splits: int = 20
    folds: int = 5
    costs: tuple[float, ...] = COSTS
    searches: tuple[float, ...] = SEARCHES


class Walk(NamedTuple):
    """One run: after each outer iteration what the stop rule looks at, w, and the seconds so far."""

    norms: list[float]
    points: list[np.ndarray]
    seconds: list[float]

    def stopped(self, eps1: float) -> int:
        """The iteration in which the rule is met; the last one where it never was."""
        return next((k for k, norm in enumerate(self.norms) if norm < eps1), len(self.norms) - 1)


def run(sets: list[DataSet], protocol: Protocol, journal: Journal, say: Callable[[str], None]) -> dict[str, Any]:
    """All that the report says, as JSON; each part goes through the journal."""
    accuracy, paper = [], []
    for data in sets:
        for method, label in METHODS.items():
            at = f"{data.name}/{method}"
            one = journal(f"accuracy/{at}", lambda data=data, method=method: accuracy_of(data, method, protocol))
            own = journal(f"paper/{at}", lambda data=data, method=method: at_paper(data, method, protocol))
            accuracy.append(one)
            paper += [own] if own else []
            say(f"{data.name}, {label}: {one['accuracy']['mean']:.2f} %")
    names = ("balance, L and R", "diabetes", "heart")
    shown = [data for name in names for data in sets if data.name == name] or sets[:1]
    with tempfile.TemporaryDirectory(prefix="reproduce-") as empty:
        speed = machine_speed(Path(empty))
    return {
        "splits": protocol.splits, "folds": protocol.folds, "costs": list(protocol.costs),
        "eps1": list(RULES), "eps2": list(protocol.searches), "limit": LIMIT,
        "machine": {"gather_ns": speed.gather_ns, "memory_gb_s": speed.memory_gb_s},
        "sets": [{"name": s.name, "rows": len(s.y), "columns": s.X.shape[1] + 1, "about": s.about} for s in sets],
        "accuracy": accuracy, "at_paper": paper,
        "iterations": [
            journal(f"iterations/{data.name}/{C:g}", lambda data=data, C=C: iterations_of(data, C))
            for data in sets for C in (0.1, 10.0)
        ],
        "steps": [journal(f"steps/{data.name}", lambda data=data: steps_of(data)) for data in shown],
        "monks": [
            journal(f"monks/{data.name}", lambda data=data: monks_of(data))
            for data in sets if data.name.startswith("monks")
        ],
    }  # fmt: skip


def accuracy_of(data: DataSet, method: str, protocol: Protocol) -> dict[str, Any]:
    """Test accuracy of `method` over the splits, each with its own choice of C, eps1 and eps2."""
    walk(data.X, data.y, method, 1.0, 0.1, 1.0)  # compiles
    found = []
    for split in range(protocol.splits):
        train, test = split_of(len(data.y), split)
        C, eps1, eps2 = chosen(data.X[train], data.y[train], method, protocol, split)
        path = walk(data.X[train], data.y[train], method, C, eps2, eps1)
        k = path.stopped(eps1)
        right = correct(data.X[test], data.y[test], path.points[k])
        found.append((100.0 * right / len(test), path.seconds[k], k + 1, C, eps1, eps2))
    accuracies, seconds, iterations = (np.array([one[k] for one in found]) for k in range(3))
    return {
        "set": data.name, "method": method,
        "accuracy": {
            "first": found[0][0], "mean": accuracies.mean(), "sd": accuracies.std(ddof=1) if len(found) > 1 else 0.0,
            "all": accuracies.tolist(),
        },
        "chosen": {"C": found[0][3], "eps1": found[0][4], "eps2": found[0][5]},
        "seconds": float(np.median(seconds)), "iterations": float(np.median(iterations)),
        "test_rows": len(split_of(len(data.y), 0)[1]),
    }  # fmt: skip


def kind_of(name: str) -> str:
    """The paper's set of one of ours."""
    return name.split(",")[0].split("-")[0]


def at_paper(data: DataSet, method: str, protocol: Protocol) -> dict[str, Any] | None:
    """Test accuracy with the paper's own C, eps1 and eps2; None of methods that it does not have.

    seconds : of the solver's steps;  call_seconds : of `bigsvm.fit` with the same options, which checks the rows,
        chooses, plans, proves the gap and makes the model
    """
    published = PAPER.get(kind_of(data.name), {}).get(method)
    if published is None:
        return None
    C, eps1, eps2, *_ = published
    own = {**_TOGETHER, "eps2": eps2} if method in ("rosenbrock", "cd") else {}
    options: dict[str, Any] = {"solver": method, "loss": "squared_hinge", "C": C, "stop": "paper", "max_passes": LIMIT}
    found = []
    for split in range(protocol.splits):
        train, test = split_of(len(data.y), split)
        X, y = data.X[train], data.y[train]
        path = walk(X, y, method, C, eps2, eps1)
        k = path.stopped(eps1)
        began = time.process_time()
        bigsvm.fit((X, y), solver_options={**own, "eps1": eps1}, **options)
        call = time.process_time() - began
        right = correct(data.X[test], data.y[test], path.points[k])
        found.append((100.0 * right / len(test), k + 1, path.norms[k] < eps1, path.seconds[k], call))
    accuracies, iterations, met, seconds, calls = (np.array(column) for column in zip(*found, strict=True))
    return {
        "set": data.name, "method": method, "C": C, "eps1": eps1, "eps2": eps2,
        "accuracy": {
            "first": accuracies[0], "mean": accuracies.mean(), "sd": accuracies.std(ddof=1), "all": accuracies.tolist(),
        },
        "iterations": float(np.median(iterations)), "met": int(met.sum()),
        "seconds": float(np.median(seconds)), "call_seconds": float(np.median(calls)),
    }  # fmt: skip


def split_of(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Training and test rows, 4/5 and 1/5 (rounded down)."""
    order = np.random.default_rng(seed).permutation(n)
    return order[n // 5 :], order[: n // 5]


def chosen(X: np.ndarray, y: np.ndarray, method: str, protocol: Protocol, seed: int) -> tuple[float, float, float]:
    """(C, eps1, eps2) of the best cross-validation; of equals the smallest C, then the loosest rules."""
    order = np.random.default_rng([seed, 1]).permutation(len(y))
    folds = np.array_split(order, protocol.folds)
    searches = protocol.searches if method in ("rosenbrock", "cd") else protocol.searches[:1]
    rules = RULES if method != "newton" else RULES[:1]
    right: dict[tuple[float, float, float], int] = {}
    for C, eps2 in itertools.product(protocol.costs, searches):
        for fold in folds:
            kept = np.setdiff1d(order, fold)
            path = walk(X[kept], y[kept], method, C, eps2, min(rules))
            for eps1 in rules:  # a looser rule ends the same run earlier
                hits = correct(X[fold], y[fold], path.points[path.stopped(eps1)])
                right[C, eps1, eps2] = right.get((C, eps1, eps2), 0) + hits
    return min(right, key=lambda key: (-right[key], key[0], -key[1], -key[2]))


def walk(
    X: np.ndarray, y: np.ndarray, method: str, C: float, eps2: float, eps1: float, limit: int = LIMIT, **options: Any
) -> Walk:
    """Run `method` until its rule is met: ||w_{k+1} - w_k|| < eps1, of SSVM the norm of its gradient."""
    path = Walk([], [], [])
    own = {**_TOGETHER, "eps2": eps2, **options} if method in ("rosenbrock", "cd") else {}
    if method == "newton":
        eps1 = 1e-9
    with Stepper(X, y, method, loss="squared_hinge", C=C, tol=1e-12, set=own) as run:
        former = np.ones(X.shape[1] + 1) if own.get("start") == "ones" else None
        while len(path.norms) < limit:
            before = run.state.iteration
            run.step()
            if former is not None and run.state.iteration == before:
                continue  # it has only looked at where it starts
            w = run.w
            if method == "ssvm":
                norm = float(np.linalg.norm(run.state.gradient))
            else:
                norm = math.inf if former is None else float(np.linalg.norm(w - former))
            former = w
            path.norms.append(norm)
            path.points.append(w)
            path.seconds.append(run.seconds)
            if norm < eps1:
                break
    return path


def correct(X: np.ndarray, y: np.ndarray, w: np.ndarray) -> int:
    """Rows on the right side."""
    return int(np.sum(np.where(X @ w[:-1] + w[-1] >= 0.0, 1.0, -1.0) == y))


def objective(X: np.ndarray, y: np.ndarray, w: np.ndarray, C: float) -> float:
    """f(w) = 1/2 ||w||^2 + C sum max(0, s)^2, bias included."""
    s = np.maximum(0.0, 1.0 - y * (X @ w[:-1] + w[-1]))
    return float(0.5 * (w @ w) + C * (s @ s))


def iterations_of(data: DataSet, C: float) -> dict[str, Any]:
    """Outer iterations to relative errors of f, exact line search, from ones: the paper's claim without its rules."""
    exact = walk(data.X, data.y, "newton", C, 0.1, 0.0, limit=60)
    best = min(objective(data.X, data.y, w, C) for w in exact.points)
    found: dict[str, list[int | None]] = {}
    for method in ("rosenbrock", "cd"):
        path = walk(data.X, data.y, method, C, 0.1, 1e-12, limit=1000, line_search="exact")
        errors = [objective(data.X, data.y, w, C) / best - 1.0 for w in path.points]
        found[method] = [_first(errors, precision) for precision in PRECISIONS]
    return {"set": data.name, "C": C, "optimum": best, **found}


def steps_of(data: DataSet) -> dict[str, Any]:
    """||w_{k+1} - w_k|| against seconds: with the paper's C, eps2 and search, and with exact searches at one C."""
    published = PAPER.get(kind_of(data.name), PAPER["heart"])
    lines = {}
    for method in ("rosenbrock", "cd"):
        C, _, eps2, *_ = published[method]
        walk(data.X, data.y, method, C, eps2, 0.0, limit=3)
        lines[method] = _line(data, method, C, eps2=eps2, line_search="newton")
        lines[f"{method}, exact"] = _line(data, method, 0.1, eps2=0.1, line_search="exact")
    return {"set": data.name, "lines": lines}


def _line(data: DataSet, method: str, C: float, eps2: float, line_search: str) -> dict[str, Any]:
    path = walk(data.X, data.y, method, C, eps2, 1e-9, limit=60, line_search=line_search)
    return {"method": method, "C": C, "eps2": eps2, "norms": path.norms, "seconds": path.seconds}


def monks_of(data: DataSet) -> dict[str, Any]:
    """The first steps with the paper's C and eps2: it says that they are 0 after one outer iteration."""
    found = {}
    for method in ("rosenbrock", "cd"):
        C, _, eps2, *_ = PAPER["monks"][method]
        found[method] = walk(data.X, data.y, method, C, eps2, 1e-9, limit=4).norms
    return {"set": data.name, **found}


def _first(errors: Iterable[float], precision: float) -> int | None:
    return next((k + 1 for k, error in enumerate(errors) if error <= precision), None)
