"""What users of LIBLINEAR, LIBSVM and scikit-learn type from habit is told by our name, and the page has it all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bigsvm.cli.habits import _FLAGS, _OF_TUNE, _OTHER_FLAGS, _SOLVERS, _TYPES
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
        ("-s 0", "LIBSVM's -s 0 is C-SVC, here --kernel rbf"),
        ("-s 4", "LIBSVM's -s 4 is nu-SVR, here --kernel rbf --loss nu_svr"),
        ("-v 5", "bigsvm tune STORE --folds N"),
        ("--penalty l1", "L1 is out of scope: see docs/scope.md"),
        ("--l2 1e-6", "did you mean --lambda"),
        ("--oaa 3", "did you mean --multi-class ovr"),
        ("--task regression", "did you mean --loss epsilon_insensitive"),
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


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("-c 10", "did you mean --Cs"),
        ("-g 0.5", "did you mean --gammas"),
        ("-w1 5", "did you mean --class-weights"),
        ("--alpha 1", "did you mean --Cs"),
        ("-t 2", "did you mean --kernel"),
        ("-s 3", "--loss epsilon_insensitive"),
    ],
)
def test_a_search_names_its_own_options(bigsvm: Bigsvm, typed: str, said: str) -> None:
    assert said in bigsvm("tune", "rows.zarr", *typed.split()).err


def test_a_loss_of_other_programs_is_said_to_be_out_of_scope(bigsvm: Bigsvm) -> None:
    assert "logistic loss is out of scope, see docs/scope.md" in bigsvm("fit", "x", "--loss", "logistic").err
    assert "'log1' is not one of 'hinge'" in bigsvm("fit", "x", "--loss", "log1").err


def test_other_commands_and_other_flags_are_told_as_ever(bigsvm: Bigsvm) -> None:
    assert "see bigsvm predict --help" in bigsvm("predict", "m", "x", "-g", "1").err
    assert "see bigsvm fit --help" in bigsvm("fit", "x", "-z").err


def test_what_is_told_exists() -> None:
    flags = {flag for option in OPTIONS.values() for flag in option.flags.split()} | {"--quiet"}
    flags |= {"--Cs", "--gammas", "--class-weights", "--l2"}  # of a search, and Vowpal Wabbit's own
    for text in (*_FLAGS.values(), *_SOLVERS.values(), *_TYPES.values(), *_OTHER_FLAGS.values(), *_OF_TUNE.values()):
        assert set(re.findall(r"(?<!\S)--[a-z0-9-]+", text)) <= flags
    for number, text in _SOLVERS.items():
        options = dict(re.findall(r"--(loss|solver) ([\w-]+)", text))
        if options:
            config = FitConfig.of(**options)
            assert config.loss in SOLVERS[config.solver].losses, number
    for text in _TYPES.values():
        assert FitConfig.of(**dict(re.findall(r"--(loss|kernel) ([\w-]+)", text))).solver in ("auto", "smo")


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


@pytest.mark.parametrize("words", [["fit"], ["inspect"], ["evaluate", "m.model"], ["predict", "m.model"]])
def test_a_pattern_that_the_shell_expanded_is_to_be_quoted(bigsvm: Bigsvm, words: list[str]) -> None:
    for suffix in (".csv", ".csv.gz", ".parquet"):
        said = bigsvm(*words, f"a{suffix}", f"2.b{suffix}", f"c{suffix}")
        assert (said.code, len(said.err.splitlines())) == (2, 1)
        assert f"quote a pattern, so that the shell does not expand it: 'FOLDER/*{suffix}'" in said.err


def test_other_extra_arguments_are_not_taken_for_a_pattern(bigsvm: Bigsvm) -> None:
    assert "see bigsvm fit --help" in bigsvm("fit", "a.csv", "b.csv", "more").err


def test_several_tables_are_ingested_by_a_pattern(bigsvm: Bigsvm, tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / f"{name}.csv").write_text("x,label\n1,no\n2,yes\n")
    said = bigsvm("ingest", "a.csv", "b.csv", "c.csv", "d.csv", "rows.zarr")
    assert (said.code, len(said.err.splitlines())) == (2, 1)
    assert "a.csv, b.csv, c.csv and 1 more" in said.err
    assert "'*.csv'" in said.err
    assert bigsvm("ingest", "*.csv", "rows.zarr", "--json").document["result"]["n_samples"] == 8


def test_stores_and_text_are_ingested_one_after_another(bigsvm: Bigsvm) -> None:
    assert "add each of the others with --append" in bigsvm("ingest", "a.h5ad", "b.h5ad", "rows.zarr").err


def test_the_format_of_a_table_is_told_by_its_suffix(bigsvm: Bigsvm) -> None:
    said = bigsvm("ingest", "people.txt", "rows.zarr", "--from", "csv")
    assert said.code == 2
    assert "the suffix of a file, such as .csv, says that it is a table" in said.err
