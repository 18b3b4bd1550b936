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

    alpha, value = np.zeros(len(C)), np.inf
    while True:
        best = minimize(
            negative_dual,
            alpha,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": 100_000, "maxfun": 1_000_000, "ftol": 1e-16, "gtol": 1e-10, "maxcor": 50},
        )
        # Rounding of its curvatures can end it far from the optimum; a new start forgets them.
        if not value - best.fun > 1e-12 * abs(best.fun):
            return -float(min(value, best.fun))
        alpha, value = best.x, float(best.fun)


def primal_value(
    X: np.ndarray, y: np.ndarray, C: np.ndarray, loss: str, w: np.ndarray, constant: float = 1.0,
    epsilon: float | None = None,
) -> float:  # fmt: skip
    """P(w) straight from its definition; w has its bias entry last where constant is not 0.

    epsilon : y are targets, and this is the half width of their tube
    """
    f = with_bias(X, constant) @ w
    slack = np.maximum(1.0 - y * f if epsilon is None else np.abs(y - f) - epsilon, 0.0)
    return 0.5 * float(w @ w) + float(np.sum(C * (slack**2 if loss.startswith("squared") else slack)))


def dual_value(
    X: np.ndarray, y: np.ndarray, C: np.ndarray, loss: str, alpha: np.ndarray, constant: float = 1.0,
    epsilon: float | None = None,
) -> float:  # fmt: skip
    """D(alpha) straight from its definition, for alpha inside its box; `epsilon` as of `primal_value`."""
    v = with_bias(X, constant).T @ (alpha * y if epsilon is None else alpha)
    linear = float(alpha.sum()) if epsilon is None else float(y @ alpha) - epsilon * float(np.abs(alpha).sum())
    quadratic = float(np.sum(alpha**2 / (4.0 * C))) if loss.startswith("squared") else 0.0
    return linear - 0.5 * float(v @ v) - quadratic


def optimum(X: np.ndarray, y: np.ndarray, C: np.ndarray, loss: str, bias: str) -> float:
    """Optimal value of the linear SVM by an interior-point method on its dual; any bias, any C, small data.

    X : dense (n, d);  y : -1 and 1;  C : float64 (n,), rows of 0 take no part;  bias : augmented (B = 1), none, free
    """
    keep = C > 0
    Z = (with_bias(X, 1.0 if bias == "augmented" else 0.0) * y[:, None])[keep]
    y, C = y[keep], C[keep]
    n = len(C)
    upper = np.full(n, np.inf) if loss == "squared_hinge" else C
    diagonal = 1.0 / (2.0 * C) if loss == "squared_hinge" else np.zeros(n)
    Q = Z @ Z.T + np.diag(diagonal)
    sizes = np.abs(Q)
    bounded = np.isfinite(upper)
    equal = y[:, None] if bias == "free" else np.zeros((n, 0))
    scale = float(np.max(np.where(bounded, upper, 1.0)))
    a = np.where(bounded, 0.5 * np.where(bounded, upper, 1.0), scale)
    z, s, multiplier = np.ones(n), np.where(bounded, 1.0, 0.0), np.zeros(equal.shape[1])
    value = 0.0
    for _ in range(200):
        room = np.where(bounded, upper - a, 1.0)
        dual = Q @ a - 1.0 - z + s + equal @ multiplier
        unequal = equal.T @ a
        gap = float(a @ z + room @ s)
        v = Z.T @ a  # a'Qa from the entries of Q would be lost in cancellation where a is large
        value = float(a.sum() - 0.5 * v @ v - 0.5 * np.sum(diagonal * a * a))
        rounding = 1e-16 * float((sizes @ a).max())
        feasible = np.abs(dual).max() < 1e-7 + rounding and np.all(np.abs(unequal) < 1e-9 * scale)
        if gap <= 1e-10 * abs(value) + 1e-300 and feasible:
            break
        target = 0.1 * gap / (n + bounded.sum())
        with np.errstate(over="ignore", divide="ignore"):
            rhs = -dual + (target / a - z) - np.where(bounded, target / room - s, 0.0)
            M = Q + np.diag(z / a + np.where(bounded, s / room, 0.0))
        K = np.block([[M, equal], [equal.T, np.zeros((equal.shape[1],) * 2)]])
        if not np.isfinite(K).all():  # as near as float64 comes
            break
        step = np.linalg.solve(K, np.concatenate([rhs, -unequal]))
        da, dm = step[:n], step[n:]
        dz = target / a - z - z / a * da
        ds = np.where(bounded, target / room - s + s / room * da, 0.0)
        t = 1.0
        for now, change in ((a, da), (z, dz), (room, np.where(bounded, -da, 0.0)), (s, ds)):
            falling = change < 0
            if falling.any():
                t = min(t, 0.995 * float(np.min(-now[falling] / change[falling])))
        a, z, s, multiplier = a + t * da, z + t * dz, s + t * ds, multiplier + t * dm
    return value
