"""Newton's method with an exact line search for the squared hinge loss on kept rows; it ends after finitely many steps.

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
    w, R = w.copy(), problem.regulariser
    rows.start(w)
    H, x, F = problem.triangles(), np.empty(len(w)), problem.F
    iterations = 0
    while iterations < _MOST:
        smooth = R * w - problem.lean + (0.0 if F is None else times_symmetric(F, w - problem.at))
        try:
            gradient = smooth - rows.look(H)
        except PassLeft as left:
            left.reached = w
            raise
        problem.factor(H)
        solve_factored(*H, gradient, x)
        rows.towards(-x)
        bend = float(x @ (R * x)) + (0.0 if F is None else float(x @ times_symmetric(F, x)))
        step = rows.search(-float(smooth @ x), bend)
        w -= step.length * x
        rows.step(step.length)
        iterations += 1
        settled = float(gradient @ x) <= target and 0.5 * float(gradient @ gradient) <= target
        if settled or step.length == 0.0:
            break
    return w, iterations


class NewtonRows:
    """`Descending` for rows in this process."""

    def __init__(self, problem: Subproblem) -> None:
        self.problem = problem

    @property
    def alpha(self) -> np.ndarray:
        """float64, (n_rows,)."""
        return 2.0 * self.problem.C * np.maximum(self._s, 0.0)

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
