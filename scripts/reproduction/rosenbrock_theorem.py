"""Theorem 1 of Liu, Liu and Gu: f falls at every outer iteration, and w goes to the minimiser from wherever it begins.

It is about exact line searches.  The search that the paper uses ends where |D'| < eps2, and begins at a step of 1, so
that it may end above where it began.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reproduction.rosenbrock import PAPER, kind_of, objective, walk
from reproduction.sets import DataSet

_NEAR = 1e-10
"""1/2 ||gradient||^2 over f at the end: f is strongly convex, so that f - f* is at most that."""
_LIMIT = 300


def theorem_of(data: DataSet) -> list[dict[str, Any]]:
    """How f goes with exact searches at C = 0.1, and with the paper's C and eps2.

    rises : outer iterations after which f is larger than before;  largest : by how much of f at the most
    reached : the gradient is as good as 0 after `iterations`
    """
    C, _, eps2, *_ = PAPER.get(kind_of(data.name), PAPER["heart"])["rosenbrock"]
    return [_one(data, "exact", 0.1, 0.1), _one(data, "newton", C, eps2)]


def _one(data: DataSet, search: str, C: float, eps2: float) -> dict[str, Any]:
    path = walk(data.X, data.y, "rosenbrock", C, eps2, 1e-12, limit=_LIMIT, line_search=search)
    points = [np.ones(data.X.shape[1] + 1), *path.points]
    values = np.array([objective(data.X, data.y, w, C) for w in points])
    ends = [_bound(data, w, C) <= _NEAR * f for w, f in zip(points, values, strict=True)]
    last = ends.index(True) if any(ends) else len(values) - 1
    change = np.diff(values[: last + 1]) / values[:last]
    return {
        "set": data.name, "search": search, "C": C, "eps2": eps2, "iterations": last, "reached": any(ends),
        "rises": int(np.sum(change > 0.0)), "largest": float(max(change.max(), 0.0)),
    }  # fmt: skip


def _bound(data: DataSet, w: np.ndarray, C: float) -> float:
    """1/2 ||gradient of f||^2, at least f - f*."""
    s = np.maximum(0.0, 1.0 - data.y * (data.X @ w[:-1] + w[-1]))
    pull = 2.0 * C * s * data.y
    gradient = w - np.append(data.X.T @ pull, pull.sum())
    return float(0.5 * gradient @ gradient)
