"""Descent directions from earlier gradients: limited-memory BFGS and conjugate gradients, one model at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_CURVED = 1e-14  # cosine between step and change of gradient below which a pair is not used


@dataclass
class Pairs:
    """The last changes of w and of the gradient, as a ring for each model.

    steps, changes : float64, (n_models, n_pairs, n_features + 1)
    count : int64, (n_models,)   pairs taken so far; the newest is at (count - 1) modulo n_pairs
    """

    steps: np.ndarray
    changes: np.ndarray
    count: np.ndarray

    def take(self, m: int, step: np.ndarray, change: np.ndarray) -> None:
        """Store a pair of model m, unless its curvature is not positive."""
        curvature = dot(step, change)
        if not curvature > _CURVED * np.sqrt(dot(step, step) * dot(change, change)):
            return
        at = self.count[m] % self.steps.shape[1]
        self.steps[m, at], self.changes[m, at] = step, change
        self.count[m] += 1

    def direction(self, m: int, gradient: np.ndarray) -> np.ndarray:
        """-H gradient by the two-loop recursion (Nocedal 1980), with H_0 scaled by the newest pair."""
        n = self.steps.shape[1]
        order = [k % n for k in range(int(self.count[m]) - 1, max(int(self.count[m]) - n, 0) - 1, -1)]
        q = gradient.copy()
        along = []
        for k in order:
            s, y = self.steps[m, k], self.changes[m, k]
            along.append(dot(s, q) / dot(s, y))
            q -= along[-1] * y
        if order:
            s, y = self.steps[m, order[0]], self.changes[m, order[0]]
            q *= dot(s, y) / dot(y, y)
        for k, a in zip(order[::-1], along[::-1], strict=True):
            s, y = self.steps[m, k], self.changes[m, k]
            q += (a - dot(y, q) / dot(s, y)) * s
        return -q


def new_pairs(n_models: int, n_pairs: int, width: int) -> Pairs:
    """No pairs yet."""
    shape = (n_models, n_pairs, width)
    return Pairs(np.zeros(shape), np.zeros(shape), np.zeros(n_models, np.int64))


def conjugate(gradient: np.ndarray, former: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """-gradient + beta direction, with the beta of Polak and Ribiere, at least 0.  former : the previous gradient"""
    length = dot(former, former)
    beta = max(dot(gradient, gradient - former) / length, 0.0) if length > 0.0 else 0.0
    return beta * direction - gradient


def dot(a: np.ndarray, b: np.ndarray) -> float:
    """a.b by NumPy's own sum, whose result does not depend on a BLAS or on threads."""
    return float((a * b).sum())
