"""The one table of options: whatever goes by it has every option, and no list of its own."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from typing import Any

import click
import pytest

from bigsvm.cli.commands.models.predict import command as predict
from bigsvm.cli.commands.training.fit import command as fit
from bigsvm.cli.commands.training.plan import command as plan
from bigsvm.config import MODEL_OPTIONS, OPTIONS, RESULT_OPTIONS, TYPED, FitConfig
from bigsvm.errors import UsageError
from bigsvm.run.fit.problem_identity import asked_digest
from bigsvm.solvers.registry import SOLVERS
from bigsvm.store.identity import Identity
from pipelines.config import Job

OTHER: dict[str, Any] = {
    "solver": "dcd", "loss": "hinge", "C": 2.0, "lam": 0.5, "bias": "none", "bias_scale": 2.0,
    "class_weight": {"1": 2.0}, "multi_class": "ovo", "epsilon": 0.2, "nu": 0.3, "solver_options": {"order": "random"},
    "warm_start": "/there/old.model",
    "kernel": "rbf", "gamma": 0.5, "degree": 4, "coef0": 1.0, "assume_psd": True, "wss": "3", "working_set": 8,
    "shrinking": False, "cache_memory": "1MiB", "tol": 0.1, "stop": "paper", "max_passes": 3.0, "max_time": 4.0,
    "seed": 7, "shards": 2, "rounds_per_pass": 8, "sum_seconds": 0.5, "calibrate": "isotonic", "calibrate_share": 0.5,
    "no_dual": True, "memory": "64MiB", "scratch": "there",
    "scratch_limit": "1GiB", "stage": "none", "threads": 3, "scheduler": "processes", "scheduler_file": "s.json",
    "workers": 2, "worker_scratch": "/near", "C_path": [1.0, 2.0],
}  # fmt: skip
"""Another value than the default of every field."""
DATA = Identity.of("0" * 32, matrix="X")


_FLOATS = [name for name, option in OPTIONS.items() if option.kind in ("float", "gamma")]


@pytest.mark.parametrize("name", [name for name in _FLOATS if name != "calibrate_share"])  # a share is below 1
def test_a_whole_number_is_the_number_that_it_is_typed_as(name: str) -> None:
    """To compiled loops C = 1 was another type than C = 1.0: they were compiled anew, in the midst of a fit."""
    assert repr(getattr(FitConfig.of(**{name: 1}), name)) == "1.0"


def test_costs_that_are_whole_numbers_are_those_that_are_typed() -> None:
    assert repr(FitConfig(C_path=[1, 10]).C_path) == "[1.0, 10.0]"


@pytest.mark.parametrize("name", ["C", "epsilon", "gamma", "tol"])
def test_a_whole_number_beyond_all_floats_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        FitConfig.of(**{name: 10**400})


def test_every_field_is_in_the_table() -> None:
    assert [field.name for field in dataclasses.fields(FitConfig)] == list(OPTIONS) == list(OTHER)
    hints = typing.get_type_hints(FitConfig)
    for name, option in OPTIONS.items():
        assert (getattr(FitConfig(), name) == OTHER[name]) is False
        assert option.help or not option.flags, name
        assert option.changes in ("result", "files", "nothing")
        assert set(option.solvers) <= set(SOLVERS), name
        # What is one of a few values by its type is one of those on the command line.
        literal = [typing.get_args(kind) for kind in (hints[name], *typing.get_args(hints[name]))]
        named = [values for values in literal if values and all(isinstance(value, str) for value in values)]
        assert not named or option.choices == named[0], name


@pytest.mark.parametrize("command", [fit, plan], ids=["fit", "plan"])
def test_every_option_that_is_typed_is_a_flag(command: click.Command) -> None:
    flags = {parameter.name: parameter for parameter in command.params}
    for typed, name in TYPED.items():
        assert set(OPTIONS[name].flags.split()) <= {*flags[typed].opts, *flags[typed].secondary_opts}


def test_commands_that_read_have_what_reading_takes() -> None:
    names = {parameter.name for parameter in predict.params}
    assert {typed for typed, name in TYPED.items() if typed in names} == {
        typed for typed, name in TYPED.items() if OPTIONS[name].reading
    }


@pytest.mark.parametrize("name", OTHER)
def test_a_digest_changes_with_what_changes_the_model_and_with_nothing_else(name: str) -> None:
    first, second = FitConfig(), dataclasses.replace(FitConfig(), **{name: OTHER[name]})
    assert (asked_digest(DATA, first) != asked_digest(DATA, second)) is (name in MODEL_OPTIONS)
    assert (name in RESULT_OPTIONS) <= (name in MODEL_OPTIONS)


@pytest.mark.parametrize("name", TYPED.values())
def test_a_job_takes_every_option_by_either_name(name: str, tmp_path: Path) -> None:
    typed = next(typed for typed, field in TYPED.items() if field == name)
    value = OTHER[name]
    base = {"store": "s.zarr", "registry": tmp_path}
    by_field = Job(**base, fit={name: value})  # type: ignore[arg-type]
    by_flag = Job(**base, fit={typed.replace("_", "-"): not value if OPTIONS[name].negated else value})  # type: ignore[arg-type]
    assert getattr(by_field.fit, name) == getattr(by_flag.fit, name) == value
