"""The hinge loss on rows in memory, to any accuracy: a primal-dual interior-point method for few features.

Mehrotra's predictor and corrector with Gondzio's further correctors; each iteration factors one matrix of
(n_features + 1)^2 and reads the rows a few times.  It does not care how many rows lie on their hyperplane, nor how
large C is: some twenty iterations, where a smoothed Newton method took hundreds on w8a.

What an iteration wants of the rows is sums and least values alone (`OnPath`), so that they need not be here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from bigsvm.compiled.linear import interior as kernel
from bigsvm.compiled.linear.hessian import solve_factored
from bigsvm.solvers.newton_ws.subproblem import Around, Solution, Subproblem

ROW_ARRAYS = 18  # float64 a row, while a problem is solved

_BACK_OFF = 0.99  # of the step at which a variable would be 0
_CORRECTORS = 3
_WORTH = 1.01, 0.005  # a corrector whose steps are longer than that, times and plus
_MOST = 100  # iterations
# Times the C of the middle row that a row's C counts as at most on the central path.  One row of 1e6 among others of 1
# held nearly all of the sum that mu is taken from: 100 iterations, of steps of a few hundredths, did not arrive.
_UNEVEN = 1000.0


class GapSums(NamedTuple):
    """What the rows give to the gap: C times their losses, side times alpha, and sum alpha y [x, bias] by the side."""

    losses: float
    linear: float
    pulled: np.ndarray


class RowCosts(NamedTuple):
    """What the C of some rows are like: their sum, the middle one of so many positive ones, the largest of far rows."""

    total: float
    middle: float
    positive: int
    far: float

    @classmethod
    def of(cls, problem: Subproblem) -> RowCosts:
        """Of the rows of a problem."""
        C = problem.C
        positive = C[C > 0]  # a row of weight 0 is none of the usual ones
        middle = float(np.median(positive)) if len(positive) else 0.0
        return cls(float(C.sum()), middle, len(positive), float(C[problem.far].max(initial=0.0)))


def most_counted(costs: Sequence[RowCosts]) -> float:
    """What C of a row counts as at most on the central path, from the C of all rows, in one part or several.

    Of several parts the middle row is the middle one of that part which the middle row of all falls into, where parts
    are in the order of their middle rows.
    """
    middle, seen = 0.0, 0
    rows = sum(part.positive for part in costs)
    for part in sorted(costs, key=lambda part: part.middle):
        seen += part.positive
        if 2 * seen >= rows > 0:
            middle = part.middle
            break
    # Rows of the sample cost as much as all that they stand for, on purpose: they count in full.
    return max(_UNEVEN * middle, max((part.far for part in costs), default=0.0))


class OnPath(Protocol):
    """The rows of an iterate, wherever they are: alpha, C - alpha, xi and eta of each, all positive.

    They follow one *direction* of w at a time, that of the targets which were set last.
    """

    def start(self, w: np.ndarray, mu: float) -> tuple[float, GapSums]:
        """Put each row inside its box by its slack; the sum of what C counts as, 0 where there are no rows."""

    def weigh(self, H: list[np.ndarray]) -> tuple[float, np.ndarray]:
        """Put sum h [x, bias] [x, bias]' into H[0]; sum alpha eta + room xi, and the pull of targets 0."""

    def towards(self, dw: np.ndarray) -> tuple[float, float]:
        """Take products with the direction; the longest steps (dual, primal) until a variable is 0."""

    def products_after(self, dual: float, primal: float) -> float:
        """sum alpha eta + room xi after such steps along the direction."""

    def correct(self, mu: float) -> np.ndarray:
        """The pull of the targets of Mehrotra's corrector, whose predictor the direction was."""

    def recentre(self, mu: float, dual: float, primal: float) -> np.ndarray:
        """The direction is good; the pull of targets that bring back what such steps leave far from the path."""

    def step(self, dual: float, primal: float, present: bool) -> GapSums:
        """Go so far: along the present direction, or else along the one that was good."""

    def to_bounds(self) -> GapSums:
        """Put rows that are clearly at a bound there."""

    def take_back(self) -> None:
        """Undo that."""


def solve_hinge(problem: Subproblem, w: np.ndarray, target: float, mu: float) -> Solution:
    """Minimise the subproblem with the hinge loss until its duality gap is at most `target`.

    w : float64, (n_features + 1,)   where to start
    mu : what alpha_i eta_i is of C_i at the start: small where w is near

    Source: Mehrotra, SIAM J. Optimization 2 (1992); Gondzio, Computational Optimization and Applications 6 (1996);
    for linear SVM Ferris and Munson, SIAM J. Optimization 13 (2002).
    """
    rows = PathRows(problem)
    w, iterations = follow(problem, rows, w, target, mu)
    return Solution(w, rows.alpha, iterations)


def follow(problem: Around, rows: OnPath, w: np.ndarray, target: float, mu: float) -> tuple[np.ndarray, int]:
    """The same of rows that may be elsewhere; w, and the number of iterations."""
    path = _Path(problem, rows, w, mu)
    if path.costs == 0.0:  # the fold decides alone
        return np.where(problem.regulariser > 0.0, problem.lean, w), 0
    iterations = 0
    while path.gap > target and iterations < _MOST:
        path.advance()
        iterations += 1
    path.settle(target)
    return path.w, iterations


