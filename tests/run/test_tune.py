"""A search: each of its models is the one that a fit of its own gives, and all of them share the readings."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.cli.commands.training.tune import describe
from bigsvm.config import FitConfig
from bigsvm.errors import BigSVMError, DataError, PlanRefused, UsageError
from bigsvm.events import EpochEnd, Event
from bigsvm.model.linear_model import load_model
from bigsvm.problem.loss import loss_named
from bigsvm.run.tune.folds import Folds, make_folds
from bigsvm.run.tune.grid import parse_costs
from bigsvm.run.tune.hard import one_after_another, together_as_alone
from bigsvm.run.tune.result import read_found
from bigsvm.run.tune.train import form_of, train
from bigsvm.solvers.dcd.dual_cd_state import groups_of_models
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.problems import random_problem
from tests.run.searches import CS, K, candidate


def cells_of(rows: Any, **options: Any) -> tuple[Folds, Any]:
    """The folds of a search and what it trained."""
    store, config = ArrayRows(*rows), FitConfig.of(**options)
    folds = Folds(K, "rows", seed=0)
    grid = [candidate(C) for C in CS]
    return folds, train(store, config, grid, folds, lambda event: None, None)


def primal(model: Any, rows: Any, loss: str, C: float, weight: np.ndarray | None = None) -> float:
    """P of a model on rows, as the page on mathematics has it, one model after another."""
    X, y = rows
    total = 0.0
    for m, code in enumerate(model.positive):
        w, b = model.coef[m], model.intercept[m]
        f = X @ w + b
        slack = y - f if model.regression else 1.0 - np.where(y == model.classes[code], 1.0, -1.0) * f
        losses = loss_named(loss, 0.1).value(slack)
        cost = C * (np.ones(len(y)) if weight is None else weight)
        total += 0.5 * (w @ w + b * b) + float(cost @ losses)
    return total


@pytest.mark.parametrize(
    ("loss", "n_classes", "streams", "tol"),  # streamed classes to 1e-4: below, w is float64, and all is compiled anew
    [("hinge", 3, True, 1e-4), ("squared_hinge", 2, False, 1e-5), ("hinge", 2, False, 1e-5),
     ("epsilon_insensitive", 0, False, 1e-5)],
)  # fmt: skip
def test_each_model_is_that_of_a_fit_on_its_rows(
    loss: str, n_classes: int, streams: bool, tol: float, request: pytest.FixtureRequest
) -> None:
    if streams:
        request.getfixturevalue("streaming")
    X, y = random_problem(240, 4, 0.7, seed=5, n_classes=max(n_classes, 2), noise=0.2)
    if not n_classes:
        y = X @ np.arange(1.0, 5.0) + np.sin(7 * X[:, 0])
    options: dict[str, Any] = {"loss": loss, "solver": "dcd", "tol": tol, "memory": "64MiB"}
    folds, trained = cells_of((X, y), **options)
    fold = folds.of(0, len(y))
    assert trained.form == "shared"
    assert len({cell[:2] for cell in trained.cells}) == len(trained.cells) == K * len(CS)
    for cell in trained.cells:
        rows = fold != cell.fold
        C = CS[cell.candidate]
        alone = bigsvm.fit((X[rows], y[rows]), C=C, **{**options, "tol": 1e-7})
        best = alone.figures["dual_objective"]  # no primal value is below it
        assert cell.status == "converged"
        assert cell.relative_gap <= tol
        ours = primal(cell.model, (X[rows], y[rows]), loss, C)
        assert cell.objective == pytest.approx(ours, rel=1e-9)
        assert ours >= best * (1 - 1e-9)
        # The dual bound that the gap speaks of is one: it lies below the optimum of that fit.
        bound = sum(cell.model.about["certificate"]["dual_objective"])
        assert bound <= alone.figures["objective"] * (1 + 1e-9)
        assert ours - bound <= tol * ours * (1 + 1e-9)


def test_a_search_reads_little_more_than_its_hardest_fit(streaming: None) -> None:
    X, y = random_problem(400, 5, seed=8, noise=0.2)
    options: dict[str, Any] = {"loss": "hinge", "solver": "dcd", "tol": 1e-2, "memory": "64MiB"}
    alone = bigsvm.fit((X, y), C=10.0, **options)
    found = bigsvm.tune((X, y), Cs="1e-2:10:6", folds=4, **options)
    assert alone.figures["bytes_read"] > alone.figures["data_bytes"]
    assert found.figures["bytes_read"] <= 4 * alone.figures["bytes_read"]
    assert found.figures["n_models"] == 24
    assert found.status == "converged"


def test_class_weights_are_those_of_the_rows_trained_on() -> None:
    X, y = random_problem(240, 4, seed=9, noise=0.3)
    y = np.where(np.arange(240) % 4 > 0, y.max(), y)  # few of the first class
    weight = np.random.default_rng(0).random(240)
    options: dict[str, Any] = {"loss": "squared_hinge", "solver": "dcd", "tol": 1e-8, "memory": "64MiB"}
    store = ArrayRows(X, y, weight)
    folds = Folds(K, "rows", seed=0)
    grid = [candidate(1.0, {"1": 3.0}), candidate(1.0, "balanced"), candidate(1.0)]
    trained = train(store, FitConfig.of(**options), grid, folds, lambda event: None, None)
    fold = folds.of(0, 240)
    for cell in trained.cells:
        rows = fold != cell.fold
        alone = bigsvm.fit(
            (X[rows], y[rows], weight[rows]), C=1.0, class_weight=grid[cell.candidate].class_weight, **options
        )
        assert cell.objective == pytest.approx(alone.figures["objective"], rel=1e-7)


@pytest.mark.parametrize("options", [{"solver": "newton"}, {"kernel": "rbf", "gamma": 0.5}, {"bias": "free"}])
def test_other_solvers_take_a_fold_after_the_other(options: dict[str, Any]) -> None:
    X, y = random_problem(120, 4, seed=10, noise=0.2)
    options = {"tol": 1e-5, "memory": "64MiB", **options}
    folds, trained = cells_of((X, y), **options)
    assert trained.form == ("one by one" if "kernel" in options else "by fold")
    cell = trained.cells[-1]
    rows = folds.of(0, 120) != cell.fold
    alone = bigsvm.fit((X[rows], y[rows]), C=CS[cell.candidate], **options)
    assert cell.objective == pytest.approx(alone.figures["objective"], rel=2e-5)
    found = bigsvm.tune((X, y), Cs=CS, folds=K, gammas=[0.1, 0.5] if "kernel" in options else None, **options)
    assert found.status == "converged"
    assert len(found.rows) == (6 if "kernel" in options else 3)


def test_results_are_those_of_a_grid_search_by_scikit_learn() -> None:
    selection = pytest.importorskip("sklearn.model_selection")
    svm = pytest.importorskip("sklearn.svm")
    X, y = random_problem(300, 5, 0.6, seed=11, noise=0.3)
    found = bigsvm.tune((X, y), Cs=CS, folds=K, class_weights=["none", "balanced"], tol=1e-8, solver="dcd")
    split = selection.PredefinedSplit(Folds(K, "rows", seed=0).of(0, 300))
    grid = {"C": CS, "class_weight": [None, "balanced"]}
    estimator = svm.LinearSVC(tol=1e-9, max_iter=100_000, dual=True)
    theirs = selection.GridSearchCV(estimator, grid, cv=split, scoring="roc_auc").fit(X, y).cv_results_
    ours = dataclasses.replace(found, metric="roc_auc").cv_results_
    for k, params in enumerate(theirs["params"]):
        (mine,) = [n for n, ours_ in enumerate(ours["params"]) if all(ours_[name] == params[name] for name in params)]
        for fold in range(K):
            name = f"split{fold}_test_score"
            assert ours[name][mine] == pytest.approx(theirs[name][k], abs=1e-3)
        assert ours["mean_test_score"][mine] == pytest.approx(theirs["mean_test_score"][k], abs=1e-3)
        assert ours["std_test_score"][mine] == pytest.approx(theirs["std_test_score"][k], abs=1e-3)


def test_the_fold_of_a_row_depends_on_its_number_alone() -> None:
    folds = Folds(5, "rows", seed=3)
    whole = folds.of(0, 10_000)
    np.testing.assert_array_equal(whole[1234:5678], folds.of(1234, 5678))
    assert np.all(np.abs(np.bincount(whole) - 2000) < 200)
    assert not np.array_equal(whole, Folds(5, "rows", seed=4).of(0, 10_000))


def test_groups_stay_together_and_columns_are_folds() -> None:
    X, y = random_problem(90, 3, seed=12)
    store = ArrayRows(X, y)
    group = np.arange(90) % 7
    by_group = make_folds(store, (X, y), 3, group, None, 0, {})
    assert all(len(np.unique(by_group.values[group == g])) == 1 for g in range(7))
    assert by_group.sizes(90).tolist() == [38, 26, 26]
    by_column = make_folds(store, (X, y), 5, None, np.where(group > 3, "b", "a"), 0, {})
    assert (by_column.n_folds, by_column.names) == (2, ("a", "b"))
    np.testing.assert_array_equal(by_column.values, group > 3)


def test_what_one_budget_cannot_hold_is_trained_in_parts() -> None:
    X, y = random_problem(60, 20_000, 0.01, seed=14)
    rows = (sparse.csr_array(X.astype(np.float32)), y)
    # Weights of all twelve models do not fit here, those of one candidate do.
    found = bigsvm.tune(rows, Cs=[0.01, 0.1, 1.0, 10.0], folds=3, solver="dcd", tol=1e-2, memory="16MiB")
    assert found.status == "converged"
    assert len(found.rows) == 4
    whole = bigsvm.tune(rows, Cs=[0.01, 0.1, 1.0, 10.0], folds=3, solver="dcd", tol=1e-2, memory="1GiB")
    assert found.figures["bytes_read"] > whole.figures["bytes_read"]
    for row, other in zip(found.rows, whole.rows, strict=True):
        np.testing.assert_allclose(row.objectives, other.objectives, rtol=1e-2)


def test_weights_that_no_budget_holds_are_refused_before_anything_is_read() -> None:
    X, y = random_problem(60, 4, seed=14)
    rows = sparse.csr_array(X)
    rows.resize((60, 1_000_000))
    with pytest.raises(PlanRefused, match="weights of 80 models and their scores; 1225 MiB would do"):
        bigsvm.tune((rows, y), Cs="1e-3:1e3:16", memory="512MiB")


def test_the_one_standard_error_rule_takes_the_smallest_C() -> None:
    X, y = random_problem(200, 4, seed=15, noise=0.3)
    found = bigsvm.tune((X, y), Cs=[1e-3, 1e-1, 10.0], folds=4, one_se=True, metric="f1")
    means = [row.mean("f1") for row in found.rows]
    best, error = max(means), found.rows[found.best].error("f1")
    assert means[found.best] == best
    assert found.chosen == found.one_se == next(n for n, mean in enumerate(means) if mean >= best - error)
    spread = np.std(found.rows[0].scores["f1"], ddof=1) / np.sqrt(4)
    assert found.rows[0].error("f1") == pytest.approx(spread, rel=1e-12)
    lines = found.csv().splitlines()
    assert len(lines) == 4
    assert lines[1].startswith("0.001,,")


def test_the_page_does_what_it_shows() -> None:
    page = Path(__file__).parents[2] / "docs" / "tuning.md"
    (block,) = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    exec(compile(block, str(page), "exec"), {})


def test_costs_as_they_are_typed() -> None:
    assert parse_costs("1e-3:1e3:7") == [1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3]
    assert parse_costs("0.5,2") == [0.5, 2.0]
    assert parse_costs("2:2:1") == [2.0]
    assert parse_costs("2^-3:2^5:2^2") == [0.125, 0.5, 2.0, 8.0, 32.0]
    assert parse_costs("2^-1,3") == [0.5, 3.0]
    for text in ("1:2:3^0", "1:2:1.5", "1:2:0", "4:1:2^1", "1:inf:3", "-2^0.5:1:3", "1:2:x", "1:2:3:4", "2^9999"):
        with pytest.raises(UsageError):
            parse_costs(text)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"Cs": "1e-3:1e3"}, UsageError, "neither LOW:HIGH:N"),
        ({"Cs": "0:1:3"}, UsageError, "not a grid"),
        ({"Cs": []}, UsageError, "some positive numbers"),
        ({"Cs": [1.0, 1.0]}, UsageError, "twice"),
        ({"folds": 1}, UsageError, "1 fold"),
        ({"folds": 300}, UsageError, "300 folds"),
        ({"folds": 200}, DataError, "folds empty"),
        ({"group": np.zeros(40, int)}, DataError, "1 group for 5 folds"),
        ({"group": np.zeros(39, int)}, DataError, "for 40 rows"),
        ({"fold": np.arange(40) % 2 * np.nan}, DataError, "row 0 has no fold"),
        ({"fold": np.arange(40) % 2, "group": np.arange(40)}, UsageError, "exclude"),
        ({"fold": "obs/fold"}, UsageError, "these rows have no columns"),
        ({"metric": "r2"}, UsageError, "unknown metric 'r2'"),
        ({"gammas": [0.1]}, UsageError, "has no gamma"),
        ({"kernel": "rbf", "gammas": [-1.0]}, UsageError, "gamma must be"),
        ({"C": 2.0}, UsageError, "C is a dimension of the grid"),
        ({"class_weights": ["heavy"]}, UsageError, "balanced"),
        ({"calibrate": "sigmoid"}, UsageError, "no model of classes to calibrate"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], error: type[BigSVMError], said: str) -> None:
    X, y = random_problem(40, 3, seed=17)
    with pytest.raises(error, match=said):
        bigsvm.tune((X, y), **options)


def test_a_fold_with_all_rows_of_a_class_is_refused() -> None:
    X, y = random_problem(40, 3, seed=18)
    with pytest.raises(DataError, match="all rows of class 1 are in fold a"):
        bigsvm.tune((X, y), fold=np.where(y == 1, "a", "b"))


def test_hard_candidates_of_few_features_in_memory_are_left_to_newton(tmp_path: Path) -> None:
    X, y = random_problem(200, 4, seed=20, noise=0.3)
    found = bigsvm.tune((X, y), Cs=[100.0, 0.1], folds=2, threads=1, run=tmp_path / "search")
    assert (found.figures["form"], found.figures["solver"]) == ("shared, the hard ones by fold", "dcd, newton")
    assert [row.candidate.C for row in found.rows] == [0.1, 100.0]
    assert read_found(tmp_path / "search") == json.loads(json.dumps(found.document()))
    assert "except hard ones, which are trained fold by fold" in describe(found, {"run": None, "model": None})
    by_dcd = bigsvm.tune((X, y), Cs=[100.0, 0.1], folds=2, threads=1, solver="dcd")
    assert (by_dcd.figures["form"], by_dcd.figures["solver"]) == ("shared", "dcd")
    for row, other in zip(found.rows, by_dcd.rows, strict=True):
        np.testing.assert_allclose(row.objectives, other.objectives, rtol=1e-3)


def columns_of_all_scales(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Rows on which coordinate descent hardly moves: columns far from 0, of scales that differ a thousandfold."""
    X, y = random_problem(n, 5, seed=22, noise=0.3)
    return 1e3 * np.abs(X) * np.logspace(-3, 0, 5), y


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_models_that_dcd_does_not_reach_are_left_to_the_solver_of_a_single_fit(loss: str, tmp_path: Path) -> None:
    X, y = columns_of_all_scales()
    options: dict[str, Any] = {"loss": loss, "tol": 1e-6, "class_weights": ["none", "balanced"], "threads": 1}
    found = bigsvm.tune((X, y), Cs=[1e-12, 0.1], folds=2, run=tmp_path / "search", **options)
    assert found.status == "converged"
    assert found.figures["form"] == "shared, the hard ones by fold"
    assert found.figures["solver"].startswith("dcd, newton")
    assert any("dcd did not reach the tolerance for C = 0.1:" in warning for warning in found.warnings)
    fold = Folds(2, "rows", seed=0).of(0, len(y))
    for row in found.rows:
        for held_out, objective in enumerate(row.objectives):
            rows, asked = fold != held_out, row.candidate
            one = {"C": asked.C, "class_weight": asked.class_weight, "loss": loss, "tol": 1e-6}
            alone = bigsvm.fit((X[rows], y[rows]), **one)
            assert objective == pytest.approx(alone.figures["objective"], rel=2e-6)
    again = bigsvm.tune((X, y), Cs=[1e-12, 0.1], folds=2, run=tmp_path / "search", **options)
    assert [row.document() for row in again.rows] == [row.document() for row in found.rows]


