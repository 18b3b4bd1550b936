"""Identities as values: what differs, whichever side knows of it."""

from __future__ import annotations

from typing import Any

import pytest

from bigsvm.errors import DataError
from bigsvm.store.identity import Identity, digest_of, first_difference


def test_the_first_difference_is_found_on_either_side() -> None:
    one, more = {"a": 1, "deep": {"b": 2}}, {"a": 1, "deep": {"b": 2, "c": 3}}
    assert first_difference(one, one) == ""
    assert first_difference(one, more) == "c was None and is 3"
    assert first_difference(more, one) == "c was 3 and is None"
    assert first_difference({"a": 1}, {"a": 2}) == "a was 1 and is 2"


def test_an_identity_is_its_store_and_its_selection() -> None:
    first = Identity.of("f" * 32, label="obs/label", weight="")
    assert Identity.of("f" * 32, weight="", label="obs/label") == first
    assert Identity.of_document(first.document()) == first
    others = [Identity.of("e" * 32, label="obs/label", weight=""), Identity.of("f" * 32, label="obs/other", weight="")]
    assert len({first.digest, *(other.digest for other in others)}) == 3
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    first.check(first, "the copy", "here")
    with pytest.raises(DataError, match="the copy belongs to other rows: label was 'obs/other' and is 'obs/label'"):
        first.check(others[1], "the copy", "here")


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ([1, 2], [1, 3], "grid was [1, 2] and is [1, 3]"),
        ([{"C": 0.1}] * 40, [{"C": 0.1}] * 41, "grid had 40 entries and has 41"),
        ([{"C": 0.1}] * 40, [{"C": 0.1}] * 39 + [{"C": 0.2}], "C was 0.1 and is 0.2"),
        ("x" * 900, "y" * 900, f"grid was '{'x' * 199} ... and is '{'y' * 199} ..."),
    ],
)
def test_a_long_difference_is_told_in_a_line(was: Any, now: Any, said: str) -> None:
    """A grid of forty candidates filled the screen, and the one that differs had to be looked for."""
    assert first_difference({"grid": was}, {"grid": now}) == said
