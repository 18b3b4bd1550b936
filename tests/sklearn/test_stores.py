"""Estimators fitted to stores, and what they share with those of arrays: class weights, names, folds, warnings."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import LeaveOneOut, StratifiedKFold

import bigsvm
from bigsvm.errors import DataError, PlanRefused, UsageError
from bigsvm.sklearn import SVC, LinearSVC, NuSVC, OneClassSVM, search

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
    with pytest.raises(ValueError, match="'balanced' does not go with weights of rows"):
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
    with pytest.raises(UsageError, match="which may mean '01' and '1'"):
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
        with pytest.raises(
            DataError, match=f"no candidate has a mean {metric}: it is undefined for the rows of fold .*2"
        ):
            bigsvm.tune((X, Y), Cs=[1e-3, 1.0], fold=fold, metric=metric, tol=0.1)


def test_folds_that_make_no_sense_are_refused_in_words() -> None:
    for cv in (True, 3.0):
        with pytest.raises(ValueError, match="cv must be a number of folds, a splitter"):
            search(LinearSVC(), X, Y, Cs=[1.0], cv=cv)
    with pytest.raises(ValueError, match="a splitter that looks at labels is not supported for a store"):
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


def refits(folder: Path) -> dict[str, Callable[[Any], None]]:
    """Fits that fail, each at another place."""
    X = np.random.default_rng(1).standard_normal((90, 5))
    y = (X[:, 0] < 0).astype(int)
    (folder / "one.csv").write_text("a,label\n" + "1,p\n" * 4)

    def fails(estimator: Any, *rows: Any, **parameters: Any) -> None:
        former = estimator.get_params()
        estimator.set_params(**parameters)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", ConvergenceWarning)
                estimator.fit(*rows)
        finally:
            estimator.set_params(**former)

    text = np.array(["a", "b"])[y]
    return {
        "refused by the plan": lambda estimator: fails(estimator, X, text, memory="1KiB"),
        "a warning that is an error": lambda estimator: fails(estimator, X, text, tol=1e-9, max_iter=1),
        "bad rows": lambda estimator: fails(estimator, np.where(X > 2, np.nan, X), text),
        "another width, bad weights": lambda estimator: fails(estimator, X[:, :3], text, np.full(90, np.nan)),
        "one class in a store": lambda estimator: fails(estimator, str(folder / "one.csv")),
    }


@pytest.mark.parametrize("make", [LinearSVC, SVC, NuSVC], ids=str)
def test_a_refit_that_fails_leaves_the_estimator_as_it_was(make: Any, tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=list("abcd"))
    for name, refit in refits(tmp_path).items():
        estimator = make().fit(frame, Y)
        before, labels = dict(vars(estimator)), estimator.predict(frame)
        if name.startswith("a warning") and make is not LinearSVC:
            continue  # it is done in one
        with pytest.raises((ValueError, PlanRefused, ConvergenceWarning)):
            refit(estimator)
        assert vars(estimator).keys() == before.keys(), name
        assert all(vars(estimator)[key] is value for key, value in before.items()), name
        np.testing.assert_array_equal(estimator.predict(frame), labels)


@pytest.mark.parametrize("make", [LinearSVC, SVC, OneClassSVM], ids=str)
def test_what_a_store_warns_of_is_said(make: Any, tmp_path: Path) -> None:
    """By `fit`, and by what scores it."""
    frame = pd.DataFrame({"": range(20), "a": np.arange(20.0) % 7, "c": list("xy") * 10, "label": [0, 1] * 10})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.warns(UserWarning, match="the column without a name is a feature") as said:
        estimator = make().fit(str(tmp_path / "rows.csv"))
    assert said[0].filename == __file__
    frame["c"] = list("xz") * 10
    frame.to_csv(tmp_path / "new.csv", index=False)
    for use in (estimator.predict, estimator.decision_function):
        with pytest.warns(UserWarning, match=r"\bz\b") as said:
            use(str(tmp_path / "new.csv"))
        assert said[0].filename == __file__
    if make is not OneClassSVM:
        with pytest.warns(UserWarning, match="'z'|\\bz\\b"):
            estimator.score(str(tmp_path / "new.csv"))


@pytest.mark.parametrize("suffix", [".csv", ".feather", ".parquet"])
def test_names_of_a_table_of_numbers_are_those_of_frames(suffix: str, tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=list("abcd"))
    path, both = tmp_path / f"rows{suffix}", frame.assign(label=Y)
    write = {".csv": lambda: both.to_csv(path, index=False), ".parquet": lambda: both.to_parquet(path)}
    write.get(suffix, lambda: both.to_feather(path))()
    estimator = LinearSVC().fit(str(path))
    assert estimator.feature_names_in_.tolist() == list("abcd")
    assert estimator.score(frame, Y) == estimator.score(str(path))
    with pytest.raises(ValueError, match="feature names"):
        estimator.score(frame[list("dcba")], Y)
