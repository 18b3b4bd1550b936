"""newton-ws where few rows weigh a thousand times as much as the others, and more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.solvers.newton_ws.interior import RowCosts, follow, most_counted, solve_hinge
from bigsvm.solvers.newton_ws.shards import sharded_working
from bigsvm.testing.problems import random_problem
from tests.solvers.newton_ws_problems import primal, subproblem


@pytest.mark.parametrize("heavy", [1, 3, 10, 30, 100])
@pytest.mark.parametrize("free", [False, True])
def test_the_interior_point_method_takes_few_iterations_whatever_few_rows_weigh(free: bool, heavy: int) -> None:
    """Where the rows of a C up to 1000 times that of others counted in full, it took up to 37 iterations."""
    for cost in (1.0, 10.0, 100.0, 1e3, 1e6):
        C = np.where(np.arange(300) % (300 // heavy) == 0, cost, 1.0)
        problem = subproblem(free=free, C=C)
        found = solve_hinge(problem, np.zeros(7), 1e-4, 1.0)
        assert found.iterations <= 23, cost
        V = problem.lean + problem.pull(found.alpha)
        dual = float(found.alpha.sum()) - 0.5 * float(V @ (problem.regulariser * V))
        assert primal(problem, found.w, "hinge") - dual <= 1e-3


@pytest.mark.parametrize("scale", [1.0, 1e6])
@pytest.mark.parametrize("cost", [1.0, 100.0])
def test_the_interior_point_method_takes_few_iterations_from_wherever_it_starts(cost: float, scale: float) -> None:
    """With the first mu, however short the steps were, two thirds of the starts took 40 to 100 iterations, the most."""
    rng = np.random.default_rng(0)
    scales = np.array([1.0, scale**0.25, scale**0.5, scale**0.75, scale, 1.0])
    X, codes = rng.random((300, 6)) * scales, (rng.random(300) < 0.3).astype(np.int32)
    given = {"C": np.full(300, cost), "lean": np.zeros(7), "codes": codes, "parts": [X[:100], X[100:]]}
    for far in (1.0, 100.0, 1e4):
        start = np.append(far * np.random.default_rng(1).standard_normal(6) / scales, 0.0)
        for mu in (0.1, 1.0):
            problem = subproblem(**given)
            found = solve_hinge(problem, start, 0.1 * cost, mu)
            assert found.iterations <= 30, (far, mu)
            V = problem.pull(found.alpha)
            assert primal(problem, found.w, "hinge") - float(found.alpha.sum()) + 0.5 * float(V @ V) <= 0.2 * cost


@pytest.mark.parametrize("weight", [1e5, 1e8])
def test_a_free_bias_and_one_heavy_row_converge(weight: float) -> None:
    """Nothing takes over where the bias is free: such fits ended at up to ten times the least objective."""
    X, y = random_problem(300, 12, seed=5, noise=0.3)
    weights = np.where(np.arange(300) == 5, weight, 1.0)
    found = bigsvm.fit((X, y, weights), loss="hinge", bias="free", solver="newton-ws", tol=1e-5)
    assert found.status == "converged"


def test_a_shard_of_heavy_rows_alone_counts_by_the_middle_row_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own middle row nothing of it was heavy, and one shard held all of the sum that mu is taken from."""
    taken: list[int] = []

    def counted(*args: Any) -> tuple[np.ndarray, int]:
        w, iterations = follow(*args)
        taken.append(iterations)
        return w, iterations

    monkeypatch.setattr(sharded_working, "follow", counted)
    X, y = random_problem(3000, 12, seed=5, noise=0.3)
    weights = np.where(np.arange(3000) < 750, 1e5, 1.0)
    found = bigsvm.fit((X, y, weights), loss="hinge", solver="newton-ws", tol=1e-5, shards=4)
    assert found.status == "converged"
    assert 0 < max(taken) < 25  # 40 by the middle rows of shards, 17 by that of all and where all rows are in one place


def costs_of(C: np.ndarray) -> RowCosts:
    return RowCosts.of(subproblem(C=C, far=np.zeros(len(C), bool)))


@pytest.mark.parametrize("n_heavy", [0, 1, 40, 100])
def test_what_counts_at_most_is_alike_for_rows_in_one_part_and_in_several(n_heavy: int) -> None:
    """Rows of 1 and of 1e6: the middle one is of either kind, whatever part it lies in; weight 0 counts for nothing."""
    C = np.r_[np.zeros(30), np.where(np.arange(120) < n_heavy, 1e6, 1.0)]
    whole = most_counted([costs_of(C)])
    assert most_counted([costs_of(part) for part in np.split(C, [30, 70, 100])]) == whole
    assert whole == (3e6 if n_heavy > 60 else 3.0)
