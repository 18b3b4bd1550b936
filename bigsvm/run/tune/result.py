"""The result of a search: each candidate with its held-out scores and gaps, and the chosen one."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.errors import DataError, MissingInput
from bigsvm.files.sealed_json import read_sealed
from bigsvm.run.fit.outcome import FitResult, exit_code
from bigsvm.run.tune.folder import FOUND
from bigsvm.run.tune.folds import Folds
from bigsvm.run.tune.grid import Candidate
from bigsvm.run.tune.held_out import LESS_IS_BETTER
from bigsvm.run.tune.train import Cell, Trained
from bigsvm.units import counted

RANKED = ("roc_auc", "average_precision")
"""The metrics that depend on the order of all scores."""


@dataclass(frozen=True)
class Row:
    """A candidate with its results.

    scores : metric -> one value for each fold; None if the rows of the fold do not define it
    gaps, objectives : of the model of each fold;  statuses : how the fit of each fold ended
    binned : whether ROC AUC and average precision are from binned scores; None for a regression
    """

    candidate: Candidate
    scores: dict[str, list[float | None]]
    gaps: list[float]
    objectives: list[float]
    statuses: list[str]
    binned: bool | None = None

    def mean(self, metric: str) -> float | None:
        """Mean over the folds; None if a fold has no value."""
        values = self.scores[metric]
        there = [value for value in values if value is not None]
        return math.fsum(there) / len(there) if len(there) == len(values) else None

    def error(self, metric: str) -> float | None:
        """Standard error of the mean: standard deviation over the folds, divided by the square root of their number."""
        mean, values = self.mean(metric), self.scores[metric]
        if mean is None or len(values) < 2:
            return None
        spread = math.fsum((value - mean) ** 2 for value in values if value is not None)
        return math.sqrt(spread / (len(values) - 1) / len(values))

    def is_rough(self, metric: str) -> bool:
        """Whether the values of a metric are from binned scores: those of metrics that rank the rows."""
        return bool(self.binned) and metric in RANKED

    @property
    def status(self) -> str:
        """'converged' if the models of all folds converged; else the status of the first that did not."""
        return next((status for status in self.statuses if status != "converged"), "converged")

    def document(self) -> dict[str, Any]:
        """The row as JSON."""
        return {
            **self.candidate.document(),
            "status": self.status,
            "relative_gap": max(self.gaps),
            **({} if self.binned is None else {"binned": self.binned}),
            "scores": {
                metric: {"mean": self.mean(metric), "standard_error": self.error(metric), "folds": values}
                for metric, values in self.scores.items()
            },
            "models": [
                {"fold": fold, "status": status, "objective": objective, "relative_gap": gap}
                for fold, (status, objective, gap) in enumerate(
                    zip(self.statuses, self.objectives, self.gaps, strict=True)
                )
            ],
        }


@dataclass(repr=False)
class TuneResult:
    """Result of `bigsvm.tune`.

    rows : one for each candidate, in the order of the grid
    metric : the metric by which candidates are compared
    best : index of the row with the best mean
    one_se : index of the row with the smallest C (then gamma) whose mean is within one standard error of the best
    chosen : one of these two indices, as asked for
    refit : FitResult on all rows with the chosen candidate, if that was asked for
    """

    rows: list[Row]
    metric: str
    folds: Folds
    fold_sizes: list[int]
    best: int
    one_se: int
    chosen: int
    figures: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    refit: FitResult | None = None

    def __repr__(self) -> str:
        row = self.rows[self.chosen]
        n = counted(len(self.rows), "candidate")
        return f"TuneResult({n}, {self.metric} {row.mean(self.metric)}: {row.candidate})"

    @property
    def best_params(self) -> dict[str, Any]:
        """The chosen candidate as options of `bigsvm.fit`."""
        found = self.rows[self.chosen].candidate.document()
        return {name: value for name, value in found.items() if value is not None}

    @property
    def status(self) -> str:
        """'converged' if every model is proved to its tolerance."""
        return next((row.status for row in self.rows if row.status != "converged"), "converged")

    def exit_code(self, allow_unconverged: bool = False) -> int:
        """0 if every gap is proved to the tolerance, else 4 (or 0 if that is allowed)."""
        return exit_code(self.status, allow_unconverged)

    def document(self) -> dict[str, Any]:
        """The result as JSON."""
        return {
            "metric": self.metric,
            "folds": {**self.folds.document(), "n_samples": self.fold_sizes},
            "best": self.best,
            "one_se": self.one_se,
            "chosen": self.chosen,
            "params": self.best_params,
            "candidates": [row.document() for row in self.rows],
            **self.figures,
        }

    def csv(self) -> str:
        """CSV, a line for each candidate: parameters, mean and standard error of each metric, largest gap, status; and
        whether ROC AUC and average precision are from binned scores.
        """
        text = io.StringIO()
        metrics = list(self.rows[0].scores)
        writer = csv.writer(text, lineterminator="\n")
        columns = [f"{metric}{end}" for metric in metrics for end in ("", "_se")]
        classified = self.rows[0].binned is not None
        writer.writerow(
            ["C", "class_weight", "gamma", *columns, "relative_gap", "status", *(["binned"] if classified else [])]
        )
        for row in self.rows:
            values = [value for metric in metrics for value in (row.mean(metric), row.error(metric))]
            candidate = row.candidate
            writer.writerow([
                repr(candidate.C), show_weight(candidate.class_weight),
                "" if candidate.gamma is None else candidate.gamma,
                *("" if value is None else repr(value) for value in values), repr(max(row.gaps)), row.status,
                *([str(row.binned).lower()] if classified else []),
            ])  # fmt: skip
        return text.getvalue()

    @property
    def cv_results_(self) -> dict[str, Any]:
        """As in scikit-learn's GridSearchCV, with an array entry for each candidate; and the largest `relative_gap`."""
        found: dict[str, Any] = {"params": [row.candidate.document() for row in self.rows]}
        for name in ("C", "class_weight", "gamma"):
            values = [getattr(row.candidate, name) for row in self.rows]
            if any(value is not None for value in values):
                column = np.ma.MaskedArray(np.empty(len(values), object), mask=[value is None for value in values])
                column.data[:] = values
                found[f"param_{name}"] = column
        scores = np.array([[np.nan if s is None else s for s in row.scores[self.metric]] for row in self.rows], float)
        for fold in range(scores.shape[1]):
            found[f"split{fold}_test_score"] = scores[:, fold]
        mean = scores.mean(axis=1)
        order = mean if self.metric in LESS_IS_BETTER else -mean
        order = np.where(np.isnan(order), np.inf, order)
        found["mean_test_score"], found["std_test_score"] = mean, scores.std(axis=1)
        found["rank_test_score"] = np.array([1 + int(np.sum(order < value)) for value in order], np.int32)
        found["relative_gap"] = np.array([max(row.gaps) for row in self.rows])
        return found