def test_dcd_is_given_up_early_and_a_limit_leaves_its_models_to_others_in_memory_alone(
    request: pytest.FixtureRequest,
) -> None:
    rows = columns_of_all_scales()
    epochs: list[float] = []

    def note(event: Event) -> None:
        if isinstance(event, EpochEnd):
            epochs.append(event.epochs)

    options: dict[str, Any] = {"Cs": [0.1, 1.0], "folds": 2, "tol": 1e-6, "emit": note}
    assert bigsvm.tune(rows, **options).status == "converged"
    assert max(epochs) < 1000
    limited = bigsvm.tune(rows, max_passes=60, **options)
    assert (limited.status, limited.figures["solver"]) == ("converged", "dcd, newton")
    by_name = bigsvm.tune(rows, max_passes=60, solver="dcd", **options)
    assert (by_name.status, by_name.figures["form"]) == ("stopped", "shared")
    timed = bigsvm.tune(rows, max_passes=60, max_time=1e6, **options)
    assert (timed.status, timed.figures["form"]) == ("stopped", "shared")
    request.getfixturevalue("streaming")
    streamed = bigsvm.tune(rows, max_passes=5, memory="64MiB", **{**options, "tol": 1e-4})
    assert (streamed.status, streamed.figures["form"]) == ("stopped", "shared")
    unlimited = bigsvm.tune(columns_of_all_scales(50), memory="64MiB", **options)
    assert (unlimited.status, unlimited.figures["form"]) == ("converged", "shared, the hard ones by fold")


