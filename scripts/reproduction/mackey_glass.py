"""A Mackey-Glass series, made by its equation: it stands where the paper's MG is not at hand.

    dx/dt = 0.2 x(t - 17) / (1 + x(t - 17)^10) - 0.1 x(t),   x(t) = 1.2 for t <= 0

A row has x at t, t - 6, ..., t - 30, the target is x(t + 85); MG's own delays are not known here, and it has noise
that this series lacks, so that errors cannot be compared across the two.
"""

from __future__ import annotations

import numpy as np

from reproduction.sets import DataSet, scaled

NAME = "Mackey-Glass, made"
ROWS = 1385
_DELAY, _STEPS = 17, 20  # of the equation, in units of time; of Runge-Kutta in one such unit
_LAGS, _AHEAD = (0, 6, 12, 18, 24, 30), 85
_SKIPPED = 500  # units of time before the first row: the start is forgotten


def series(length: int) -> np.ndarray:
    """x at t = 0, 1, ..., length - 1.

    Runge-Kutta of fourth order; x(t - 17) between two steps is their mean.
    """
    h, back = 1.0 / _STEPS, _DELAY * _STEPS
    x = np.full(back + (length - 1) * _STEPS + 1, 1.2)

    def slope(now: float, then: float) -> float:
        return 0.2 * then / (1.0 + then**10) - 0.1 * now

    for k in range(back, len(x) - 1):
        first, last = x[k - back], x[k - back + 1]
        middle = 0.5 * (first + last)
        k1 = slope(x[k], first)
        k2 = slope(x[k] + 0.5 * h * k1, middle)
        k3 = slope(x[k] + 0.5 * h * k2, middle)
        k4 = slope(x[k] + h * k3, last)
        x[k + 1] = x[k] + h * (k1 + 2.0 * k2 + 2.0 * k3 + k4) / 6.0
    return x[back::_STEPS]


def mackey_glass(rows: int = ROWS) -> DataSet:
    """As many rows as the set MG has, features scaled to [-1, 1]."""
    first = _SKIPPED + max(_LAGS)
    x = series(first + rows + _AHEAD)
    at = np.arange(first, first + rows)
    X = np.column_stack([x[at - lag] for lag in _LAGS])
    return DataSet(NAME, scaled(X), x[at + _AHEAD], f"x(t) to x(t - {max(_LAGS)}), target x(t + {_AHEAD}), scaled")
