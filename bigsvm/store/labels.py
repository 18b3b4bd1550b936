"""Labels, as classes or as targets, the same from every format."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np

from bigsvm.errors import DataError

Task = Literal["auto", "classification", "regression"]
MAX_CLASSES = 10_000
"""Distinct numbers beyond which a number column is taken for a regression target."""


def as_labels(values: np.ndarray, where: str, first_row: int = 0) -> np.ndarray:
    """Labels as float64 or as fixed-width strings.

    Raises
    ------
    DataError : NaN or infinite (names the row), or neither numbers nor strings.
    """
    if values.dtype.kind in "biuf":
        numbers = values.astype(np.float64) + 0.0
        bad = np.flatnonzero(~np.isfinite(numbers))
        if len(bad):
            raise DataError(f"label of row {first_row + int(bad[0])} is {numbers[bad[0]]}", where)
        return numbers
    if values.dtype.kind in "UT" or (values.dtype == object and all(isinstance(v, str) for v in values)):
        return np.array(values.tolist(), dtype=str) if values.dtype.kind == "T" else values.astype(str)
    raise DataError(f"labels of type {values.dtype} are neither numbers nor strings", where)


def normal_classes(values: np.ndarray) -> np.ndarray:
    """Distinct labels, ascending; whole numbers as int64."""
    classes = np.unique(values)
    if classes.dtype.kind == "f" and np.all(classes == np.rint(classes)) and np.all(np.abs(classes) < 2**53):
        return classes.astype(np.int64)
    return classes


def scan_classes(pieces: Iterable[np.ndarray], task: Task) -> np.ndarray | None:
    """Classes of a column given piece by piece (`as_labels`); None: a regression target.

    Under `auto`, numbers are classes when all are whole and there are at most MAX_CLASSES distinct ones.
    """
    if task == "regression":
        return None
    found: np.ndarray | None = None
    for piece in pieces:
        if task == "auto" and piece.dtype.kind == "f" and np.any(piece != np.rint(piece)):
            return None
        fresh = np.unique(piece)
        found = fresh if found is None else np.union1d(found, fresh)
        if len(found) > MAX_CLASSES:
            if task == "auto" and found.dtype.kind == "f":
                return None
            raise DataError(f"more than {MAX_CLASSES} classes", hint="is this a regression target?")
    return normal_classes(np.zeros(0) if found is None else found)


def check_weights(weights: np.ndarray, where: str, first_row: int = 0) -> np.ndarray:
    """Weights as float64.  Raises DataError naming the row of a negative, NaN or infinite one."""
    if weights.dtype.kind not in "biuf":
        raise DataError(f"weights of type {weights.dtype} are not numbers", where)
    numbers = np.ascontiguousarray(weights, np.float64)
    if len(numbers) and not (numbers.min() >= 0.0 and numbers.max() < np.inf):
        row = int(np.flatnonzero(~((numbers >= 0.0) & (numbers < np.inf)))[0])
        raise DataError(f"weight of row {first_row + row} is {numbers[row]}", where, "weights are finite and >= 0")
    return numbers
