"""Small problems for tests: random ones with known shape, and the corners where solvers break."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from bigsvm.compiled.shared.rows import CSR


def random_problem(
    n_samples: int,
    n_features: int,
    density: float = 1.0,
    seed: int = 0,
    noise: float = 0.1,
    n_classes: int = 2,
) -> tuple[np.ndarray, np.ndarray]:
    """Dense float64 X (n_samples, n_features) and labels from a planted linear model.

    noise : share of labels drawn at random.  Labels are -1 and 1, or 0 ... n_classes - 1.
    """
    rng = np.random.default_rng([seed, n_samples, n_features])
    X = rng.standard_normal((n_samples, n_features))
    X[rng.random(X.shape) >= density] = 0.0
    planted = rng.standard_normal((n_features, n_classes))
    codes = np.argmax(X @ planted, axis=1)
    flip = rng.random(n_samples) < noise
    codes[flip] = rng.integers(0, n_classes, int(flip.sum()))
    if n_classes == 2:
        y = np.where(codes == 1, 1.0, -1.0)
        y[:2] = (-1.0, 1.0)[: len(y)]  # both classes occur
        return X, y
    codes[:n_classes] = np.arange(n_classes)[: len(codes)]
    return X, codes.astype(np.float64)


def corner_problems() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Named problems (X, y) at the edges: tiny, degenerate, duplicated, badly sized."""
    X, y = random_problem(37, 5, seed=3)
    empty_column = X.copy()
    empty_column[:, 2] = 0.0
    zero_rows = X.copy()
    zero_rows[[0, 7, 36]] = 0.0
    separable = np.where(y[:, None] > 0, np.abs(X) + 1.0, -np.abs(X) - 1.0)
    sorted_rows = np.argsort(y, kind="stable")
    return {
        "two rows": (np.array([[1.0, 2.0], [-1.0, 0.5]]), np.array([1.0, -1.0])),
        "one feature": (X[:, :1], y),
        "noisy": (X, y),
        "empty column": (empty_column, y),
        "zero rows": (zero_rows, y),
        "duplicate rows": (np.repeat(X[:12], 3, axis=0), np.repeat(y[:12], 3)),
        "contradiction": (np.concatenate([X[:8], X[:8]]), np.concatenate([y[:8], -y[:8]])),
        "separable": (separable, y),
        "sorted by label": (X[sorted_rows], y[sorted_rows]),
        "more features than rows": random_problem(9, 40, seed=5),
        "large values": (X * 30.0, y),
        "tiny values": (X * 1e-3, y),
    }


def as_csr(X: np.ndarray, index_dtype: type = np.int32) -> CSR:
    """A dense array as CSR, zeros left out."""
    matrix = sparse.csr_array(X)
    return CSR(matrix.data, matrix.indices.astype(index_dtype), matrix.indptr.astype(np.int64))


def full_csr(X: np.ndarray, index_dtype: type = np.int32) -> CSR:
    """A dense array as CSR with every entry stored, zeros too."""
    n, d = X.shape
    indices: np.ndarray = np.tile(np.arange(d), n).astype(index_dtype)
    return CSR(np.ascontiguousarray(X).reshape(-1), indices, np.arange(n + 1, dtype=np.int64) * d)
