"""Weights of classes by their labels: one rule for what a label may be written as, whoever gives the weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bigsvm.errors import UsageError


def weights_named(
    given: Mapping[Any, float], classes: np.ndarray, positive: str | None = None
) -> tuple[np.ndarray, list[Any]]:
    """(weights by class code, float64, (n_classes,); labels of `given` that are no class).  Classes not named weigh 1.

    A label is a class if both are the same text, or else the same number: True is 1, and so are 1.0, "1" and "+1".

    positive : the class named by --positive, whose rows are True, while all others are False; None without it

    Raises UsageError for a label that may mean two classes, for two labels of one class, and for a weight that is
    negative or not finite.
    """
    weights, unknown = np.ones(len(classes)), []
    exact = names_of_classes(classes, positive)
    alike: dict[str, list[int]] = {}  # by number, which may be written in several ways
    if positive is not None:  # False and True would match labels 0 and 1 of the store
        alike = {_plain(positive): [1]}
    else:
        for code, label in enumerate(classes):
            alike.setdefault(_plain(label), []).append(code)
    # As the command line writes them, too; unless these are labels of the store, which they would mean.
    if classes.dtype.kind == "b" and str(positive).lower() not in ("true", "false"):
        alike |= {str(label).lower(): [code] for code, label in enumerate(classes)}
    named: dict[int, object] = {}
    for label, weight in plain_numbers(given).items():
        codes = [exact[str(label)]] if str(label) in exact else alike.get(_plain(label), [])
        if not codes:
            unknown.append(label)
            continue
        if len(codes) > 1:
            found = " and ".join(repr(str(classes[code])) for code in codes)
            raise UsageError(f"class weight for {label!r}, which may mean {found}", hint="write it as one of them")
        if codes[0] in named:
            raise UsageError(f"class weights for {named[codes[0]]!r} and {label!r}, which are one class")
        named[codes[0]] = label
        if not 0 <= weight < np.inf:
            raise UsageError(f"class weight of {label!r} must be finite and not negative, got {weight!r}")
        weights[codes[0]] = weight
    return weights, unknown


def plain_numbers(given: Mapping[Any, float]) -> dict[Any, float]:
    """The same with numbers of Python in place of NumPy's, which messages show with their types, and no JSON holds."""
    return {_plain_number(label): _plain_number(weight) for label, weight in given.items()}


def _plain_number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def names_of_classes(classes: np.ndarray, positive: str | None = None) -> dict[str, int]:
    """Text of a label -> code of its class."""
    names = {str(label): code for code, label in enumerate(classes.tolist())}
    if positive is not None:
        names[str(positive)] = 1
    return names


def _plain(label: object) -> str:
    """One spelling for equal numbers: '1' for 1, 1.0, '1', '+1' and True."""
    text = str(int(label)) if isinstance(label, bool | np.bool_) else str(label)
    try:
        return str(int(text))
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() else repr(number)
