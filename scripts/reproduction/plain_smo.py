"""SMO in a few lines of NumPy: the baseline, which shares nothing with the library.

Keerthi's maximal violating pair (rule 1) and the second-order choice of Fan, Chen and Lin (rule 2), on a matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

TAU = 1e-12


class Reached(NamedTuple):
    """The first point whose violation is small enough: two-variable steps so far, beta_i = y_i alpha_i, F."""

    iterations: int
    beta: np.ndarray
    F: np.ndarray


def plain_smo(
    K: np.ndarray, y: np.ndarray, C: float, rule: int, violations: Sequence[float], most: int
) -> list[Reached | None]:  # fmt: skip
    """From alpha = 0; for each of `violations`, descending, the first point with b_low - b_up at most that.

    min 1/2 beta' K beta - y' beta, 0 <= y_i beta_i <= C, sum beta_i = 0;  F = K beta - y.  None: not in `most` steps.
    """
    upper, lower = np.where(y > 0, C, 0.0), np.where(y > 0, 0.0, -C)
    beta, F, diagonal = np.zeros(len(y)), -y.astype(np.float64), np.diag(K).copy()
    found: list[Reached | None] = []
    for step in range(most + 1):
        rising = np.where(beta < upper, F, np.inf)
        falling = np.where(beta > lower, F, -np.inf)
        i, j = int(np.argmin(rising)), int(np.argmax(falling))
        while len(found) < len(violations) and F[j] - F[i] <= violations[len(found)]:
            found.append(Reached(step, beta.copy(), F.copy()))
        if len(found) == len(violations) or step == most:
            break
        if rule == 2:
            b = falling - F[i]
            a = diagonal[i] + diagonal - 2.0 * K[i]
            j = int(np.argmax(np.where(b > 0, b * b / np.where(a > 0, a, TAU), -np.inf)))
        a_ij = diagonal[i] + diagonal[j] - 2.0 * K[i, j]
        room_i, room_j = upper[i] - beta[i], beta[j] - lower[j]
        t = min((F[j] - F[i]) / (a_ij if a_ij > 0 else TAU), room_i, room_j)
        beta[i] = upper[i] if t == room_i else beta[i] + t
        beta[j] = lower[j] if t == room_j else beta[j] - t
        F += t * (K[i] - K[j])
    return found + [None] * (len(violations) - len(found))
