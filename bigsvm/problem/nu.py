"""The proof of models with nu: objective, lower bound and gap from the sums of a dual point.

nu-SVC and one-class minimise 1/2 beta'K beta over the beta that nu allows; this is their objective, which LIBSVM also
prints.  Any (w, b, rho) gives a lower bound, and the difference is a sum of non-negative terms.  nu-SVR minimises
P(w, b, epsilon), and any beta that nu allows gives a lower bound (docs/mathematics.md 1.7 and 2.10).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bigsvm.problem.certificate import beta_imbalance

_ROUNDED = 2.0**-40  # relative error of a sum fixed by nu that counts as rounding of steps of two variables


@dataclass
class NuSums:
    """The constraint of nu that steps preserve: the sum of beta on each side, or a bound of the sum of |beta|.

    at_most : bool     the sum of |beta| is bounded, not fixed (nu-SVR)
    one_sided : bool   no beta is negative (one-class)
    slack : float      the bound minus the sum of |beta|
    """

    at_most: bool
    one_sided: bool
    slack: float = 0.0

    def multiplier(self, ends: tuple[float, float, float, float]) -> float:
        """The multiplier of the constraint, which is epsilon (or minus rho); 0 if the bound is not reached.

        ends : the result of `side_ends`
        """
        if self.slack > 0.0:
            return 0.0
        plus, minus = _middle(*ends[:2]), _middle(*ends[2:])
        if self.one_sided:
            return -plus
        epsilon = 0.5 * (minus - plus)
        return max(epsilon, 0.0) if self.at_most else epsilon


class NuTotals(NamedTuple):
    """The constraint that nu puts on a dual point.

    total : float or float64, (n_models,)   the sum of |beta|
    at_most : bool     `total` is a bound
    one_sided : bool   there is no constraint sum beta = 0
    """

    total: np.ndarray | float
    at_most: bool
    one_sided: bool


def priced(
    totals: NuTotals, brackets: np.ndarray, loss: np.ndarray, quadratic: np.ndarray, beta_t: np.ndarray,
    balance: np.ndarray, size: np.ndarray, b: np.ndarray, epsilon: np.ndarray, spread: np.ndarray | float = 0.0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """(gap, primal, dual) of each model, from sums over all rows, float64 (n_models,).

    A constraint that is missed by no more than rounding adds its cost to the gap.  If it is missed by more, beta is not
    feasible, and the gap is infinite.  For nu-SVR the constraint sum beta = 0 is left to `imbalance_of_tube`.

    brackets, loss : results of `qp_sums` at b and epsilon;  quadratic : beta'K beta
    beta_t, balance, size : sums of t beta, beta and |beta|
    spread : sum of |beta_i| ||phi(x_i)||, which bounds the part of each side in w; a solver that only estimates its gap
        may leave it out
    """
    total = np.broadcast_to(np.asarray(totals.total, np.float64), size.shape)
    if totals.at_most:
        left = total - size
        gap = brackets + epsilon * np.maximum(left, 0.0)
        over = np.maximum(-left, 0.0)
        gap = gap + np.where(over <= _ROUNDED * total, _price(over, total, size, quadratic, epsilon, 0.0), np.inf)
        return gap, 0.5 * quadratic + loss + epsilon * total, beta_t - 0.5 * quadratic
    level = np.abs(epsilon) + np.abs(b)
    off = np.abs(size - total)
    if not totals.one_sided:
        off = np.maximum(np.abs(size + balance - total), np.abs(size - balance - total))
    feasible = off <= _ROUNDED * total
    gap = brackets + np.where(feasible, _price(off, total, size, quadratic, level, spread), np.inf)
    # The value of a beta that is not feasible is no bound.
    primal = np.where(feasible, 0.5 * quadratic, np.inf)
    return gap, primal, np.subtract(primal, gap, out=np.zeros_like(gap), where=feasible)


def imbalance_of_tube(
    balance: np.ndarray, size: np.ndarray, primal: np.ndarray, spread: np.ndarray, epsilon: np.ndarray
) -> np.ndarray:
    """`beta_imbalance` for nu-SVR: with sum beta the sum of |beta| falls, which nu bounds at the price of epsilon."""
    cost = beta_imbalance(balance, size, primal, np.zeros_like(size), spread)
    return cost + epsilon * np.abs(balance)


def _price(
    off: np.ndarray, total: np.ndarray, size: np.ndarray, quadratic: np.ndarray, level: np.ndarray,
    spread: np.ndarray | float,
) -> np.ndarray:  # fmt: skip
    """A bound of what it costs to scale beta until its sum, which is off by `off`, equals `total`.

    spread : as in `priced`, where each side is scaled by a factor of its own: w may be small though the parts of both
        sides are large; 0 where one factor scales both
    """
    share, norm = off / np.maximum(total, np.finfo(float).tiny), np.sqrt(np.abs(quadratic))
    part = np.maximum(norm, spread)
    return np.asarray(level * off + 2.0 * share * (size * level + norm * part + share * part * part))


def _middle(up: float, down: float) -> float:
    """The mean of the two, or the one that is finite; 0 if none is."""
    finite = [value for value in (up, down) if np.isfinite(value)]
    return sum(finite) / max(len(finite), 1)
