"""What estimators refuse: parameters, weights, labels and numbers that cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from bigsvm.errors import PlanRefused
from bigsvm.sklearn import SVC, SVR, LinearSVC, LinearSVR, NuSVC, NuSVR, OneClassSVM
from tests.products import each_of
from tests.sklearn.estimators import rows


@pytest.mark.parametrize(
    ("estimator", "names"),
    [
        (LinearSVC(penalty="l1", dual=False), "l1.*out of scope"),
        (LinearSVC(loss="hinge", dual=False), "Unsupported set of arguments"),
        (LinearSVC(intercept_scaling=0), "intercept_scaling"),
        (LinearSVC(solver="fastest"), "fastest"),
        (LinearSVC(solver="hyperpass"), "squared_hinge"),
        (SVC(probability=True), "CalibratedClassifierCV"),
        (SVC(C=np.inf), "'C'"),
        (SVR(kernel="cosine"), "kernel"),
        (SVC(kernel="precomputed"), "square matrix"),
        (SVC(memory="plenty"), "plenty"),
        (SVC(class_weight={7: 2.0}), "not in class_weight"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_by_name(estimator: Any, names: str) -> None:
    X, y = rows()
    with pytest.raises(ValueError, match=names) as found:
        estimator.fit(X, y)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("make", [LinearSVC, SVC, NuSVC])
@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_weight_that_is_none_is_refused_by_its_label(make: Any, weight: float, place: int) -> None:
    X, y = rows()
    names = np.array(["cat", "cow", "dog"])
    with pytest.raises(ValueError, match=f"class weight of '{names[place]}' must be finite and not negative"):
        make(class_weight={"cow": 2.0, names[place]: weight}).fit(X, names[y])


def test_one_class_and_one_weighted_class_are_refused() -> None:
    X, y = rows(n_classes=2)
    for estimator in (LinearSVC(), SVC()):
        with pytest.raises(ValueError, match="one class"):
            estimator.fit(X, np.full(len(y), "a"))
        with pytest.raises(ValueError, match="same class"):
            estimator.fit(X, y, sample_weight=(y == 1) * 1.0)
        with pytest.raises(NotFittedError):
            clone(estimator).predict(X)


def test_a_memory_that_cannot_do_is_refused_with_one_that_can() -> None:
    X, y = rows(n=1000, d=60)
    with pytest.raises(PlanRefused) as refused:
        LinearSVC(memory=1 << 20).fit(X, y)
    assert refused.value.min_memory_bytes is not None
    found = LinearSVC(memory=refused.value.min_memory_bytes).fit(X, y)
    np.testing.assert_allclose(found.coef_, LinearSVC().fit(X, y).coef_, atol=1e-3)


FORMS: dict[str, Any] = {
    "array": np.asarray,
    "list": lambda X: X.tolist(),
    "CSR": scipy.sparse.csr_array,
    "CSC": scipy.sparse.csc_matrix,
    "LIL": scipy.sparse.lil_matrix,
    "frame": lambda X: pd.DataFrame(X, columns=list("abc")),
    "nullable": lambda X: pd.DataFrame(X).astype("Int64" if X.dtype.kind == "i" else "UInt64"),
    "mixed": lambda X: pd.DataFrame(X, columns=list("abc")).assign(d=0.5),
}


@each_of(estimator=[LinearSVC, LinearSVR, SVC, SVR, NuSVC, NuSVR, OneClassSVM], form=FORMS, dtype=["int64", "uint64"])
def test_whole_numbers_that_float64_rounds_are_refused_as_in_files(estimator: Any, form: str, dtype: str) -> None:
    X, y = np.random.default_rng(0).integers(1, 9, (30, 3)).astype(dtype), np.arange(30) % 2
    made, what = FORMS[form], r"row 7 holds 9007199254740993, beyond 2\^53, where float64 rounds"
    fitted = estimator().set_params(tol=0.1).fit(made(X), y)
    X[7, 1], X[8, 1] = 2**53, 2**53 - 1
    fitted.predict(made(X))
    X[7, 1] += 1
    with pytest.raises(ValueError, match=what):
        fitted.predict(made(X))
    with pytest.raises(ValueError, match=what):
        estimator().fit(made(X), y)


@pytest.mark.parametrize("estimator", [LinearSVR, SVR, NuSVR])
def test_targets_that_float64_rounds_are_refused_as_in_files(estimator: Any) -> None:
    X, y = np.random.default_rng(0).random((30, 3)), np.arange(30)
    estimator().fit(X, y)
    y[7] = 2**53 + 1
    with pytest.raises(ValueError, match=r"target 9007199254740993 of row 7 is beyond 2\^53"):
        estimator().fit(X, y)


@pytest.mark.parametrize("estimator", [LinearSVR, SVR, NuSVR])
@pytest.mark.parametrize("kind", ["datetime64[D]", "timedelta64[s]"])
def test_times_are_no_targets(estimator: Any, kind: str) -> None:
    """NumPy took them for numbers of days or seconds, of 1970 on."""
    X, y = np.random.default_rng(0).random((30, 3)), np.arange(30).astype(kind)
    for given in (y, pd.Series(y.astype(kind.replace("[D]", "[s]")))):
        with pytest.raises(ValueError, match="of row 0 is not a number"):
            estimator().fit(X, given)


@pytest.mark.parametrize("estimator", [LinearSVC, LinearSVR, SVC, SVR, NuSVC, NuSVR, OneClassSVM])
@pytest.mark.parametrize("kind", ["datetime64[s]", "timedelta64[s]", "datetime64[s, UTC]"])
def test_times_are_no_features(estimator: Any, kind: str) -> None:
    X, y = np.random.default_rng(0).integers(1, 9, (30, 2)), np.arange(30) % 2
    fitted = estimator().fit(X, y)
    frame = pd.DataFrame({"a": X[:, 0], "b": pd.Series(X[:, 1]).astype(kind)})
    forms: dict[str, Any] = {"X, column 'b': values": frame, "X, column 'b'": frame[["b", "b"]]}
    if "UTC" not in kind:
        forms["X: values"] = X.astype(kind)
    for said, given in forms.items():
        with pytest.raises(ValueError, match=f"{said}.* are not numbers"):
            fitted.predict(given)
        with pytest.raises(ValueError, match=f"{said}.* are not numbers"):
            estimator().fit(given, y)
