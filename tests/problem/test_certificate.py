"""Certificates over blocks: any blocks give the same proof, the best of both sides is kept."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bigsvm.config import FitConfig
from bigsvm.problem import certificate
from bigsvm.problem.certificate import (
    Accumulator,
    Certificate,
    RowsShare,
    certify_blocks,
    joined,
    keep_best,
    of_written,
)
from bigsvm.problem.problem import make_problem
from bigsvm.store.formats.opener import open_store
from bigsvm.tasks import runs_of
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


def free_bias(alpha: np.ndarray) -> tuple[Accumulator, float]:
    """What `alpha`, (60,), proves of a point where the bias is free, and P - D of the two by their definitions."""
    X, y = random_problem(60, 5, 0.6, seed=1)
    store = open_store((X, y))
    problem = make_problem(FitConfig(loss="hinge", C=0.5, bias="free", solver="hyperpass"), store)
    w = np.random.default_rng(3).standard_normal(6)
    total = Accumulator(problem, w)
    total.add(certify_blocks(RowsShare(store, tuple(store.refs(60)), problem, w, alpha[:, None])))
    margins = y * (X @ w[:-1] + w[-1])
    primal = 0.5 * w[:-1] @ w[:-1] + 0.5 * np.maximum(1.0 - margins, 0.0).sum()
    return total, primal - dual_value(X, y, np.full(60, 0.5), "hinge", alpha, 0.0)


def balanced() -> np.ndarray:
    """alpha in its box whose sums over both classes are the same numbers."""
    _, y = random_problem(60, 5, 0.6, seed=1)
    alpha, n = np.zeros(60), min(int((y > 0).sum()), int((y < 0).sum()))
    shares = np.random.default_rng(4).integers(1, 32, n) / 64.0
    for sign in (1.0, -1.0):
        alpha[np.flatnonzero(y == sign)[:n]] = shares
    return alpha


def test_an_alpha_that_is_not_balanced_proves_nothing_of_a_free_bias() -> None:
    total, difference = free_bias(balanced())
    assert total.finish().gap[0] == pytest.approx(difference, rel=1e-12)
    unbalanced = balanced()
    unbalanced[np.flatnonzero(unbalanced)[0]] *= 1.0 - 1e-9
    total, _ = free_bias(unbalanced)
    assert total.finish().relative_gap == np.inf


def test_rounding_of_the_balance_is_paid_for() -> None:
    total, exact = free_bias(balanced())
    alpha = balanced()
    alpha[np.flatnonzero(alpha)[0]] *= 1.0 - 2.0**-46
    assert total.finish().gap[0] == pytest.approx(exact, rel=1e-15)
    total, off = free_bias(alpha)
    share = 2.0**-46 * alpha.max() / alpha.sum()
    assert total.finish().gap[0] - off >= share * total.finish().primal[0]


def test_more_blocks_than_sums_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = random_problem(60, 5, 0.6, seed=1)
    store = open_store((X, y))
    problem = make_problem(FitConfig(loss="hinge"), store)
    w, alpha = np.random.default_rng(3).standard_normal(6), np.random.default_rng(5).uniform(0, 1, (60, 1))
    found = []
    monkeypatch.setattr(certificate, "_LEAST_SUMS", 1)
    for most in (4096, 3):
        monkeypatch.setattr(certificate, "_AT_MOST_SUMS", most)
        total = Accumulator(problem, w)
        for ref in store.refs(4):
            total.add(certify_blocks(RowsShare(store, (ref,), problem, w, alpha[ref.start : ref.stop])))
        found.append(total.finish())
    apart, together = found
    assert together.n_rows == apart.n_rows == 60
    assert together.n_support.tolist() == apart.n_support.tolist()
    for name in ("primal", "dual", "gap"):
        assert getattr(together, name) == pytest.approx(getattr(apart, name), rel=1e-14)


def test_sums_take_no_more_memory_where_models_are_many() -> None:
    """64 models, whose sums a store of many blocks would fill the budget with."""
    X, y = random_problem(4, 3, 0.6, seed=1)
    problem = make_problem(FitConfig(loss="hinge", C_path=[1.0] * 64), open_store((X, y)))
    total = Accumulator(problem, np.zeros((4, 64)), rescaled=True)
    for number in range(200):
        total.count(np.full_like(total.no_sums(), number), 1)
    assert total.dump()["sums"].nbytes < 2 * 4096 * 8 * total.no_sums().shape[1]
    assert np.all(total.sums() == 200 * 199 / 2)


def test_what_is_no_number_proves_nothing() -> None:
    for primal, dual in ((np.nan, 0.0), (np.inf, 0.0), (1.0, np.nan), (1.0, -np.inf)):
        with np.errstate(invalid="ignore"):
            assert proof([1.0, primal], [1.0, dual]).relative_gap == np.inf


def test_groups_of_models_are_proved_by_what_all_have_seen() -> None:
    few = Certificate(np.ones(2), np.zeros(2), np.ones(2), 7, 0.5, np.ones(2, np.int64))
    together = joined([proof([3.0], [1.0]), few])
    assert (together.n_rows, together.drift) == (7, 0.5)
    assert together.primal.tolist() == [3.0, 1.0, 1.0]
    assert together.gap.tolist() == [2.0, 1.0, 1.0]


@pytest.mark.parametrize("kinds", list(itertools.product(["proved", "estimate", "none"], repeat=2)))
def test_groups_of_models_claim_no_more_than_the_weakest(kinds: tuple[Any, Any]) -> None:
    order = ["proved", "estimate", "none"]
    weakest = order[max(map(order.index, kinds))]
    assert joined([replace(proof([3.0], [1.0]), kind=kind) for kind in kinds]).kind == weakest


def test_what_is_written_counts_with_its_own_dual_point() -> None:
    """A better dual value whose alpha is gone bounds the optimum, and nobody can prove it again from the model."""

    first = proof([10.0, 10.0, 10.0, 10.0], [9.0, 9.0, 2.0, 2.0])
    best, better = keep_best(first, None)
    assert of_written(first, best, better).gap.tolist() == [1.0, 1.0, 8.0, 8.0]
    last = proof([11.0, 9.5, 9.0, 11.0], [4.0, -5.0, 3.0, -1.0])
    best, better = keep_best(last, best)
    assert (best.primal - best.dual).tolist() == [1.0, 0.5, 6.0, 8.0]
    written = of_written(last, best, better)
    assert written.primal.tolist() == [10.0, 9.5, 9.0, 10.0]
    assert written.dual.tolist() == [4.0, 0.0, 3.0, 0.0]
    assert written.gap.tolist() == [6.0, 9.5, 6.0, 10.0]
