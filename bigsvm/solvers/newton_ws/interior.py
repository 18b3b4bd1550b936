"""The hinge loss on rows in memory, to any accuracy: a primal-dual interior-point method for few features.

Mehrotra's predictor and corrector with Gondzio's further correctors; each iteration factors one matrix of
(n_features + 1)^2 and reads the rows a few times.  It does not care how many rows lie on their hyperplane, nor how
large C is: some twenty iterations, where a smoothed Newton method took hundreds on w8a.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.linear import interior as kernel
from bigsvm.compiled.linear.hessian import factor_symmetric, solve_factored
from bigsvm.solvers.newton_ws.subproblem import SLICES, Solution, Subproblem

ROW_ARRAYS = 22  # float64 a row, while a problem is solved

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
        self.C, self.s = problem.C, problem.slacks(w)
        n, d = len(self.s), len(w)
        self.alpha, self.room, self.xi, self.eta, self.h = (np.empty(n) for _ in range(5))
        kernel.centre(self.s, self.C, mu, self.alpha, self.room, self.xi, self.eta)
        self.H, self.U = [np.empty((d, d)) for _ in range(SLICES)], np.empty((d, d))
        self.V = np.empty(d)

    def gap(self) -> float:
        """Primal less dual value of the subproblem; sets V, the sum of the dual point."""
        problem, w, R = self.problem, self.w, self.R
        self.V = problem.lean + problem.pull(self.alpha)
        primal = 0.5 * float(w @ (R * w)) - float(problem.lean @ w) + float(self.C @ np.maximum(self.s, 0.0))
        gap = primal - float(problem.side @ self.alpha) + 0.5 * float(self.V @ (R * self.V))
        # A free bias wants sum y alpha = 0, whatever its price.
        return gap + (abs(w[-1] * self.V[-1]) if problem.free else 0.0)

    def advance(self) -> None:
        """One iteration."""
        s, alpha, room, xi, eta, h, C = self.s, self.alpha, self.room, self.xi, self.eta, self.h, self.C
        n, rows = len(s), (s, alpha, room, xi, eta, h)
        before = kernel.weigh(alpha, room, xi, eta, h)
        H = self.problem.add_hessian(h, self.H)
        H.flat[:: len(self.w) + 1] += self.R
        factor_symmetric(H, self.U)
        zero: np.ndarray = np.zeros(n)
        _, p = self._towards(zero, zero)
        dual, primal = (min(1.0, length) for length in kernel.reach(*rows, p, zero, zero))
        after = kernel.products_after(*rows, p, zero, zero, dual, primal)
        mu = (after / before) ** 3 * before / (2.0 * C.sum())
        t1, t2 = np.empty(n), np.empty(n)
        kernel.second_order(*rows, p, C, mu, t1, t2)
        dw, p = self._towards(t1, t2)
        dual, primal = self._lengths(rows, p, t1, t2)
        for _ in range(_CORRECTORS):
            n1, n2 = np.empty(n), np.empty(n)
            farther = min(1.0, 1.3 * dual + 0.1), min(1.0, 1.3 * primal + 0.1)
            kernel.recentre(*rows, p, C, mu, t1, t2, *farther, n1, n2)
            other_dw, other_p = self._towards(n1, n2)
            other = self._lengths(rows, other_p, n1, n2)
            if min(other) <= _WORTH[0] * min(dual, primal) + _WORTH[1]:
                break
            (dual, primal), dw, p, t1, t2 = other, other_dw, other_p, n1, n2
        kernel.step(*rows, p, t1, t2, dual, primal)
        self.w += primal * dw

    def _towards(self, t1: np.ndarray, t2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The Newton direction of w to such targets, and the rows' products with it."""
        pulled, dw = np.empty(len(self.s)), np.empty(len(self.w))
        kernel.pull(self.s, self.alpha, self.room, self.h, t1, t2, pulled)
        solve_factored(self.H[0], self.U, self.V - self.R * self.w - self.problem.pull(pulled), dw)
        return dw, self.problem.products(dw)

    def _lengths(
        self, rows: tuple[np.ndarray, ...], p: np.ndarray, t1: np.ndarray, t2: np.ndarray
    ) -> tuple[float, float]:
        dual, primal = kernel.reach(*rows, p, t1, t2)
        return min(1.0, _BACK_OFF * dual), min(1.0, _BACK_OFF * primal)

    def settled(self, target: float) -> np.ndarray:
        """alpha with rows that are clearly at a bound put there, unless that costs more than `target`."""
        gap, alpha = self.gap(), self.alpha.copy()
        kernel.at_bounds(self.C, self.xi, self.eta, self.alpha)
        return self.alpha if self.gap() <= max(2.0 * gap, target) else alpha
