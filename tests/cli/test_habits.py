"""What users of LIBLINEAR, LIBSVM and scikit-learn type from habit is told by our name, and the page has it all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bigsvm.cli.habits import _FLAGS, _SOLVERS
from bigsvm.config import OPTIONS, FitConfig
from bigsvm.solvers.registry import SOLVERS
from tests.cli.conftest import Bigsvm

PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("-C 10", "the cost is -c"),
        ("-g 0.5", "did you mean --gamma"),
        ("-t 2", "did you mean --kernel"),
        ("-w1 5", "did you mean --class-weight"),
        ("-p 0.1", "did you mean --epsilon"),
        ("-m 100", "did you mean --cache-memory"),
        ("-q", "did you mean --quiet"),
        ("-s 3", "LIBLINEAR's -s 3 is --loss hinge --solver dcd"),
        ("--max-iter 5", "did you mean --max-passes?"),
        ("--random-state 3", "did you mean --seed?"),
        ("--alpha 1", "did you mean --lambda?"),
    ],
)
@pytest.mark.parametrize("command", ["fit", "plan"])
def test_the_name_here_is_told_in_one_line(bigsvm: Bigsvm, command: str, typed: str, said: str) -> None:
    found = bigsvm(command, "rows.zarr", *typed.split())
    assert found.code == 2
    assert said in found.err
    assert len(found.err.splitlines()) == 1
    as_json = bigsvm(command, "rows.zarr", *typed.split(), "--json")
    assert said in as_json.document["error"]["hint"]


def test_other_commands_and_other_flags_are_told_as_ever(bigsvm: Bigsvm) -> None:
    assert "see bigsvm predict --help" in bigsvm("predict", "m", "x", "-g", "1").err
    assert "see bigsvm fit --help" in bigsvm("fit", "x", "-z").err


def test_what_is_told_exists() -> None:
    flags = {flag for option in OPTIONS.values() for flag in option.flags.split()} | {"--quiet"}
    for text in (*_FLAGS.values(), *_SOLVERS.values()):
        assert set(re.findall(r"(?<!\S)--[a-z0-9-]+", text)) <= flags
    for number, text in _SOLVERS.items():
        options = dict(re.findall(r"--(loss|solver) ([\w-]+)", text))
        if options:
            config = FitConfig.of(**options)
            assert config.loss in SOLVERS[config.solver].losses, number


def test_the_page_has_every_flag_and_its_commands_name_options_that_there_are() -> None:
    text = PAGE.read_text()
    for flag in (*_FLAGS, *(f"-s {number}" for number in _SOLVERS)):
        assert f"`{flag}" in text, flag
    flags = {flag for option in OPTIONS.values() for flag in option.flags.split()}
    flags |= {
        "--quiet",
        "--scale",
        "--weight",
        "--format",
        "--scores",
        "--task",
        "--c-grid",
        "--folds",
        "--proba",
        "--hash-bits",
    }
    of_vowpal_wabbit = {"--l2", "--passes", "--cache", "--noconstant", "--oaa"}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text)) - of_vowpal_wabbit
    assert named <= flags, sorted(named - flags)
