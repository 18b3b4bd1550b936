"""Rows with several labels, or none: each set of labels is one class, and a table lists the labels of each set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bigsvm.errors import DataError
from bigsvm.units import counted

LABEL_SETS = "label_sets"
"""Key in the recipe of rows (`RowBlocks.recipe`): their classes are sets of labels, as text."""
SEPARATOR = ","
MOST_SETS = 1 << 16
_MOST_ENTRIES = 1 << 22  # limit of the table, in bytes, because every task carries it


class LabelSets(NamedTuple):
    """The labels, and which of them are in each class.

    names : labels in ascending order, numbers or strings, (n_labels,)
    member : uint8, (n_labels, n_sets), 1 if the label is in the set
    """

    names: np.ndarray
    member: np.ndarray

    @classmethod
    def of(cls, recipe: Mapping[str, Any], classes: np.ndarray | None) -> LabelSets | None:
        """The label sets from the recipe and the classes of rows; None if a row has one label.

        Raises DataError for a set with an unknown label, or if the table would be too large.
        """
        if LABEL_SETS not in recipe or classes is None:
            return None
        names = sorted_names([str(name) for name in recipe[LABEL_SETS]["names"]])
        if len(classes) > MOST_SETS or len(classes) * len(names) > _MOST_ENTRIES:
            what = f"{len(classes)} different sets of {len(names)} labels are more than a fit can hold"
            raise DataError(what, hint="use fewer labels at a time: --labels A,B,...")
        place = {str(name): k for k, name in enumerate(names.tolist())}
        member = np.zeros((len(names), len(classes)), np.uint8)
        for code, text in enumerate(classes.tolist()):
            for name in split_set(text):
                if name not in place:
                    raise DataError(f"label {name!r} is not one of the {len(names)} labels {', '.join(place)[:200]}")
                member[place[name], code] = 1
        return cls(names, member)


def split_set(text: str) -> list[str]:
    """The labels of a set that is given as text, each once."""
    return [name for name in dict.fromkeys(part.strip() for part in text.split(SEPARATOR)) if name]


def set_text(names: Sequence[str]) -> str:
    """A set as text: its labels in text order, the same in every layout."""
    return SEPARATOR.join(sorted(names))


def named_sets(recipe: Mapping[str, Any], classes: np.ndarray, where: str) -> dict[str, Any]:
    """The recipe of rows whose sets are known now; if it names no labels, those that occur are added.

    Raises DataError if there are fewer than two labels.
    """
    found = dict(recipe)
    if LABEL_SETS in found and found[LABEL_SETS]["names"] is None:
        names = sorted_names(sorted({name for text in classes.tolist() for name in split_set(str(text))}))
        if len(names) < 2:
            what = f"{counted(len(names), 'label')} in all: rows with several need two or more"
            raise DataError(what, where, "leave out --labels if a row has one label")
        found[LABEL_SETS] = {**found[LABEL_SETS], "names": list(map(str, names.tolist()))}
    return found


def sorted_names(names: Sequence[str]) -> np.ndarray:
    """Labels in ascending order: as numbers if all are integers, else as text.  Raises DataError for a bad name."""
    for name in names:
        if not name or SEPARATOR in name or name != name.strip():
            raise DataError(f"{name!r} cannot be the name of a label", hint="remove commas, and blanks around it")
    if len(set(names)) != len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise DataError(f"label {twice!r} is named twice")
    if names and all(name.isdecimal() and str(int(name)) == name and len(name) < 18 for name in names):
        return np.array(sorted(map(int, names)), np.int64)
    return np.array(sorted(names))