def test_hard_candidates_that_one_fit_cannot_hold_by_their_solver_have_several() -> None:
    X, y = random_problem(2000, 400, seed=23, n_classes=5)
    store, config = ArrayRows(X.astype(np.float32), y), FitConfig.of(memory="128MiB")
    grid = [candidate(C) for C in (10.0, 20.0, 30.0, 40.0)]
    assert together_as_alone(store, config, grid, [0, 1, 2, 3]) == [[0, 1], [2, 3]]
    assert together_as_alone(store, FitConfig.of(memory="4GiB"), grid, [0, 1, 2, 3]) == [[0, 1, 2, 3]]
    assert together_as_alone(store, config, grid, []) == []


def wide_rows(n: int = 8100, d: int = 1010) -> tuple[sparse.csr_matrix, np.ndarray]:
    """Sparse rows with many features, and enough rows for each that `newton-cg` takes those of a large C in memory."""
    rng = np.random.default_rng(24)
    X = sparse.csr_matrix((np.ones(4 * n, np.float32), rng.integers(0, d, 4 * n), np.arange(0, 4 * n + 1, 4)), (n, d))
    X.sum_duplicates()
    score = X @ rng.standard_normal(d)
    return X, (score + rng.standard_normal(n) > 0).astype(int)


def test_hard_candidates_of_many_features_in_memory_are_left_to_newton_cg_one_by_one(tmp_path: Path) -> None:
    """Each fit starts from the model of the next smaller C; a search that is continued has the same numbers."""
    rows, run = wide_rows(), tmp_path / "search"
    given: dict[str, Any] = {"Cs": [0.1, 3.0, 30.0], "folds": 2, "run": run}
    found = bigsvm.tune(rows, threads=2, **given)
    assert (found.status, found.figures["solver"]) == ("converged", "dcd, newton-cg")
    starts = {}
    for folder in (run / "fits").iterdir():
        saved = [json.loads(file.read_text()) for file in folder.glob("*/model.json")]
        if folder.name.startswith("fold-"):
            assert len(saved) == 1
            starts[folder.name] = saved[0].get("warm_start", {}).get("model")
    assert starts == {
        **{f"fold-0-{fold}": None for fold in (0, 1)},
        **{f"fold-0-{fold}-1": load_model(run / f"fits/fold-0-{fold}/000").fingerprint for fold in (0, 1)},
    }
    shutil.rmtree(run / "fits" / "fold-0-1-1")
    numbers = [row.document() for row in found.rows]
    assert [row.document() for row in bigsvm.tune(rows, threads=1, **given).rows] == numbers
    assert [row.document() for row in bigsvm.tune(rows, **{**given, "run": None}).rows] == numbers
    by_dcd = bigsvm.tune(rows, solver="dcd", **{**given, "run": None})
    for row, other in zip(found.rows, by_dcd.rows, strict=True):
        np.testing.assert_allclose(row.objectives, other.objectives, rtol=1e-3)