class _Path:
    """An iterate: w, and what the rows at it sum up to.

    V : the sum of the dual point;  gap : primal less dual value of the subproblem
    """

    def __init__(self, problem: Around, rows: OnPath, w: np.ndarray, mu: float) -> None:
        self.problem, self.rows, self.w, self.R = problem, rows, w.copy(), problem.regulariser
        self.costs, sums = rows.start(w, mu)
        self.H = problem.triangles()
        self._see(sums)

    def _see(self, sums: GapSums) -> None:
        problem, w, R = self.problem, self.w, self.R
        self.V = problem.lean + sums.pulled
        primal = 0.5 * float(w @ (R * w)) - float(problem.lean @ w) + sums.losses
        gap = primal - sums.linear + 0.5 * float(self.V @ (R * self.V))
        # A free bias wants sum y alpha = 0, whatever its price.
        self.gap = gap + (abs(float(w[-1] * self.V[-1])) if problem.free else 0.0)

    def advance(self) -> None:
        """One iteration."""
        rows = self.rows
        before, pulled = rows.weigh(self.H)
        self.problem.factor(self.H)
        dual, primal = (min(1.0, length) for length in rows.towards(self._direction(pulled)))
        after = rows.products_after(dual, primal)
        mu = (after / before) ** 3 * before / (2.0 * self.costs)
        dw = self._direction(rows.correct(mu))
        dual, primal = _lengths(rows.towards(dw))
        better = True
        for _ in range(_CORRECTORS):
            farther = min(1.0, 1.3 * dual + 0.1), min(1.0, 1.3 * primal + 0.1)
            other_dw = self._direction(rows.recentre(mu, *farther))
            other = _lengths(rows.towards(other_dw))
            better = min(other) > _WORTH[0] * min(dual, primal) + _WORTH[1]
            if not better:
                break
            (dual, primal), dw = other, other_dw
        sums = rows.step(dual, primal, better)
        self.w += primal * dw
        self._see(sums)

    def _direction(self, pulled: np.ndarray) -> np.ndarray:
        """The Newton direction of w to targets of such a pull."""
        dw = np.empty(len(self.w))
        solve_factored(*self.H, self.V - self.R * self.w - pulled, dw)
        return dw

    def settle(self, target: float) -> None:
        """Rows that are clearly at a bound go there, unless that costs more than `target`."""
        gap = self.gap
        self._see(self.rows.to_bounds())
        if not self.gap <= max(2.0 * gap, target):
            self.rows.take_back()


def _lengths(reach: tuple[float, float]) -> tuple[float, float]:
    dual, primal = reach
    return min(1.0, _BACK_OFF * dual), min(1.0, _BACK_OFF * primal)


class PathRows:
    """`OnPath` of rows that are here.

    most : that C of a row counts as on the central path; a shard is told what it is among the rows of all shards
    """

    def __init__(self, problem: Subproblem) -> None:
        self.problem, self.C = problem, problem.C
        self.most = most_counted([RowCosts.of(problem)])

    @property
    def alpha(self) -> np.ndarray:
        """float64, (n_rows,)."""
        return self._rows.alpha

    def start(self, w: np.ndarray, mu: float) -> tuple[float, GapSums]:
        """As `OnPath` says."""
        s = self.problem.slacks(w)
        n = len(s)
        self._rows, self._h = kernel.RowsOnPath(s, *(np.empty(n) for _ in range(4))), np.empty(n)
        kernel.centre(self._rows, self.C, mu)
        return float(np.minimum(self.C, self.most).sum()), self._gap()

    def _gap(self) -> GapSums:
        s, alpha, *_ = self._rows
        losses, linear = kernel.gap_sums(s, self.C, alpha, self.problem.side)
        return GapSums(float(losses), float(linear), self.problem.pull(alpha))

    def weigh(self, H: list[np.ndarray]) -> tuple[float, np.ndarray]:
        """As `OnPath` says."""
        before = kernel.weigh(self._rows, self._h)
        self.problem.add_hessian(self._h, H)
        nothing: np.ndarray = np.zeros(len(self._h))
        return before, self._aim(kernel.Targets(nothing, nothing))

    def _aim(self, targets: kernel.Targets) -> np.ndarray:
        pulled = np.empty(len(self._h))
        self._targets = targets
        kernel.pull(self._rows, self._h, targets, pulled)
        return self.problem.pull(pulled)

    def towards(self, dw: np.ndarray) -> tuple[float, float]:
        """As `OnPath` says."""
        self._p = self.problem.products(dw)
        dual, primal = kernel.reach(self._rows, self._h, self._p, self._targets)
        return float(dual), float(primal)

    def products_after(self, dual: float, primal: float) -> float:
        """As `OnPath` says."""
        return float(kernel.products_after(self._rows, self._h, self._p, self._targets, dual, primal))

    def correct(self, mu: float) -> np.ndarray:
        """As `OnPath` says."""
        targets = self._new_targets()
        kernel.second_order(self._rows, self._h, self._p, self.C, self.most, mu, targets)
        return self._aim(targets)

    def recentre(self, mu: float, dual: float, primal: float) -> np.ndarray:
        """As `OnPath` says."""
        self._good = self._p, self._targets
        targets = self._new_targets()
        kernel.recentre(self._rows, self._h, self._p, self.C, self.most, mu, self._targets, dual, primal, targets)
        return self._aim(targets)

    def step(self, dual: float, primal: float, present: bool) -> GapSums:
        """As `OnPath` says."""
        p, targets = (self._p, self._targets) if present else self._good
        kernel.step(self._rows, self._h, p, targets, dual, primal)
        return self._gap()

    def to_bounds(self) -> GapSums:
        """As `OnPath` says."""
        rows, self._before = self._rows, self._rows.alpha.copy()
        kernel.at_bounds(self.C, rows.xi, rows.eta, rows.alpha)
        return self._gap()

    def take_back(self) -> None:
        """As `OnPath` says."""
        self._rows.alpha[:] = self._before

    def _new_targets(self) -> kernel.Targets:
        return kernel.Targets(np.empty(len(self._h)), np.empty(len(self._h)))
