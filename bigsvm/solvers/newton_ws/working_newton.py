"""Newton's method with an exact line search for the squared hinge loss on some rows; it ends after finitely many steps.

A step needs only sums over the rows (the protocol `Descending`), so the rows may also lie on shards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from bigsvm.compiled.linear.hessian import solve_factored, times_symmetric
from bigsvm.compiled.shared.losses import SQUARED_HINGE
from bigsvm.solvers.newton_ws.subproblem import Around, Solution, Subproblem
from bigsvm.solvers.primal.line_search import PieceSums, Step, exact_step
from bigsvm.tasks import PassLeft

_MOST = 100  # iterations
# Iterations of a rough solution at most, and the share of the value that the last but one may expect to gain.
_FEW, _NEARLY = 12, 1e-2


class Descending(Protocol):
    """The rows at a point w, here or on shards: their slacks, and their products with a direction."""

    def start(self, w: np.ndarray) -> None:
        """Compute the slacks at w."""

    def look(self, H: list[np.ndarray]) -> np.ndarray:
        """Put the Hessian of the losses into H[0]; return sum side alpha y [x, bias], minus their gradient."""

    def towards(self, d: np.ndarray) -> None:
        """Compute the products with the direction d."""

    def search(self, linear: float, quadratic: float) -> Step:
        """The exact step along the direction; the regulariser adds `linear` t + `quadratic` t^2 / 2 to the losses."""

    def step(self, length: float) -> None:
        """Move the slacks by a step of that length."""


def solve_squared_hinge(problem: Subproblem, w: np.ndarray, target: float) -> Solution:
    """Minimise the subproblem with the squared hinge loss.

    It stops once g'x <= target and |g|^2 / 2 <= target, for the gradient g and the Newton step x: estimates of how far
    the primal and the dual value are from the minimum.

    w : float64, (n_features + 1,)   start point

    Source: Mangasarian, Optimization Methods and Software 17 (2002); Keerthi and DeCoste, JMLR 6 (2005).
    """
    rows = NewtonRows(problem)
    w, iterations = descend(problem, rows, w, target)
    return Solution(w, rows.alpha, iterations)


def descend(problem: Around, rows: Descending, w: np.ndarray, target: float) -> tuple[np.ndarray, int]:
    """Solve the problem of `solve_squared_hinge` for rows that may lie on shards; w, and the number of iterations."""
    steps = NewtonSteps(problem, rows, w)
    iterations = 0
    while iterations < _MOST:
        length = steps.advance()
        iterations += 1
        settled = steps.decrement <= target and 0.5 * float(steps.gradient @ steps.gradient) <= target
        if settled or length == 0.0:
            break
    return steps.w, iterations


def nearly(problem: Subproblem) -> np.ndarray:
    """w near the minimum of the subproblem with the squared hinge loss, found in a few steps from w = 0.

    It is a start for other methods and other losses: whatever the scales of the columns are, its value is as a rule
    within a few per cent of the minimum.  float64, (n_features + 1,)

    Source: as `solve_squared_hinge`.  Raises PassLeft, with the point that was reached.
    """
    rows = NewtonRows(problem)
    steps = NewtonSteps(problem, rows, np.zeros(len(problem.lean)))
    for _ in range(_FEW):
        if steps.advance() == 0.0 or steps.decrement <= _NEARLY * problem.value(steps.w, rows.losses()):
            break
    return steps.w


class NewtonSteps:
    """Newton steps from a point on, each to the minimum along its direction.

    w : float64, (n_features + 1,)   the point that was reached
    gradient : float64, (n_features + 1,)   the gradient where the last step began
    decrement : float   g'x for that gradient and the Newton step x: twice what a whole step was expected to gain
    """

    def __init__(self, problem: Around, rows: Descending, w: np.ndarray) -> None:
        self.problem, self.rows, self.w = problem, rows, w.copy()
        self.gradient, self.decrement = np.zeros(len(w)), np.inf
        self._H, self._x = problem.triangles(), np.empty(len(w))
        rows.start(self.w)

    def advance(self) -> float:
        """One step; its length.  Raises PassLeft, with the point that was reached."""
        problem, rows, w, x, R, F = self.problem, self.rows, self.w, self._x, self.problem.regulariser, self.problem.F
        smooth = R * w - problem.lean + (0.0 if F is None else times_symmetric(F, w - problem.at))
        try:
            self.gradient = smooth - rows.look(self._H)
        except PassLeft as left:
            left.reached = w
            raise
        problem.factor(self._H)
        solve_factored(*self._H, self.gradient, x)
        rows.towards(-x)
        bend = float(x @ (R * x)) + (0.0 if F is None else float(x @ times_symmetric(F, x)))
        step = rows.search(-float(smooth @ x), bend)
        w -= step.length * x
        rows.step(step.length)
        self.decrement = float(self.gradient @ x)
        return step.length


class NewtonRows:
    """`Descending` for rows in this process."""

    def __init__(self, problem: Subproblem) -> None:
        self.problem = problem

    @property
    def alpha(self) -> np.ndarray:
        """float64, (n_rows,)."""
        return 2.0 * self.problem.C * np.maximum(self._s, 0.0)

    def losses(self) -> float:
        """The sum of C times the squared hinge loss."""
        s = np.maximum(self._s, 0.0)
        return float((self.problem.C * s * s).sum())

    def start(self, w: np.ndarray) -> None:
        """See `Descending`."""
        self._s = self.problem.slacks(w)

    def look(self, H: list[np.ndarray]) -> np.ndarray:
        """See `Descending`."""
        self.problem.add_hessian(np.where(self._s > 0.0, 2.0 * self.problem.C, 0.0), H)
        return self.problem.pull(self.alpha)

    def towards(self, d: np.ndarray) -> None:
        """See `Descending`."""
        self._p = self.problem.products(d)

    def search(self, linear: float, quadratic: float) -> Step:
        """See `Descending`."""
        return exact_step(self._pieces, 1.0, SQUARED_HINGE, linear, quadratic)

    def line(self) -> PieceSums:
        """The losses along the direction, for a line search over the rows of all shards."""
        return PieceSums(self._pieces, 1.0, SQUARED_HINGE)

    def step(self, length: float) -> None:
        """See `Descending`."""
        self._s = self._s - length * self._p

    def _pieces(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        yield self._s, self._p, self.problem.C
