"""What rounding of scores is worth: a P below the rounding of its own sum is never said to be proved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.problem.certificate import Certificate
from bigsvm.problem.rounding import Unsure, rounding_cost, unsure_of
from bigsvm.run.proof.kernel_prover import KernelProver
from bigsvm.store.formats.opener import open_store
from bigsvm.testing.problems import random_problem

Real = np.longdouble
POLY: dict[str, Any] = {"kernel": "poly", "degree": 3, "gamma": 0.1, "coef0": 0.0}


def far_rows(offset: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows that a plane tells apart, so far away that kernel values do not know it."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, 5)) + offset
    return X, np.where(X[:, 0] + X[:, 1] > 2 * offset, 1, -1)


def exact_gap(X: np.ndarray, y: np.ndarray, beta: np.ndarray, b: float, C: float, epsilon: float | None) -> float:
    """(P - max(D, 0)) / P of a model as it is written, in longdouble.  epsilon : None for classes"""
    rows, beta = X.astype(Real), beta.astype(Real)
    f = (Real(POLY["gamma"]) * (rows @ rows.T)) ** 3 @ beta
    slack = 1 - y * (f + b) if epsilon is None else np.abs(y - f - b) - epsilon
    P = beta @ f / 2 + C * np.maximum(slack, 0).sum()
    D = y @ beta - (epsilon or 0.0) * np.abs(beta).sum() - beta @ f / 2
    return float((P - max(D, Real(0))) / P)


@pytest.mark.parametrize("wide", ["in memory", "as kernel values"])
@pytest.mark.parametrize("loss", ["hinge", "epsilon_insensitive"])
@pytest.mark.parametrize("offset", [0.0, 1e2, 1e4, 1e6, 1e8])
def test_what_is_claimed_holds_without_rounding(offset: float, loss: str, wide: str, tmp_path: Path) -> None:
    X, y = far_rows(offset)
    t = y if loss == "hinge" else y + 0.25
    given = X if wide == "in memory" else np.asarray((POLY["gamma"] * (X @ X.T)) ** 3)
    kernel = POLY if wide == "in memory" else {"kernel": "precomputed"}
    store = open_store((given, t), task="regression" if loss != "hinge" else "auto")
    options: dict[str, Any] = {"loss": loss, "C": 100.0, "tol": 1e-6, "max_passes": 500, **kernel}
    result = bigsvm.fit(store, solver="smo", **options)
    model = result.model
    beta = np.zeros(len(X))
    beta[model.support_rows] = model.dual_coef[0]
    if wide == "in memory":
        epsilon = None if loss == "hinge" else 0.1
        exact = exact_gap(X, t, beta, float(model.intercept[0]), 100.0, epsilon)
        assert result.figures["relative_gap"] >= 0.9 * exact - 1e-6
        assert (result.status == "converged") <= (exact <= 1.01e-6)
    if offset >= 1e6 and wide == "in memory":
        assert result.status in ("stalled", "stopped")
        assert result.figures["relative_gap"] > 1e-6
    if offset == 0.0 and wide == "in memory":
        assert result.status == "converged"
    result.save_model(tmp_path / "m")
    again = bigsvm.certify(tmp_path / "m", store)
    if result.certificate.kind == again["certificate"] == "proved":
        assert again["relative_gap"] == pytest.approx(result.figures["relative_gap"], rel=0.2, abs=1e-8)


def test_what_is_lost_in_the_gap_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gap of an ordinary fit is its terms alone, to the bit."""
    X, y = random_problem(120, 4, seed=3)
    found: list[Certificate] = []
    plain = KernelProver.prove

    def prove(self: KernelProver) -> Certificate:
        found.append(plain(self))
        return found[-1]

    monkeypatch.setattr(KernelProver, "prove", prove)
    bigsvm.fit((X, y), kernel="rbf", gamma=0.3, C=10.0, tol=1e-3)
    with_rounding = found[-1]
    monkeypatch.setattr("bigsvm.solvers.kernel.dual_qp.rounding_cost", lambda *_: np.zeros(1))
    bigsvm.fit((X, y), kernel="rbf", gamma=0.3, C=10.0, tol=1e-3)
    assert with_rounding.gap[0] == found[-1].gap[0] < 1e-3 * with_rounding.primal[0]


def test_only_rows_inside_their_box_or_on_their_kink_are_unsure() -> None:
    upper, lower = np.array([2.0, 2.0, 0.0, 2.0]), np.array([0.0, 0.0, -2.0, 0.0])
    beta, target, diagonal = np.array([0.5, 2.0, -2.0, 0.0]), np.array([1.0, 1.0, -1.0, 1.0]), np.full(4, 9.0)
    found = unsure_of(beta, lower, upper, target, diagonal)
    assert (found.reach, found.spread, found.fixed, found.room) == (13.5, 4.5, 1.5, 1.5)
    eps = float(np.finfo(float).eps)
    one = np.ones(1)
    # 13.5 * (4.5 + 3 * 2) for scores, and 1.5 + |b| (1.5 + 2).
    cost = rounding_cost(found, 2.0 * one, 0.0 * one, 4.5 * one, 3.0 * one, 0.0 * one, 0.0 * one)
    assert cost == pytest.approx(eps * (13.5 * 10.5 + 1.5 + 10.5), rel=1e-12)
    assert rounding_cost(found, 2.0 * one, 8.0 * one, 4.5 * one, 3.0 * one, one, one) == 0.0
    assert rounding_cost(Unsure(), 0.0 * one, 8.0 * one, 0.0 * one, one, 0.0 * one, np.inf * one) == 0.0
    # All scores together know no digit of P, whatever the brackets came out at.
    assert rounding_cost(found, 2.0 * one, 1e15 * one, 4.5 * one, 3.0 * one, one, 1e-9 * one) == 1.0
