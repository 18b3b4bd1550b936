"""Calibration curves of one class against the rest, from scores of rows that the model was not trained on.

Sigmoid: Platt (1999) with his targets, by Newton's method (Lin, Lin and Weng, Machine Learning 68, 2007).  Isotonic:
the ascending step function that is nearest in least squares, interpolated linearly, as in scikit-learn.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

_ITERATIONS = 200
_SAME = 1e-15  # scores that differ by less count as equal; times the largest score, if all are below 1
_HALVINGS = 40


class Points(NamedTuple):
    """Distinct scores, ascending, with the weights of the rows in the class and of the others; float64, (n,) each."""

    score: np.ndarray
    positive: np.ndarray
    negative: np.ndarray


def points_of(score: np.ndarray, positive: np.ndarray, weight: np.ndarray | None) -> Points:
    """Points from rows: scores (n,), whether in the class (n,), weights (n,) or None for ones.

    Rows of weight 0 are left out.
    """
    if weight is not None:
        kept = weight > 0
        score, positive, weight = score[kept], positive[kept], weight[kept]
    order = np.argsort(score, kind="stable")
    score, positive = score[order], positive[order]
    weight = np.ones(len(score)) if weight is None else weight[order]
    largest = np.abs(score[[0, -1]]).max() if len(score) else 0.0
    apart = np.diff(score)
    new = np.append(True, (apart > 0.0) & (apart >= _SAME * min(largest, 1.0)))
    first = np.flatnonzero(new[: len(score)])  # there may be no row at all
    ours = np.add.reduceat(np.where(positive, weight, 0.0), first)
    others = np.add.reduceat(np.where(positive, 0.0, weight), first)
    return Points(score[first], ours, others)


def load(method: str) -> None:
    """Import what curves of this method need, before memory is measured; takes a seventh of a second."""
    if method == "isotonic":
        import scipy.optimize  # noqa: F401


def curve(method: str, points: Points) -> dict[str, Any]:
    """Fit the curve to `points`, which has rows of both kinds; see `model/probability/calibration.py`."""
    return _isotonic(points) if method == "isotonic" else _sigmoid(points)


def _isotonic(points: Points) -> dict[str, Any]:
    from scipy.optimize import isotonic_regression

    weight = points.positive + points.negative
    y = isotonic_regression(points.positive / weight, weights=weight).x
    y = np.clip(y, 0.0, 1.0)
    needed = np.ones(len(y), bool)  # inner points of a flat stretch change nothing
    needed[1:-1] = (y[1:-1] != y[:-2]) | (y[1:-1] != y[2:])
    return {"x": points.score[needed].tolist(), "y": y[needed].tolist()}


def _sigmoid(points: Points) -> dict[str, Any]:
    """A and B of 1 / (1 + exp(A s + B)), fitted to scores of mean 0 and standard deviation 1.

    Scores may differ by little beside their size, as those of a model whose features are small beside its bias do.
    """
    n_positive, n_negative = points.positive.sum(), points.negative.sum()
    weight = points.positive + points.negative
    largest = float(max(np.abs(points.score).max(), 1e-300))
    s = points.score / largest
    middle = float(np.average(s, weights=weight))
    s -= middle
    spread = float(np.sqrt(np.average(s * s, weights=weight))) or 1.0
    s /= spread
    high, low = (n_positive + 1.0) / (n_positive + 2.0), 1.0 / (n_negative + 2.0)
    target = points.positive * high + points.negative * low  # weight times the mean of the targets
    prior = np.log((n_negative + 1.0) / (n_positive + 1.0))
    at = np.array([0.0, prior])
    value = _loss(at, s, weight, target)
    for _ in range(_ITERATIONS):
        gradient, hessian = _derivatives(at, s, weight, target)
        step = np.linalg.solve(hessian + 1e-12 * np.trace(hessian) * np.eye(2), -gradient)
        descent = float(gradient @ step)
        lengths = 0.5 ** np.arange(_HALVINGS)
        values = ((t, _loss(at + t * step, s, weight, target)) for t in lengths)
        found = next(((t, new) for t, new in values if new < value + 1e-4 * t * descent), None)
        if found is None:  # no step decreases the loss any more in floating point
            break
        at, value = at + found[0] * step, found[1]
    slope = float(at[0]) / spread
    if not np.isfinite(slope / largest):  # scores below the least normal number say nothing
        return {"A": 0.0, "B": float(prior)}
    return {"A": slope / largest, "B": float(at[1]) - slope * middle}


def _loss(at: np.ndarray, s: np.ndarray, weight: np.ndarray, target: np.ndarray) -> float:
    """Cross entropy of p = 1 / (1 + exp(z)), z = A s + B:  sum  target z + weight log(1 + exp(-z))."""
    z = at[0] * s + at[1]
    return float(np.sum(target * z + weight * np.logaddexp(0.0, -z)))


def _derivatives(
    at: np.ndarray, s: np.ndarray, weight: np.ndarray, target: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Gradient, (2,), and Hessian, (2, 2), of `_loss`."""
    z = at[0] * s + at[1]
    small = np.exp(-np.abs(z))
    p = np.where(z >= 0.0, small, 1.0) / (1.0 + small)
    residual, h = target - weight * p, weight * p * (1.0 - p) + 1e-300
    cross = float(np.sum(h * s))
    gradient = np.array([np.sum(residual * s), np.sum(residual)])
    return gradient, np.array([[np.sum(h * s * s), cross], [cross, np.sum(h)]])
