"""The hinge loss on rows in memory, to any accuracy: a primal-dual interior-point method for few features.

Mehrotra's predictor and corrector with Gondzio's further correctors; each iteration factors one matrix of
(n_features + 1)^2 and reads the rows a few times.  It does not care how many rows lie on their hyperplane, nor how
large C is: some twenty iterations, where a smoothed Newton method took hundreds on w8a.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.linear import interior as kernel
from bigsvm.compiled.linear.hessian import solve_factored
from bigsvm.solvers.newton_ws.subproblem import Solution, Subproblem

ROW_ARRAYS = 18  # float64 a row, while a problem is solved

_BACK_OFF = 0.99  # of the step at which a variable would be 0
_CORRECTORS = 3
_WORTH = 1.01, 0.005  # a corrector whose steps are longer than that, times and plus
_MOST = 100  # iterations


def solve_hinge(problem: Subproblem, w: np.ndarray, target: float, mu: float) -> Solution:
    """Minimise the subproblem with the hinge loss until its duality gap is at most `target`.

    w : float64, (n_features + 1,)   where to start
    mu : what alpha_i eta_i is of C_i at the start: small where w is near

    Source: Mehrotra, SIAM J. Optimization 2 (1992); Gondzio, Computational Optimization and Applications 6 (1996);
    for linear SVM Ferris and Munson, SIAM J. Optimization 13 (2002).
    """
    if not len(problem.C):  # the fold decides alone
        return Solution(np.where(problem.regulariser > 0.0, problem.lean, w), np.zeros(0), 0)
    path = _Path(problem, w, mu)
    iterations = 0
    while path.gap() > target and iterations < _MOST:
        path.advance()
        iterations += 1
    return Solution(path.w, path.settled(target), iterations)


class _Path:
    """An iterate: w, and alpha, C - alpha, xi, eta of each row, all positive."""

    def __init__(self, problem: Subproblem, w: np.ndarray, mu: float) -> None:
        self.problem, self.w, self.R = problem, w.copy(), problem.regulariser
        s, self.C = problem.slacks(w), problem.C
        n = len(s)
        self.rows, self.h = kernel.RowsOnPath(s, *(np.empty(n) for _ in range(4))), np.empty(n)
        kernel.centre(self.rows, self.C, mu)
        self.H = problem.triangles()
        self.V = np.empty(len(w))

    def gap(self) -> float:
        """Primal less dual value of the subproblem; sets V, the sum of the dual point."""
        problem, w, R, (s, alpha, *_) = self.problem, self.w, self.R, self.rows
        self.V = problem.lean + problem.pull(alpha)
        primal = 0.5 * float(w @ (R * w)) - float(problem.lean @ w) + float(self.C @ np.maximum(s, 0.0))
        gap = primal - float(problem.side @ alpha) + 0.5 * float(self.V @ (R * self.V))
        # A free bias wants sum y alpha = 0, whatever its price.
        return gap + (abs(w[-1] * self.V[-1]) if problem.free else 0.0)

    def advance(self) -> None:
        """One iteration."""
        n, rows, h, C = len(self.h), self.rows, self.h, self.C
        before = kernel.weigh(rows, h)
        self.problem.factored(h, self.H)
        nothing: np.ndarray = np.zeros(n)
        zero = kernel.Targets(nothing, nothing)
        _, p = self._towards(zero)
        dual, primal = (min(1.0, length) for length in kernel.reach(rows, h, p, zero))
        after = kernel.products_after(rows, h, p, zero, dual, primal)
        mu = (after / before) ** 3 * before / (2.0 * C.sum())
        targets = kernel.Targets(np.empty(n), np.empty(n))
        kernel.second_order(rows, h, p, C, mu, targets)
        dw, p = self._towards(targets)
        dual, primal = self._lengths(p, targets)
        for _ in range(_CORRECTORS):
            others = kernel.Targets(np.empty(n), np.empty(n))
            farther = min(1.0, 1.3 * dual + 0.1), min(1.0, 1.3 * primal + 0.1)
            kernel.recentre(rows, h, p, C, mu, targets, *farther, others)
            other_dw, other_p = self._towards(others)
            other = self._lengths(other_p, others)
            if min(other) <= _WORTH[0] * min(dual, primal) + _WORTH[1]:
                break
            (dual, primal), dw, p, targets = other, other_dw, other_p, others
        kernel.step(rows, h, p, targets, dual, primal)
        self.w += primal * dw

    def _towards(self, targets: kernel.Targets) -> tuple[np.ndarray, np.ndarray]:
        """The Newton direction of w to such targets, and the rows' products with it."""
        pulled, dw = np.empty(len(self.h)), np.empty(len(self.w))
        kernel.pull(self.rows, self.h, targets, pulled)
        solve_factored(*self.H, self.V - self.R * self.w - self.problem.pull(pulled), dw)
        return dw, self.problem.products(dw)

    def _lengths(self, p: np.ndarray, targets: kernel.Targets) -> tuple[float, float]:
        dual, primal = kernel.reach(self.rows, self.h, p, targets)
        return min(1.0, _BACK_OFF * dual), min(1.0, _BACK_OFF * primal)

    def settled(self, target: float) -> np.ndarray:
        """alpha with rows that are clearly at a bound put there, unless that costs more than `target`."""
        gap, rows, before = self.gap(), self.rows, self.rows.alpha.copy()
        kernel.at_bounds(self.C, rows.xi, rows.eta, rows.alpha)
        return rows.alpha if self.gap() <= max(2.0 * gap, target) else before
