"""The squared hinge loss on rows in memory: Newton steps with an exact line search, exact after finitely many."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bigsvm.compiled.linear.hessian import factor_symmetric, solve_factored
from bigsvm.compiled.shared.losses import SQUARED_HINGE
from bigsvm.solvers.newton_ws.subproblem import SLICES, Solution, Subproblem
from bigsvm.solvers.primal.line_search import exact_step

_MOST = 100  # iterations


def solve_squared_hinge(problem: Subproblem, w: np.ndarray, target: float) -> Solution:
    """Minimise the subproblem with the squared hinge loss until primal and dual are within some `target` of it.

    w : float64, (n_features + 1,)   where to start

    Source: Mangasarian, Optimization Methods and Software 17 (2002); Keerthi and DeCoste, JMLR 6 (2005).
    """
    w, R, C = w.copy(), problem.regulariser, problem.C
    s, d = problem.slacks(w), len(w)
    H, U, x = [np.empty((d, d)) for _ in range(SLICES)], np.empty((d, d)), np.empty(d)
    F = None if problem.F is None else np.triu(problem.F) + np.triu(problem.F, 1).T
    iterations = 0
    while iterations < _MOST:
        smooth = R * w - problem.lean + (0.0 if F is None else F @ (w - problem.at))
        gradient = smooth - problem.pull(2.0 * C * np.maximum(s, 0.0))
        total = problem.add_hessian(np.where(s > 0.0, 2.0 * C, 0.0), H)
        total.flat[:: d + 1] += R
        if problem.F is not None:
            total += problem.F
        factor_symmetric(total, U)
        solve_factored(total, U, gradient, x)
        p = problem.products(-x)
        bend = float(x @ (R * x)) + (0.0 if F is None else float(x @ (F @ x)))

        def pieces(s: np.ndarray = s, p: np.ndarray = p) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
            yield s, p, C

        step = exact_step(pieces, 1.0, SQUARED_HINGE, -float(smooth @ x), bend)
        w -= step.length * x
        s = s - step.length * p
        iterations += 1
        settled = float(gradient @ x) <= target and 0.5 * float(gradient @ gradient) <= target
        if settled or step.length == 0.0:
            break
    return Solution(w, 2.0 * C * np.maximum(s, 0.0), iterations)
