"""The choice of feature columns by --columns, as names or as patterns like those of a shell."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase

import pyarrow as pa

from bigsvm.errors import DataError, NoSuchColumn, UsageError
from bigsvm.units import columns_there


def is_pattern(name: str) -> bool:
    """Whether a name is a pattern.  If a column has exactly this name, that column is meant all the same."""
    return any(mark in name for mark in "*?[")


def matched(asked: str, names: Sequence[str]) -> list[str]:
    """The columns that `asked` means: the one of this name if there is one, else those that match the pattern."""
    if asked in names:
        return [asked]
    return [name for name in names if fnmatchcase(name, asked)] if is_pattern(asked) else []


def chosen_columns(asked: Sequence[str], names: Sequence[str], others: Collection[str | None], where: str) -> set[str]:
    """The columns that `asked` means; all columns if it is empty.

    others : columns of labels, of weights and others that are no features; patterns do not match these

    Raises UsageError for a name that does not exist, and for a pattern that no column matches.
    """
    there = frozenset(names)  # a set, because there may be tens of thousands of names to look up
    found = set() if asked else set(names)
    for one in asked:
        here = [one] if one in there else [name for name in matched(one, names) if name not in others]
        if not here:
            what = f"no column matches {one!r}" if is_pattern(one) else f"no column {one!r}"
            beside = "" if not any(map(is_pattern, asked)) else "; a pattern never selects labels or weights"
            raise UsageError(what, where, f"{columns_there(one, names)}{beside}")
        found.update(here)
    return found


def refuse_twice(used: Iterable[str | None], names: Sequence[str], where: str) -> None:
    """Raise DataError if a column that is used has the same name as another one."""
    wanted = frozenset(used)
    seen: set[str] = set()
    for name in names:
        if name in seen and name in wanted:
            raise DataError(f"two columns are called {name!r}", where, "rename one of them")
        seen.add(name)


def refuse_absent(label: str, weight: str | None, names: Sequence[str], where: str) -> None:
    """Raise NoSuchColumn if there is no column of labels or of weights by that name.  weight : '' and None are none"""
    for name, remedy in ((label, "--label names the labels"), (weight, "--weight names the weights")):
        if name and name not in names:
            raise NoSuchColumn(f"no column {name!r}", where, f"{columns_there(name, names)}; {remedy}", name)


def column_of_weights(
    asked: str | None, names: Sequence[str], columns: Sequence[str]
) -> tuple[str | None, frozenset[str]]:
    """The column of row weights, or None; and the columns that are no features for its sake.

    asked : its name; None for `weight`, if there is such a column; '' for none: `weight` is no feature then, either, so
        that the features are the same with and without weights
    columns : the features that were asked for, among which `weight` is one
    """
    if asked:
        return asked, frozenset((asked,))
    usual = names.count("weight") == 1 and "weight" not in columns
    return "weight" if usual and asked is None else None, frozenset(("weight",) if usual else ())


def index_columns(schema: pa.Schema) -> list[str]:
    """The columns that were the index of a pandas or dask table: names or numbers of the rows, so no features."""
    try:
        told = json.loads((schema.metadata or {})[b"pandas"])["index_columns"]
    except (KeyError, TypeError, ValueError):
        return []
    return [name for name in schema.names if isinstance(told, list) and name in told]


def told_of_index(schema: pa.Schema, used: Collection[str | None]) -> list[str]:
    """Warnings about `index_columns` that are not used."""
    return [
        f"column {name!r} was the index of a table of pandas and is no feature: where it is one, name it with --columns"
        for name in index_columns(schema)
        if name not in used
    ]
