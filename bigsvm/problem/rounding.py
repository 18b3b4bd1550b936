"""What rounding of scores is worth in the gap of a model with kernel values; of linear models: `linear_rounding.py`.

A score is a sum of beta_s K(x_s, x_i), and float64 knows it to no better than eps sum_s |beta_s| |K(x_s, x_i)|, which
is at most eps sqrt(K_ii) sum_s |beta_s| sqrt(K_ss).  Of a row whose beta lies at the end of its box that its score
asks for, the term of the gap is 0 wherever the score lies within that.  Of a row inside its box it is not: to first
order it changes by the distance of beta to the farther end, times what its score changes by.  Where P is so small that
these changes together are larger (rows far from the origin, kernel values of 1e20 and more), no relative gap is proved
however small the terms came out; nor where rounding of all scores, each at its cost, is worth more than P: then it is
not known which end a row belongs at (docs/mathematics.md 2.8).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

EPS = float(np.finfo(np.float64).eps)
SHARE = 2.0**-20
"""Of a gap, or of P twice over: what rounding is lost in."""
NEAR = 2.0**-40
"""Of a residual on a kink: relative to the numbers that it is made of."""


@dataclass
class Unsure:
    """Sums over rows, of one model or float64 (n_models,).

    reach : |beta| sqrt(K_ii);  spread : room sqrt(K_ii), of rows inside their box
    fixed : room |t|, and room : itself, of the same rows
    """

    reach: np.ndarray | float = 0.0
    spread: np.ndarray | float = 0.0
    fixed: np.ndarray | float = 0.0
    room: np.ndarray | float = 0.0

    def add(self, other: Unsure) -> None:
        """Add the sums over other rows."""
        self.reach, self.spread = self.reach + other.reach, self.spread + other.spread
        self.fixed, self.room = self.fixed + other.fixed, self.room + other.room


def unsure_of(
    beta: np.ndarray, lower: np.ndarray, upper: np.ndarray, target: np.ndarray, diagonal: np.ndarray
) -> Unsure:
    """Of some rows, float64, (n_rows,) each; those whose beta is 0 add nothing.  diagonal : their K_ii"""
    room = room_of(beta, lower, upper)
    root = np.sqrt(np.abs(diagonal))
    return Unsure(float(np.abs(beta) @ root), float(room @ root), float(room @ np.abs(target)), float(room.sum()))


def room_of(beta: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """The distance of beta to the farther end of its side of the box; 0 at an end."""
    end = np.where(beta > 0.0, upper, lower)
    return np.where((beta != 0.0) & (beta != end), np.maximum(np.abs(end - beta), np.abs(beta)), 0.0)


def rounding_cost(
    unsure: Unsure, ends: np.ndarray, costs: np.ndarray, size: np.ndarray, b: np.ndarray, primal: np.ndarray,
    gap: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """What is added to the gap of each model, float64, (n_models,): 0 where it is lost in the gap or in P.

    ends, costs : as `unsure_costs` has them, whose rows are taken for ones of the usual size;  size : sum |beta|
    """
    usual = np.divide(unsure.reach, size, out=np.zeros_like(size), where=size > 0.0)
    with np.errstate(over="ignore", invalid="ignore"):  # an infinite gap stays what it is
        scores = unsure.reach * (unsure.spread + usual * ends)
        lost = EPS * unsure.reach * usual * costs > np.abs(primal)
        cost = EPS * (scores + unsure.fixed + np.abs(b) * (unsure.room + ends))
        counts = cost > SHARE * np.maximum(gap, SHARE * np.abs(primal))
    return np.where(lost, np.abs(primal), np.where(counts, cost, 0.0))
