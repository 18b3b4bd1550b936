"""Estimators fitted to stores, and what they share with those of arrays: class weights, names, folds, warnings."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import LeaveOneOut, StratifiedKFold

import bigsvm
from bigsvm.errors import DataError, UsageError
from bigsvm.sklearn import SVC, LinearSVC, OneClassSVM, search

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 4))
Y = (X[:, 0] + 0.8 * RNG.standard_normal(120) > 0.7).astype(int)
WEIGHT = np.where(RNG.random(120) < 0.2, 0.0, np.where(Y == 1, 3.0, 0.5) * RNG.uniform(0.5, 2.0, 120))


@pytest.mark.parametrize("labels", [[0, 1], ["no", "yes"], [-1, 1], [False, True]], ids=str)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("make", [LinearSVC, SVC], ids=lambda made: made.__name__)
def test_balanced_classes_weigh_the_same_of_a_store_as_of_arrays(make: Any, weighted: bool, labels: list[Any]) -> None:
    y = np.array(labels)[Y]
    weight = WEIGHT if weighted else None
    kernel = {} if make is LinearSVC else {"kernel": "linear"}
    of_arrays = make(class_weight="balanced", tol=1e-6, **kernel).fit(X, y, weight)
    of_store = make(class_weight="balanced", tol=1e-6, **kernel).fit(bigsvm.open_store((X, y, weight)))
    np.testing.assert_allclose(of_store.decision_function(X), of_arrays.decision_function(X), atol=2e-3)
    if make is SVC:
        np.testing.assert_allclose(of_store.class_weight_, of_arrays.class_weight_)


@pytest.mark.parametrize("class_weights", [None, "balanced", ["balanced", None]], ids=str)
def test_a_search_compares_no_other_models_than_the_estimators(class_weights: Any) -> None:
    given = LinearSVC(class_weight="balanced" if class_weights is None else None)
    with pytest.raises(ValueError, match="'balanced' beside weights of rows"):
        search(given, X, Y, sample_weight=WEIGHT, class_weights=class_weights, Cs=[0.1])


@pytest.mark.parametrize("fitted_to", ["frame", "path", "store"])
@pytest.mark.parametrize("asked_of", ["frame", "path", "store"])
@pytest.mark.parametrize("order", ["abcd", "dbca"])
def test_features_go_by_their_names(fitted_to: str, asked_of: str, order: str, tmp_path: Path) -> None:
    """In another order they are found by name, or refused; never taken for others."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd"))

    def given(kind: str, columns: str) -> Any:
        if kind == "frame":
            return frame[list(columns)]
        path = tmp_path / f"{columns}.parquet"
        frame[list(columns)].assign(label=Y).to_parquet(path)
        return str(path) if kind == "path" else bigsvm.open_store(path)

    train = given(fitted_to, "abcd")
    model = LinearSVC().fit(train, *([Y] if fitted_to == "frame" else []))
    assert list(model.feature_names_in_) == list("abcd")
    right = model.decision_function(frame)
    if order == "dbca" and asked_of in ("frame", "store"):
        with pytest.raises(ValueError, match=r"[Ff]eature|column"):
            model.decision_function(given(asked_of, order))
    else:
        np.testing.assert_allclose(model.decision_function(given(asked_of, order)), right, rtol=1e-9)


@pytest.mark.parametrize("names", [("01", "1"), ("100", "1e2"), ("10", "1_0"), (" 1", "1"), ("NaN", "nan")])
def test_a_weight_is_of_the_class_whose_name_it_has(names: tuple[str, str]) -> None:
    y = np.array(names)[Y]
    for k, name in enumerate(names):
        found = bigsvm.fit((X, y), class_weight={name: 5.0}, tol=0.1).model.about["problem"]["class_weight"]
        assert found == [5.0 if j == k else 1.0 for j in range(2)]


def test_a_weight_that_may_be_of_two_classes_is_refused() -> None:
    y = np.array(["01", "1"])[Y]
    with pytest.raises(UsageError, match="as which one may read '01' and '1'"):
        bigsvm.fit((X, y), class_weight={"+1": 5.0})
    with pytest.raises(UsageError, match="is no class"):
        bigsvm.fit((X, y), class_weight={"2": 5.0})


@pytest.mark.parametrize("metric", ["roc_auc", "average_precision", "accuracy"])
def test_where_no_candidate_can_be_compared_none_is_chosen(metric: str) -> None:
    fold = np.where(np.arange(120) % 3 == 0, 0, np.where(Y == 1, 1, 2))
    fold[:12] = [0, 1, 2] * 4
    fold[(fold == 2) & (Y == 1)] = 1
    if metric == "accuracy":
        assert len(bigsvm.tune((X, Y), Cs=[1e-3, 1.0], fold=fold, metric=metric, tol=0.1).rows) == 2
    else:
        with pytest.raises(DataError, match=f"no candidate has a mean {metric}: the rows of fold .*2 give none"):
            bigsvm.tune((X, Y), Cs=[1e-3, 1.0], fold=fold, metric=metric, tol=0.1)


def test_folds_that_make_no_sense_are_refused_in_words() -> None:
    for cv in (True, 3.0):
        with pytest.raises(ValueError, match="it is a number of folds, a splitter"):
            search(LinearSVC(), X, Y, Cs=[1.0], cv=cv)
    with pytest.raises(ValueError, match="a splitter that looks at labels, of a store"):
        search(LinearSVC(), bigsvm.open_store((X, Y)), Cs=[1.0], cv=StratifiedKFold(3))
    few = search(LinearSVC(), X[:20], np.arange(20) % 2, Cs=[1.0], cv=LeaveOneOut())
    assert few.n_splits_ == 20


def test_a_search_warns_of_models_that_are_not_proved() -> None:
    with pytest.warns(ConvergenceWarning, match="the largest relative duality gap is"):
        search(LinearSVC(max_iter=1, tol=1e-8, loss="hinge"), X, Y, Cs=[100.0], refit=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search(LinearSVC(), X, Y, Cs=[1.0])


def test_a_score_of_0_is_unlike_as_in_scikit_learn() -> None:
    same = np.ones((10, 2))
    assert (OneClassSVM(kernel="linear", nu=0.5).fit(same).predict(same) == -1).all()
