"""Which columns of a table are features, as --columns names them: by their names, or by the patterns of a shell."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase

import pyarrow as pa

from bigsvm.errors import DataError, UsageError


def is_pattern(name: str) -> bool:
    """Whether a name stands for others, too: a column that is called so goes before."""
    return any(mark in name for mark in "*?[")


def matched(asked: str, names: Sequence[str]) -> list[str]:
    """The columns that are meant: the one of this name where there is one, else those that match."""
    if asked in names:
        return [asked]
    return [name for name in names if fnmatchcase(name, asked)] if is_pattern(asked) else []


def chosen_columns(asked: Sequence[str], names: Sequence[str], others: Collection[str | None], where: str) -> set[str]:
    """The columns that `asked` means; all where it is empty.

    others : columns of labels and of weights, and whatever else is no feature: no pattern means these

    Raises UsageError for a name that is not there, and for a pattern that no column matches.
    """
    there = frozenset(names)  # of tens of thousands each is looked for
    found = set() if asked else set(names)
    for one in asked:
        here = [one] if one in there else [name for name in matched(one, names) if name not in others]
        if not here:
            import difflib  # of use here alone

            what = f"no column matches {one!r}" if is_pattern(one) else f"no column {one!r}"
            close = difflib.get_close_matches(one, names, 1)
            meant = f"did you mean {close[0]!r}? " if close else ""
            beside = "" if not any(map(is_pattern, asked)) else "; a pattern means no labels and weights"
            raise UsageError(what, where, f"{meant}columns there: {', '.join(names[:20])}{beside}")
        found.update(here)
    return found


def refuse_twice(used: Iterable[str | None], names: Sequence[str], where: str) -> None:
    """Raise DataError where a column that is used has the name of another one."""
    wanted = frozenset(used)
    seen: set[str] = set()
    for name in names:
        if name in seen and name in wanted:
            raise DataError(f"two columns are called {name!r}", where, "rename one of them")
        seen.add(name)


def index_columns(schema: pa.Schema) -> list[str]:
    """Columns that were the index of a table of pandas or dask: names or numbers of the rows, and no features."""
    try:
        told = json.loads((schema.metadata or {})[b"pandas"])["index_columns"]
    except (KeyError, TypeError, ValueError):
        return []
    return [name for name in schema.names if isinstance(told, list) and name in told]


def told_of_index(schema: pa.Schema, used: Collection[str | None]) -> list[str]:
    """Warnings of such columns that are not used."""
    return [
        f"column {name!r} was the index of a table of pandas and is no feature: where it is one, name it with --columns"
        for name in index_columns(schema)
        if name not in used
    ]
