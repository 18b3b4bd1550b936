"""newton-ws where few rows weigh a thousand times as much as the others, and more."""

from __future__ import annotations

import numpy as np
import pytest

import bigsvm
from bigsvm.solvers.newton_ws.interior import solve_hinge
from bigsvm.testing.problems import random_problem
from tests.solvers.newton_ws_problems import primal, subproblem


@pytest.mark.parametrize("heavy", [1, 3])
@pytest.mark.parametrize("free", [False, True])
def test_the_interior_point_method_takes_few_iterations_whatever_few_rows_weigh(free: bool, heavy: int) -> None:
    C = np.where(np.arange(300) < heavy, 1e6, 1.0)
    problem = subproblem(free=free, C=C)
    found = solve_hinge(problem, np.zeros(7), 1e-4, 1.0)
    assert found.iterations < 50
    V = problem.lean + problem.pull(found.alpha)
    dual = float(found.alpha.sum()) - 0.5 * float(V @ (problem.regulariser * V))
    assert primal(problem, found.w, "hinge") - dual <= 1e-3


@pytest.mark.parametrize("weight", [1e5, 1e8])
def test_a_free_bias_and_one_heavy_row_converge(weight: float) -> None:
    """Nothing takes over where the bias is free: such fits ended at up to ten times the least objective."""
    X, y = random_problem(300, 12, seed=5, noise=0.3)
    weights = np.where(np.arange(300) == 5, weight, 1.0)
    found = bigsvm.fit((X, y, weights), loss="hinge", bias="free", solver="newton-ws", tol=1e-5)
    assert found.status == "converged"
