"""A weight of a label that does not exist is never passed over in silence."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")

import dask.array as da

import bigsvm
from bigsvm.sklearn import SVC, LinearSVC, NuSVC
from bigsvm.testing.problems import random_problem

LABELS: dict[str, list[Any]] = {"numbers": [3, 5], "texts": ["no", "yes"], "three": [1, 2, 4], "floats": [0.0, 1.0]}
FORMS: dict[str, Callable[[np.ndarray, np.ndarray], tuple[Any, Any]]] = {
    "arrays": lambda X, y: (X, y),
    "frame": lambda X, y: (pd.DataFrame(X, columns=["a", "b", "c"]), y),
    "dask": lambda X, y: (da.from_array(X, chunks=(20, -1)), y),
}


def rows(labels: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    X, codes = random_problem(60, 3, seed=7, noise=0.3)
    codes = np.where(np.arange(60) % 5 == 0, len(labels) - 1, codes > 0)
    return X, np.array(labels)[codes]


def messages(call: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        call()
    here = [str(one.message) for one in told if "class_weight" in str(one.message)]
    assert all(one.filename == __file__ for one in told if "class_weight" in str(one.message))
    return here


@pytest.mark.parametrize(
    ("make", "labels", "form"),
    [
        each
        for each in itertools.product((LinearSVC, SVC, NuSVC), LABELS, FORMS)
        if each != (LinearSVC, "three", "dask")
    ],
)
def test_a_weight_of_no_label_is_warned_of_and_changes_nothing(make: Any, labels: str, form: str) -> None:
    X, y = FORMS[form](*rows(LABELS[labels]))
    right = {label: 1.0 + k / 8 for k, label in enumerate(LABELS[labels])}
    options = {"nu": 0.2} if make is NuSVC else {}
    plain = make(class_weight=right, **options)
    assert messages(lambda: plain.fit(X, y)) == []
    model = make(class_weight={**right, 77: 2.0, "other": 3.0}, **options)
    assert messages(lambda: model.fit(X, y)) == ["class_weight has a weight for what is no label of y: 77, 'other'"]
    new = X if form == "frame" else np.eye(3)
    np.testing.assert_array_equal(plain.decision_function(new), model.decision_function(new))


KEYS = [True, np.True_, 1, np.int64(1), 1.0, np.float32(1), "1", "+1", "True", "true", "yes", np.str_("yes")]
MEANS_THE_SECOND: dict[str, tuple[list[Any], str]] = {
    "booleans": ([False, True], "True np.True_ 1 np.int64(1) 1.0 np.float32(1.0) '1' '+1' 'True' 'true'"),
    "numbers": ([0, 1], "True np.True_ 1 np.int64(1) 1.0 np.float32(1.0) '1' '+1'"),
    "floats": ([-1.0, 1.0], "True np.True_ 1 np.int64(1) 1.0 np.float32(1.0) '1' '+1'"),
    "texts of numbers": (["0", "1"], "True np.True_ 1 np.int64(1) 1.0 np.float32(1.0) '1' '+1'"),
    "texts of booleans": (["False", "True"], "True np.True_ 'True'"),
    "texts": (["no", "yes"], "'yes' np.str_('yes')"),
}
"""Labels, and which of KEYS mean the second one."""


@pytest.mark.parametrize(
    ("by", "form"),
    [*itertools.product(["LinearSVC", "SVC", "fit"], ["arrays", "store"]), ("tune", "store")],
)
@pytest.mark.parametrize("labels", MEANS_THE_SECOND)
def test_a_label_is_written_alike_everywhere(labels: str, form: str, by: str, tmp_path: Path) -> None:
    """Estimators of arrays took what those of stores refused, and the other way round."""
    names, means = MEANS_THE_SECOND[labels]
    X, y = rows(names)
    given = (X, y) if form == "arrays" else (bigsvm.open_store((X, y)),)

    def scores(key: Any) -> list[float]:
        weights = {key: 5.0}
        if by == "tune":  # which writes a record
            run = tmp_path / f"{len(list(tmp_path.iterdir()))}"
            found = bigsvm.tune(*given, class_weights=[weights], Cs=[1.0], folds=2, tol=0.1, refit=True, run=run)
            return found.refit.model.decision_function(X).tolist()
        if by == "fit":
            return bigsvm.fit(*given, class_weight=weights, tol=0.1).model.decision_function(X).tolist()
        make: Any = LinearSVC(tol=0.1) if by == "LinearSVC" else SVC(kernel="linear", tol=0.1)
        return make.set_params(class_weight=weights).fit(*given).decision_function(X).tolist()

    wanted = scores(names[1])
    assert wanted != scores(names[0])
    for key in KEYS:
        if repr(key) in means.split():
            assert scores(key) == wanted, key
        else:
            with pytest.raises(ValueError, match=r"which is no class|are not in class_weight"):
                scores(key)


@pytest.mark.parametrize("make", [LinearSVC, SVC])
def test_two_keys_for_one_class_are_refused(make: Any) -> None:
    X, y = rows([0, 1])
    for given in ((X, y), (bigsvm.open_store((X, y)),)):
        with pytest.raises(ValueError, match="class weights for 1 and '1', which are one class"):
            make(class_weight={1: 2.0, "1": 3.0}).fit(*given)


@pytest.mark.parametrize("make", [LinearSVC, SVC])
def test_a_label_that_is_declared_may_come_later(make: Any) -> None:
    X, y = rows([3, 5])
    weights = {3: 1.0, 5: 2.0, 9: 4.0}
    assert messages(lambda: make(class_weight=weights).partial_fit(X, y, classes=[3, 5, 9])) == []
    assert messages(lambda: make(class_weight=weights).partial_fit(X, y, classes=[3, 5])) != []


@pytest.mark.parametrize("many", [1, 10, 11, 500])
def test_many_labels_make_a_short_message(many: int) -> None:
    X, y = rows([3, 5])
    weights = {3: 1.0, 5: 2.0, **{f"label {k}": 1.0 for k in range(many)}}
    (told,) = messages(lambda: LinearSVC(class_weight=weights).fit(X, y))
    assert told.count("label ") == min(many, 10) + 1  # and once in the sentence
    assert told.endswith(", ...") == (many > 10)


@pytest.mark.parametrize("by", ["LinearSVC", "SVC", "NuSVC", "fit", "fit of arrays", "fit_path", "tune"])
def test_where_no_folds_leave_classes_out_it_is_an_error(by: str, tmp_path: Path) -> None:
    X, y = rows([3, 5])
    bigsvm.ingest((X, y), tmp_path / "rows.zarr")
    weights = {"3": 1.0, "5": 2.0, "77": 4.0}
    calls: dict[str, Callable[[], Any]] = {
        "LinearSVC": lambda: LinearSVC(class_weight=weights).fit(tmp_path / "rows.zarr"),
        "SVC": lambda: SVC(class_weight=weights).fit(tmp_path / "rows.zarr"),
        "NuSVC": lambda: NuSVC(class_weight=weights).fit(tmp_path / "rows.zarr"),
        "fit": lambda: bigsvm.fit(tmp_path / "rows.zarr", class_weight=weights),
        "fit of arrays": lambda: bigsvm.fit(X, y, class_weight=weights),
        "fit_path": lambda: bigsvm.fit_path((X, y), Cs=[0.1], class_weight=weights),
        "tune": lambda: bigsvm.tune((X, y), Cs=[0.1], class_weights=[weights], folds=2),
    }
    with pytest.raises(ValueError, match="class weight for '77', which is no class"):
        calls[by]()


@pytest.mark.parametrize("labels", [[9, 4], ["spam", "ham"], [9, 4, 6]], ids=str)
@pytest.mark.parametrize("few", ["rows", "weights", "no weight", "class weight"])
def test_an_infeasible_nu_names_labels(labels: list[Any], few: str) -> None:
    """It named the codes 0 and 1, which no row of the caller has."""
    codes = np.arange(60) % len(labels)
    if few == "rows":
        codes[:-1][codes[:-1] == 0] = 1
    sample_weight = np.where(codes == 0, {"weights": 0.01, "no weight": 0.0}.get(few, 1.0), 1.0)
    if few == "rows":
        codes[-1] = 0
    wanted = rf"class {labels[0]!r} has too few rows.*at most nu="
    if few == "no weight":  # a pair of classes is not even a problem
        wanted = rf"no row of class {labels[0]!r}" if len(labels) > 2 else "belong to the same class"
    nu = NuSVC(class_weight={labels[0]: 0.01} if few == "class weight" else None)
    with pytest.raises(ValueError, match=wanted):
        nu.fit(np.arange(120.0).reshape(60, 2) % 7, np.array(labels)[codes], sample_weight)
