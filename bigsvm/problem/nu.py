"""What nu makes of the sums of a dual point: the value that is minimised, its lower bound, and their gap.

nu-SVC and one-class minimise 1/2 beta'K beta over the beta that nu allows, and that is their objective, as LIBSVM
prints it.  Any (w, b, rho) gives a lower bound of it; the two differ by a sum of non-negative terms.  nu-SVR minimises
P(w, b, epsilon), and any beta that nu allows gives the lower bound (docs/mathematics.md 1.7 and 2.10).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bigsvm.problem.certificate import cost_of_imbalance

_ROUNDED = 2.0**-40  # of a sum that nu wants: rounding of steps of two variables


@dataclass
class NuSums:
    """What steps keep: the sum of each side, or a bound of both together.

    at_most : the sum of |beta| is bounded (nu-SVR);  slack : what the bound leaves
    one_sided : there are no negative beta (one-class)
    """

    at_most: bool
    one_sided: bool
    slack: float = 0.0

    def multiplier(self, ends: tuple[float, float, float, float]) -> float:
        """The epsilon at which the two sides meet; 0 where the bound leaves something.

        ends : as `side_ends` gives them
        """
        if self.slack > 0.0:
            return 0.0
        plus, minus = _middle(*ends[:2]), _middle(*ends[2:])
        if self.one_sided:
            return -plus
        epsilon = 0.5 * (minus - plus)
        return max(epsilon, 0.0) if self.at_most else epsilon


class NuTotals(NamedTuple):
    """What nu asks of a dual point.

    total : sum |beta|, of one model or float64 (n_models,);  at_most : it is a bound
    one_sided : no sum beta = 0
    """

    total: np.ndarray | float
    at_most: bool
    one_sided: bool


def priced(
    totals: NuTotals, brackets: np.ndarray, loss: np.ndarray, quadratic: np.ndarray, beta_t: np.ndarray,
    balance: np.ndarray, size: np.ndarray, b: np.ndarray, epsilon: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """(gap, primal, dual) of each model, from sums over all rows, float64 (n_models,).

    brackets, loss : as `qp_sums` has them at b and epsilon;  quadratic : beta'K beta;  beta_t, balance, size : sums of
        t beta, beta and |beta|
    Sums that miss what nu wants by rounding cost what that is worth; by more, they prove nothing.
    """
    total = np.broadcast_to(np.asarray(totals.total, np.float64), size.shape)
    if totals.at_most:
        left = total - size
        gap = brackets + epsilon * np.maximum(left, 0.0) + cost_of_imbalance(b, balance, size, quadratic)
        over = np.maximum(-left, 0.0)
        gap = gap + np.where(over <= _ROUNDED * total, _price(over, total, size, quadratic, epsilon), np.inf)
        return gap, 0.5 * quadratic + loss + epsilon * total, beta_t - 0.5 * quadratic
    level = np.abs(epsilon) + np.abs(b)
    off = np.abs(size - total)
    if not totals.one_sided:
        off = np.maximum(np.abs(size + balance - total), np.abs(size - balance - total))
    feasible = off <= _ROUNDED * total
    gap = brackets + np.where(feasible, _price(off, total, size, quadratic, level), np.inf)
    # Of a beta that is not feasible the value bounds nothing.
    primal = np.where(feasible, 0.5 * quadratic, np.inf)
    return gap, primal, np.subtract(primal, gap, out=np.zeros_like(gap), where=feasible)


def _price(
    off: np.ndarray, total: np.ndarray, size: np.ndarray, quadratic: np.ndarray, level: np.ndarray
) -> np.ndarray:
    """What it costs at most to scale beta until a sum that is off by rounding is right."""
    share = off / np.maximum(total, np.finfo(float).tiny)
    return np.asarray(level * off + 2.0 * share * (size * level + np.abs(quadratic)))


def _middle(up: float, down: float) -> float:
    """Between the two, or the one that there is; 0 where there is none."""
    finite = [value for value in (up, down) if np.isfinite(value)]
    return sum(finite) / max(len(finite), 1)