def read_found(run: Path) -> dict[str, Any]:
    """The document of a finished search, from its folder.  Raises MissingInput, DataError."""
    try:
        return dict(read_sealed(run / FOUND))
    except OSError as error:
        hint = "repeat the same `bigsvm tune` to continue it"
        raise MissingInput(f"the search is not finished: {error.strerror}", str(run), hint) from error
    except (ValueError, TypeError) as error:
        hint = "repeat the same `bigsvm tune` to write it again"
        raise DataError(f"the result of the search is damaged: {error}", str(run / FOUND), hint) from error


def rows_of(
    grid: Sequence[Candidate], trained: Trained, scores: Sequence[dict[str, Any]], metrics: Sequence[str]
) -> list[Row]:
    """The candidates with the results of their cells."""
    by_candidate: list[list[tuple[Cell, dict[str, Any]]]] = [[] for _ in grid]
    for cell, found in zip(trained.cells, scores, strict=True):
        by_candidate[cell.candidate].append((cell, found))
    return [
        Row(
            candidate,
            {metric: [found[metric] for _, found in cells] for metric in metrics},
            [cell.relative_gap for cell, _ in cells],
            [cell.objective for cell, _ in cells],
            [cell.status for cell, _ in cells],
            any(found["binned"] for _, found in cells) if "binned" in cells[0][1] else None,
        )
        for candidate, cells in zip(grid, by_candidate, strict=True)
    ]


def choose(rows: Sequence[Row], metric: str) -> tuple[int, int]:
    """(index of the best mean, index of the simplest candidate within one standard error of it).

    Among equal means the smallest C is best.  The simplest candidate has the smallest C, then the smallest gamma.

    Raises DataError if no candidate has a mean, because then nothing was compared.
    """
    sign = -1.0 if metric in LESS_IS_BETTER else 1.0
    means = [row.mean(metric) for row in rows]
    values = [-math.inf if mean is None else sign * mean for mean in means]
    if all(mean is None for mean in means):
        lacking = [str(fold) for fold, value in enumerate(rows[0].scores[metric]) if value is None]
        what = f"no candidate has a mean {metric}: it is undefined for the rows of fold {', '.join(lacking)}"
        raise DataError(what, "", "choose another --metric, or folds that have rows of every class")
    simple = sorted(range(len(rows)), key=lambda number: (*_size(rows[number].candidate), number))
    best = max(simple, key=lambda number: values[number])  # max returns the first among equals
    line = values[best] - (rows[best].error(metric) or 0.0)
    return best, next((number for number in simple if values[number] >= line), best)


def _size(candidate: Candidate) -> tuple[float, float]:
    return candidate.C, candidate.gamma if isinstance(candidate.gamma, int | float) else 0.0


def show_weight(weight: Any) -> str:
    """A class weight as one would type it; '' for None."""
    if isinstance(weight, dict):
        return ",".join(f"{label}={value:g}" for label, value in weight.items())
    return "" if weight is None else str(weight)
