"""A primal-dual interior-point method for the hinge loss on rows in memory, to any accuracy, for few features.

It uses Mehrotra's predictor and corrector, and further correctors by Gondzio.  Each iteration factors one matrix of
order n_features + 1 and reads the rows a few times.  The number of iterations hardly depends on C, or on how many rows
lie on their hyperplanes: about twenty, where a Newton method for the smoothed hinge took hundreds on w8a.

An iteration needs only sums and minima over the rows (the protocol `OnPath`), so the rows may also lie on shards.

Notation.  Row i has the slack s_i = 1 - y_i f(x_i) = xi_i - eta_i with xi_i, eta_i > 0, and alpha_i with its *room*
C_i - alpha_i.  On the central path alpha_i eta_i = room_i xi_i = mu C_i, where C_i counts for at most `most`.  The
*pull* of coefficients c is the vector sum_i c_i y_i [x_i, bias]; rows of side -1 (`subproblem`) count in it with the
opposite sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from bigsvm.compiled.linear import interior as kernel
from bigsvm.compiled.linear.hessian import solve_factored
from bigsvm.solvers.newton_ws.subproblem import Around, Solution, Subproblem
from bigsvm.tasks import PassLeft

ROW_ARRAYS = 18  # float64 numbers held for a row while a problem is solved

BACK_OFF = 0.99  # share of the longest step, at which a variable would become 0
CORRECTORS = 3  # most of Gondzio's correctors in an iteration
WORTH = 1.01, 0.005  # factor and addend by which a corrector must lengthen the steps to be used
_MOST = 100  # iterations
# Most that a second-order term of the predictor counts for, times the mean product.  These terms are those of a whole
# step.  Where the step is short they may be a thousand times mu, and targets so far from the path lead rows away from
# it: on kddcup99 dozens of short steps followed (docs/measurements.md 5).
_CURVED = 10.0
# On the central path the C of a row counts for at most this many times the median C.  Rows that count for much more
# determine mu by themselves, and all others get targets far above those of their own path.  Where 7 % of the rows had a
# C of 100 and the others one of 1, 100 iterations, with steps of a few hundredths, were not enough; now 46 are
# (docs/measurements.md 5).
_UNEVEN = 3.0
# A step shorter than this among the first ones says that mu is too small for the distance of V from w: the variables
# that stop the step are near 0, and would stay there for dozens of iterations.  The path then begins again, at a larger
# mu (docs/measurements.md 5).
_BLOCKED, _FIRST, _LARGER, _MOST_LARGER = 0.05, 3, 10.0, 16


class GapSums(NamedTuple):
    """Sums over the rows of which the gap consists: of C times the loss, of side times alpha, and the pull of alpha."""

    losses: float
    linear: float
    pulled: np.ndarray


class RowCosts(NamedTuple):
    """Statistics of C over some rows: the sum, and the median and the number of the positive ones."""

    total: float
    middle: float
    positive: int

    @classmethod
    def of(cls, problem: Subproblem) -> RowCosts:
        """The statistics of the rows of a problem."""
        C = problem.C
        positive = C[C > 0]  # rows of weight 0 must not lower the median
        middle = float(np.median(positive)) if len(positive) else 0.0
        return cls(float(C.sum()), middle, len(positive))


def most_counted(costs: Sequence[RowCosts]) -> float:
    """The largest value that C of a row may count for on the central path, by the statistics of each part of the rows.

    The median of several parts is approximated: with the parts in the order of their medians, it is the median of the
    part that the middle row falls into.
    """
    middle, seen = 0.0, 0
    rows = sum(part.positive for part in costs)
    for part in sorted(costs, key=lambda part: part.middle):
        seen += part.positive
        if 2 * seen >= rows > 0:
            middle = part.middle
            break
    return _UNEVEN * middle


class OnPath(Protocol):
    """The rows of an iterate, here or on shards: alpha, C - alpha, xi and eta of each row, all positive.

    The rows know one direction of w at a time, and the targets that it leads to: those that were set last.
    """

    def start(self, w: np.ndarray, mu: float) -> tuple[float, GapSums]:
        """Put each row on the central path at its slack at w; the sum of C as it counts there (0 without rows)."""

    def weigh(self, H: list[np.ndarray]) -> tuple[float, np.ndarray]:
        """Put sum h [x, bias] [x, bias]' into H[0]; return sum alpha eta + room xi, and the pull for targets 0."""

    def towards(self, dw: np.ndarray) -> tuple[float, float]:
        """Compute the products with the direction dw; return the longest steps (dual, primal) until a variable is 0."""

    def products_after(self, dual: float, primal: float) -> float:
        """sum alpha eta + room xi after steps of these lengths along the direction."""

    def correct(self, mu: float, most: float) -> np.ndarray:
        """Set the targets of Mehrotra's corrector, with the present direction as the predictor; return their pull.

        most : of a second-order term, in units of the cost of its row
        """

    def recentre(self, mu: float, dual: float, primal: float) -> np.ndarray:
        """Keep the present direction, and set the targets of one of Gondzio's correctors for such steps; their pull."""

    def step(self, dual: float, primal: float, present: bool) -> GapSums:
        """Step along the present direction, or along the one kept by `recentre`; return the sums at the new point."""

    def to_bounds(self) -> GapSums:
        """Put alpha of rows that are clearly at a bound exactly there; return the sums at the new point."""

    def take_back(self) -> None:
        """Undo `to_bounds`."""


