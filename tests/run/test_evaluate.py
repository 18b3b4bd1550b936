"""Metrics against scikit-learn's, exact and binned, weighted and not."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigsvm.config import FitConfig
from bigsvm.errors import BudgetExceeded, DataError
from bigsvm.events import Warned
from bigsvm.model.linear_model import LinearModel
from bigsvm.run.api import fit
from bigsvm.run.apply.evaluate import evaluate, join_labels
from bigsvm.run.apply.metrics import (
    BinnedRanking,
    ExactRanking,
    average_precision,
    make_rankings,
    roc_auc,
)
from bigsvm.store.formats.array_rows import ArrayRows

sklearn_metrics = pytest.importorskip("sklearn.metrics")
CONFIG = FitConfig.of(memory=32 << 20, threads=2)
D = 6


def make(classes: Any, n: int = 800, seed: int = 0, weights: bool = False) -> tuple[LinearModel, Any, Any, Any]:
    rng = np.random.default_rng(seed)
    classes = np.array(classes)
    n_models = 1 if len(classes) == 2 else len(classes)
    model = LinearModel(rng.standard_normal((n_models, D)), rng.standard_normal(n_models), classes)
    X = rng.standard_normal((n, D)).round(1)  # rounded: ties
    y = np.where(rng.random(n) < 0.6, model.predict(X), rng.choice(classes, n))
    w = np.where(rng.random(n) < 0.2, 0.0, rng.random(n)) if weights else None
    return model, X, y, w


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("classes", [(-1, 1), (0, 1, 2, 3), ("ham", "spam")])
def test_metrics_are_scikit_learns(classes: Any, weights: bool) -> None:
    model, X, y, w = make(classes, weights=weights)
    got = evaluate(model, ArrayRows(X, y) if w is None else ArrayRows(X, y, w), CONFIG)
    predicted, scores = model.predict(X), model.decision_function(X)
    binary = len(classes) == 2
    options = {"sample_weight": w}
    assert got["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(y, predicted, **options), rel=1e-12)
    balanced = sklearn_metrics.balanced_accuracy_score(y, predicted, **options)
    assert got["balanced_accuracy"] == pytest.approx(balanced, rel=1e-12)
    average = {"pos_label": classes[1]} if binary else {"average": "macro"}
    assert got["f1"] == pytest.approx(sklearn_metrics.f1_score(y, predicted, **average, **options), rel=1e-12)
    truth = [y == classes[1]] if binary else [y == label for label in classes]
    columns = [scores] if binary else list(scores.T)
    aucs = [sklearn_metrics.roc_auc_score(t, s, **options) for t, s in zip(truth, columns, strict=True)]
    precisions = [sklearn_metrics.average_precision_score(t, s, **options) for t, s in zip(truth, columns, strict=True)]
    assert got["roc_auc"] == pytest.approx(np.mean(aucs), rel=1e-10)
    assert got["average_precision"] == pytest.approx(np.mean(precisions), rel=1e-10)
    matrix = sklearn_metrics.confusion_matrix(y, predicted, labels=list(classes), **options)
    np.testing.assert_allclose(got["confusion_matrix"], matrix, rtol=1e-12)
    assert not got["binned"]
    assert got["weighted"] is weights
    assert got["n_rows"] == (len(y) if w is None else np.count_nonzero(w))


def test_blocks_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model, X, y, _ = make((-1, 1))
    names = ("accuracy", "f1", "roc_auc", "average_precision", "confusion_matrix")
    whole = evaluate(model, ArrayRows(X, y), CONFIG)
    monkeypatch.setattr("bigsvm.run.apply.scoring._LARGEST_BLOCK", 5000)
    parts = evaluate(model, ArrayRows(X, y), CONFIG)
    assert {name: whole[name] for name in names} == {name: parts[name] for name in names}


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("classes", [(-1, 1), (0, 1, 2)])
@pytest.mark.parametrize("memory", ["5MiB", "7MiB", "64MiB"])
def test_scores_that_lie_close_together_are_ranked_exactly_in_any_memory(
    memory: str, classes: Any, weights: bool, tmp_path: Path
) -> None:
    """Scores within 1e-6 of each other share the leading bits of float32."""
    model, X, y, w = make(classes, n=40_000, weights=weights)
    X = X + np.random.default_rng(1).standard_normal(X.shape)
    model = LinearModel(1e-7 * model.coef, np.ones(len(model.coef)), model.classes)
    events: list[Any] = []
    config = FitConfig.of(memory=memory, threads=2, scratch=str(tmp_path))
    got = evaluate(model, ArrayRows(X, y) if w is None else ArrayRows(X, y, w), config, events.append)
    scores = model.decision_function(X)
    truth = [y == classes[1]] if len(classes) == 2 else [y == label for label in classes]
    columns = [scores] if len(classes) == 2 else list(scores.T)
    for name, metric in (
        ("roc_auc", sklearn_metrics.roc_auc_score),
        ("average_precision", sklearn_metrics.average_precision_score),
    ):
        expected = np.mean([metric(t, s, sample_weight=w) for t, s in zip(truth, columns, strict=True)])
        assert got[name] == pytest.approx(expected, rel=1e-10)
    assert not got["binned"]
    assert not [event for event in events if isinstance(event, Warned)]


def test_scores_are_binned_where_neither_memory_nor_disk_has_room_and_a_warning_names_the_memory(
    tmp_path: Path,
) -> None:
    model, X, y, _ = make((-1, 1), n=40_000)
    exact = evaluate(model, ArrayRows(X, y), CONFIG)
    events: list[Any] = []
    short = {"threads": 2, "scratch": str(tmp_path), "scratch_limit": 1000}
    binned = evaluate(model, ArrayRows(X, y), FitConfig.of(memory="5MiB", **short), events.append)
    assert binned["binned"]
    assert not exact["binned"]
    for name in ("roc_auc", "average_precision"):
        assert binned[name] == pytest.approx(exact[name], abs=1e-2)
    assert binned["confusion_matrix"] == exact["confusion_matrix"]
    (told,) = [event.message for event in events if isinstance(event, Warned)]
    found = re.search(r"--memory (\d+MiB)", told)
    assert found is not None
    again = evaluate(model, ArrayRows(X, y), FitConfig.of(memory=found[1], **short))
    assert not again["binned"]


def test_one_class_has_no_auc_and_says_so() -> None:
    model, X, _, _ = make((-1, 1))
    events: list[Any] = []
    got = evaluate(model, ArrayRows(X, np.where(np.arange(len(X)) == 0, -1, -1)), CONFIG, events.append)
    assert got["roc_auc"] is None
    assert any(isinstance(event, Warned) and "ROC AUC" in event.message for event in events)


def test_labels_the_model_does_not_know_are_wrong() -> None:
    model, X, y, _ = make((-1, 1))
    y = np.where(np.arange(len(y)) < 100, 7, y)
    events: list[Any] = []
    got = evaluate(model, ArrayRows(X, y), CONFIG, events.append)
    assert got["classes"] == [-1, 1, 7]
    assert got["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(y, model.predict(X)), rel=1e-12)
    assert sum(got["confusion_matrix"][2]) == 100
    assert any(isinstance(event, Warned) and "7" in event.message for event in events)


def said_of(model: LinearModel, rows: Any) -> tuple[dict[str, Any], list[str]]:
    """The metrics, and the first words of each warning."""
    events: list[Any] = []
    got = evaluate(model, rows, CONFIG, events.append)
    warned = [event.message for event in events if isinstance(event, Warned)]
    return got, [text[: len("ROC AUC")] if text.startswith("ROC") else text.split(" that")[0] for text in warned]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("source", ["rows", "text"])
def test_each_set_of_labels_has_one_warning_of_its_cause(source: str, n_classes: int, tmp_path: Path) -> None:
    """That ROC AUC is left out was said beside unknown labels, of which it only was a consequence."""
    model, X, _, _ = make(range(n_classes), n=24)
    for there in itertools.chain.from_iterable(itertools.combinations(range(5), n) for n in range(1, 6)):
        y = np.resize(there, len(X))
        rows: Any = ArrayRows(X, y, task="classification")
        if source == "text":
            entries = [" ".join(f"{j + 1}:{value}" for j, value in enumerate(x)) for x in X]
            (tmp_path / "a.svm").write_text("\n".join(map("{} {}".format, y, entries)))
            rows = str(tmp_path / "a.svm")
        got, said = said_of(model, rows)
        known = set(there) & set(range(n_classes))
        unknown = set(there) - known
        some = len(there) > 1 and bool(known - ({0} if n_classes == 2 else set()))
        assert (got["roc_auc"] is not None) == some
        wanted = ["labels"] if unknown else []
        # The mean of fewer classes is told beside unknown labels, too: it is a figure that is not what it seems.
        if (n_classes == 3 and some and len(known) < 3) or (not some and not unknown):
            wanted = ["ROC AUC", *wanted]
        assert said == wanted, there


@pytest.mark.parametrize("text", ["", "# no row\n\n"])
def test_a_text_without_rows_has_no_metrics(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text(text)
    with pytest.raises(DataError, match="no rows"):
        evaluate(make((-1, 1))[0], str(tmp_path / "a.svm"), CONFIG)


@pytest.mark.parametrize("kind", ["labels", "values"])
def test_rows_that_all_weigh_nothing_have_no_metrics(kind: str) -> None:
    model, X, y, _ = make((-1, 1))
    if kind == "values":
        model = fit(ArrayRows(X, X[:, 0] * 2.5, task="regression"), loss="epsilon_insensitive", memory="64MiB").model
    task = "regression" if kind == "values" else "classification"
    rows = ArrayRows(X, y * 0.5 if kind == "values" else y, np.zeros(len(y)), task=task)
    with pytest.raises(DataError, match="every row has weight 0"):
        evaluate(model, rows, CONFIG)


def test_a_regression_target_is_refused() -> None:
    model, X, _, _ = make((-1, 1))
    with pytest.raises(DataError, match="regression"):
        evaluate(model, ArrayRows(X, np.linspace(0, 1, len(X)), task="regression"), CONFIG)


def test_labels_are_joined_as_numbers_or_as_text() -> None:
    labels, ours, theirs = join_labels(np.array([-1, 1]), np.array([1.0, 2.0]))
    assert labels.tolist() == [-1, 1, 2]
    assert ours.tolist() == [0, 1]
    assert theirs.tolist() == [1, 2]
    labels, ours, theirs = join_labels(np.array(["a", "b"]), np.array([1, 2]))
    assert labels.tolist() == ["1", "2", "a", "b"]
    assert ours.tolist() == [2, 3]


@pytest.mark.parametrize("order", ["drawn", "ascending", "descending", "by class"])
@pytest.mark.parametrize("weights", [False, True])
def test_bins_follow_the_scores_whatever_their_scale_and_order(order: str, weights: bool) -> None:
    """Only 256 bins, for scores within 1e-9 of each other."""
    rng = np.random.default_rng(0)
    scores = rng.standard_normal(30_000)
    positive = scores + rng.standard_normal(len(scores)) > 2.5
    w = rng.random(len(scores)) if weights else None
    key = {"drawn": np.zeros(len(scores)), "ascending": scores, "descending": -scores, "by class": positive}[order]
    rows = np.argsort(key, kind="stable")
    scores, positive, w = 1.0 + 1e-9 * scores[rows], positive[rows], None if w is None else w[rows]
    found = []
    for pieces in (1, 77):
        ranking = BinnedRanking(10)
        for piece in np.array_split(np.arange(len(rows)), pieces):
            ranking.add(scores[piece], positive[piece], None if w is None else w[piece])
        found.append((roc_auc(*ranking.counts()), average_precision(*ranking.counts())))
    assert found[0] == found[1], "blocks change nothing"
    assert found[0][0] == pytest.approx(sklearn_metrics.roc_auc_score(positive, scores, sample_weight=w), abs=3e-3)
    precision = sklearn_metrics.average_precision_score(positive, scores, sample_weight=w)
    assert found[0][1] == pytest.approx(precision, abs=2e-2)


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans(), st.integers(0, 3)), min_size=1, max_size=40))
def test_exact_and_binned_agree_where_no_bin_is_shared(rows: list[tuple[int, bool, int]]) -> None:
    scores, positive, weights = (np.array(column) for column in zip(*rows, strict=True))
    weights = weights.astype(np.float64)
    exact, binned = ExactRanking(len(rows)), BinnedRanking(16)
    for ranking in (exact, binned):
        ranking.add(scores.astype(np.float64), positive.astype(bool), weights)
    for metric in (roc_auc, average_precision):
        a, b = metric(*exact.counts()), metric(*binned.counts())
        assert a == b or a == pytest.approx(b, rel=1e-12)


def test_a_ranking_keeps_to_its_bytes() -> None:
    for nbytes in (1 << 20, 1 << 22, 1 << 26):
        rankings, taken = make_rankings(10**9, 3, nbytes)
        assert taken <= nbytes
        assert all(ranking.binned for ranking in rankings)
    rankings, _ = make_rankings(1000, 3, 1 << 20)
    assert not rankings[0].binned


@pytest.mark.usefixtures("freed_is_returned")
def test_a_matrix_of_many_labels_is_part_of_the_budget() -> None:
    """It is there as counts, as whole numbers and as a list; and few rows of a block fill few of its places."""
    n = 800
    classes = np.arange(n)
    rng = np.random.default_rng(0)
    model = LinearModel(rng.standard_normal((n, 3)), np.zeros(n), classes)
    X = rng.standard_normal((2 * n, 3))
    y = np.tile(classes, 2)
    store, one = ArrayRows(X, y), 8 * n * n
    with pytest.raises(BudgetExceeded) as refused:
        evaluate(model, store, FitConfig.of(memory=3 * one, threads=1))
    assert refused.value.min_memory_bytes >= 4 * one
    config = FitConfig.of(memory=4 * one + (24 << 20), threads=1)
    found = evaluate(model, store, config)
    memory = found["memory"]
    assert memory["peak_anon_bytes"] - memory["base_bytes"] <= memory["budget_bytes"]
    matrix = np.array(found["confusion_matrix"])
    wanted = np.zeros((n, n), int)
    np.add.at(wanted, (y, model.predict(X)), 1)
    np.testing.assert_array_equal(matrix, wanted)
