"""Certificates over blocks: any blocks give the same proof, the best of both sides is kept."""

from __future__ import annotations

import numpy as np
import pytest

from bigsvm.config import FitConfig
from bigsvm.problem.certificate import Accumulator, Certificate, RowsShare, certify_blocks, keep_best, runs_of
from bigsvm.problem.problem import make_problem
from bigsvm.store.opener import open_store
from bigsvm.testing.problems import random_problem
from bigsvm.testing.reference import dual_value, primal_value


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("block_rows", [1, 7, 60])
def test_blocks_add_up_to_primal_and_dual(loss: str, block_rows: int) -> None:
    X, y = random_problem(60, 5, 0.6, seed=1)
    weights = np.random.default_rng(2).uniform(0, 3, 60)
    store = open_store((X, y, weights))
    problem = make_problem(FitConfig(loss=loss, C=0.5, class_weight={"1": 2.0}), store)
    rng = np.random.default_rng(3)
    costs = 0.5 * weights * np.where(y > 0, 2.0, 1.0)
    w, alpha = rng.standard_normal(6), rng.uniform(0, 1, (60, 1)) * costs[:, None]
    total = Accumulator(problem, w)
    for run in runs_of(store.refs(block_rows), 2):
        rows = alpha[run[0].start : run[-1].stop]
        total.add(certify_blocks(RowsShare(store, run, problem, w, rows)))
    proof = total.finish()
    assert proof.n_rows == 60
    assert proof.primal[0] == pytest.approx(primal_value(X, y, costs, loss, w), rel=1e-12)
    assert proof.dual[0] == pytest.approx(dual_value(X, y, costs, loss, alpha[:, 0]), rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(total.v, np.append(X.T @ (alpha[:, 0] * y), alpha[:, 0] @ y), atol=1e-12)
    assert proof.drift == pytest.approx(np.abs(w - total.v).max())


def proof(primal: list[float], dual: list[float]) -> Certificate:
    P, D = np.array(primal), np.array(dual)
    return Certificate(P, D, P - D, 10, 0.0, np.zeros(len(P), np.int64))


def test_the_reported_gap_never_rises() -> None:
    best, better = keep_best(proof([10.0, 5.0], [-3.0, 1.0]), None)
    assert best.dual.tolist() == [0.0, 1.0]  # alpha = 0 is always at hand
    assert better.tolist() == [True, True]
    best, better = keep_best(proof([12.0, 4.0], [2.0, 0.5]), best)
    assert best.primal.tolist() == [10.0, 4.0]
    assert best.dual.tolist() == [2.0, 1.0]
    assert best.gap.tolist() == [8.0, 3.0]
    assert better.tolist() == [False, True]
    assert best.relative_gap == 0.8


def test_relative_gap_of_a_zero_objective_is_zero() -> None:
    assert proof([0.0], [0.0]).relative_gap == 0.0
