"""Models made up, of every form, and rows to score with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsvm.csr import CSR
from bigsvm.model.decide import models_of, n_models_of
from bigsvm.model.kernel_model import KernelModel
from bigsvm.model.linear_model import LinearModel
from bigsvm.problem.kernel import Kernel

D = 5
KERNELS = {
    "rbf": Kernel("rbf", 0.3),
    "poly": Kernel("poly", 0.4, 3, 1.0),
    "sigmoid": Kernel("sigmoid", 0.1, 3, -0.2),
}
CLASSES = {"values": (), "two": (-1, 1), "four": (2, 3, 5, 9)}


def rows(n: int = 60, seed: int = 0) -> np.ndarray:
    """Values that float32 holds; the first row is 0."""
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n, D)) < 0.7, rng.standard_normal((n, D)), 0.0).astype(np.float32).astype(float)
    X[:1] = 0.0
    return X


def csr(X: np.ndarray) -> CSR:
    kept = X != 0
    indptr = np.concatenate(([0], np.cumsum(kept.sum(axis=1)))).astype(np.int64)
    return CSR(X[kept], np.nonzero(kept)[1].astype(np.int32), indptr)


def linear(classes: Any, pairs: bool = False, **about: Any) -> LinearModel:
    rng = np.random.default_rng(4)
    n_models = n_models_of(len(classes), pairs)
    coef, intercept = rng.standard_normal((n_models, D)), rng.standard_normal(n_models)
    return LinearModel(coef, intercept, np.array(classes), about, *models_of(len(classes), pairs))


def kernel(kernel: Kernel, classes: Any, layout: str = "dense", **about: Any) -> KernelModel:
    """Coefficients as training leaves them: a support vector of a class has a part in its pairs, with its sign."""
    rng = np.random.default_rng(6)
    k, n = len(classes), 23
    codes = rng.integers(0, max(k, 1), n)
    positive, negative = models_of(k, True)
    beta = rng.standard_normal((n_models_of(k, True), n))
    if k:
        size = np.abs(beta) * (rng.random(beta.shape) < 0.8)
        if k == 2:
            positive, negative = np.array([1]), np.array([0])
        beta = size * (codes == positive[:, None]) - size * (codes == negative[:, None])
        positive, negative = models_of(k, True)
    S = rows(n, seed=8)
    support = None if kernel.name == "precomputed" else csr(S) if layout == "csr" else S
    at = np.arange(n) * 2
    d = 2 * n if support is None else D
    return KernelModel(kernel, support, at, beta, rng.standard_normal(len(beta)), np.array(classes), d, positive,
                       negative, about)  # fmt: skip
