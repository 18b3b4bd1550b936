"""Slow solvers that share no code and no algorithm with ours, for answers to compare with."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize


def with_bias(X: np.ndarray, constant: float) -> np.ndarray:
    """X with the constant feature appended (nothing for 0)."""
    return np.hstack([X, np.full((len(X), 1), constant)]) if constant else X


def dual_optimum(X: np.ndarray, y: np.ndarray, C: np.ndarray, loss: str, constant: float = 1.0) -> float:
    """Optimal value of the linear SVM (primal = dual) by L-BFGS-B on the boxed dual.

    X : dense (n, d);  y : -1 and 1;  C : float64 (n,), cost of each row;  loss : 'hinge' or 'squared_hinge'
    """
    Z = with_bias(X, constant) * y[:, None]
    keep = C > 0
    Z, C = Z[keep], C[keep]
    diagonal = np.zeros(len(C)) if loss == "hinge" else 1.0 / (2.0 * C)
    bounds = [(0.0, c) for c in C] if loss == "hinge" else [(0.0, None)] * len(C)

    def negative_dual(alpha: np.ndarray) -> tuple[float, np.ndarray]:
        v = Z.T @ alpha
        value = 0.5 * v @ v + 0.5 * np.sum(diagonal * alpha**2) - alpha.sum()
        return value, Z @ v + diagonal * alpha - 1.0

    best = minimize(
        negative_dual,
        np.zeros(len(C)),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 100_000, "maxfun": 1_000_000, "ftol": 1e-16, "gtol": 1e-10, "maxcor": 50},
    )
    return -float(best.fun)


def primal_value(X: np.ndarray, y: np.ndarray, C: np.ndarray, loss: str, w: np.ndarray, constant: float = 1.0) -> float:
    """P(w) straight from its definition; w has its bias entry last where constant is not 0."""
    slack = np.maximum(1.0 - y * (with_bias(X, constant) @ w), 0.0)
    return 0.5 * float(w @ w) + float(np.sum(C * (slack if loss == "hinge" else slack**2)))


def dual_value(
    X: np.ndarray, y: np.ndarray, C: np.ndarray, loss: str, alpha: np.ndarray, constant: float = 1.0
) -> float:
    """D(alpha) straight from its definition, for alpha inside its box."""
    v = with_bias(X, constant).T @ (alpha * y)
    quadratic = 0.0 if loss == "hinge" else float(np.sum(alpha**2 / (4.0 * C)))
    return float(alpha.sum()) - 0.5 * float(v @ v) - quadratic
