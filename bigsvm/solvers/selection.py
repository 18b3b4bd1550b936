"""Which of many rows are taken where only some can be: the same ones on every machine, whatever is equal.

`np.argpartition` is quicker, and among equal values takes whichever its vector instructions come to first.
"""

from __future__ import annotations

import numpy as np


def smallest(values: np.ndarray, k: int) -> np.ndarray:
    """Positions of the `k` smallest values, int64, smallest first; among equals the lowest position first."""
    return np.argsort(values, kind="stable")[:k]


def largest(values: np.ndarray, k: int) -> np.ndarray:
    """Positions of the `k` largest values, int64, largest first; among equals the lowest position first."""
    return smallest(-values, k)
