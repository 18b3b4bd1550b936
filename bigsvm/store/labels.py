"""Labels, as classes or as targets, the same from every format."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
import xxhash

from bigsvm.errors import DataError
from bigsvm.units import MIB

Task = Literal["auto", "classification", "regression"]
Missing = Literal["refuse", "drop"]
"""What becomes of rows without a label."""
MAX_CLASSES = 10_000
"""Distinct numbers beyond which a number column is taken for a regression target."""
ONE_A_ROW = (
    "one a row; rows with several labels: bigsvm.fit(X, Y) of arrays in memory, or columns of true and false, which "
    "--labels A,B names"
)
_MOST_TEXT = 16 * MIB
"""Of the distinct labels of a piece, each as wide as the longest: a column of prose ends here, not in a full memory."""


_LARGEST_WHOLE = 2**53
"""Up to here float64 holds every whole number."""


def bits_between(packed: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Bits [start, stop), bool, of bytes whose most significant bit comes first."""
    return np.unpackbits(packed[start // 8 : -(-stop // 8)])[start % 8 :][: stop - start].astype(bool)


def as_labels(values: np.ndarray, where: str, first_row: int = 0, rows: np.ndarray | None = None) -> np.ndarray:
    """Labels as bool, int64, uint64 (where it is stored so), float64 or fixed-width strings; no two become one.

    They are of rows from `first_row` on, or of `rows`.

    Raises
    ------
    DataError : NaN or infinite (names the row), or neither numbers nor strings.
    """
    kind = values.dtype.kind
    if kind == "b":
        return values.astype(bool)
    if kind in "iu":
        return values.astype(np.uint64 if values.dtype.kind == "u" and values.itemsize == 8 else np.int64)
    if kind == "f":
        numbers = values.astype(np.float64) + 0.0  # makes one zero of both
        bad = np.flatnonzero(~np.isfinite(numbers))
        if len(bad):
            row = first_row + int(bad[0]) if rows is None else rows[bad[0]]
            raise DataError(f"label of row {row} is {numbers[bad[0]]}", where)
        return numbers
    if kind in "UT" or (values.dtype == object and all(isinstance(v, str) for v in values)):
        return np.array(values.tolist(), dtype=str) if kind == "T" else values.astype(str)
    raise DataError(f"labels of type {values.dtype} are neither numbers nor strings", where)


class CodedLabels(NamedTuple):
    """Labels of text as codes: written out, each row would take as much as the longest label.

    classes : strings, ascending;  of_rows : whole numbers, shape (n,), the place of each row's label among them
    """

    classes: np.ndarray
    of_rows: np.ndarray

    @property
    def n(self) -> int:
        return len(self.of_rows)


def n_labels(labels: np.ndarray | CodedLabels) -> int:
    """Of how many rows they are."""
    return labels.n if isinstance(labels, CodedLabels) else len(labels)


def is_text(values: np.ndarray) -> bool:
    """Whether labels are strings, or objects, which have to be."""
    return values.dtype.kind in "UTO"


def distinct_texts(values: np.ndarray, where: str) -> tuple[np.ndarray, np.ndarray]:
    """(distinct labels in ascending order, strings of fixed width; which of them each of `values` is).

    The values as strings of fixed width would take as much as so many of the longest.

    values : strings, as `as_labels` takes them

    Raises DataError where they are no strings, or more or longer ones than labels are.
    """
    if values.dtype == object and not all(isinstance(value, str) for value in values):
        as_labels(values, where)  # which says what they are
    number: dict[str, int] = {}  # NumPy's `unique` of strings of any length has crashed
    which = np.fromiter((number.setdefault(text, len(number)) for text in values.tolist()), np.int64, len(values))
    check_texts(len(number), max(map(len, number), default=0), where)
    distinct = np.array(list(number), dtype=str)
    order = np.argsort(distinct, kind="stable")
    return distinct[order], np.argsort(order)[which]


def check_texts(n: int, longest: int, where: str) -> None:
    """Raise DataError where n distinct strings, of which the longest has so many characters, are not labels."""
    if n > MAX_CLASSES:
        raise DataError(f"more than {MAX_CLASSES} classes", where, "is this a label?")
    if 4 * n * longest > _MOST_TEXT:
        raise DataError(f"{n} classes, with names of up to {longest} characters", where, "is this a label?")


def as_targets(labels: np.ndarray, where: str, first_row: int = 0) -> np.ndarray:
    """Labels (`as_labels`) as targets of a regression, float64.

    Raises DataError for strings, and naming the row of a whole number that float64 would round.
    """
    if labels.dtype.kind not in "biuf":
        raise DataError(f"target {str(labels[0])!r} of row {first_row} is not a number", where)
    targets = labels.astype(np.float64)
    places = np.flatnonzero(_rounded(labels))
    if len(places):
        row = int(places[0])
        raise DataError(f"target {labels[row]} of row {first_row + row} is beyond 2^53, where float64 rounds", where)
    return targets


def _rounded(labels: np.ndarray) -> np.ndarray:
    """Which whole numbers float64 would round, bool, shape (n,)."""
    if labels.dtype.kind not in "iu" or labels.itemsize < 8:
        return np.zeros(len(labels), bool)
    numbers = labels.astype(np.float64)
    beyond = numbers >= float(np.iinfo(labels.dtype).max)  # which is rounded up to 2^63 or 2^64
    return beyond | (np.where(beyond, 0.0, numbers).astype(labels.dtype) != labels)


def label_bits(labels: np.ndarray) -> np.ndarray:
    """64 bits that stand for each label, in whatever type it is stored.

    Those of a number's float64; xxh3-64 of the digits of a whole number that float64 cannot hold, and of a string's
    UTF-8.  labels : numbers or strings, shape (n,); returns uint64, shape (n,).
    """
    if labels.dtype.kind in "biuf":
        bits = (labels.astype(np.float64) + 0.0).view(np.uint64)  # + 0.0 makes one zero of both
        rounded = _rounded(labels)
        if rounded.any():
            bits[rounded] = _text_bits(labels[rounded])
        return bits
    return _text_bits(labels)


def _text_bits(labels: np.ndarray) -> np.ndarray:
    """xxh3-64 of each label as it is written, uint64, shape (n,)."""
    names, which = np.unique(labels, return_inverse=True)
    return np.array([xxhash.xxh3_64_intdigest(str(name).encode()) for name in names], np.uint64)[which]


def alike(labels: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both arrays of labels in one type that holds every one of them exactly.

    NumPy alone would make float64 of int64 beside uint64, and one label of two.

    Raises DataError where there is no such type: strings beside numbers, or whole numbers beyond 2^53 beside others.
    """
    kinds = {labels.dtype.kind, others.dtype.kind}
    if kinds == {"U"} or labels.dtype == others.dtype:
        return labels, others
    if "U" in kinds:
        raise DataError("labels mix numbers and strings")
    for kind in (np.float64, np.int64, np.uint64):
        if _holds(kind, labels) and _holds(kind, others):
            return labels.astype(kind, copy=False), others.astype(kind, copy=False)
    raise DataError("labels mix whole numbers beyond 2^53 with other numbers", hint="store them as strings")


def _holds(kind: type, labels: np.ndarray) -> bool:
    """Whether a type holds all of these numbers exactly."""
    if labels.dtype == kind or labels.dtype.kind == "b":
        return True
    if kind is np.float64:
        return not _rounded(labels).any()
    least, most = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    whole = labels.dtype.kind != "f" or bool(np.all(labels == np.rint(labels)))
    return whole and (len(labels) == 0 or (int(labels.min()) >= least and int(labels.max()) <= most))


def label_codes(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Class codes of labels that are all among `classes` (ascending): the smallest signed integer type."""
    dtype = np.int8 if len(classes) < 128 else np.int16 if len(classes) < 32768 else np.int32
    labels, known = alike(labels, classes)
    return np.searchsorted(known, labels).astype(dtype)


def normal_classes(values: np.ndarray) -> np.ndarray:
    """Distinct labels, ascending; whole numbers as int64, or as uint64 where int64 is too narrow."""
    classes = np.unique(values)
    whole = classes.dtype.kind == "f" and np.all(np.abs(classes) < _LARGEST_WHOLE) and _holds(np.int64, classes)
    if whole or (classes.dtype.kind == "u" and _holds(np.int64, classes)):
        return classes.astype(np.int64)
    return classes


def listed_classes(labels: list[Any]) -> np.ndarray:
    """Classes that a document lists (`tolist`), as they were: whole numbers stay whole, where NumPy makes float64."""
    if labels and all(type(label) is int for label in labels):
        return np.array(labels, np.int64 if max(labels) < 2**63 else np.uint64)
    return np.array(labels)


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
        found = fresh if found is None else np.union1d(*alike(found, fresh))
        if found.dtype.kind == "U":
            check_texts(len(found), found.itemsize // 4, "")
        elif len(found) > MAX_CLASSES:
            if task == "auto" and found.dtype.kind in "iuf":
                return None
            raise DataError(f"more than {MAX_CLASSES} classes", hint="is this a regression target?")
    return normal_classes(np.zeros(0) if found is None else found)


def check_weights(weights: np.ndarray, where: str, first_row: int = 0, rows: np.ndarray | None = None) -> np.ndarray:
    """Weights as float64, of rows from `first_row` on, or of `rows`.

    Raises DataError naming the row of a negative, NaN or infinite one.
    """
    if weights.dtype.kind not in "biuf":
        raise DataError(f"weights of type {weights.dtype} are not numbers", where)
    numbers = np.ascontiguousarray(weights, np.float64)
    if len(numbers) and not (numbers.min() >= 0.0 and numbers.max() < np.inf):
        place = int(np.flatnonzero(~((numbers >= 0.0) & (numbers < np.inf)))[0])
        row = first_row + place if rows is None else rows[place]
        raise DataError(f"weight of row {row} is {numbers[place]}", where, "weights are finite and >= 0")
    return numbers
