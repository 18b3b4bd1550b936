"""Values that no solver could use are refused, whatever option they are given to."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest

import bigsvm
from bigsvm.config import OPTIONS, FitConfig
from bigsvm.errors import Unsupported, UsageError
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


@pytest.mark.parametrize("value", [1.5, "1.5", 2.0000001, True, "true", False, np.float64(1.5)], ids=repr)
def test_no_number_of_a_solver_is_rounded_or_a_yes(value: object) -> None:
    """`--set interior_after=1.5` was 1, and `--set eps=true` was 1."""
    for solver, option in _NUMBERS:
        whole = type(getattr(SOLVERS[solver](), option)) is int
        if whole or isinstance(value, bool) or value == "true":
            with pytest.raises(UsageError, match=option):
                choose_solver(config_for(solver, option, value))


def test_whole_numbers_may_be_written_as_others() -> None:
    for value in (3.0, "3", np.int64(3), np.float64(3.0), 3e0):
        made = choose_solver(config_for("dcd", "max_sweeps_per_step", value))[0]
        assert (made.max_sweeps_per_step, type(made.max_sweeps_per_step)) == (3, int)


@pytest.mark.parametrize(
    ("solver", "option", "value"),
    [
        ("dcd", "max_sweeps_per_step", 0),
        ("newton-ws", "working_rows", -1),
        ("smo", "sample", 0.0),
        ("smo", "sample", 2),
    ],
)
def test_a_number_of_no_use_is_refused(solver: str, option: str, value: float) -> None:
    with pytest.raises(UsageError, match=option):
        choose_solver(config_for(solver, option, value))


def test_a_solver_that_is_refused_is_no_remedy() -> None:
    """Of every solver, with every limit that --set gives it, and of 'auto'."""
    refused = 0
    for name, solver in SOLVERS.items():
        limits = [field.name for field in dataclasses.fields(solver) if field.name == "max_features"]
        for limit, loss, bias in itertools.product(limits, solver.losses, solver.biases):
            for asked in (name, "auto"):
                config = FitConfig.of(solver=asked, loss=loss, bias=bias, solver_options={limit: 3})
                with pytest.raises(Unsupported, match="--set max_features=10 lifts it") as caught:
                    choose_solver(config)
                if asked == name:
                    assert name not in caught.value.hint.removeprefix("solvers that do: ").split(", ")
                else:
                    assert "leave --set out" in caught.value.hint
                    assert "interior-point" not in caught.value.hint or "interior-point" not in caught.value.what
                refused += 1
    assert refused > 20


@pytest.mark.parametrize(
    "name", ["C", "lam", "bias_scale", "epsilon", "coef0", "gamma", "tol", "max_passes", "max_time", "degree"]
)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_every_numeric_option_of_a_fit_is_a_finite_number(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=name):
        bigsvm.fit(random_problem(20, 2, seed=0), kernel="poly", **{name: value})


def test_who_types_the_bias_of_liblinear_is_told_how_to_leave_it_out() -> None:
    with pytest.raises(UsageError, match=r"bias_scale must be a positive number, not -1\.0.*--bias none"):
        FitConfig.of(bias_scale=-1.0)
    with pytest.raises(UsageError) as refused:
        FitConfig.of(C=-1.0)
    assert "bias" not in str(refused.value)


_NEVER = {"text": [77, 1.5, [1], b"x"], "int": [2.5, "3", True, [1], None], "float": ["1", [1.0], True, 1j],
          "flag": [1, "yes", None], "size": [[1], 0.5, True, b"1MiB"], "size or share": [[1], 0.5, True],
          "duration": [[1], True], "gamma": [[1.0], True], "class weight": [[1, 2], {"a": "2"}, {"a": True}, 2.0],
          "settings": [[("order", "random")], "order=random", 1]}  # fmt: skip
"""Of each kind of option what is none of its values.  None is the default of some."""
_WRONG = [
    (name, value)
    for name, option in OPTIONS.items()
    for value in (_NEVER[option.kind] if option.flags else [])
    if value is not None or getattr(FitConfig(), name) is not None
]


@pytest.mark.parametrize(("name", "value"), _WRONG, ids=str)
def test_a_value_of_another_type_is_refused_by_the_name_of_its_option(name: str, value: object) -> None:
    with pytest.raises(UsageError, match=name):
        FitConfig.of(**{name: value})


@pytest.mark.parametrize("value", [np.int64(2), np.float64(2.0), np.float32(2.0)])
@pytest.mark.parametrize("name", ["C", "threads", "tol", "memory", "seed", "max_time"])
def test_numbers_of_numpy_are_numbers(name: str, value: np.generic) -> None:
    if OPTIONS[name].kind == "int" and not isinstance(value, np.integer):
        pytest.skip("no whole number")
    number = getattr(FitConfig.of(**{name: value}), name)
    assert number == 2
    assert type(number) in (int, float)


def test_sizes_may_be_written_as_floats() -> None:
    assert FitConfig.of(memory=1e9).memory_bytes(1 << 40) == 10**9


def test_the_rule_of_a_working_set_may_be_a_number() -> None:
    assert FitConfig.of(wss=3) == FitConfig.of(wss="3")


def test_cost_and_lambda_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        bigsvm.fit(random_problem(20, 2, seed=0), C=3.0, lam=0.1)


def test_weights_of_classes_go_by_every_digit() -> None:
    """Labels that agree in six digits are other classes all the same."""
    X, y = random_problem(60, 3, seed=1)
    result = bigsvm.fit((X, np.where(y > 0, 12345678, 12345679)), class_weight={"12345678": 4.0}, tol=1e-6)
    assert result.model.about["problem"]["class_weight"] == [4.0, 1.0]
    with pytest.raises(UsageError, match="which is no class"):
        bigsvm.fit((X, np.where(y > 0, 12345678, 12345679)), class_weight={"12345677": 4.0})


@pytest.mark.parametrize("label", ["true", "True", True, "yes"])
def test_a_class_against_the_rest_has_its_weight_by_any_of_its_names(tmp_path: Path, label: object) -> None:
    X, y = random_problem(60, 3, seed=1)
    bigsvm.ingest((X, np.where(y > 0, "yes", "no")), tmp_path / "s")
    result = bigsvm.fit(tmp_path / "s", positive="yes", class_weight={label: 4.0})
    assert result.model.about["problem"]["class_weight"] == [1.0, 4.0]


@pytest.mark.parametrize("positive", ["true", "false"])
def test_names_of_labels_come_before_those_of_a_class_and_the_rest(tmp_path: Path, positive: str) -> None:
    """With the labels true and false, and false against the rest, `true` would be the rows labelled false."""
    X, y = random_problem(60, 3, seed=1)
    bigsvm.ingest((X, np.where(y > 0, "true", "false")), tmp_path / "s")
    result = bigsvm.fit(tmp_path / "s", positive=positive, class_weight={positive: 4.0})
    assert result.model.about["problem"]["class_weight"] == [1.0, 4.0]
    with pytest.raises(UsageError, match="which is no class"):
        bigsvm.fit(tmp_path / "s", positive=positive, class_weight={"false" if positive == "true" else "true": 4.0})
    with pytest.raises(UsageError, match="which are one class"):
        bigsvm.fit(tmp_path / "s", positive=positive, class_weight={positive: 4.0, "True": 3.0})
