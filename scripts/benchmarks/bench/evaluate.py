"""The one judge of all solvers: P(w) in float64, from the weights that they leave."""

from __future__ import annotations

import numpy as np

from bench.problems import Problem


def objectives(problem: Problem, points: list[np.ndarray], loss: str, C: float) -> list[np.ndarray]:
    """P(w) = |w|^2 / 2 + C sum loss(y <w, x>) of every model of every point, in one reading of the rows.

    points : arrays (n_features + 1, n_models), the bias entry last (0 where there is none)
    """
    totals = [0.5 * np.sum(w * w, axis=0) for w in points]
    for X, y in problem.pieces():
        rows, signs = X.astype(np.float64), problem.signs(y)
        for total, w in zip(totals, points, strict=True):
            slack = np.maximum(1 - signs * (rows @ w[:-1] + w[-1]), 0)
            total += C * np.sum(slack if loss == "hinge" else slack * slack, axis=0)
    return totals


def gap(primal: np.ndarray, dual: np.ndarray) -> float:
    """(P - D) / P, the largest over the models."""
    return float(np.max((primal - dual) / primal))
