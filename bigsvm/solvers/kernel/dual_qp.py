"""The quadratic programme (QP) of one model, in the form that all kernel solvers use.

    minimise  1/2 beta' K beta - t' beta + epsilon sum_i |beta_i|     lower <= beta <= upper,  sum_i beta_i = 0

Classification: beta_i = y_i alpha_i, t = y, epsilon = 0, and the box is [0, C_i] for y_i = +1, [-C_i, 0] for y_i = -1.
Regression (eps-SVR): beta_i = alpha_i - alpha*_i, t is the target, and the box is [-C_i, C_i].  LIBSVM's form has two
variables for each row (docs/mathematics.md 1.6): alpha_i is the positive part of beta_i, alpha*_i the negative part.

    f_i = (K beta)_i - t_i           (docs/mathematics.md 1.6)
    F_up_i = f_i + epsilon (beta_i >= 0) - epsilon (beta_i < 0)     where beta_i may rise (beta_i < upper_i)
    F_down_i = f_i + epsilon (beta_i > 0) - epsilon (beta_i <= 0)   where beta_i may fall (beta_i > lower_i)
    b_up = min F_up, b_low = max F_down; optimal iff b_low <= b_up; violation = b_low - b_up; f(x) = (K beta) + b

A step of two variables raises beta_i and lowers beta_j by the same amount.  It may not pass a bound, nor 0 if
epsilon > 0.  A row is *free* if beta_i is strictly inside its box and not 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bigsvm.compiled.kernel.dual_qp import Box, DualPoint, best_bias, bounds_of, qp_sums, unsure_costs
from bigsvm.problem.certificate import beta_imbalance
from bigsvm.problem.linear_rounding import UnsureWeights
from bigsvm.problem.nu import NuSums
from bigsvm.problem.rounding import NEAR, Unsure, rounding_cost, sum_and_lost


class Terms(NamedTuple):
    """Sums over the rows of a programme, and the values that they prove.

    gap, primal, dual : the values;  quadratic : beta'K beta
    made_of : size of the sums whose difference is beta'K beta;  size : sum |beta|
    """

    gap: float
    primal: float
    dual: float
    quadratic: float
    made_of: float
    size: float


@dataclass
class DualQP:
    """The programme of one model with its present point.  Arrays are float64, (n,), over the rows that take part.

    target, lower, upper : t and the box;  epsilon : float
    beta : the present point;  f : K beta - t, kept up to date by the solver
    rows : int64, (n,)   numbers of these rows in the data, ascending; None if all rows take part
    eps : float   violation at which a solver may stop
    own : the solver's own vectors of the rows, by name
    """

    target: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    epsilon: float
    beta: np.ndarray
    f: np.ndarray
    rows: np.ndarray | None = None
    eps: float = 1e-3
    own: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def n(self) -> int:
        return len(self.target)

    @property
    def box(self) -> Box:
        """lower and upper, for compiled loops."""
        return Box(self.lower, self.upper)

    @property
    def point(self) -> DualPoint:
        """beta and f, for compiled loops, which change them in place."""
        return DualPoint(self.beta, self.f)

    def up(self, where: slice | np.ndarray = slice(None)) -> np.ndarray:
        """F_up of some rows; +inf if beta may not rise."""
        beta, f = self.beta[where], self.f[where]
        F = f if self.epsilon == 0.0 else f + np.where(beta >= 0.0, self.epsilon, -self.epsilon)
        return np.where(beta < self.upper[where], F, np.inf)

    def down(self, where: slice | np.ndarray = slice(None)) -> np.ndarray:
        """F_down of some rows; -inf if beta may not fall."""
        beta, f = self.beta[where], self.f[where]
        F = f if self.epsilon == 0.0 else f + np.where(beta > 0.0, self.epsilon, -self.epsilon)
        return np.where(beta > self.lower[where], F, -np.inf)

    def bounds(self) -> tuple[float, float]:
        """(b_up, b_low) over all rows."""
        return bounds_of(self.f, self.beta, self.lower, self.upper, self.epsilon)

    def violation(self) -> float:
        """b_low - b_up, by which the optimality conditions are violated; -inf if no beta may move."""
        b_up, b_low = self.bounds()
        return b_low - b_up if np.isfinite(b_up) and np.isfinite(b_low) else -np.inf

    def free(self) -> np.ndarray:
        """bool, (n,): the free rows."""
        return (self.beta > self.lower) & (self.beta < self.upper) & (self.beta != 0.0)

    def start(self) -> None:
        """Set beta = 0, f = -t."""
        self.beta[:] = 0.0
        np.negative(self.target, out=self.f)

    def scale(self) -> float:
        """The scale of differences between scores: 1 for classes, the standard deviation of targets."""
        if self.epsilon == 0.0 and np.all(np.abs(self.target) == 1.0):
            return 1.0
        return max(float(np.std(self.target)), np.finfo(float).tiny)

    def sums(self) -> NuSums | None:
        """The constraint that steps preserve besides sum beta: None here; see `nu_qp.py`."""
        return None

    def settle(self) -> None:
        """Set epsilon, if it is found by the solver; nothing to do here."""

    def no_margin(self) -> bool:
        """Whether the optimum is w = 0, which would be no model; never here, possible with nu."""
        return False

    def best_bias(self) -> float:
        """The bias that minimises P."""
        return float(best_bias(self.f, self.lower, self.upper, self.epsilon))

    def gap_at_best_bias(self) -> tuple[float, float, float, float, float]:
        """(gap, primal, dual, b, epsilon) of beta and f, with the bias b that minimises P."""
        b = self.best_bias()
        terms = self.terms(b)
        return terms.gap, terms.primal, terms.dual, b, self.epsilon

    def terms(self, b: float) -> Terms:
        """The values that beta and f prove at bias b; `imbalance` is not included in the gap.

        gap is a sum of non-negative terms (docs/mathematics.md 2.2); D = t'beta - epsilon |beta| - 1/2 beta'K beta, and
        beta'K beta = beta.(f + t).
        """
        gap, loss, beta_f, beta_t, size = qp_sums(
            self.f, self.beta, self.lower, self.upper, self.target, self.epsilon, b
        )
        quadratic = beta_f + beta_t
        dual = beta_t - self.epsilon * size - 0.5 * quadratic
        return Terms(gap, 0.5 * quadratic + loss, dual, quadratic, abs(beta_f) + abs(beta_t), size)

    def shorten(self, multiples: np.ndarray) -> bool:
        """Multiply beta by the best of some numbers if P is above that of beta = 0; whether it was.

        If it was, f must be computed anew; else nothing has changed.
        """
        quadratic, scored = max(self.terms(0.0).quadratic, 0.0), self.f.copy()

        def primal(t: float) -> float:
            np.add(scored, self.target, out=self.f)
            self.f *= t
            self.f -= self.target
            b = self.best_bias()
            loss = qp_sums(self.f, self.beta, self.lower, self.upper, self.target, self.epsilon, b)[1]
            return 0.5 * t * t * quadratic + float(loss)

        if primal(1.0) <= primal(0.0):
            self.f[:] = scored
            return False
        self.beta *= min(multiples.tolist(), key=primal)
        return True

    @property
    def balance(self) -> float:
        """sum beta, summed with twice the digits of float64, as in the proof of a saved model."""
        return sum(sum_and_lost(self.beta))

    def imbalance(self, terms: Terms, unsure: Unsure | UnsureWeights) -> float:
        """What sum beta != 0 adds to the gap: a small amount if it is rounding, otherwise infinity."""
        spread = unsure.spread if isinstance(unsure, UnsureWeights) else unsure.reach
        one = [np.array([value]) for value in (self.balance, terms.size, terms.primal, 0.0, spread)]
        return float(beta_imbalance(*one)[0])

    def rounding(self, b: float, terms: Terms, unsure: Unsure | UnsureWeights) -> float:
        """What rounding of f (or of w and its scores) adds to the gap of `terms`."""
        costs = unsure_costs(self.f, self.beta, self.lower, self.upper, self.target, self.epsilon, b, NEAR)
        if isinstance(unsure, UnsureWeights):
            norm = float(np.sqrt(max(terms.quadratic, 0.0)))
            gap, primal = np.array([terms.gap]), np.array([terms.primal])
            return float(unsure.rounding(norm, b, costs[0]).added(gap, primal)[0])
        sums = (*costs, terms.size, abs(b) + abs(self.epsilon), terms.primal, terms.gap)
        return float(rounding_cost(unsure, *(np.array([value]) for value in sums))[0])


class Progress(NamedTuple):
    """What a solver did in one share of work on a model.

    done : bool        its violation is at most `qp.eps`, by its own rule
    exhausted : bool   floating point allows no further progress
    iterations : int   steps, as the paper counts them
    visits : int       updates of f of a row
    violation : float  the last one known
    final : bool       the algorithm has ended by its own rule, optimal or not (WSS-WR, Wang 2016)
    paused : bool      `Context.pause` asked to stop, in the middle of the share
    stale : bool       f of some rows is old, so that gap and violation are not known
    """

    done: bool
    exhausted: bool
    iterations: int
    visits: int
    violation: float
    final: bool = False
    paused: bool = False
    stale: bool = False


def middle(qp: DualQP) -> float:
    """-(b_up + b_low) / 2, the bias that a solver starts with; 0 if one of them is not finite."""
    b_up, b_low = qp.bounds()
    return -0.5 * (b_up + b_low) if np.isfinite(b_up) and np.isfinite(b_low) else 0.0
