"""WSS-WR, which selects a variable once at most, beside WSS3, and WSS3 stopped after as many steps.

Kernel machines by SMO, docs/mathematics.md 8.1 to 8.3: accuracy of cross-validation over a grid of parameters, time
and steps of parameter selection and of final training with large and small caches, with and without shrinking; large
sets.  The grid is thinned, but for a full one on some sets (`FULL`).  `wss_ways.py` has what happens on the way.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from reproduction.journal import Journal
from reproduction.sets import DataSet, sampled
from reproduction.wss_paper import KERNELS
from reproduction.wss_summary import RULES, gaps, refreshed, summary
from reproduction.wss_summary import large as large_summary
from reproduction.wss_train import (
    ComputedRows,
    Point,
    Run,
    cut,
    kept,
    matrix_of,
    picked,
    train,
    weighed,
    whole_matrix,
)

TITLE = "Working set selection without reselection (WSS-WR)"
GRIDS: dict[str, tuple[tuple[int, int, int], tuple[int, int, int] | None]] = {
    "rbf": ((-5, 15, 2), (3, -15, -2)),
    "linear": ((-3, 5, 2), None),
    "poly": ((-3, 5, 2), (-5, -1, 1)),
    "sigmoid": ((-3, 12, 3), (-12, 3, 3)),
}
"""log2 of C and gamma: first, last, step."""
REGRESSION_COSTS = {"rbf": (-1, 15, 2)}
REGRESSION_EPSILONS = (-8, -1, 3)
SETTINGS = {"100 MB, shrinking": (100e6, True), "100 MB": (100e6, False), "100 KB, shrinking": (100e3, True),
            "100 KB": (100e3, False)}  # fmt: skip
LARGE_SETTINGS = {"300 MB, shrinking": (300e6, True), "300 MB": (300e6, False), "1 MB": (1e6, False)}
LARGE = {"rbf": ((0, 3), (-5, -2)), "sigmoid": ((0, 3), (-10, -7))}
"""log2 of C and gamma of the large sets: the paper does not say its 16 points."""
FULL = ("heart", "breast-cancer")
"""Sets on which the full grid is run, all folds with every cache, where none are named."""
_REPEATS = 4


@dataclass(frozen=True)
class Protocol:
    """How much of it to do.

    folds : of cross-validation;  timed : how many of them are trained with every cache, for the ratios of time
    every : of the grid, in each direction;  limit : steps of a training
    large_rows : random rows of each large set, whose caches are then as much smaller as K is
    """

    folds: int = 5
    timed: int = 1
    every: int = 2
    limit: int = 50_000
    large_rows: int = 10_000
    kernels: tuple[str, ...] = KERNELS


class Study:
    """One run: everything goes through the journal."""

    def __init__(self, protocol: Protocol, journal: Journal, say: Callable[[str], None]) -> None:
        self.protocol, self.journal, self._say = protocol, journal, say

    def small(self, data: DataSet, regression: bool) -> list[dict[str, Any]]:
        """All kernels on a small set."""
        found = []
        for kernel in self.protocol.kernels:
            points = list(grid(kernel, self.protocol.every, data.X.shape[1], regression))
            selection = [self._selection(data, kernel, point, regression) for point in points]
            best = {rule: points[chosen(selection, rule, regression)] for rule in (*RULES, "limited")}
            final = {rule: self.final(data, kernel, best[rule], rule, regression) for rule in RULES}
            found.append({
                "set": data.name, "kernel": kernel, "regression": regression, "points": [list(p) for p in points],
                "selection": selection, "best": {rule: list(point) for rule, point in best.items()}, "final": final,
            })  # fmt: skip
            scores = ", ".join(f"{rule} {best_score(selection, rule, regression):.3f}" for rule in best)
            self._say(f"{data.name}, {kernel}: {scores}")
        return found

    def large(self, whole: DataSet) -> list[dict[str, Any]]:
        """Four grid points of two kernels on a large set."""
        found = []
        data = sampled(whole, self.protocol.large_rows)
        share = (len(data.y) / len(whole.y)) ** 2
        for kernel, (costs, gammas) in LARGE.items():
            for log_C, log_gamma in itertools.product(costs, gammas):
                point = Point(2.0**log_C, 2.0**log_gamma)
                result = self.journal(
                    f"large/{data.name}/{kernel}/{log_C}/{log_gamma}",
                    lambda kernel=kernel, point=point: self._large_point(data, kernel, point, share),
                )
                found.append({"set": whole.name, "rows": len(data.y), "kernel": kernel, "point": list(point), **result})
                self._say(f"{data.name}, {kernel}, {point.C:g}, {point.gamma:g}")
        return found

    def _selection(self, data: DataSet, kernel: str, point: Point, regression: bool) -> dict[str, Any]:
        key = f"selection/{data.name}/{kernel}/{'/'.join(f'{v:g}' for v in point)}"
        return self.journal(key, lambda: self._select(data, kernel, point, regression))

    def _select(self, data: DataSet, kernel: str, point: Point, regression: bool) -> dict[str, Any]:
        """One grid point: trainings on all folds from a matrix of K, on some with caches."""
        of, convex = point.kernel(kernel), point.kernel(kernel).positive_semidefinite
        limit = self.protocol.limit
        X = matrix_of(data.X)
        K = whole_matrix(X, of)
        found: dict[str, Any] = {"score": dict.fromkeys((*RULES, "limited"), 0.0), "runs": [], "timed": []}
        for number, test in enumerate(folds_of(data.y, self.protocol.folds)):
            kept_rows = np.setdiff1d(np.arange(len(data.y)), test)
            y, rows = data.y[kept_rows], cut(K, kept_rows)
            fold: dict[str, Any] = {}
            for rule in (*RULES, "limited"):
                most = limit if rule != "limited" else min(fold["wr"]["iterations"], limit)
                run = train(rows, y, point, "3" if rule == "limited" else rule, most, regression=regression)
                found["score"][rule] += score(run, K[np.ix_(test, kept_rows)], data.y[test], regression) / len(data.y)
                fold[rule] = weighed(run, convex)
            found["runs"].append(fold)
            if number < self.protocol.timed:
                inner = picked(X, kept_rows)
                found["timed"].append({
                    rule: {name: self._timed(inner, y, of, point, rule, setting, regression)
                           for name, setting in SETTINGS.items()}
                    for rule in RULES
                })  # fmt: skip
        return found

    def _timed(
        self, X: Any, y: np.ndarray, kernel: Any, point: Point, rule: str, setting: tuple[float, bool], regression: bool
    ) -> list[float]:
        """[seconds, steps, rows computed, rows found] with a cache of so many bytes."""
        memory, shrinking = setting
        rows = kept(X, kernel, memory)
        run = train(rows, y, point, rule, self.protocol.limit, shrinking=shrinking, regression=regression)
        return [run.seconds, run.iterations, rows.counts.computed, rows.counts.ram_hits]

    def final(self, data: DataSet, kernel: str, point: Point, rule: str, regression: bool) -> dict[str, Any]:
        """Training on all rows with the best point: of four runs with each cache the median of the seconds."""

        def work() -> dict[str, Any]:
            X, of = matrix_of(data.X), point.kernel(kernel)
            found: dict[str, Any] = {}
            for name, setting in SETTINGS.items():
                runs = [self._timed(X, data.y, of, point, rule, setting, regression) for _ in range(_REPEATS)]
                found[name] = [float(np.median([run[0] for run in runs])), *runs[0][1:]]
            return found

        return self.journal(f"final, median/{data.name}/{kernel}/{rule}", work)

    def _large_point(self, data: DataSet, kernel: str, point: Point, share: float) -> dict[str, Any]:
        X, of = matrix_of(data.X), point.kernel(kernel)
        found: dict[str, Any] = {}
        for name, (memory, shrinking) in LARGE_SETTINGS.items():
            found[name] = {}
            for rule in RULES:
                rows = kept(X, of, share * memory)
                run = train(rows, data.y, point, rule, self.protocol.limit, shrinking=shrinking)
                counts = [rows.counts.computed, rows.counts.ram_hits]
                found[name][rule] = {**weighed(run, of.positive_semidefinite), "rows": counts}
        most = found["300 MB"]["wr"]["iterations"]
        limited = train(kept(X, of, share * 300e6), data.y, point, "3", most)
        found["limited"] = weighed(limited, of.positive_semidefinite)
        return found


def run(
    sets: list[DataSet],
    targets: list[DataSet],
    large: list[DataSet],
    protocol: Protocol,
    journal: Journal,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """All that the report says, as JSON."""
    study = Study(protocol, journal, say)
    compile_for([*sets, *large])
    small = [one for data in sets for one in study.small(data, regression=False)]
    small += [one for data in targets for one in study.small(data, regression=True)]
    return {
        "protocol": asdict(protocol),
        "sets": [about(data) for data in (*sets, *targets, *large)],
        "small": [summary(one, protocol.limit) for one in small],
        "gaps": gaps(small),
        "large": [large_summary(one) for data in large for one in study.large(data)],
    }  # fmt: skip


def run_kept(
    found: dict[str, Any],
    sets: list[DataSet],
    targets: list[DataSet],
    journal: Journal,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """`found` with final trainings done anew, and with the sets that it lacks; all else is kept."""
    protocol = Protocol(**{**found["protocol"], "kernels": tuple(found["protocol"]["kernels"])})
    study = Study(protocol, journal, say)
    compile_for(sets)
    by_name = {data.name: data for data in (*sets, *targets)}
    small = []
    for one in found["small"]:
        final = {
            rule: study.final(by_name[one["set"]], one["kernel"], Point(*one["best"][rule]["point"]), rule,
                              one["regression"])
            for rule in RULES
        }  # fmt: skip
        small.append(refreshed(one, final))
        say(f"{one['set']}, {one['kernel']}: final trainings")
    new = [data for data in targets if data.name not in {one["set"] for one in small}]
    small += [summary(one, protocol.limit) for data in new for one in study.small(data, regression=True)]
    known = [one for one in found["sets"] if one["name"] not in {data.name for data in new}]
    return {**found, "sets": [*known, *map(about, new)], "small": small}


def about(data: DataSet) -> dict[str, Any]:
    """What is said of a set."""
    return {"name": data.name, "rows": len(data.y), "columns": data.X.shape[1], "about": data.about}


def grid(kernel: str, every: int, n_features: int, regression: bool) -> Iterator[Point]:
    """Every so many-th point of the paper's grid in each direction."""
    costs, gammas = GRIDS[kernel]
    if regression:
        costs = REGRESSION_COSTS.get(kernel, costs)
    log_gammas = [None] if gammas is None else _steps(gammas)[::every]
    epsilons = [2.0**e for e in _steps(REGRESSION_EPSILONS)[::every]] if regression else [0.0]
    if regression and kernel == "sigmoid":
        log_gammas = [-np.log2(n_features)]
    for C, gamma, epsilon in itertools.product(_steps(costs)[::every], log_gammas, epsilons):
        yield Point(2.0**C, 0.0 if gamma is None else float(2.0**gamma), epsilon)