def solve_hinge(problem: Subproblem, w: np.ndarray, target: float, mu: float) -> Solution:
    """Minimise the subproblem with the hinge loss until its duality gap is at most `target`.

    w : float64, (n_features + 1,)   start point
    mu : float   value of alpha_i eta_i / C_i at the start: small if w is near the solution

    Source: Mehrotra, SIAM J. Optimization 2 (1992); Gondzio, Computational Optimization and Applications 6 (1996);
    for linear SVM Ferris and Munson, SIAM J. Optimization 13 (2002).
    """
    rows = PathRows(problem)
    w, iterations = follow(problem, rows, w, target, mu)
    return Solution(w, rows.alpha, iterations)


def follow(
    problem: Around, rows: OnPath, w: np.ndarray, target: float, mu: float, share: float = 0.0
) -> tuple[np.ndarray, int]:
    """Solve the problem of `solve_hinge` for rows that may lie on shards; w, and the number of iterations.

    share : a gap of at most this share of the primal value is small enough, too

    Raises PassLeft between two iterations: `rows` and the weights in it are those of the last one.
    """
    path = _Path(problem, rows, w, mu)
    if path.costs == 0.0:  # no rows are kept, so the fold determines w
        return np.where(problem.regulariser > 0.0, problem.lean, w), 0
    iterations = began = larger = 0
    while path.gap > max(target, share * path.primal) and iterations < _MOST:
        try:
            length = path.advance()
        except PassLeft as left:
            left.reached = path.w
            raise
        iterations += 1
        if length < _BLOCKED and iterations <= began + _FIRST and larger < _MOST_LARGER:
            began, larger = iterations, larger + 1
            path.start(w, mu * _LARGER**larger)
    path.settle(max(target, share * path.primal))
    return path.w, iterations


