"""Masked values, and what NumPy makes text of, are refused wherever they are given."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone, is_classifier

from bigsvm.sklearn import SVR, LinearSVC, NuSVC, NuSVR, OneClassSVM, search
from tests.sklearn.estimators import ALL, fitted, rows, scores


@pytest.mark.parametrize("estimator", [*ALL, NuSVC(), NuSVR(), OneClassSVM()], ids=str)
def test_one_weight_for_all_rows_and_masks(estimator: Any) -> None:
    X, y = rows(n_classes=2)
    alone, all_rows = fitted(estimator, X, y, 2.0), fitted(estimator, X, y, np.full(len(y), 2.0))
    np.testing.assert_array_equal(scores(alone, X), scores(all_rows, X))
    whole = np.ma.masked_array(X, mask=np.zeros(X.shape, bool))
    np.testing.assert_array_equal(scores(fitted(estimator, whole, y), X), scores(fitted(estimator, X, y), X))
    whole[3, 1] = np.ma.masked
    for use in (lambda: fitted(estimator, whole, y), lambda: alone.predict(whole)):
        with pytest.raises(ValueError, match="row 3 is masked"):
            use()


TAKING = [(e, name) for e in [*ALL, NuSVC(), NuSVR(), OneClassSVM()] for name in ("fit", "partial_fit", "score")
          if hasattr(e, name)]  # fmt: skip


@pytest.mark.parametrize("argument", ["X", "y", "sample_weight"])
@pytest.mark.parametrize(("estimator", "method"), TAKING, ids=str)
def test_masked_values_are_refused_wherever_they_are_given(estimator: Any, method: str, argument: str) -> None:
    X, y = rows(n_classes=2)
    given: dict[str, Any] = {"X": X, "y": y, "sample_weight": np.ones(len(y))}
    more = {"classes": np.unique(y)} if method == "partial_fit" and is_classifier(estimator) else {}
    own = clone(estimator)
    if method == "score":
        own.fit(X, y)
    nothing_masked = {name: np.ma.masked_array(value) for name, value in given.items()}
    getattr(clone(own) if method != "score" else own, method)(**nothing_masked, **more)
    hidden = np.zeros(np.shape(given[argument]), bool)
    hidden[5] = True
    given[argument] = np.ma.masked_array(given[argument], mask=hidden)
    if argument == "y" and isinstance(estimator, OneClassSVM):  # whose y is ignored
        getattr(own, method)(**given, **more)
        return
    with pytest.raises(ValueError, match=f"{argument}: row 5 is masked"):
        getattr(own, method)(**given, **more)


@pytest.mark.parametrize("estimator", [LinearSVC(), SVR(), OneClassSVM()], ids=str)
def test_a_masked_weight_and_an_argument_that_is_not_there(estimator: Any) -> None:
    X, y = rows(n_classes=2)
    with pytest.raises(ValueError, match="sample_weight: row 0 is masked"):
        clone(estimator).fit(X, y, sample_weight=np.ma.masked)
    with pytest.raises(TypeError, match=r"fit\(\) got an unexpected keyword argument 'weights'"):
        clone(estimator).fit(X, y, weights=None)


@pytest.mark.parametrize("argument", ["X", "y", "sample_weight", "groups", "cv"])
def test_a_search_refuses_masked_values(argument: str) -> None:
    X, y = rows(n_classes=2)
    given: dict[str, Any] = {"X": X, "y": y, "sample_weight": np.ones(len(y))}
    if argument in ("groups", "cv"):
        given[argument] = np.arange(len(y)) % 3
    hidden = np.zeros(np.shape(given[argument]), bool)
    hidden[5] = True
    given[argument] = np.ma.masked_array(given[argument], mask=hidden)
    with pytest.raises(ValueError, match=f"{argument}: row 5 is masked"):
        search(LinearSVC(), **given, Cs=[0.1, 1.0])


@pytest.mark.parametrize("odd", [None, float("nan"), 1, b"a", "a\0"], ids=repr)
@pytest.mark.parametrize(("estimator", "method"), [(e, m) for e, m in TAKING if is_classifier(e)], ids=str)
def test_what_is_no_text_in_a_list_of_labels_is_refused(estimator: Any, method: str, odd: Any) -> None:
    """NumPy makes text of it: rows whose label is missing were the class `nan`."""
    X, y = rows(n_classes=2)
    labels: list[Any] = ["ab"[code] for code in y]
    own = clone(estimator)
    if method == "score":
        own.fit(X, labels)
    labels[5] = odd
    for kind in (list, tuple, deque):
        with pytest.raises(ValueError, match="y: place 5 of a list of text holds"):
            getattr(own, method)(X, kind(labels), **({"classes": ["a", "b"]} if method == "partial_fit" else {}))
    if method == "fit" and isinstance(estimator, LinearSVC):
        for given in ({"y": labels}, {"y": y, "groups": labels}):
            with pytest.raises(ValueError, match="place 5 of a list of text holds"):
                search(estimator, X, **given, Cs=[1.0])
