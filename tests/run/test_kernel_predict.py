"""Kernel models, pairs and values through predict and evaluate: every source, every format, every executor."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr

from bigsvm.config import FitConfig
from bigsvm.errors import BudgetExceeded, DataError
from bigsvm.events import Warned
from bigsvm.model.decide import models_of
from bigsvm.model.linear_model import LinearModel, Model, load_model
from bigsvm.problem.kernel import Kernel
from bigsvm.problem.loss import loss_named
from bigsvm.problem.problem import Problem
from bigsvm.run.apply.evaluate import evaluate
from bigsvm.run.apply.metrics import Errors
from bigsvm.run.apply.predict import predict
from bigsvm.run.proof.alpha_terms import AlphaTerms
from bigsvm.run.proof.beta_terms import KernelTerms, SignedLinearTerms
from bigsvm.run.proof.certify import terms_kind
from bigsvm.run.proof.saved_problem import models_document
from bigsvm.store.formats.array_rows import ArrayRows
from tests.problem.svc_models import KERNELS, labels, rows, svc, svr, to_csr

sklearn_metrics = pytest.importorskip("sklearn.metrics")
SMALL = FitConfig.of(memory=64 << 20, threads=2)
D = 6


def made(tmp_path: Path, kind: str) -> tuple[Any, Model]:
    """(scikit-learn's estimator, our model from disk)."""
    X = rows()
    if kind == "regression":
        oracle, model = svr(X, X[:, 0] - X[:, 1], KERNELS["rbf"], D)
    else:
        layout = "csr" if kind == "csr" else "dense"
        oracle, model = svc(X, labels(X, 4 if kind == "pairs" else 2), KERNELS["rbf"], D, layout)
    model.save(tmp_path / f"{kind}.model")
    return oracle, load_model(tmp_path / f"{kind}.model")


def lines_of(model: Model, source: Any, form: str = "jsonl", config: FitConfig = SMALL, **options: Any) -> list[str]:
    out = io.BytesIO()
    predict(model, source, out, form, config, **options)
    return out.getvalue().decode().splitlines()


def text_of(X: np.ndarray, y: np.ndarray, path: Path) -> str:
    """svmlight text of float64 values."""
    lines = [
        f"{label} " + " ".join(f"{j + 1}:{value!r}" for j, value in enumerate(row) if value)
        for label, row in zip(y.tolist(), X.tolist(), strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.parametrize("source", ["dense", "csr", "text"])
@pytest.mark.parametrize("kind", ["dense", "csr", "pairs", "regression"])
def test_predictions_are_scikit_learns(tmp_path: Path, kind: str, source: str) -> None:
    oracle, model = made(tmp_path, kind)
    new = rows(300, seed=5)
    y = np.arange(300) % 2
    given: Any = text_of(new, y, tmp_path / "t.svm")
    if source != "text":
        given = ArrayRows(new if source == "dense" else to_csr(new), y, n_features=None if source == "dense" else D)
    found = [json.loads(line) for line in lines_of(model, given)]
    assert [row["row"] for row in found] == list(range(300))
    scores = oracle.predict(new) if kind == "regression" else oracle.decision_function(new)
    np.testing.assert_allclose(np.array([row["score"] for row in found]), scores, rtol=1e-9, atol=1e-9)
    if kind == "regression":
        assert [row["label"] for row in found] == [row["score"] for row in found]
    else:
        assert [row["label"] for row in found] == oracle.predict(new).tolist()


def test_values_in_every_format(tmp_path: Path) -> None:
    _, model = made(tmp_path, "regression")
    new = rows(50, seed=5)
    store, values = ArrayRows(new, np.zeros(50), task="regression"), model.predict(new)
    assert [float(line) for line in lines_of(model, store, "csv")] == values.tolist()
    scored = lines_of(model, store, "csv", with_scores=True)
    assert scored == [f"{value!r},{value!r}" for value in values.tolist()]
    for form in ("parquet", "zarr"):
        result = predict(model, store, tmp_path / f"o.{form}", form, SMALL, with_scores=True)
    assert pq.read_table(tmp_path / "o.parquet").to_pydict() == {"label": values.tolist(), "score": values.tolist()}
    group = zarr.open_group(tmp_path / "o.zarr", mode="r")
    np.testing.assert_array_equal(np.asarray(group["label"]), values)
    assert "label_counts" not in result
    expected = {"min": values.min(), "mean": values.mean(), "max": values.max()}
    assert result["values"] == pytest.approx(expected, rel=1e-12)


def test_no_rows_and_values_that_are_not_finite(tmp_path: Path) -> None:
    (tmp_path / "t.svm").write_text("# nothing\n")
    _, model = made(tmp_path, "regression")
    result = predict(model, str(tmp_path / "t.svm"), tmp_path / "o.csv", "csv", SMALL)
    assert result["values"] == {"min": None, "mean": None, "max": None}
    steep = LinearModel(np.array([[1e308, 1e308]]), np.zeros(1), np.empty(0))
    out = lines_of(steep, ArrayRows(np.full((2, 2), 1e10), np.zeros(2), task="regression"))
    assert json.loads(out[0]) == {"row": 0, "label": None, "score": None}


@pytest.mark.usefixtures("forked_workers")
def test_blocks_of_any_size_and_worker_processes_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, model = made(tmp_path, "pairs")
    store = ArrayRows(rows(400, seed=5), np.arange(400) % 2)
    expected = lines_of(model, store)
    monkeypatch.setattr("bigsvm.run.apply.scoring._LARGEST_BLOCK", 9000)
    assert lines_of(model, store) == expected
    config = FitConfig.of(memory=64 << 20, threads=1, workers=1, scheduler="processes")
    assert lines_of(model, store, config=config) == expected


def test_what_a_budget_must_hold_is_named_and_enough(tmp_path: Path) -> None:
    _, model = made(tmp_path, "dense")
    store = ArrayRows(rows(300, seed=5), np.arange(300) % 2)
    with pytest.raises(BudgetExceeded) as seen:
        lines_of(model, store, config=FitConfig.of(memory=1 << 20, threads=2))
    least = seen.value.min_memory_bytes
    assert least is not None
    assert least < 16 << 20
    assert len(lines_of(model, store, config=FitConfig.of(memory=least, threads=2))) == 300


def test_kernel_values_of_other_rows_are_refused(tmp_path: Path) -> None:
    X = rows()
    K = KERNELS["rbf"].matrix(X, X)
    oracle, model = svc(K, labels(X, 2), Kernel("precomputed"), len(X))
    given = KERNELS["rbf"].matrix(rows(30, seed=4), X)
    labelled = np.arange(30) % 2
    found = [json.loads(line)["score"] for line in lines_of(model, ArrayRows(given, labelled))]
    np.testing.assert_allclose(found, oracle.decision_function(given), rtol=1e-9)
    with pytest.raises(DataError, match="89 features and the model 90"):
        lines_of(model, ArrayRows(given[:, :89], labelled))


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("kind", ["linear", "kernel"])
def test_errors_of_values_are_scikit_learns(
    tmp_path: Path, kind: str, weights: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bigsvm.run.apply.scoring._LARGEST_BLOCK", 9000)  # several blocks
    rng = np.random.default_rng(0)
    model: Model = LinearModel(rng.standard_normal((1, D)), np.ones(1), np.empty(0))
    if kind == "kernel":
        _, model = made(tmp_path, "regression")
    X, w = rows(700, seed=8), np.where(rng.random(700) < 0.2, 0.0, rng.random(700)) if weights else None
    t = 1e6 + rng.standard_normal(700)  # a mean far from 0 costs a sum of squares its digits
    t[::2] += model.predict(X)[::2]
    store = ArrayRows(X, t, task="regression") if w is None else ArrayRows(X, t, w, task="regression")
    got = evaluate(model, store, SMALL)
    truth, found, options = t, model.predict(X), {"sample_weight": w}
    assert got["mse"] == pytest.approx(sklearn_metrics.mean_squared_error(truth, found, **options), rel=1e-12)
    assert got["mae"] == pytest.approx(sklearn_metrics.mean_absolute_error(truth, found, **options), rel=1e-12)
    assert got["r2"] == pytest.approx(sklearn_metrics.r2_score(truth, found, **options), rel=1e-9)
    assert got["n_rows"] == (700 if w is None else np.count_nonzero(w))
    assert got["weighted"] is weights


def test_r2_where_targets_are_all_equal_or_one() -> None:
    for values, expected in (([2.0, 2.0], 1.0), ([2.0, 3.0], 0.0)):
        errors = Errors()
        errors.add(np.full(2, 2.0), np.array(values), np.ones(2))
        assert errors.r2() == expected == sklearn_metrics.r2_score([2.0, 2.0], values)
    assert (Errors().mse(), Errors().mae(), Errors().r2()) == (None, None, None)
    model, events = LinearModel(np.ones((1, 2)), np.ones(1), np.empty(0)), []
    got = evaluate(model, ArrayRows(np.ones((1, 2)), np.ones(1), task="regression"), SMALL, events.append)
    assert (got["mse"], got["r2"]) == (4.0, None)
    assert any(isinstance(event, Warned) and "R^2" in event.message for event in events)


def test_metrics_of_pairs_are_scikit_learns(tmp_path: Path) -> None:
    oracle, model = made(tmp_path, "pairs")
    X = rows(400, seed=5)
    y = np.where(np.random.default_rng(1).random(400) < 0.3, np.arange(400) % 4, oracle.predict(X))
    got = evaluate(model, ArrayRows(X, y), SMALL)
    predicted = oracle.predict(X)
    assert got["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(y, predicted), rel=1e-12)
    assert got["f1"] == pytest.approx(sklearn_metrics.f1_score(y, predicted, average="macro"), rel=1e-12)
    oracle.decision_function_shape = "ovr"
    columns = oracle.decision_function(X).T
    aucs = [sklearn_metrics.roc_auc_score(y == code, column) for code, column in enumerate(columns)]
    assert got["roc_auc"] == pytest.approx(np.mean(aucs), rel=1e-9)


def test_targets_and_classes_do_not_mix(tmp_path: Path) -> None:
    X = rows(30)
    classes, targets = ArrayRows(X, np.arange(30) % 2), ArrayRows(X, np.linspace(0, 1, 30), task="regression")
    with pytest.raises(DataError, match="holds classes, but the model is a regression"):
        evaluate(made(tmp_path, "regression")[1], classes, SMALL)
    with pytest.raises(DataError, match="regression target, but the model has classes"):
        evaluate(made(tmp_path, "pairs")[1], targets, SMALL)


OF_MODEL = {
    ("dense", "hinge", "free"): KernelTerms,
    ("pairs", "hinge", "free"): KernelTerms,
    ("regression", "epsilon_insensitive", "free"): KernelTerms,
    ("linear", "hinge", "free"): AlphaTerms,
    ("linear classes", "squared_hinge", "none"): AlphaTerms,
    ("linear pairs", "hinge", "free"): SignedLinearTerms,
    ("linear regression", "epsilon_insensitive", "free"): SignedLinearTerms,
    ("linear regression", "epsilon_insensitive", "none"): AlphaTerms,
    ("linear regression", "squared_epsilon_insensitive", "free"): AlphaTerms,
}


@pytest.mark.parametrize(("kind", "loss", "bias"), list(OF_MODEL))
def test_the_gap_of_every_kind_of_model_has_its_terms(tmp_path: Path, kind: str, loss: str, bias: str) -> None:
    path = tmp_path / f"{kind}.model"
    codes = models_of(3, kind == "linear pairs")
    if kind in ("linear classes", "linear pairs"):
        LinearModel(np.ones((3, D)), np.ones(3), np.arange(3), {}, *codes).save(path)
    elif kind.startswith("linear"):
        LinearModel(np.ones((1, D)), np.ones(1), np.arange(2 if kind == "linear" else 0)).save(path)
    else:
        made(tmp_path, kind)
    model = load_model(path)
    problem = Problem(
        loss_named(loss), np.ones(model.n_models), np.ones(1), bias, 1.0, model.classes, model.positive, model.negative
    )  # fmt: skip
    assert terms_kind(model, problem, True) is OF_MODEL[kind, loss, bias]


@pytest.mark.parametrize("kind", ["dense", "csr", "pairs", "regression", "linear", "linear pairs"])
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_a_scorer_gives_the_scores_of_its_model(tmp_path: Path, kind: str, layout: str) -> None:
    """Bit by bit, and its tiny one is of the same kind."""
    if kind.startswith("linear"):
        rng, n_models = np.random.default_rng(3), 3 if kind == "linear pairs" else 1
        classes, codes = np.arange(3 if n_models == 3 else 2), models_of(3 if n_models == 3 else 2, n_models == 3)
        model: Model = LinearModel(
            rng.standard_normal((n_models, D)), rng.standard_normal(n_models), classes, {}, *codes
        )
    else:
        _, model = made(tmp_path, kind)
    X: Any = to_csr(rows(40)) if layout == "csr" else rows(40)
    scorer, tiny = model.scorer(), model.tiny().scorer()
    np.testing.assert_array_equal(scorer.scores(X), model.scores(X))
    assert scorer.n_features == model.n_features
    assert (type(tiny), tiny.n_features) == (type(scorer), 1)
    assert tiny.scores(np.ones((2, 1), X.data.dtype if layout == "csr" else X.dtype)).shape == (2, model.n_models)


def test_models_are_named_by_what_they_tell_apart() -> None:
    from bigsvm.problem.certificate import Certificate
    from bigsvm.problem.problem import make_problem

    X, three = rows(30), ["a", "b", "c"]
    numbers = np.ones(3), np.ones(3), np.zeros(3)
    certificate = Certificate(*numbers, 30, 0.0, np.ones(3, np.int64))
    for rule, expected in (
        ("ovr", [{"class": name} for name in three]),
        ("ovo", [{"class": "a", "against": "b"}, {"class": "a", "against": "c"}, {"class": "b", "against": "c"}]),
    ):
        problem = make_problem(FitConfig.of(multi_class=rule), ArrayRows(X, np.array(three * 10)))
        found = models_document(problem, certificate)
        assert [{key: row[key] for key in ("class", "against") if key in row} for row in found] == expected
    config = FitConfig.of(kernel="rbf", loss="epsilon_insensitive")
    problem = make_problem(config, ArrayRows(X, np.linspace(0, 1, 30), task="regression"))
    one = Certificate(*(array[:1] for array in numbers), 30, 0.0, np.ones(1, np.int64))
    assert models_document(problem, one)[0]["class"] is None
