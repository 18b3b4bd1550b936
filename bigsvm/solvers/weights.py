"""Arrays shaped like w, of one model or of several, as the regulariser sees them."""

from __future__ import annotations

import numpy as np

from bigsvm.problem.problem import Problem


def columns(a: np.ndarray) -> np.ndarray:
    """A view with the models on the last axis."""
    return a if a.ndim == 2 else a[:, None]


def regularised(problem: Problem, w: np.ndarray) -> np.ndarray:
    """w without what costs nothing: its last entry where the bias is free; a copy only there."""
    if problem.bias != "free":
        return w
    without = w.copy()
    without[-1] = 0.0
    return without


def squared_norm(problem: Problem, w: np.ndarray) -> np.ndarray:
    """||w||^2 of each model as the regulariser sees it."""
    return inner(problem, w, w)


def inner(problem: Problem, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a.b of each model, without an unregularised bias."""
    stop = -1 if problem.bias == "free" else None
    return np.atleast_1d(np.einsum("j...,j...->...", a[:stop], b[:stop]))
