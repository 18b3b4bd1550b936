"""A fitted kernel estimator scores with the kernel of its fit, whatever is set for the next fit."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse

pytest.importorskip("sklearn")

import sklearn.svm
from sklearn.base import clone, is_classifier, is_outlier_detector, is_regressor
from sklearn.utils import get_tags

import bigsvm.sklearn
from bigsvm.sklearn import SVC, SVR, NuSVC, NuSVR, OneClassSVM
from tests.products import each_of


def product(A: Any, B: Any) -> np.ndarray:
    return np.asarray(A) @ np.asarray(B).T


def product_of_squares(A: Any, B: Any) -> np.ndarray:
    return np.asarray(A) ** 2 @ (np.asarray(B) ** 2).T


ESTIMATORS = [SVC(), SVR(), NuSVC(nu=0.3), NuSVR(), OneClassSVM()]
KERNELS: list[Any] = [product, product_of_squares, "precomputed", "linear", "rbf", "poly", "sigmoid"]
SEMIDEFINITE = [kernel for kernel in KERNELS if kernel != "sigmoid"]
CASES = [
    (estimator, kernel)
    for estimator in ESTIMATORS
    for kernel in (KERNELS if isinstance(estimator, SVC | SVR) and not isinstance(estimator, NuSVC) else SEMIDEFINITE)
]


def rows(n_classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Rows on one side of the origin, which a one-class fit needs, and their classes."""
    random = np.random.default_rng(0)
    X = random.standard_normal((30, 3))
    return 0.3 * X + 1.2, np.argmax(X[:, :n_classes] + 0.3 * random.standard_normal((30, n_classes)), axis=1)


@functools.cache
def fitted(number: int) -> tuple[Any, np.ndarray]:
    """The fitted estimator of a case, and the rows that it scores."""
    estimator, kernel = CASES[number]
    X, y = rows()
    given = product(X, X) if kernel == "precomputed" else X
    return clone(estimator).set_params(kernel=kernel).fit(given, y), given


def answers(estimator: Any, X: Any) -> list[np.ndarray]:
    """All that the estimator says of rows."""
    methods = ("predict", "decision_function", "score_samples")
    return [getattr(estimator, name)(X) for name in methods if hasattr(estimator, name)]


@each_of(number=range(len(CASES)), after=KERNELS)
def test_scores_are_of_the_kernel_that_was_fitted(number: int, after: Any) -> None:
    original, X = fitted(number)
    wanted = answers(original, X)
    changed = copy.deepcopy(original).set_params(kernel=after, gamma=7.0, degree=5, coef0=2.5)
    for estimator in (changed, pickle.loads(pickle.dumps(changed))):
        for found, said in zip(answers(estimator, X), wanted, strict=True):
            np.testing.assert_allclose(found, said, rtol=1e-12, atol=1e-12)  # BLAS rounds by how rows lie in memory
        assert estimator.get_params()["kernel"] == after
    theirs = getattr(sklearn.svm, type(original).__name__)(kernel=after)
    for asked in (is_classifier, is_regressor, is_outlier_detector):
        assert asked(changed) == asked(theirs)
    assert get_tags(changed).input_tags.pairwise == get_tags(theirs).input_tags.pairwise  # those of the next fit
    assert not hasattr(clone(changed), "support_")
    assert clone(changed).kernel == after


@each_of(number=range(len(CASES)), after=SEMIDEFINITE)
def test_the_next_fit_has_the_kernel_that_was_set(number: int, after: Any) -> None:
    estimator, y = copy.deepcopy(fitted(number)[0]).set_params(kernel=after), rows()[1]
    given = product(rows()[0], rows()[0]) if after == "precomputed" else rows()[0]
    fresh = clone(estimator).fit(given, y)
    for found, said in zip(answers(estimator.fit(given, y), given), answers(fresh, given), strict=True):
        np.testing.assert_array_equal(found, said)


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly"])
@pytest.mark.parametrize("form", ["csr_matrix", "csr_array", "csc_matrix", "csc_array", "coo_array"])
@pytest.mark.parametrize("name", ["SVC", "SVR", "NuSVC", "NuSVR", "OneClassSVM"])
def test_attributes_of_sparse_rows_have_scikit_learns_types(name: str, form: str, kernel: str) -> None:
    X, y = rows(2)
    given = getattr(scipy.sparse, form)(X)
    ours, theirs = (getattr(module, name)(kernel=kernel).fit(given, y) for module in (bigsvm.sklearn, sklearn.svm))
    for attribute in ("support_vectors_", "dual_coef_", *(["coef_"] if kernel == "linear" else [])):
        assert type(getattr(ours, attribute)) is type(getattr(theirs, attribute)), attribute
    np.testing.assert_array_equal(ours.support_vectors_.toarray(), X[ours.support_])
