"""simplified-smo, simplified-smo-km and platt-smo as fits: proofs, ends, kept rows, pairs of classes."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

import bigsvm
from bigsvm.problem.kernel import Kernel
from bigsvm.testing.problems import random_problem
from tests.solvers.kernel.published_smo import optimum


@pytest.mark.parametrize("solver", ["simplified-smo", "simplified-smo-km", "platt-smo"])
@pytest.mark.parametrize("stop", ["gap", "paper"])
def test_fits_are_proved_and_end_by_their_rule(solver: str, stop: str) -> None:
    X, y = random_problem(90, 4, seed=12, noise=0.2)
    asked = {"loss": "hinge", "bias": "free", "C": 2.0, "kernel": "rbf", "gamma": 0.5, "stop": stop, "tol": 1e-3}
    result = bigsvm.fit((X, y), solver=solver, **asked)
    assert result.status == ("converged" if stop == "gap" else "paper_rule")
    best = optimum(Kernel("rbf", 0.5).matrix(X, X), y, 2.0)
    assert result.certificate.kind == "proved"
    assert best * (1 - 1e-9) <= result.figures["objective"] <= best + result.figures["duality_gap"] * (1 + 1e-9)
    assert result.figures["relative_gap"] <= 1e-3 or stop == "paper"
    assert result.figures["dual_objective"] <= best * (1 + 1e-9)
    again = bigsvm.fit((X, y), solver=solver, **asked)
    for found, expected in zip(again.alpha, result.alpha, strict=True):
        np.testing.assert_array_equal(found.values, expected.values)


def test_a_fit_with_kept_rows_has_the_bits_of_one_without_and_computes_fewer() -> None:
    X, y = random_problem(150, 4, seed=13, noise=0.2)
    found = {}
    for solver in ("simplified-smo", "simplified-smo-km"):
        found[solver] = bigsvm.fit((X, y), solver=solver, loss="hinge", bias="free", kernel="rbf", gamma=0.5, tol=1e-4)
    plain, kept = found.values()
    np.testing.assert_array_equal(plain.alpha[0].values, kept.alpha[0].values)
    assert plain.figures["iterations"] == kept.figures["iterations"] > 10
    assert kept.figures["kernel_rows"]["computed"] < 0.1 * plain.figures["kernel_rows"]["computed"]


def test_a_stalled_rule_is_said_to_be(real_data: ModuleType) -> None:
    X, y = real_data.load("heart_scale")
    asked = {"solver": "simplified-smo", "loss": "hinge", "bias": "free", "solver_options": {"second": "max"}}
    stalled = bigsvm.fit((X, y), kernel="linear", **asked)
    assert stalled.status == "stalled"
    assert stalled.figures["dual_objective"] == pytest.approx(31.556, abs=1e-3)
    assert stalled.figures["relative_gap"] > 0.5
    by_rule = bigsvm.fit((X, y), kernel="linear", stop="paper", **asked)
    assert by_rule.status == "paper_rule"
    assert by_rule.figures["iterations"] == 58


@pytest.mark.parametrize("solver", ["simplified-smo", "simplified-smo-km", "platt-smo"])
def test_pairs_of_classes_and_rows_that_stream(solver: str, streaming: None) -> None:
    X, y = random_problem(90, 4, seed=14, noise=0.2, n_classes=3)
    asked = {"loss": "hinge", "bias": "free", "C": 2.0, "kernel": "rbf", "gamma": 0.5, "tol": 1e-3}
    # A random second row needs more readings than are granted to any fit that asks for no number of its own.
    result = bigsvm.fit((X, y), solver=solver, max_passes=20_000, **asked)
    assert not result.model.about["plan"]["resident"]
    assert result.model.about["plan"]["n_blocks"] > 3
    assert result.status == "converged"
    assert result.certificate.kind == "proved"
    K, best = Kernel("rbf", 0.5).matrix(X, X), []
    for one, other in ((0, 1), (0, 2), (1, 2)):
        rows = np.flatnonzero((y == one) | (y == other))
        best.append(optimum(K[np.ix_(rows, rows)], np.where(y[rows] == other, 1.0, -1.0), 2.0))
    found = [model["objective"] for model in result.figures["models"]]
    np.testing.assert_allclose(sorted(found), sorted(best), rtol=1.1e-3)
