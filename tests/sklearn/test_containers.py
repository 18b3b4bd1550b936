"""Rows and labels in any container and of any type give the same model, without copies that can be spared."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

pytest.importorskip("sklearn")

from sklearn.base import clone

from bigsvm.sklearn import SVC, SVR, LinearSVC
from bigsvm.sklearn.classes import coded
from bigsvm.sklearn.linear import linear_svc
from tests.products import each_of
from tests.sklearn.estimators import ALL, CLASSIFIERS, fitted, rows, scores


def containers(X: np.ndarray) -> dict[str, Any]:
    """X in the ways that people have it, all of the same values."""
    wide = scipy.sparse.csr_matrix(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    backwards = scipy.sparse.csr_matrix(X)
    for start, stop in zip(backwards.indptr[:-1], backwards.indptr[1:], strict=True):
        backwards.indices[start:stop] = backwards.indices[start:stop][::-1]
        backwards.data[start:stop] = backwards.data[start:stop][::-1]
    backwards.has_sorted_indices = False
    twice = scipy.sparse.coo_matrix(X)
    twice = scipy.sparse.coo_matrix(
        (np.repeat(twice.data / 2, 2), (np.repeat(twice.row, 2), np.repeat(twice.col, 2))), X.shape
    )
    return {
        "fortran": np.asfortranarray(X),
        "list": X.tolist(),
        "csr_matrix": scipy.sparse.csr_matrix(X),
        "csr_array": scipy.sparse.csr_array(X),
        "csc_array": scipy.sparse.csc_array(X),
        "int64 indices": wide,
        "unsorted": backwards,
        "repeated": twice,
    }


@pytest.mark.parametrize("estimator", ALL, ids=str)
def test_rows_in_any_container(estimator: Any) -> None:
    X, y = rows()
    estimator = clone(estimator).set_params(tol=1e-7)
    want = scores(fitted(estimator, X, y), X)
    for name, given in containers(X).items():
        found = fitted(estimator, given, y)
        np.testing.assert_allclose(scores(found, given), want, atol=2e-5, err_msg=name)
        np.testing.assert_allclose(scores(found, X), want, atol=2e-5, err_msg=name)
        if isinstance(estimator, SVC | SVR):
            assert scipy.sparse.issparse(found.dual_coef_) == scipy.sparse.issparse(given)
            assert scipy.sparse.issparse(found.support_vectors_) == scipy.sparse.issparse(given)


@each_of(estimator=ALL, dtype=["float32", "int8", "bool", "int64"])
def test_narrow_types_are_trained_as_they_are(estimator: Any, dtype: str) -> None:
    X, y = rows()
    X = (10 * X).astype(dtype)
    estimator = clone(estimator).set_params(C=0.01, tol=1e-6)
    found, wide = fitted(estimator, X, y), fitted(estimator, X.astype(np.float64), y)
    np.testing.assert_allclose(scores(found, X), scores(wide, X), atol=2e-4)
    if isinstance(estimator, SVC | SVR):
        assert found.support_vectors_.dtype == (np.float32 if dtype == "float32" else np.float64)


def test_float32_and_bytes_are_not_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What reaches bigsvm is the very array; the test above trains on such ones."""

    class Reached(Exception):
        """It is not trained on: that would be compiled for types that no other test has."""

    seen = list[Any]()

    def spy(source: Any, **options: Any) -> Any:
        seen.append(source[0])
        raise Reached

    monkeypatch.setattr(linear_svc, "open_store", spy)
    X, y = rows()
    for dtype in (np.float32, np.int8, np.uint8, np.bool_):
        given = np.abs(10 * X).astype(dtype)
        with pytest.raises(Reached):
            LinearSVC().fit(given, y)
        assert seen[-1].dtype == dtype
        assert np.shares_memory(seen[-1], given)


@pytest.mark.parametrize("estimator", ALL, ids=str)
def test_a_read_only_map_is_read(estimator: Any, tmp_path: Path) -> None:
    X, y = rows()
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    np.testing.assert_array_equal(scores(fitted(estimator, mapped, y), mapped), scores(fitted(estimator, X, y), X))


@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=str)
@pytest.mark.parametrize("names", [["b", "c", "a"], [2.5, -1.0, 7.0], [True, False], [10**17, 10**17 + 1, 3]], ids=str)
def test_labels_of_any_kind(estimator: Any, names: list[Any]) -> None:
    X, y = rows(n_classes=len(names))
    if any(isinstance(name, float) for name in names):
        names = [int(10 * name) for name in names]
    labels = np.array(names)[y]
    found = fitted(estimator, X, labels)
    np.testing.assert_array_equal(found.classes_, np.unique(labels))
    assert set(found.predict(X).tolist()) <= set(names)
    assert found.score(X, labels) > 0.6
    if isinstance(names[0], str):
        as_objects = fitted(estimator, X, labels.astype(object))
        np.testing.assert_array_equal(as_objects.predict(X), found.predict(X))


def test_labels_of_many_narrow_rows_take_few_bytes() -> None:
    """9.0 M x 5 of float32 has 20 bytes a row; inverses of np.unique and copies in int64 took 50 more."""
    n = 1_000_000
    y = np.random.default_rng(0).integers(3, 6, n).astype(np.int8)
    tracemalloc.start()
    try:
        classes, codes = coded(y)
        ((rows, _),) = LinearSVC()._of_arrays(np.zeros((n, 1), np.float32), codes, None, classes)
        assert rows.fingerprint
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert classes.tolist() == [3, 4, 5]
    np.testing.assert_array_equal(classes[codes], y)
    assert peak < 20 * n