def test_newton_cg_by_name_takes_one_C_after_another_only_where_rows_are_in_memory(
    request: pytest.FixtureRequest,
) -> None:
    X, y = random_problem(200, 4, seed=25)
    store, config = ArrayRows(sparse.csr_array(X.astype(np.float32)), y), FitConfig.of(solver="newton-cg")
    grid = [candidate(C) for C in CS]
    assert one_after_another(store, config, grid, [0, 1, 2]) == [[0], [1], [2]]
    assert one_after_another(store, config, grid, []) == []
    assert one_after_another(store, FitConfig.of(solver="newton"), grid, [0, 1, 2]) == [[0, 1, 2]]
    request.getfixturevalue("streaming")
    assert one_after_another(store, FitConfig.of(solver="newton-cg", memory="64MiB"), grid, [0, 1]) == [[0, 1]]


def test_models_of_one_C_are_trained_together_where_rows_are_in_memory() -> None:
    """Groups of eight neighbours; a group whose models are proved is left alone; the threads change no bit."""
    assert groups_of_models(20, 1, searched=True) == [slice(0, 6), slice(6, 13), slice(13, 20)]
    X, y = random_problem(200, 4, seed=21, noise=0.3)
    given = {"Cs": [0.01, 0.1, 1.0], "folds": 4, "solver": "dcd", "tol": 1e-6}
    one, two = (bigsvm.tune((X, y), threads=threads, **given) for threads in (1, 2))
    assert [row.document() for row in one.rows] == [row.document() for row in two.rows]
    assert one.status == "converged"


def test_the_form_follows_from_solver_kernel_and_bias() -> None:
    store = ArrayRows(*random_problem(40, 3, seed=19))
    forms = {
        "shared": [{}, {"solver": "dcd"}, {"bias": "none"}],
        "by fold": [{"solver": "newton"}, {"bias": "free"}],
        "one by one": [{"kernel": "rbf"}, {"solver": "smo"}],
    }
    for form, asked in forms.items():
        assert [form_of(store, FitConfig.of(**options), []) for options in asked] == [form] * len(asked)
