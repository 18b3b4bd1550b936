"""The squared hinge loss on rows in memory: Newton steps with an exact line search, exact after finitely many."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bigsvm.compiled.linear.hessian import solve_factored, times_symmetric
from bigsvm.compiled.shared.losses import SQUARED_HINGE
from bigsvm.solvers.newton_ws.subproblem import Solution, Subproblem
from bigsvm.solvers.primal.line_search import exact_step

_MOST = 100  # iterations


def solve_squared_hinge(problem: Subproblem, w: np.ndarray, target: float) -> Solution:
    """Minimise the subproblem with the squared hinge loss until primal and dual are within some `target` of it.

    w : float64, (n_features + 1,)   where to start

    Source: Mangasarian, Optimization Methods and Software 17 (2002); Keerthi and DeCoste, JMLR 6 (2005).
    """
    w, R, C = w.copy(), problem.regulariser, problem.C
    s, H, x, F = problem.slacks(w), problem.triangles(), np.empty(len(w)), problem.F
    iterations = 0
    while iterations < _MOST:
        smooth = R * w - problem.lean + (0.0 if F is None else times_symmetric(F, w - problem.at))
        gradient = smooth - problem.pull(2.0 * C * np.maximum(s, 0.0))
        problem.factored(np.where(s > 0.0, 2.0 * C, 0.0), H)
        solve_factored(*H, gradient, x)
        p = problem.products(-x)
        bend = float(x @ (R * x)) + (0.0 if F is None else float(x @ times_symmetric(F, x)))

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
