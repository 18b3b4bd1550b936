"""Kernel models made of what scikit-learn's SVC and SVR found: the oracle of scores and labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.svm import SVC, SVR

from bigsvm.compiled.shared.rows import CSR
from bigsvm.model.decide import models_of
from bigsvm.model.kernel_model import KernelModel
from bigsvm.problem.kernel import Kernel

KERNELS = {
    "linear": Kernel("linear"),
    "rbf": Kernel("rbf", 0.3),
    "poly": Kernel("poly", 0.2, 3, 0.5),
    "sigmoid": Kernel("sigmoid", 0.05, 3, -0.2),
}


def rows(n: int = 90, n_features: int = 6, layout: str = "dense", seed: int = 0, dtype: Any = np.float64) -> Any:
    """Rows with zeros among them, as an array or as CSR."""
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((n, n_features)) < 0.6, rng.standard_normal((n, n_features)), 0.0).astype(dtype)
    return dense if layout == "dense" else to_csr(dense)


def to_csr(dense: np.ndarray) -> CSR:
    found = sparse.csr_array(dense)
    return CSR(found.data, found.indices.astype(np.int32), found.indptr.astype(np.int64))


def labels(X: np.ndarray, n_classes: int) -> np.ndarray:
    """Classes 0, 1, ... by a bent score with some noise, each of them there."""
    score = X[:, 0] + X[:, 1] ** 2 + np.random.default_rng(9).normal(scale=0.3, size=len(X))
    return np.searchsorted(np.quantile(score, np.arange(1, n_classes) / n_classes), score)


def options_of(kernel: Kernel) -> dict[str, Any]:
    return {"kernel": kernel.name, "gamma": kernel.gamma, "degree": kernel.degree, "coef0": kernel.coef0}


def svc(X: Any, y: np.ndarray, kernel: Kernel, n_features: int, layout: str = "dense") -> tuple[SVC, KernelModel]:
    """A fitted SVC and the model of the same numbers; X is K for a precomputed kernel."""
    oracle = SVC(C=2.0, tol=1e-6, decision_function_shape="ovo", **options_of(kernel)).fit(X, y)
    n_classes, coef = len(oracle.classes_), oracle.dual_coef_
    if n_classes > 2:  # LIBSVM's layout: against the others in turn, the own class left out
        ends = np.cumsum(oracle.n_support_)
        of = [slice(end - n, end) for end, n in zip(ends, oracle.n_support_, strict=True)]
        coef = np.zeros((n_classes * (n_classes - 1) // 2, len(oracle.support_)))
        for m, (i, j) in enumerate(zip(*models_of(n_classes, True), strict=True)):
            coef[m, of[i]] = oracle.dual_coef_[j - 1, of[i]]
            coef[m, of[j]] = oracle.dual_coef_[i, of[j]]
    return oracle, _model(oracle, X, coef, kernel, oracle.classes_, n_features, layout)


def svr(X: Any, t: np.ndarray, kernel: Kernel, n_features: int, layout: str = "dense") -> tuple[SVR, KernelModel]:
    """A fitted SVR and the model of the same numbers."""
    oracle = SVR(C=2.0, tol=1e-6, epsilon=0.1, **options_of(kernel)).fit(X, t)
    return oracle, _model(oracle, X, oracle.dual_coef_, kernel, np.empty(0), n_features, layout)


def _model(oracle: Any, X: Any, coef: Any, kernel: Kernel, classes: Any, n_features: int, layout: str) -> KernelModel:
    order = np.argsort(oracle.support_)
    support_rows = oracle.support_[order].astype(np.int64)
    support = None
    if kernel.name != "precomputed":
        support = X[support_rows]
        support = to_csr(support) if layout == "csr" else support
    positive, negative = models_of(len(classes), len(classes) > 2)
    return KernelModel(
        kernel=kernel,
        support=support,
        support_rows=support_rows,
        dual_coef=np.ascontiguousarray(np.asarray(coef)[:, order]),
        intercept=np.asarray(oracle.intercept_, np.float64),
        classes=classes,
        positive=positive,
        negative=negative,
        n_features=n_features,
        about={"problem": {"loss": "hinge", "C": [2.0] * len(positive)}, "n_samples": len(X), "dtype": "float64"},
    )
