"""A primal-dual interior-point method for the squared hinge loss on rows in memory, to any accuracy.

Newton's method (`solvers/newton_ws`) takes a few steps where classes overlap, but hundreds where they can be separated
and C is large.  This one took 3 to 10 iterations on both, for C from 1e-4 to 1e4 (docs/measurements.md 5).

Notation.  Row i has the slack s_i = 1 - y_i f(x_i), alpha_i > 0 and eta_i > 0.  At the optimum alpha_i = 2 C_i max(0,
s_i) and eta_i = max(0, -s_i), so eta_i = alpha_i / (2 C_i) - s_i and alpha_i eta_i = 0; on the central path the product
is mu.  A direction has *targets*, the values that alpha_i eta_i should get.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsvm.compiled.linear.hessian import solve_factored
from bigsvm.solvers.newton_ws.interior import BACK_OFF, CORRECTORS, WORTH
from bigsvm.solvers.newton_ws.subproblem import Subproblem

_MOST = 60  # iterations
_SPREAD = 10.0  # products that are this many times too small or too large are corrected


class Step(NamedTuple):
    """A direction.  dw : float64, (n_features + 1,);  dp, dalpha, deta : float64, (n_rows,), dp is minus that of s

    length : how far it may be followed, at most 1
    """

    dw: np.ndarray
    dp: np.ndarray
    dalpha: np.ndarray
    deta: np.ndarray
    length: float


class SquaredPath:
    """An iterate.  w : float64, (n_features + 1,);  alpha : float64, (n_rows,);  gap, primal : of w and alpha."""

    def __init__(self, problem: Subproblem) -> None:
        self.problem, self._double = problem, 2.0 * problem.C
        self.w = np.zeros(len(problem.lean))
        self._s = problem.slacks(self.w)
        mu = np.minimum(1.0, self._double)
        self.alpha, self._eta = mu.copy(), np.ones(len(mu))
        self._H = problem.triangles()
        self._see()

    def _see(self) -> None:
        alpha, inside = self.alpha, np.maximum(self._s, 0.0)
        self._V = self.problem.pull(alpha)
        self.primal = 0.5 * float(self.w @ self.w) + 0.5 * float((self._double * inside * inside).sum())
        dual = float((alpha - 0.5 * alpha * alpha / self._double).sum()) - 0.5 * float(self._V @ self._V)
        self.gap = self.primal - dual

    def advance(self) -> None:
        """One predictor step with Mehrotra's corrector and up to `CORRECTORS` more.  Raises PassLeft between two."""
        alpha, eta, n = self.alpha, self._eta, len(self.alpha)
        h = 1.0 / (1.0 / self._double + eta / alpha)
        self.problem.add_hessian(h, self._H)
        self.problem.factor(self._H)
        ahead = self._towards(h, np.zeros(n))
        before, after = (float(products.sum()) for products in (alpha * eta, self._after(ahead, ahead.length)))
        mu = (after / before) ** 3 * before / n if before > 0.0 else 0.0
        targets = mu - ahead.dalpha * ahead.deta
        best = self._backed(self._towards(h, targets))
        for _ in range(CORRECTORS):
            products = self._after(best, min(1.0, 1.3 * best.length + 0.1))
            targets = targets + np.maximum(np.clip(products, mu / _SPREAD, mu * _SPREAD) - products, -mu * _SPREAD)
            other = self._backed(self._towards(h, targets))
            if not other.length > WORTH[0] * best.length + WORTH[1]:
                break
            best = other
        self.w += best.length * best.dw
        self._s -= best.length * best.dp
        self.alpha += best.length * best.dalpha
        self._eta += best.length * best.deta
        self._see()

    def _towards(self, h: np.ndarray, targets: np.ndarray) -> Step:
        """The Newton direction, from (I + sum h z z') dw = V - w + sum c z, with z = y [x, bias] of each row."""
        problem, alpha, dw = self.problem, self.alpha, np.empty(len(self.w))
        c = h * (targets / alpha + self._s - alpha / self._double)
        solve_factored(*self._H, self._V - self.w + problem.pull(c), dw)
        dp = problem.products(dw)
        dalpha = c - h * dp
        deta = (alpha + dalpha) / self._double + dp - self._s - self._eta
        return Step(dw, dp, dalpha, deta, min(1.0, _reach(alpha, dalpha), _reach(self._eta, deta)))

    def _after(self, step: Step, length: float) -> np.ndarray:
        return np.asarray((self.alpha + length * step.dalpha) * (self._eta + length * step.deta))

    @staticmethod
    def _backed(step: Step) -> Step:
        return step._replace(length=min(1.0, BACK_OFF * step.length)) if step.length < 1.0 else step


def _reach(x: np.ndarray, dx: np.ndarray) -> float:
    """The longest step until an entry of x is 0; inf if none becomes smaller."""
    falls = dx < 0.0
    return float(np.min(-x[falls] / dx[falls])) if falls.any() else np.inf


def solve_squared(problem: Subproblem, share: float) -> tuple[np.ndarray, np.ndarray]:
    """w and alpha of the problem with the squared hinge loss and without a fold, to a gap of this share of P.

    Source: Mehrotra, SIAM J. Optimization 2 (1992); Gondzio, Computational Optimization and Applications 6 (1996).
    Raises PassLeft if the run is to stop.
    """
    path, iterations = SquaredPath(problem), 0
    best = path.gap / path.primal, path.w.copy(), path.alpha.copy()
    while not best[0] <= share and iterations < _MOST:
        path.advance()
        iterations += 1
        if not path.gap / path.primal < 1e300:  # overflow: nothing more is to be gained
            break
        if path.gap / path.primal < best[0]:
            best = path.gap / path.primal, path.w.copy(), path.alpha.copy()
    return best[1], best[2]
