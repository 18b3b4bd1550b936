"""Fits whose steps are counted, so that one that does not end fails, and rows for them."""

from __future__ import annotations

from typing import Any

import numpy as np

import bigsvm
from bigsvm.events import EpochEnd, Event
from bigsvm.run.fit.outcome import FitResult

Rows = tuple[np.ndarray, np.ndarray]


def fit(rows: Any, **options: Any) -> FitResult:
    """A fit that may not go on for ever: by its steps, not by the clock."""
    steps = 0

    def count(event: Event) -> None:
        nonlocal steps
        steps += isinstance(event, EpochEnd)
        assert steps < 120_000, "this fit does not end"

    return bigsvm.fit(rows, emit=count, **options)


def opposite(width: int, value: float) -> Rows:
    """Two equal rows of different classes."""
    return np.full((2, width), value), np.array([1, -1])


def unscaled(n: int = 100, n_classes: int = 2) -> Rows:
    """scikit-learn issue 4648: four columns of the usual scale, five of 0 and 99999."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 9))
    X[:, 4:] = rng.integers(0, 2, (n, 5)) * 99999.0
    return X, rng.integers(0, n_classes, n)


def noisy(n: int = 100) -> Rows:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, 4))
    return X, np.where(X[:, 0] + rng.standard_normal(n) > 0, 1, -1)
