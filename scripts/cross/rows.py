"""Rows, labels and weights of random problems, plain ones and nasty ones.  Imports nothing of bigsvm."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Twist = Callable[[np.ndarray, np.random.Generator], np.ndarray]


class Columns(NamedTuple):
    """Labels and targets by column name, each (n,)."""

    labels: dict[str, np.ndarray]
    targets: dict[str, np.ndarray]


def make_rows(rng: np.random.Generator) -> tuple[np.ndarray, list[str]]:
    """float64 (n, d), and the names of what is nasty about them."""
    n = int(rng.choice([rng.integers(4, 16), rng.integers(20, 130), rng.integers(130, 300)], p=[0.1, 0.82, 0.08]))
    d = int(rng.choice([rng.integers(1, 4), rng.integers(3, 25), rng.integers(40, 250)], p=[0.15, 0.75, 0.1]))
    kind = rng.choice(["normal", "sparse", "binary", "counts", "low rank"], p=[0.4, 0.25, 0.15, 0.1, 0.1])
    X = rng.normal(size=(n, d))
    if kind == "sparse":
        X *= rng.random((n, d)) < rng.uniform(0.05, 0.6)
    elif kind == "binary":
        X = (rng.random((n, d)) < rng.uniform(0.05, 0.5)).astype(float)
    elif kind == "counts":
        X = rng.poisson(rng.uniform(0.2, 5), (n, d)).astype(float)
    elif kind == "low rank":
        r = int(rng.integers(1, max(2, d // 2 + 1)))
        X = rng.normal(size=(n, r)) @ rng.normal(size=(r, d))
    named = [str(kind)]
    for _ in range(int(rng.choice([0, 1, 2], p=[0.5, 0.38, 0.12]))):
        name = str(rng.choice(list(TWISTS), p=_SHARES))
        X = TWISTS[name](X, rng)
        named.append(name)
    return X, named


def _twins(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Many rows occur again."""
    some = rng.integers(0, len(X), len(X) // 2)
    X[rng.permutation(len(X))[: len(some)]] = X[some]
    return X


def _equal(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """All rows are one."""
    X[:] = X[0]
    return X


def _offset(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows lie far from the origin, as times and places do."""
    X += 10.0 ** rng.uniform(1, 9) * rng.choice([-1, 1], X.shape[1])
    return X


def _constant(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Some columns are constant."""
    some = rng.random(X.shape[1]) < 0.4
    X[:, some] = rng.choice([0.0, 1.0, -3.5, 1e4], int(some.sum()))
    return X


def _empty(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Some rows have no entry."""
    X[rng.random(len(X)) < 0.3] = 0.0
    return X


def _huge(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return X * 10.0 ** rng.uniform(2, 8)


def _tiny(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return X * 10.0 ** -rng.uniform(2, 8)


def _extreme(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Squares overflow, or vanish."""
    return X * 10.0 ** rng.choice([-160, 25, 37, 150])


def _unscaled(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Columns of very different size."""
    return X * 10.0 ** rng.uniform(-4, 4, X.shape[1])


def _flags(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Missing values written as 99999 (scikit-learn 4648)."""
    some = rng.random(X.shape[1]) < 0.5
    return np.where(some[None, :], 99999.0 * (rng.random(X.shape) < 0.2), X)


def _outlier(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    X[rng.integers(len(X))] *= 1e4
    return X


TWISTS: dict[str, Twist] = {
    "twins": _twins, "equal": _equal, "offset": _offset, "constant": _constant, "empty": _empty, "huge": _huge,
    "tiny": _tiny, "extreme": _extreme, "unscaled": _unscaled, "flags": _flags, "outlier": _outlier,
}  # fmt: skip
_SHARES = np.array([4, 1, 4, 3, 3, 2, 2, 1, 3, 2, 2]) / 27


def make_columns(X: np.ndarray, rng: np.random.Generator) -> Columns:
    """Class codes of two columns and two targets, from planted directions with noise; twins may disagree."""
    labels, targets = {}, {}
    for name in ("label", "other"):
        n_classes = int(rng.choice([2, 3, 4, 6], p=[0.7, 0.15, 0.1, 0.05]))
        shares = rng.dirichlet(np.full(n_classes, 5.0)) if rng.random() < 0.8 else _one_sided(n_classes, len(X))
        scores = _planted(X, rng)
        codes = np.digitize(scores, np.quantile(scores, np.clip(np.cumsum(shares)[:-1], 0, 1)))
        codes[rng.permutation(len(X))[:n_classes]] = np.arange(n_classes)[: len(X)]  # each class occurs
        labels[name] = codes
        scale, offset = 10.0 ** rng.uniform(-1, 2), float(rng.choice([0.0, 0.0, 50.0, -1e4]))
        targets[name] = scale * _planted(X, rng) + offset + 0.015625  # never whole numbers throughout
    return Columns(labels, targets)


def _one_sided(n_classes: int, n: int) -> np.ndarray:
    """One row of each class but one."""
    shares = np.full(n_classes, 1.0 / n)
    shares[-1] = 1.0 - shares[:-1].sum()
    return shares


def _planted(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    with np.errstate(all="ignore"):
        scale = np.abs(X).max(axis=0)
        scaled = np.divide(X, scale, out=np.zeros_like(X), where=scale > 0)
        found = scaled @ rng.normal(size=X.shape[1])
    return found + rng.uniform(0, 1.0) * max(float(found.std()), 0.1) * rng.normal(size=len(X))


def make_weights(n: int, rng: np.random.Generator) -> np.ndarray:
    """Sample weights: some are 0, some fits see very different ones."""
    kind = rng.choice(["zeros", "counts", "wide", "few"])
    if kind == "zeros":
        return rng.uniform(0, 2, n) * (rng.random(n) < 0.8)
    if kind == "counts":
        return rng.integers(0, 4, n).astype(np.float64)
    if kind == "wide":
        return 10.0 ** rng.uniform(-6, 3, n)
    weights = np.zeros(n)
    weights[rng.permutation(n)[: max(4, n // 10)]] = 1.0
    return weights
