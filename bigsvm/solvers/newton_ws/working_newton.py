"""The squared hinge loss on rows in memory: Newton steps with an exact line search, exact after finitely many.

What a step wants of the rows is sums alone (`Descending`), so that they need not be here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from bigsvm.compiled.linear.hessian import solve_factored, times_symmetric
from bigsvm.compiled.shared.losses import SQUARED_HINGE
from bigsvm.solvers.newton_ws.subproblem import Around, Solution, Subproblem
from bigsvm.solvers.primal.line_search import PieceSums, Step, exact_step

_MOST = 100  # iterations


class Descending(Protocol):
    """The rows at a point, wherever they are: their slacks, and products with a direction."""

    def start(self, w: np.ndarray) -> None:
        """Take slacks at w."""

    def look(self, H: list[np.ndarray]) -> np.ndarray:
        """Put the Hessian of the losses into H[0]; the sum of their alpha y [x, bias], by the side."""

    def towards(self, d: np.ndarray) -> None:
        """Take products with the direction d."""

    def search(self, linear: float, quadratic: float) -> Step:
        """The exact step along it, with such a regulariser."""

    def step(self, length: float) -> None:
        """Go so far."""


def solve_squared_hinge(problem: Subproblem, w: np.ndarray, target: float) -> Solution:
    """Minimise the subproblem with the squared hinge loss until primal and dual are within some `target` of it.

    w : float64, (n_features + 1,)   where to start

    Source: Mangasarian, Optimization Methods and Software 17 (2002); Keerthi and DeCoste, JMLR 6 (2005).
    """
    rows = NewtonRows(problem)
    w, iterations = descend(problem, rows, w, target)
    return Solution(w, rows.alpha, iterations)


def descend(problem: Around, rows: Descending, w: np.ndarray, target: float) -> tuple[np.ndarray, int]:
    """The same of rows that may be elsewhere; w, and the number of iterations."""
    w, R = w.copy(), problem.regulariser
    rows.start(w)
    H, x, F = problem.triangles(), np.empty(len(w)), problem.F
    iterations = 0
    while iterations < _MOST:
        smooth = R * w - problem.lean + (0.0 if F is None else times_symmetric(F, w - problem.at))
        gradient = smooth - rows.look(H)
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
    """`Descending` of rows that are here."""

    def __init__(self, problem: Subproblem) -> None:
        self.problem = problem

    @property
    def alpha(self) -> np.ndarray:
        """float64, (n_rows,)."""
        return 2.0 * self.problem.C * np.maximum(self._s, 0.0)

    def start(self, w: np.ndarray) -> None:
        """As `Descending` says."""
        self._s = self.problem.slacks(w)

    def look(self, H: list[np.ndarray]) -> np.ndarray:
        """As `Descending` says."""
        self.problem.add_hessian(np.where(self._s > 0.0, 2.0 * self.problem.C, 0.0), H)
        return self.problem.pull(self.alpha)

    def towards(self, d: np.ndarray) -> None:
        """As `Descending` says."""
        self._p = self.problem.products(d)

    def search(self, linear: float, quadratic: float) -> Step:
        """As `Descending` says."""
        return exact_step(self._pieces, 1.0, SQUARED_HINGE, linear, quadratic)

    def line(self) -> PieceSums:
        """What a search elsewhere asks for."""
        return PieceSums(self._pieces, 1.0, SQUARED_HINGE)

    def step(self, length: float) -> None:
        """As `Descending` says."""
        self._s = self._s - length * self._p

    def _pieces(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        yield self._s, self._p, self.problem.C