class _Path:
    """An iterate: w, and the sums over the rows at w.

    V : float64, (n_features + 1,)   lean + pull of alpha: the sum of the dual point
    primal : float   primal value of the subproblem
    gap : float   primal minus dual value of the subproblem, plus a penalty if a free bias is not balanced
    """

    def __init__(self, problem: Around, rows: OnPath, w: np.ndarray, mu: float) -> None:
        self.problem, self.rows, self.R = problem, rows, problem.regulariser
        self.start(w, mu)
        self.H = problem.triangles()

    def start(self, w: np.ndarray, mu: float) -> None:
        """Begin at w, with each row on the central path of mu at its slack."""
        self.w = w.copy()
        self.costs, sums = self.rows.start(w, mu)
        self._see(sums)

    def _see(self, sums: GapSums) -> None:
        problem, w, R = self.problem, self.w, self.R
        self.V = problem.lean + sums.pulled
        self.primal = problem.value(w, sums.losses)
        gap = self.primal - sums.linear + 0.5 * float(self.V @ (R * self.V))
        self.gap = gap + problem.penalty(w, self.V)

    def advance(self) -> float:
        """One predictor step with Mehrotra's corrector and up to `CORRECTORS` more; the shorter of both lengths."""
        rows = self.rows
        before, pulled = rows.weigh(self.H)
        self.problem.factor(self.H)
        dual, primal = (min(1.0, length) for length in rows.towards(self._direction(pulled)))
        after = rows.products_after(dual, primal)
        # With costs near the smallest float64 all products may be 0, and then nothing is left to centre.
        mu = (after / before) ** 3 * before / (2.0 * self.costs) if before > 0.0 else 0.0
        dw = self._direction(rows.correct(mu, _CURVED * before / (2.0 * self.costs)))
        dual, primal = _lengths(rows.towards(dw))
        better = True
        for _ in range(CORRECTORS):
            farther = min(1.0, 1.3 * dual + 0.1), min(1.0, 1.3 * primal + 0.1)
            other_dw = self._direction(rows.recentre(mu, *farther))
            other = _lengths(rows.towards(other_dw))
            better = min(other) > WORTH[0] * min(dual, primal) + WORTH[1]
            if not better:
                break
            (dual, primal), dw = other, other_dw
        sums = rows.step(dual, primal, better)
        self.w += primal * dw
        self._see(sums)
        return min(dual, primal)

    def _direction(self, pulled: np.ndarray) -> np.ndarray:
        """The Newton direction of w towards targets with such a pull."""
        dw = np.empty(len(self.w))
        solve_factored(*self.H, self.V - self.R * self.w - pulled, dw)
        return dw

    def settle(self, target: float) -> None:
        """Put rows that are clearly at a bound exactly there, unless the gap more than doubles and exceeds `target`."""
        gap = self.gap
        self._see(self.rows.to_bounds())
        if not self.gap <= max(2.0 * gap, target):
            self.rows.take_back()


def _lengths(reach: tuple[float, float]) -> tuple[float, float]:
    dual, primal = reach
    return min(1.0, BACK_OFF * dual), min(1.0, BACK_OFF * primal)


class PathRows:
    """`OnPath` for rows in this process.

    most : float   the largest value that C of a row counts for; a shard is told the value for the rows of all shards
    """

    def __init__(self, problem: Subproblem) -> None:
        self.problem, self.C = problem, problem.C
        self.most = most_counted([RowCosts.of(problem)])

    @property
    def alpha(self) -> np.ndarray:
        """float64, (n_rows,)."""
        return self._rows.alpha

    def start(self, w: np.ndarray, mu: float) -> tuple[float, GapSums]:
        """See `OnPath`."""
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
        """See `OnPath`."""
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
        """See `OnPath`."""
        self._p = self.problem.products(dw)
        dual, primal = kernel.reach(self._rows, self._h, self._p, self._targets)
        return float(dual), float(primal)

    def products_after(self, dual: float, primal: float) -> float:
        """See `OnPath`."""
        return float(kernel.products_after(self._rows, self._h, self._p, self._targets, dual, primal))

    def correct(self, mu: float, most: float) -> np.ndarray:
        """See `OnPath`."""
        targets = self._new_targets()
        kernel.second_order(self._rows, self._h, self._p, self.C, self.most, mu, most, targets)
        return self._aim(targets)

    def recentre(self, mu: float, dual: float, primal: float) -> np.ndarray:
        """See `OnPath`."""
        self._good = self._p, self._targets
        targets = self._new_targets()
        kernel.recentre(self._rows, self._h, self._p, self.C, self.most, mu, self._targets, dual, primal, targets)
        return self._aim(targets)

    def step(self, dual: float, primal: float, present: bool) -> GapSums:
        """See `OnPath`."""
        p, targets = (self._p, self._targets) if present else self._good
        kernel.step(self._rows, self._h, p, targets, dual, primal)
        return self._gap()

    def to_bounds(self) -> GapSums:
        """See `OnPath`."""
        rows, self._before = self._rows, self._rows.alpha.copy()
        kernel.at_bounds(self.C, rows.xi, rows.eta, rows.alpha)
        return self._gap()

    def take_back(self) -> None:
        """See `OnPath`."""
        self._rows.alpha[:] = self._before

    def _new_targets(self) -> kernel.Targets:
        return kernel.Targets(np.empty(len(self._h)), np.empty(len(self._h)))
