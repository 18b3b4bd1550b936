"""The programme of a model that nu shapes: nu-SVC, nu-SVR, one-class (docs/mathematics.md 1.7).

    minimise  1/2 beta' K beta - t' beta     lower <= beta <= upper,  sum |beta| = total,  sum beta = 0

nu-SVC: t = 0, the half boxes of classes, total = nu sum C_i.  One-class: t = 0, boxes [0, C_i], total = nu sum C_i, and
no sum beta = 0.  nu-SVR: the boxes of targets, and sum |beta| <= total = nu sum C_i.

The multiplier of sum |beta| is an epsilon that is not given: with it the programme is that of `dual_qp.py`.  It is the
width of nu-SVR's tube, and -rho of nu-SVC and of one-class.  Steps keep the sums of beta of both signs; between them
the multiplier goes to where both sides meet, so that all that is known of a `DualQP` holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bigsvm.compiled.kernel.block_smo import side_ends
from bigsvm.compiled.kernel.dual_qp import best_bias, bounds_of, qp_sums
from bigsvm.errors import DataError
from bigsvm.problem.nu import NuSums, NuTotals, priced
from bigsvm.solvers.kernel.dual_qp import DualQP, Terms

_NO_MARGIN = 1e-12  # of the square of what ||w|| could be: ||w|| is a millionth of that
_ROUNDING = 2.0**-40  # of the total: what sums of beta lose in float64


@dataclass
class NuQP(DualQP):
    """A `DualQP` whose epsilon is found.

    total : of |beta|;  at_most, one_sided : as `NuSums` has them;  largest : K_ii that was met, 0 before any was
    """

    total: float = 0.0
    at_most: bool = False
    one_sided: bool = False
    largest: float = 0.0

    def no_margin(self) -> bool:
        """Whether ||w|| is next to nothing beside the rows that it is a sum of: 0 is as good, and no model."""
        quadratic = float(self.beta @ self.f)
        return not self.at_most and quadratic <= _NO_MARGIN * (self.total * self.total) * self.largest

    def sums(self) -> NuSums:
        """What steps from here keep."""
        slack = self.total - float(np.abs(self.beta).sum()) if self.at_most else 0.0
        return NuSums(self.at_most, self.one_sided, slack if slack > _ROUNDING * self.total else 0.0)

    def settle(self) -> None:
        """Set epsilon to where the two sides meet."""
        self.epsilon = self._meeting()

    def bounds(self) -> tuple[float, float]:
        """(b_up, b_low) over all rows, at the epsilon where the sides meet."""
        return bounds_of(self.f, self.beta, self.lower, self.upper, self._meeting())

    def scale(self) -> float:
        """Of what scores of these rows differ by."""
        if self.at_most:
            return super().scale()
        return abs(self.epsilon) or max(float(np.std(self.f)), float(np.finfo(float).tiny))

    def start(self) -> None:
        """A feasible beta near what beta is, each side as large as it must be; f is then old.

        Raises DataError where no beta is feasible: nu is too large for these rows.
        """
        np.clip(self.beta, self.lower, self.upper, out=self.beta)
        if self.at_most:
            self.beta[:] = 0.0
            return
        sides = ((self.upper, 1.0),) if self.one_sided else ((self.upper, 1.0), (-self.lower, -1.0))
        for room, sign in sides:
            _fill(self.beta, room, sign, self.total / len(sides))

    def best_bias(self) -> float:
        """The b, and in `epsilon` the multiplier, that make the primal least: quantiles of the scores of each side."""
        half = self.total if self.one_sided else 0.5 * self.total
        plus = _quantile(self.f, self.upper, half)
        if self.one_sided:
            self.epsilon = -plus
            return 0.0
        minus = _quantile(-self.f, -self.lower, half)
        if self.at_most and plus + minus > 0.0:  # a tube has no negative width
            self.epsilon = 0.0
            return float(best_bias(self.f, self.lower, self.upper, 0.0))
        self.epsilon = -0.5 * (plus + minus)
        return 0.5 * (minus - plus)

    def gap_at_best_bias(self) -> tuple[float, float, float, float, float]:
        """As `DualQP` has it; epsilon stays as it is."""
        there = replace(self)
        b = there.best_bias()
        terms = there.terms(b)
        return terms.gap, terms.primal, terms.dual, b, there.epsilon

    def terms(self, b: float) -> Terms:
        """What beta and f prove at bias b and this epsilon; what sums lack of those that nu wants is in the gap."""
        gap, loss, beta_f, beta_t, size = qp_sums(
            self.f, self.beta, self.lower, self.upper, self.target, self.epsilon, b
        )
        quadratic = beta_f + beta_t
        balance = float(self.beta.sum())
        totals = NuTotals(self.total, self.at_most, self.one_sided)
        one = [np.array([value]) for value in (gap, loss, quadratic, beta_t, balance, size, b, self.epsilon)]
        found = priced(totals, *one)
        proved_gap, primal, dual = (float(value[0]) for value in found)
        return Terms(proved_gap, primal, dual, quadratic, abs(beta_f) + abs(beta_t), size)

    def imbalance(self, b: float, terms: Terms) -> float:
        """0: the gap has it."""
        return 0.0

    def _meeting(self) -> float:
        return self.sums().multiplier(side_ends(self.beta, self.f, self.lower, self.upper))


def _quantile(scores: np.ndarray, costs: np.ndarray, wanted: float) -> float:
    """p with the least  sum_i costs_i max(0, p - scores_i) - p wanted,  over the rows whose cost is above 0."""
    rows = np.flatnonzero(costs > 0.0)
    rows = rows[np.argsort(scores[rows], kind="stable")]
    reached = np.cumsum(costs[rows])
    at = min(int(np.searchsorted(reached, wanted * (1.0 - 1e-12))), len(rows) - 1)
    if reached[at] <= wanted * (1.0 + 1e-12) and at + 1 < len(rows):  # flat to the next: its middle
        return 0.5 * float(scores[rows[at]] + scores[rows[at + 1]])
    return float(scores[rows[at]])


def _fill(beta: np.ndarray, room: np.ndarray, sign: float, wanted: float) -> None:
    """Make the beta of one sign, bounded by `room`, sum up to `wanted`, in place: as LIBSVM, the first rows first."""
    mine = np.flatnonzero(room > 0.0)
    size = beta[mine] * sign
    lacks = wanted - float(size.sum())
    if lacks < 0.0:
        size *= wanted / (wanted - lacks)
    else:
        left = room[mine] - size
        before = np.cumsum(left) - left
        size += np.clip(lacks - before, 0.0, left)
    beta[mine] = sign * size


def check_feasible(qp: NuQP, nu: float, named: tuple[str, str], where: str) -> None:
    """Refuse a nu that is too large for the smaller of two classes.  Raises DataError.

    named : the positive and the negative class
    """
    if qp.at_most or qp.one_sided:
        return
    sides = float(qp.upper.sum()), float(-qp.lower.sum())
    least = min(sides)
    if 0.5 * qp.total > least * (1.0 + 1e-12):
        if least == 0.0:
            without = named[sides.index(0.0)]
            hint = f"give rows of the class {without} weights above 0, or leave the class out with --labels"
            raise DataError(f"no nu is feasible: no row of the class {without} has a weight above 0", where, hint)
        most = 2.0 * least / sum(sides)
        raise DataError(
            f"nu = {nu:g} is infeasible: of the classes {named[0]} and {named[1]} one has too few rows for it",
            where,
            f"at most --nu {most:.6g}",
        )
