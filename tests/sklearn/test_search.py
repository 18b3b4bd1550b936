"""`bigsvm.sklearn.search` finds what GridSearchCV finds, on the same splits."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

import sklearn.svm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit, StratifiedKFold

import bigsvm
from bigsvm.sklearn import SVC, LinearSVC, LinearSVR, search
from bigsvm.testing.problems import random_problem

CS = [0.05, 1.0]


def test_a_classifier_on_the_splits_of_scikit_learn() -> None:
    X, y = random_problem(300, 5, seed=41, noise=0.3)
    cv = StratifiedKFold(3)
    found = search(LinearSVC(tol=1e-4, solver="dcd"), X, y, Cs=CS, cv=cv, scoring="roc_auc")
    theirs = GridSearchCV(sklearn.svm.LinearSVC(tol=1e-8, max_iter=10**5), {"C": CS}, cv=cv, scoring="roc_auc")
    theirs.fit(X, y)
    assert found.n_splits_ == 3
    assert [params["C"] for params in found.cv_results_["params"]] == CS
    assert set(found.cv_results_) - {"relative_gap"} <= set(theirs.cv_results_)
    for name in ("split0_test_score", "split2_test_score", "mean_test_score", "std_test_score"):
        np.testing.assert_allclose(found.cv_results_[name], theirs.cv_results_[name], atol=1e-3)
    assert found.best_params_ == found.cv_results_["params"][found.best_index_]
    assert found.cv_results_["rank_test_score"][found.best_index_] == 1
    assert np.all(found.cv_results_["relative_gap"] <= 1e-6)
    alone = LinearSVC(tol=1e-4, solver="dcd", **found.best_params_).fit(X, y)
    np.testing.assert_array_equal(found.best_estimator_.coef_, alone.coef_)
    np.testing.assert_array_equal(found.predict(X), alone.predict(X))


def test_a_regression_a_store_and_class_weights(tmp_path: Path) -> None:
    X, y = random_problem(120, 4, seed=42, noise=0.2)
    targets = X @ np.arange(4.0)
    values = search(
        LinearSVR(loss="squared_epsilon_insensitive"), X, targets, Cs=CS, cv=np.arange(120) % 3, refit=False
    )
    assert values.best_score_ > 0.99
    assert not hasattr(values, "best_estimator_")
    bigsvm.ingest((X, y), tmp_path / "rows.zarr")
    found = search(LinearSVC(), tmp_path / "rows.zarr", Cs=CS, cv=3, class_weights=["none", "balanced"])
    assert len(found.cv_results_["params"]) == 4
    assert found.best_estimator_.n_features_in_ == 4


@pytest.mark.parametrize(
    ("estimator", "n_classes"),
    [(LinearSVC(class_weight={0: 1, 1: 8}), 2), (LinearSVC(multi_class="crammer_singer"), 3)],
    ids=["class weights", "Crammer and Singer"],
)
def test_what_is_searched_is_the_problem_of_the_estimator(estimator: LinearSVC, n_classes: int) -> None:
    rng = np.random.default_rng(44)
    X, y, fold = rng.standard_normal((90, 3)), np.arange(90) % n_classes, np.arange(90) // 45
    X[np.arange(90), y] += 1.0
    found = search(estimator, X, y, Cs=[0.1], cv=fold)
    assert found.best_params_ == {"C": 0.1}
    assert found.best_estimator_.class_weight == estimator.class_weight
    for k in (0, 1):
        alone = clone(estimator).set_params(C=0.1).fit(X[fold != k], y[fold != k])
        assert found.cv_results_[f"split{k}_test_score"][0] == alone.score(X[fold == k], y[fold == k])


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_columns_of_all_scales_are_searched_as_they_are_fitted(loss: str) -> None:
    X, y = random_problem(120, 5, seed=45, noise=0.3)
    X, fold = 1e3 * np.abs(X) * np.logspace(-3, 0, 5), np.arange(120) % 2
    estimator = LinearSVC(loss=loss, max_iter=300)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        found = search(estimator, X, y, Cs=[1.0], cv=fold)
        for k in (0, 1):
            alone = clone(estimator).fit(X[fold != k], y[fold != k])
            assert found.cv_results_[f"split{k}_test_score"][0] == alone.score(X[fold == k], y[fold == k])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"estimator": SVC()}, "not SVC"),
        ({"cv": ShuffleSplit(3, random_state=0)}, "in two test sets|in no test set"),
        ({"cv": [(np.arange(30), np.arange(30, 60))]}, "in no test set"),
        ({"cv": KFold(3), "groups": np.arange(60)}, "groups need folds"),
        ({"Cs": [-1.0]}, "positive"),
        ({"scoring": "r2"}, "unknown metric"),
        ({"estimator": LinearSVR(), "class_weights": ["balanced"]}, "LinearSVR has none"),
        ({"estimator": LinearSVC(tol=-1.0)}, "tol"),
    ],
)
def test_what_cannot_be_searched_is_a_value_error(changed: dict[str, Any], said: str) -> None:
    X, y = random_problem(60, 3, seed=43)
    given = {"estimator": LinearSVC(), "Cs": CS, **changed}
    with pytest.raises(ValueError, match=said):
        search(given.pop("estimator"), X, y, **given)
