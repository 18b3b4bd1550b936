"""The quadratic programme of a model with nu: nu-SVC, nu-SVR, one-class (docs/mathematics.md 1.7).

    minimise  1/2 beta' K beta - t' beta     lower <= beta <= upper,  sum |beta| = total,  sum beta = 0

with total = nu sum C_i.  nu-SVC has t = 0 and the boxes of classes (`dual_qp.py`).  One-class has t = 0, boxes
[0, C_i], and no constraint sum beta = 0.  nu-SVR has the boxes of targets, and sum |beta| <= total.

The multiplier of the constraint on sum |beta| acts as an epsilon that is not given: with its value the programme is
that of `dual_qp.py`.  It is the width of the tube of nu-SVR, and -rho for nu-SVC and one-class.  Steps preserve the
sums of the positive and of the negative beta.  Between steps the multiplier is set to the value at which the optimality
conditions of both signs meet, and then everything said about a `DualQP` holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bigsvm.compiled.kernel.block_smo import side_ends
from bigsvm.compiled.kernel.dual_qp import best_bias, bounds_of, qp_sums
from bigsvm.errors import DataError
from bigsvm.problem.linear_rounding import UnsureWeights
from bigsvm.problem.nu import NuSums, NuTotals, priced
from bigsvm.problem.rounding import Unsure
from bigsvm.solvers.kernel.dual_qp import DualQP, Terms

_NO_MARGIN = 1e-12  # share of the largest possible ||w||^2 below which w counts as 0
_ROUNDING = 2.0**-40  # relative rounding error of sums of beta in float64


@dataclass
class NuQP(DualQP):
    """A `DualQP` whose epsilon is found by the solver.

    total : float      what sum |beta| must be, or may be at most
    at_most, one_sided : bool   see `NuSums`
    largest : float    largest K_ii seen so far, 0 before any
    """

    total: float = 0.0
    at_most: bool = False
    one_sided: bool = False
    largest: float = 0.0

    def no_margin(self) -> bool:
        """Whether ||w|| is negligible against its summands, so that the optimum is w = 0, which is no model."""
        quadratic = float(self.beta @ self.f)
        return not self.at_most and quadratic <= _NO_MARGIN * (self.total * self.total) * self.largest

    def sums(self) -> NuSums:
        """The constraint that steps from the present point preserve."""
        slack = self.total - float(np.abs(self.beta).sum()) if self.at_most else 0.0
        return NuSums(self.at_most, self.one_sided, slack if slack > _ROUNDING * self.total else 0.0)

    def settle(self) -> None:
        """Set epsilon to the value at which both signs meet."""
        self.epsilon = self._meeting()

    def bounds(self) -> tuple[float, float]:
        """(b_up, b_low) over all rows, at the epsilon at which both signs meet."""
        return bounds_of(self.f, self.beta, self.lower, self.upper, self._meeting())

    def scale(self) -> float:
        """The scale of differences between scores."""
        if self.at_most:
            return super().scale()
        return abs(self.epsilon) or max(float(np.std(self.f)), float(np.finfo(float).tiny))

    def start(self) -> None:
        """Make beta feasible, near its present value; f is then out of date."""
        np.clip(self.beta, self.lower, self.upper, out=self.beta)
        if self.at_most:
            self.beta[:] = 0.0
            return
        sides = ((self.upper, 1.0),) if self.one_sided else ((self.upper, 1.0), (-self.lower, -1.0))
        for room, sign in sides:
            _fill(self.beta, room, sign, self.total / len(sides))

    def best_bias(self) -> float:
        """The bias that minimises P; sets `epsilon` to its optimal multiplier.  Both come from quantiles of scores."""
        half = self.total if self.one_sided else 0.5 * self.total
        plus = _quantile(self.f, self.upper, half)
        if self.one_sided:
            self.epsilon = -plus
            return 0.0
        minus = _quantile(-self.f, -self.lower, half)
        if self.at_most and plus + minus > 0.0:  # a tube cannot have a negative width
            self.epsilon = 0.0
            return float(best_bias(self.f, self.lower, self.upper, 0.0))
        self.epsilon = -0.5 * (plus + minus)
        return 0.5 * (minus - plus)

    def gap_at_best_bias(self) -> tuple[float, float, float, float, float]:
        """See `DualQP`; the epsilon of this object does not change."""
        there = replace(self)
        b = there.best_bias()
        terms = there.terms(b)
        return terms.gap, terms.primal, terms.dual, b, there.epsilon

    def terms(self, b: float) -> Terms:
        """The values that beta and f prove at bias b and this epsilon; the gap includes missed constraints."""
        gap, loss, beta_f, beta_t, size = qp_sums(
            self.f, self.beta, self.lower, self.upper, self.target, self.epsilon, b
        )
        quadratic = beta_f + beta_t
        totals = NuTotals(self.total, self.at_most, self.one_sided)
        one = [np.array([value]) for value in (gap, loss, quadratic, beta_t, self.balance, size, b, self.epsilon)]
        found = priced(totals, *one)
        proved_gap, primal, dual = (float(value[0]) for value in found)
        return Terms(proved_gap, primal, dual, quadratic, abs(beta_f) + abs(beta_t), size)

    def imbalance(self, terms: Terms, unsure: Unsure | UnsureWeights) -> float:
        """For nu-SVR what sum beta != 0 adds to the gap; else 0, because `terms` has included it."""
        if not self.at_most:
            return 0.0
        return super().imbalance(terms, unsure) + self.epsilon * abs(self.balance)

    def _meeting(self) -> float:
        return self.sums().multiplier(side_ends(self.beta, self.f, self.lower, self.upper))


def _quantile(scores: np.ndarray, costs: np.ndarray, wanted: float) -> float:
    """The p that minimises sum_i costs_i max(0, p - scores_i) - p wanted, over the rows whose cost is above 0."""
    rows = np.flatnonzero(costs > 0.0)
    rows = rows[np.argsort(scores[rows], kind="stable")]
    reached = np.cumsum(costs[rows])
    at = min(int(np.searchsorted(reached, wanted * (1.0 - 1e-12))), len(rows) - 1)
    if reached[at] <= wanted * (1.0 + 1e-12) and at + 1 < len(rows):  # all p up to the next are optimal
        return 0.5 * float(scores[rows[at]] + scores[rows[at + 1]])
    return float(scores[rows[at]])


def _fill(beta: np.ndarray, room: np.ndarray, sign: float, wanted: float) -> None:
    """Make |beta| of one sign, at most `room`, sum up to `wanted`, in place; as in LIBSVM the first rows first."""
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