def _steps(of: tuple[int, int, int]) -> list[int]:
    first, last, step = of
    return list(range(first, last + (1 if step > 0 else -1), step))


def folds_of(y: np.ndarray, folds: int) -> list[np.ndarray]:
    """Random folds, the same for all."""
    return np.array_split(np.random.default_rng([7, len(y)]).permutation(len(y)), folds)


def score(run: Run, K: np.ndarray, y: np.ndarray, regression: bool) -> float:
    """Of test rows: 100 times those on the right side, or the sum of squared errors."""
    bias = run.proof()[3]
    f = K.astype(np.float64) @ run.qp.beta + bias
    return float(np.sum((f - y) ** 2)) if regression else 100.0 * float(np.sum(np.where(f >= 0.0, 1.0, -1.0) == y))


def best_score(selection: list[dict[str, Any]], rule: str, regression: bool) -> float:
    """The best score of a rule over the grid."""
    return float(selection[chosen(selection, rule, regression)]["score"][rule])


def chosen(selection: list[dict[str, Any]], rule: str, regression: bool) -> int:
    """Number of the best point, the first of equals."""
    scores = [one["score"][rule] for one in selection]
    return int(np.argmin(scores) if regression else np.argmax(scores))


def compile_for(sets: list[DataSet]) -> None:
    """Compile for each kind of matrix before a clock runs."""
    for data in sets[:1] + sets[-1:] + [s for s in sets if not isinstance(s.X, np.ndarray)][:1]:
        X = matrix_of(data.X)
        for name in KERNELS:
            rows = ComputedRows(X, Point(1.0, 0.1).kernel(name))
            for rule in RULES:
                train(rows, data.y, Point(1.0, 0.1), rule, 5, shrinking=True)
    few = cut(np.eye(4, dtype=np.float32), np.arange(4))
    for rule in RULES:
        train(few, np.array([1.0, -1.0, 1.0, -1.0]), Point(1.0), rule, 5, shrinking=True)
