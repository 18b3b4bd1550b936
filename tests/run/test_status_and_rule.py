"""How a fit says that it ended: a rule is said to hold only where it does, and what may help is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.model.kernel_model import KernelModel
from bigsvm.problem.kernel import Kernel
from bigsvm.run.fit.outcome import how_it_ended
from bigsvm.solvers.registry import SOLVERS
from bigsvm.testing.problems import random_problem
from tests.run.counted_fits import fit, noisy

SOLVED: list[tuple[str, dict[str, Any], bool]] = [
    ("smo", {}, False),
    ("smo", {"wss": "1"}, False),
    ("smo", {"working_set": 2, "wss": "3"}, False),
    ("smo", {"wss": "keerthi2"}, False),
    ("smo", {"wss": "wr+3"}, False),
    ("smo", {"wss": "wr"}, True),
    ("rosen", {}, False),
    ("rosen-block", {}, False),
    ("simplified-smo", {}, True),
    ("simplified-smo", {"solver_options": {"second": "max"}}, True),
    ("simplified-smo-km", {"solver_options": {"maxepoch": "1"}}, False),
    ("platt-smo", {}, True),
    ("platt-smo", {"solver_options": {"maxepoch": "1"}}, False),
]
"""Solver, its options, and whether the paper's algorithm may end of its own, optimal or not."""


def violation_of(model: KernelModel, kernel: Kernel, X: np.ndarray, y: np.ndarray, C: float) -> float:
    """b_low - b_up from its definition: K beta - y of the saved coefficients."""
    beta = np.zeros(len(y))
    beta[model.support_rows] = model.dual_coef[0]
    f = kernel.matrix(X, X) @ beta - y
    upper, lower = np.where(y > 0, C, 0.0), np.where(y > 0, 0.0, -C)
    return max(float(f[beta > lower].max() - f[beta < upper].min()), 0.0)


@pytest.mark.parametrize("stop", ["gap", "paper"])
@pytest.mark.parametrize("indefinite", [False, True])
@pytest.mark.parametrize(("name", "options", "own_end"), SOLVED)
def test_status_and_exit_follow_from_the_true_violation(
    name: str, options: dict[str, Any], own_end: bool, indefinite: bool, stop: str
) -> None:
    X, y = noisy(80)
    kernel = Kernel("sigmoid", gamma=0.4, coef0=-0.5) if indefinite else Kernel("rbf", gamma=0.5)
    how = {"kernel": kernel.name, "gamma": kernel.gamma, "coef0": kernel.coef0, "C": 10.0, "stop": stop}
    result = fit((X, y), solver=name, **how, **options)
    assert isinstance(result.model, KernelModel)
    violation = violation_of(result.model, kernel, X, y, 10.0)
    assert result.figures["violation"] == pytest.approx(violation, rel=1e-6, abs=1e-9)
    tolerance = SOLVERS[name].rule_factor * 1e-3
    small = violation <= tolerance
    if stop == "gap" and not indefinite:
        assert result.status == ("converged" if result.figures["relative_gap"] <= 1e-3 else "stalled")
        assert "rule" not in result.figures
        return
    kept = "paper_rule" if stop == "paper" else "kkt"
    assert result.status == (kept if small or (own_end and stop == "paper") else "stalled")
    assert result.exit_code() == (0 if result.status == kept else 4)
    if result.status == "stalled":
        assert "rule" not in result.figures
        assert result.figures["hint"]
        return
    rule = result.figures["rule"]
    assert (rule["value"], rule["tolerance"]) == (pytest.approx(violation, rel=1e-6, abs=1e-9), tolerance)
    assert rule["name"] == ("violation of the optimality conditions" if small else "the algorithm's own end")


def test_solvers_that_end_above_the_tolerance_are_among_those_that_were_tried() -> None:
    """Or the test above would show nothing."""
    X, y = noisy(80)
    options = {"kernel": "sigmoid", "gamma": 0.4, "coef0": -0.5, "C": 10.0}
    assert fit((X, y), solver="smo", wss="wr", **options).status == "stalled"
    literal = fit((X, y), solver="simplified-smo", solver_options={"second": "max"}, stop="paper", **options)
    assert literal.figures["rule"]["name"] == "the algorithm's own end"
    assert literal.figures["rule"]["value"] > 1.0


@pytest.mark.parametrize(
    ("name", "name_of_rule"),
    [
        ("newton", "length of the last step"),
        ("pcd", "length of the last step"),
        ("ssvm", "norm of the smoothed gradient"),
        ("hyperpass", "shortest subgradient, relative to w"),
    ],
)
def test_the_rule_of_a_linear_solvers_paper_is_told(name: str, name_of_rule: str) -> None:
    result = fit(noisy(), solver=name, loss=SOLVERS[name].losses[0], bias="none", stop="paper")
    assert result.status == "paper_rule"
    rule = result.figures["rule"]
    assert rule["name"] == name_of_rule
    assert 0.0 <= rule["value"] <= rule["tolerance"]


@pytest.mark.parametrize("limited", [False, True])
def test_what_may_help_a_fit_whose_rows_stream_is_memory_first(limited: bool) -> None:
    assert how_it_ended("stalled", (), limited, True, True)["hint"].startswith("give it more --memory")
    assert "--memory" not in how_it_ended("stalled", (), limited, False, True)["hint"]


@pytest.mark.parametrize("loss", ["hinge", "nu_svc"])
def test_a_fit_that_its_limit_ended_says_how_to_go_on(loss: str) -> None:
    X, y = random_problem(200, 3, seed=4, noise=0.3)
    options = {"kernel": "rbf", "loss": loss, "tol": 1e-9, "memory": "64MiB"}
    result = bigsvm.fit(X, y, max_passes=1, **options)
    assert result.status == "stopped"
    assert "more --max-passes or --max-time" in result.figures["hint"]
    assert ("--warm-start" in result.figures["hint"]) == (loss == "hinge")
