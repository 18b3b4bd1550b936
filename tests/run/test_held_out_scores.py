"""Held-out scores of a search are ranked exactly, however little memory there is."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.budget import MemoryBudget
from bigsvm.cli.commands.training.tune import _table
from bigsvm.config import FitConfig
from bigsvm.events import Warned
from bigsvm.model.linear_model import LinearModel
from bigsvm.run.tune.folds import Folds
from bigsvm.run.tune.grid import Candidate
from bigsvm.run.tune.held_out import METRICS, held_out_metrics
from bigsvm.run.tune.result import Row, TuneResult
from bigsvm.run.tune.train import Cell
from bigsvm.store.formats.array_rows import ArrayRows

sklearn_metrics = pytest.importorskip("sklearn.metrics")
FOLDS = Folds(3, "rows", seed=0)
N, D, CANDIDATES = 6_000, 4, 16


def searched(n_classes: int, weighted: bool) -> tuple[ArrayRows, list[Cell]]:
    """Rows, and models of a search whose scores lie close together."""
    rng = np.random.default_rng(n_classes)
    X = rng.standard_normal((N, D))
    labels = np.arange(n_classes)
    y = np.argmax(X[:, :n_classes] + rng.standard_normal((N, n_classes)), axis=1)
    w = np.where(rng.random(N) < 0.1, 0.0, rng.random(N)) if weighted else None
    n_models = 1 if n_classes == 2 else n_classes
    cells = []
    for candidate in range(CANDIDATES):
        for fold in range(FOLDS.n_folds):
            coef = 1e-7 * (np.eye(n_models, D) * (-1) ** (n_models == 1) + 0.3 * rng.standard_normal((n_models, D)))
            cells.append(Cell(candidate, fold, LinearModel(coef, 1.0 - 1e-8 * np.arange(n_models), labels)))
    return ArrayRows(X, y) if w is None else ArrayRows(X, y, w), cells


def expected(rows: ArrayRows, cell: Cell) -> dict[str, float]:
    """The metrics of scikit-learn on the rows of a cell."""
    block = rows.read(rows.refs(N)[0])
    mine = FOLDS.of(0, N) == cell.fold
    X, y = np.asarray(block.X)[mine], block.y[mine]
    w = None if block.sample_weight is None else block.sample_weight[mine]
    scores, predicted = cell.model.decision_function(X), cell.model.predict(X)
    binary = len(cell.model.classes) == 2
    truth = [y == 1] if binary else [y == label for label in cell.model.classes]
    columns = [scores] if binary else list(scores.T)

    def ranked(metric: Any) -> float:
        return float(np.mean([metric(t, s, sample_weight=w) for t, s in zip(truth, columns, strict=True)]))

    return {
        "accuracy": sklearn_metrics.accuracy_score(y, predicted, sample_weight=w),
        "balanced_accuracy": sklearn_metrics.balanced_accuracy_score(y, predicted, sample_weight=w),
        "f1": sklearn_metrics.f1_score(y, predicted, average="binary" if binary else "macro", sample_weight=w),
        "roc_auc": ranked(sklearn_metrics.roc_auc_score),
        "average_precision": ranked(sklearn_metrics.average_precision_score),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_metrics_are_scikit_learns_in_any_memory(n_classes: int, weighted: bool, tmp_path: Path) -> None:
    rows, cells = searched(n_classes, weighted)
    found = {}
    for memory in ("8MiB", "12MiB", "256MiB"):
        for threads in (1, 2):
            config = FitConfig.of(memory=memory, threads=threads, scratch=str(tmp_path))
            events: list[Any] = []
            found[memory, threads] = held_out_metrics(rows, cells, FOLDS, config, events.append)
            assert not [event for event in events if isinstance(event, Warned)]
        assert found[memory, 1] == found[memory, 2]
    for cell, got, much in zip(cells[:6], found["8MiB", 1], found["256MiB", 1], strict=False):
        ranked = [(one["roc_auc"], one["average_precision"]) for one in (got, much)]
        assert ranked[0] == ranked[1]
        assert not got["binned"]
        assert {name: got[name] for name in METRICS} == pytest.approx(expected(rows, cell), rel=1e-10)


def test_a_search_ranks_its_candidates_alike_whatever_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of the search keeps its models, so that only the memory for their scores differs."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12_000, D))  # float64: a search of such rows is compiled anyway
    y = (X[:, 0] + rng.standard_normal(len(X)) > 2.0).astype(int)
    bigsvm.ingest((X, y), tmp_path / "rows.zarr")
    options: dict[str, Any] = {"Cs": "1e-6:1e-2:16", "folds": 3, "loss": "hinge", "metric": "roc_auc", "threads": 1}
    options |= {"scratch": str(tmp_path / "scratch"), "run": tmp_path / "search"}
    little = bigsvm.tune(tmp_path / "rows.zarr", memory="12MiB", **options)
    monkeypatch.setattr("bigsvm.run.tune.held_out.budget_of", lambda _: MemoryBudget(256 << 20))
    much = bigsvm.tune(tmp_path / "rows.zarr", memory="12MiB", **options)
    assert [row.scores for row in little.rows] == [row.scores for row in much.rows]
    assert little.chosen == much.chosen
    assert [row["binned"] for row in little.document()["candidates"]] == [False] * 16
    assert not little.warnings


def test_a_search_says_that_scores_are_binned_and_which_memory_would_do(tmp_path: Path) -> None:
    """The scratch folder has room for the scores of some candidates, but not of all."""
    rows, cells = searched(2, False)
    short = {"threads": 1, "scratch": str(tmp_path), "scratch_limit": 100_000}
    events: list[Any] = []
    binned = held_out_metrics(rows, cells, FOLDS, FitConfig.of(memory="8MiB", **short), events.append)
    assert all(got["binned"] for got in binned), "metrics of different kinds must not be compared"
    (told,) = [event.message for event in events if isinstance(event, Warned)]
    enough = re.search(r"--memory (\d+MiB)", told)
    assert enough is not None
    exact = held_out_metrics(rows, cells, FOLDS, FitConfig.of(memory=enough[1], **short), events.append)
    assert not any(got["binned"] for got in exact)


def test_the_result_of_a_search_records_binned_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigsvm.run.tune.held_out.score_file", lambda *_: None)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((9_000, D))
    costs = np.geomspace(1e-3, 1e-1, 16).tolist()
    found = bigsvm.tune((X, (X[:, 0] > 0.3).astype(int)), Cs=costs, folds=3, tol=1e-1, memory="12MiB")
    assert [row["binned"] for row in json.loads(json.dumps(found.document()))["candidates"]] == [True] * 16
    assert [message for message in found.warnings if "binned" in message]
    assert [row["binned"] for row in csv.DictReader(io.StringIO(found.csv()))] == ["true"] * 16


@pytest.mark.parametrize("binned", [[True, True], [False, True], [False, False], [None, None]])
@pytest.mark.parametrize("metric", ["accuracy", "f1", "roc_auc", "average_precision"])
def test_the_table_marks_values_from_binned_scores(metric: str, binned: list[bool | None]) -> None:
    """In whatever column they are; the legend says what the mark means, where there is one."""
    rows = [
        Row(Candidate(C, None, None), {name: [0.25, 0.75] for name in METRICS}, [1e-4], [1.0], ["converged"], rough)
        for C, rough in zip((0.1, 1.0), binned, strict=True)
    ]
    found = TuneResult(rows, metric, FOLDS, [5, 5], 0, 0, 0, {})
    head, *lines, legend = _table(found).splitlines()
    ranked = len({"roc_auc", "average_precision"} & set(head.split()))
    assert [line.count("~") for line in lines] == [ranked * bool(rough) for rough in binned]
    assert ("~ from binned scores" in legend) == (any(binned) and ranked > 0)
    assert "~0.5000 ± 0.2500" in _table(found) or not (any(binned) and ranked)
    told = list(csv.DictReader(io.StringIO(found.csv())))
    assert [row.get("binned") for row in told] == [None if one is None else str(one).lower() for one in binned]
