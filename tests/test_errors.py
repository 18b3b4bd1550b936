"""Errors: their text, and the exit codes that scripts rely on."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bigsvm import errors, open_store
from bigsvm.cli.failures import failure_of
from bigsvm.errors import DataError, in_words
from bigsvm.python_api.told import for_python

PACKAGES = [Path(__file__).parents[1] / name for name in ("bigsvm", "pipelines")]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("BigSVMError", 1),
        ("UsageError", 2),
        ("Unsupported", 2),
        ("DataError", 65),
        ("NoSuchColumn", 65),
        ("MissingInput", 66),
        ("OutputError", 73),
        ("ReadFailed", 74),
        ("TaskFailed", 74),
        ("Interrupted", 75),
        ("PlanRefused", 78),
        ("BudgetExceeded", 78),
    ],
)
def test_exit_codes_are_the_contract(name: str, code: int) -> None:
    assert getattr(errors, name).code == code


def test_every_error_is_in_the_table_above() -> None:
    kinds = {
        name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.BigSVMError)
    }
    assert len(kinds) == 12


def test_text_is_where_what_and_hint() -> None:
    assert str(errors.DataError("bad label", "a.svm:7", "write a number")) == "a.svm:7: bad label (write a number)"
    assert str(errors.DataError("bad label")) == "bad label"


def test_errors_travel_between_processes() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(errors.DataError("what", "where", "hint")))
    assert (error.what, error.where, error.hint) == ("what", "where", "hint")


@pytest.mark.parametrize(
    ("error", "words", "with_kind"),
    [
        (DataError("bad label", "a.svm:7", "write a number"), "a.svm:7: bad label (write a number)", None),
        (OSError(28, "No space left on device"), "No space left on device", None),
        (OSError(28, "No space left on device", "a.svm"), "a.svm: No space left on device", None),
        (OSError("disk full"), "disk full", "OSError: disk full"),
        (KeyError("names"), "'names' is missing", "KeyError: 'names' is missing"),
        (KeyError(), "KeyError", None),
        (ValueError("two\n  lines"), "two lines", "ValueError: two lines"),
        (TimeoutError(), "TimeoutError", None),
    ],
    ids=repr,
)
def test_what_an_exception_says_in_words(error: Exception, words: str, with_kind: str | None) -> None:
    assert in_words(error) == words
    assert in_words(error, kind=True) == (with_kind or words)


def shown_as_python_has_them(tree: ast.AST) -> list[int]:
    """Lines where an exception that was caught goes into a text as its repr."""
    handlers = [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name]
    parts: list[tuple[Any, str | None]] = [(part, node.name) for node in handlers for part in ast.walk(node)]
    return [
        part.lineno
        for part, name in parts
        if (isinstance(part, ast.FormattedValue) and part.conversion == ord("r"))
        and (isinstance(part.value, ast.Name) and part.value.id == name)
    ]


def test_no_message_is_the_repr_of_an_exception() -> None:
    assert shown_as_python_has_them(ast.parse('try: f()\nexcept OSError as e: print(f"no: {e!r}")')) == [2]
    found = {
        str(path): lines
        for package in PACKAGES
        for path in package.rglob("*.py")
        if " as " in (text := path.read_text())
        and "!r}" in text
        and (lines := shown_as_python_has_them(ast.parse(text)))
    }
    assert found == {}


@pytest.mark.parametrize("hint", ["", "drop it"])
@pytest.mark.parametrize(
    ("what", "where", "said"),
    [
        ("row 7 holds nan", "a.csv", "rows are counted from 0"),
        ("row 7 holds nan in column 2", "a.csv", "rows and columns are counted from 0"),
        ("rows 3 to 5 have index 9", "a.zarr", "rows are counted from 0"),
        ("feature 9 is beyond the model's 4 features (from 0)", "row 7", "rows are counted from 0"),
        ("model.json is not JSON: Expecting ',' delimiter: line 69 column 19 (char 1297)", "m", ""),
        ("not a number", "a.svm:12", ""),
        ("60 rows have no label", "a.csv", ""),
        ("no column 'row 7th'", "a.csv", ""),
        ("no column 'row 7'", "a.csv", ""),
        ("the model's label 'row 7' is \"column 2\"", "a.csv", ""),
        ("row 7 of the model's rows holds 'column 2'", "a.csv", "rows are counted from 0"),
        ("not a number", "row 7.svm:12", ""),
        ("no such store", "column 2/row 7.csv", ""),
        ("cannot read /row 7/a: it is column 2.csv", "a.csv", ""),
    ],
)
def test_numbers_of_rows_say_where_they_begin(what: str, where: str, said: str, hint: str) -> None:
    """In a shell and in Python, once."""
    error = DataError(what, where, hint)
    wanted = "; ".join(filter(None, (hint, said)))
    for told in (error, for_python(error), for_python(for_python(error))):
        assert str(told) == f"{where}: {what}" + (f" ({wanted})" if wanted else "")
    assert failure_of(error).hint == failure_of(for_python(error)).hint == wanted


def test_the_name_of_a_column_is_not_told_as_its_number() -> None:
    """Columns of pandas may be named 1, 2, 3; only numbers of columns begin at 0."""
    frame = pd.DataFrame({1: [1.0, 2.0], 2: ["a", 1.0]})
    with pytest.raises(DataError) as told:
        open_store((frame, [0, 1]))
    assert told.value.where == "X, column '2'"
    assert told.value.hint.endswith("; rows are counted from 0")
