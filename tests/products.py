"""Products of what a test goes through: a selection of them in the suite, all of them on request.

The suite keeps to a budget of CPU seconds, so a test asks for as many combinations as cover every *pair* of values (or
only every value).  `BIGSVM_TEST_PRODUCTS=whole`, which `scripts/cross_products.py` sets, runs all combinations.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

WHOLE = os.environ.get("BIGSVM_TEST_PRODUCTS") == "whole"


def on_request(*cases: Any) -> list[Any]:
    """Cases that run with the whole products alone."""
    return list(cases) if WHOLE else []


def pairs_of(**factors: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrize by combinations in which every pair of values of two factors occurs.

    factors : name -> values; `a__b` names arguments that vary together, and its values are tuples
    """
    return _parametrize(factors, every_pair)


def each_of(**factors: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrize by combinations in which every value of every factor occurs; as `pairs_of` else."""
    return _parametrize(factors, every_value)


def pairs_of_kinds(kind: Callable[[Any], Any], **factors: Iterable[Any]) -> pytest.MarkDecorator:
    """As `pairs_of`, where what the first factor's values are of pairs with the others' values, not each of them.

    kind : of a value of the first factor.  Those of one kind take turns, so that every value occurs where a kind has
        no more of them than combinations
    """
    name, given = next(iter(factors.items()))
    values = list(given)

    def select(sizes: Sequence[int]) -> list[tuple[int, ...]]:
        kinds: dict[Any, list[int]] = {}
        for at, value in enumerate(values):
            kinds.setdefault(kind(value), []).append(at)
        members, met = list(kinds.values()), [0] * len(kinds)
        rows = []
        for which, *others in every_pair([len(members), *sizes[1:]]):
            rows.append((members[which][met[which] % len(members[which])], *others))
            met[which] += 1
        return rows

    return _parametrize({**factors, name: values}, select)


def _parametrize(factors: dict[str, Iterable[Any]], select: Any) -> pytest.MarkDecorator:
    values = [list(found) for found in factors.values()]
    sizes = [len(found) for found in values]
    chosen = itertools.product(*map(range, sizes)) if WHOLE else select(sizes)
    names = [name.split("__") for name in factors]
    rows = []
    for row in chosen:
        given: list[Any] = []
        for parts, found, at in zip(names, values, row, strict=True):
            given.extend(found[at] if len(parts) > 1 else [found[at]])
        rows.append(tuple(given) if len(given) > 1 else given[0])
    return pytest.mark.parametrize([part for parts in names for part in parts], rows)


def every_value(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """As many rows as the largest factor has values; of factors of one size, later ones are turned by one each round.

    A factor's values follow each other, so that neighbours among the values of the largest get different ones.
    """
    return [tuple(row % size for size in sizes) for row in range(max(sizes))]


def every_pair(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Rows of indices in which every pair of values of every two factors occurs; greedy, the same each time."""
    pairs = list(itertools.combinations(range(len(sizes)), 2))
    if not pairs:
        return [(value,) for value in range(sizes[0])]
    left = {(i, j): set(itertools.product(range(sizes[i]), range(sizes[j]))) for i, j in pairs}

    def news(row: dict[int, int], factor: int, value: int) -> int:
        """How many pairs are new with this value in the row."""
        met = 0
        for other, its in row.items():
            i, j = min(factor, other), max(factor, other)
            met += ((value, its) if i == factor else (its, value)) in left[i, j]
        return met

    rows = []
    used = [[0] * size for size in sizes]
    while any(left.values()):
        i, j = max(pairs, key=lambda pair: len(left[pair]))
        first = min(left[i, j])
        row = {i: first[0], j: first[1]}
        for factor in sorted(set(range(len(sizes))) - {i, j}, key=lambda factor: -sizes[factor]):
            # What is new in most pairs; of these, what was used least.
            row[factor] = max(range(sizes[factor]), key=lambda value: (news(row, factor, value), -used[factor][value]))
        for a, b in pairs:
            left[a, b].discard((row[a], row[b]))
        for factor, value in row.items():
            used[factor][value] += 1
        rows.append(tuple(row[factor] for factor in range(len(sizes))))
    return rows
