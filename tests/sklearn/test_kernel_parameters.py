"""The parameter kernel: its proof, a function as a kernel, and what later changes of it do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

pytest.importorskip("sklearn")

import sklearn.svm

from bigsvm.sklearn import SVC
from tests.sklearn.estimators import rows


def test_a_fitted_kernel_stays_what_it_was() -> None:
    X, y = rows()
    for kernel in ("rbf", "linear"):
        found = SVC(kernel=kernel).fit(X, y)
        want = found.decision_function(X)
        found.set_params(kernel="poly", degree=2, coef0=1.0, gamma=3.0)
        np.testing.assert_array_equal(found.decision_function(X), want)


def test_a_kernel_without_proof_says_so() -> None:
    X, y = rows(n_classes=2)
    found = SVC(kernel="sigmoid", gamma=1.0, coef0=-1.0).fit(X, y)
    assert found.certificate_.kind == "none"
    theirs = sklearn.svm.SVC(kernel="rbf").fit(X, y)
    precomputed = SVC(kernel="precomputed").fit(np.exp(-((X[:, None] - X) ** 2).sum(axis=2) * theirs._gamma), y)
    assert precomputed.certificate_.kind == "proved"


def test_a_function_as_a_kernel() -> None:
    X, y = rows()

    def product(A: Any, B: Any) -> Any:
        return A @ B.T

    found, plain = SVC(kernel=product, tol=1e-7).fit(X, y), SVC(kernel="linear", tol=1e-7).fit(X, y)
    np.testing.assert_allclose(found.decision_function(X[:7]), plain.decision_function(X[:7]), atol=1e-4)
    sparse = scipy.sparse.csr_matrix(X)
    np.testing.assert_allclose(
        SVC(kernel=product, tol=1e-7).fit(sparse, y).decision_function(sparse), found.decision_function(X), atol=1e-4
    )
    with pytest.raises(ValueError, match="values for"):
        SVC(kernel=lambda A, B: A).fit(X, y)
