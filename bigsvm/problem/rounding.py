"""How much rounding of scores may change the gap of a kernel model (linear models: `linear_rounding.py`).

A score is a sum of beta_s K(x_s, x_i).  Its rounding error is about eps sum_s |beta_s| |K(x_s, x_i)|, which is at most
eps sqrt(K_ii) sum_s |beta_s| sqrt(K_ss).

If beta_i lies at the end of its box that its score calls for, its term of the gap is 0, whatever the rounding of the
score.  If beta_i lies inside its box, the term changes, to first order, by the distance of beta_i to the farther end
times the error of the score.  These changes are added to the gap.  If P is smaller than they are (rows far from the
origin, kernel values of 1e20 and more), no small relative gap is proved, however small the terms came out.  The same
holds if the errors of all scores, each times its C_i, exceed P: then it is not known at which end a beta belongs
(docs/mathematics.md 2.8).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigsvm.compiled.shared.vectors.sums import lost_in_sum

EPS = float(np.finfo(np.float64).eps)
SHARE = 2.0**-20
"""Share of a gap up to which rounding is negligible; against P, its square."""
NEAR = 2.0**-40
"""Size of a residual, relative to its operands, up to which the row counts as on a kink."""


def sum_and_lost(values: np.ndarray) -> tuple[float, float]:
    """(their sum, what rounding has taken from it), which together have twice the digits of float64."""
    lost = 0.0
    while len(values) > 1:
        half = len(values) // 2
        one, other, rest = values[:half], values[half : 2 * half], values[2 * half :]
        total = one + other
        lost += float(lost_in_sum(one, other, total).sum())
        values = np.concatenate([total, rest]) if len(rest) else total
    return float(values.sum()), lost


@dataclass
class Unsure:
    """Sums over the rows from which rounding is bounded; float or float64, (n_models,), each.

    reach : sum of |beta| sqrt(K_ii)
    spread, fixed, room : sums of room sqrt(K_ii), room |t| and room, over rows inside their box (`room_of`)
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
    """The sums over some rows; all arrays are float64, (n_rows,).  diagonal : K_ii.  Rows with beta = 0 add nothing."""
    room = room_of(beta, lower, upper)
    root = np.sqrt(np.abs(diagonal))
    return Unsure(float(np.abs(beta) @ root), float(room @ root), float(room @ np.abs(target)), float(room.sum()))


def room_of(beta: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """The distance of beta to the farther end of its side of the box (from 0 to `lower` or `upper`); 0 at an end."""
    end = np.where(beta > 0.0, upper, lower)
    return np.where((beta != 0.0) & (beta != end), np.maximum(np.abs(end - beta), np.abs(beta)), 0.0)


def rounding_cost(
    unsure: Unsure, ends: np.ndarray, costs: np.ndarray, size: np.ndarray, b: np.ndarray, primal: np.ndarray,
    gap: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """What rounding adds to the gap of each model, float64, (n_models,); 0 if it is negligible against the gap or P.

    ends, costs : results of `unsure_costs`; their rows are taken to have the mean sqrt(K_ii)
    size : sum of |beta|;  b : the bias
    """
    usual = np.divide(unsure.reach, size, out=np.zeros_like(size), where=size > 0.0)
    with np.errstate(over="ignore", invalid="ignore"):  # an infinite gap stays what it is
        scores = unsure.reach * (unsure.spread + usual * ends)
        lost = EPS * unsure.reach * usual * costs > np.abs(primal)
        cost = EPS * (scores + unsure.fixed + np.abs(b) * (unsure.room + ends))
        counts = cost > SHARE * np.maximum(gap, SHARE * np.abs(primal))
    return np.where(lost, np.abs(primal), np.where(counts, cost, 0.0))
