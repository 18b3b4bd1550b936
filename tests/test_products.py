"""Selections of products cover what they promise, and the whole product is run on request."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from tests.products import WHOLE, each_of, every_pair, every_value, pairs_of, pairs_of_kinds

SIZES = [[1], [5], [2, 2], [2, 2, 2], [3, 2, 5, 2, 2], [33, 12, 2, 3], [3, 3, 12, 2, 3], [7, 1, 2], [4, 4, 4]]
LETTERS, DIGITS, SIGNS = "abc", (1, 2), [("+", 1), ("-", -1)]


@pytest.mark.parametrize("sizes", SIZES)
def test_every_pair_of_values_occurs(sizes: Sequence[int]) -> None:
    rows = every_pair(sizes)
    assert len(set(rows)) == len(rows)
    for i, j in itertools.combinations(range(len(sizes)), 2):
        assert {(row[i], row[j]) for row in rows} == set(itertools.product(range(sizes[i]), range(sizes[j])))
    two_largest = sorted(sizes)[-2:]
    assert len(rows) <= 1.5 * two_largest[0] * two_largest[-1]


@pytest.mark.parametrize("sizes", SIZES)
def test_every_value_occurs(sizes: Sequence[int]) -> None:
    rows = every_value(sizes)
    assert len(rows) == max(sizes)
    for i, size in enumerate(sizes):
        assert {row[i] for row in rows} == set(range(size))


@pairs_of(letter=LETTERS, digit=DIGITS, sign__factor=SIGNS)
def test_the_whole_product_is_run_on_request(letter: str, digit: int, sign: str, factor: int) -> None:
    assert (letter in LETTERS, digit in DIGITS, (sign, factor) in SIGNS) == (True, True, True)


def test_what_a_test_is_parametrized_by() -> None:
    names, rows = pairs_of(letter=LETTERS, digit=DIGITS, sign__factor=SIGNS).args
    assert names == ["letter", "digit", "sign", "factor"]
    assert len(rows) == (12 if WHOLE else 6)
    names, rows = each_of(letter=LETTERS).args
    assert (names, rows) == (["letter"], list(LETTERS))


def test_values_of_one_kind_take_turns() -> None:
    names, rows = pairs_of_kinds(str.lower, letter="aAbBBc", digit=range(5), sign__factor=SIGNS).args
    assert names == ["letter", "digit", "sign", "factor"]
    assert {row[0] for row in rows} == set("aAbBc")
    assert {(row[0].lower(), row[1]) for row in rows} == set(itertools.product(LETTERS, range(5)))
    assert {(row[0].lower(), row[2:]) for row in rows} == set(itertools.product(LETTERS, SIGNS))
    assert {row[1:] for row in rows} == {(digit, *sign) for digit in range(5) for sign in SIGNS}
    assert len(rows) == (60 if WHOLE else 15)
