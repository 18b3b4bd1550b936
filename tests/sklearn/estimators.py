"""The estimators, and rows for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from bigsvm.sklearn import SVC, SVR, LinearSVC, LinearSVR

ALL = [LinearSVC(), LinearSVR(), SVC(), SVR(), SVC(kernel="linear"), SVR(kernel="linear")]
CLASSIFIERS = [LinearSVC(), SVC(), SVC(kernel="linear")]


def rows(n: int = 90, d: int = 6, n_classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Sparse-ish noisy rows and their classes, 0, 1, ...; a third of the entries is 0."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, d)) * (random.random((n, d)) > 1 / 3)
    return X, np.argmax(X[:, :n_classes] + 0.5 * random.standard_normal((n, n_classes)), axis=1)


def fitted(estimator: Any, *arrays: Any, **options: Any) -> Any:
    return clone(estimator).fit(*arrays, **options)


def scores(estimator: Any, X: Any) -> np.ndarray:
    return getattr(estimator, "decision_function", estimator.predict)(X)
