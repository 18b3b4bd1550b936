"""Errors: their text, and the exit codes that scripts rely on."""

from __future__ import annotations

import pytest

from bigsvm import errors


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("BigSVMError", 1),
        ("UsageError", 2),
        ("Unsupported", 2),
        ("DataError", 65),
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
    assert len(kinds) == 11


def test_text_is_where_what_and_hint() -> None:
    assert str(errors.DataError("bad label", "a.svm:7", "write a number")) == "a.svm:7: bad label (write a number)"
    assert str(errors.DataError("bad label")) == "bad label"


def test_errors_travel_between_processes() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(errors.DataError("what", "where", "hint")))
    assert (error.what, error.where, error.hint) == ("what", "where", "hint")
