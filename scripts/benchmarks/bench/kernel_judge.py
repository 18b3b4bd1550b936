"""The one judge of all kernel solvers: what a dual point proves, in float64 from the rows and beta alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

_SNAP = 1e-8  # times C: an alpha this near to a bound is at it, whoever it is of
_PIECE = 1024  # rows


def judge(X: sparse.csr_matrix, y: np.ndarray, beta: np.ndarray, C: float, gamma: float) -> dict[str, Any]:
    """Dual and primal objective, their gap, and the violation b_low - b_up, of beta_i = y_i alpha_i.

    b is the one that makes the primal least.  The gap is a sum of non-negative terms (docs/mathematics.md 2.2) less
    b sum_i beta_i, which is 0 but for what a solver leaves; `imbalance` is |sum_i beta_i|.
    """
    alpha = y * beta
    if not np.all((alpha >= -_SNAP * C) & (alpha <= (1.0 + _SNAP) * C)):
        raise ValueError("alpha is outside of its box")
    alpha = np.where(alpha < _SNAP * C, 0.0, np.where(alpha > (1.0 - _SNAP) * C, C, alpha))
    scores = _scores(X, y * alpha, gamma)
    # The loss is piecewise linear in b, with a kink at y_i - scores_i for each row and a slope of -C n_positive before.
    b = float(np.sort(y - scores)[max(int(np.sum(y > 0)) - 1, 0)])
    error = y * (scores + b) - 1.0
    quadratic = float((y * alpha) @ scores)
    F = scores - y
    may_rise = np.where(y > 0, alpha < C, alpha > 0)
    may_fall = np.where(y > 0, alpha > 0, alpha < C)
    gap = float(np.sum(np.maximum(alpha * error, (alpha - C) * error))) - b * float(np.sum(y * alpha))
    primal = 0.5 * quadratic + C * float(np.sum(np.maximum(0.0, -error)))
    return {
        "dual": float(np.sum(alpha)) - 0.5 * quadratic, "primal": primal, "gap": gap, "relative_gap": gap / primal,
        "violation": float(np.max(F[may_fall]) - np.min(F[may_rise])), "n_support": int(np.sum(alpha > 0)),
        "imbalance": abs(float(np.sum(y * alpha))),
    }  # fmt: skip


def _scores(X: sparse.csr_matrix, beta: np.ndarray, gamma: float) -> np.ndarray:
    """sum_j beta_j K(x_j, x_i) of all rows."""
    support = np.flatnonzero(beta)
    S, sq = X[support].toarray(), np.asarray(X.multiply(X).sum(axis=1)).ravel()
    found = np.empty(X.shape[0])
    for start in range(0, len(found), _PIECE):
        rows = slice(start, start + _PIECE)
        K = X[rows].toarray() @ S.T
        K *= 2.0 * gamma
        K -= gamma * sq[rows, None]
        K -= gamma * sq[support]
        np.minimum(K, 0.0, out=K)
        np.exp(K, out=K)
        found[rows] = K @ beta[support]
    return found
