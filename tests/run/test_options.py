"""Values that no solver could use are refused, whatever option they are given to."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import UsageError
from bigsvm.solvers.registry import SOLVERS
from bigsvm.testing.problems import random_problem
from tests.solvers.stepping import choose_solver

_NUMBERS = [
    (name, field.name)
    for name, solver in SOLVERS.items()
    for field in dataclasses.fields(solver)
    if type(field.default) in (int, float) and not field.metadata.get("from_config")
]


def config_for(solver: str, option: str, value: object) -> FitConfig:
    loss, bias = SOLVERS[solver].losses[0], SOLVERS[solver].biases[0]
    return FitConfig.of(solver=solver, loss=loss, bias=bias, solver_options={option: value})


@pytest.mark.parametrize(("solver", "option"), _NUMBERS)
@pytest.mark.parametrize("value", ["nan", float("nan"), "inf", float("-inf"), None, "1e400"])
def test_every_numeric_option_of_every_solver_is_a_finite_number(solver: str, option: str, value: object) -> None:
    with pytest.raises(UsageError, match=option):
        choose_solver(config_for(solver, option, value))


@pytest.mark.parametrize(
    "name", ["C", "lam", "bias_scale", "epsilon", "coef0", "gamma", "tol", "max_passes", "max_time", "degree"]
)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_every_numeric_option_of_a_fit_is_a_finite_number(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=name):
        bigsvm.fit(random_problem(20, 2, seed=0), kernel="poly", **{name: value})


def test_weights_of_classes_go_by_every_digit() -> None:
    """Labels that agree in six digits are other classes all the same."""
    X, y = random_problem(60, 3, seed=1)
    result = bigsvm.fit((X, np.where(y > 0, 12345678, 12345679)), class_weight={"12345678": 4.0}, tol=1e-6)
    assert result.model.about["problem"]["class_weight"] == [4.0, 1.0]
    with pytest.raises(UsageError, match="which is no class"):
        bigsvm.fit((X, np.where(y > 0, 12345678, 12345679)), class_weight={"12345677": 4.0})
