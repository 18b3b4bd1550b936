"""Labels as classes or as targets, treated in the same way for every format."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from numbers import Real
from typing import Any, Literal, NamedTuple

import numpy as np
import xxhash

from bigsvm.errors import DataError
from bigsvm.store.checks import LARGEST_WHOLE
from bigsvm.units import MIB, shortened

Task = Literal["auto", "classification", "regression"]
Missing = Literal["refuse", "drop"]
"""What becomes of rows without a label."""
MAX_CLASSES = 10_000
"""A numeric column with more distinct values is a regression target."""
ONE_A_ROW = (
    "one a row; rows with several labels: columns of true and false, which --labels A,B names, or in Python "
    "bigsvm.fit(X, Y) of arrays in memory"
)
_CONVERT = "convert all of them to numbers, or all to text"
_WEIGHTS = "give finite numbers >= 0"
_NO_VALUE = ("NAType", "NaTType")
"""Types of what pandas has for no value, which is not imported here."""
_MOST_TEXT = 16 * MIB
"""Most bytes of the distinct labels of a piece, padded to the longest: a column of prose is refused instead of filling
the memory."""


def bits_between(packed: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Bits [start, stop), as bool, of packed bytes (most significant bit first)."""
    return np.unpackbits(packed[start // 8 : -(-stop // 8)])[start % 8 :][: stop - start].astype(bool)


def packed_from(bits: np.ndarray, start: int) -> np.ndarray:
    """Bits, bool, of rows from `start` on, packed as `bits_between` takes them; the first byte also covers rows before.

    The caller joins the results of pieces with `|=`.
    """
    return np.packbits(np.concatenate([np.zeros(start % 8, bool), bits]))


def as_labels(values: np.ndarray, where: str, first_row: int = 0, rows: np.ndarray | None = None) -> np.ndarray:
    """Labels as bool, int64, uint64 (if stored so), float64 or fixed-width strings; different labels stay different.

    first_row, rows : number of the first row, or numbers of all rows, for messages

    Raises
    ------
    DataError : missing, NaN or infinite (names the row), or neither all numbers nor all strings.
    """
    kind = values.dtype.kind

    def row_of(place: int) -> int:
        return first_row + place if rows is None else int(rows[place])

    if kind == "b":
        return values.astype(bool)
    if kind in "iu":
        return values.astype(np.uint64 if values.dtype.kind == "u" and values.itemsize == 8 else np.int64)
    if kind == "f":
        numbers = values.astype(np.float64) + 0.0  # turns -0.0 into 0.0
        bad = np.flatnonzero(~np.isfinite(numbers))
        if len(bad):
            what = f"label of row {row_of(int(bad[0]))} is {numbers[bad[0]]}"
            raise DataError(what, where, "labels must be finite")
        return numbers
    if kind == "U":
        return values.astype(str)
    if kind == "T" or (values.dtype == object and all(isinstance(v, str) for v in values)):
        return fixed_width(values.tolist(), where)
    if kind == "O":
        place = next((k for k, value in enumerate(values) if is_missing(value)), None)
        if place is not None:
            raise DataError(f"row {row_of(place)} has no label", where, "fill it in, or drop the row")
        place = next(k for k, value in enumerate(values) if not isinstance(value, str))
        what = f"labels of type object must be strings: that of row {row_of(place)} is {str(values[place])[:80]!r}"
        raise DataError(f"{what}, of type {type(values[place]).__name__}", where, _CONVERT)
    raise DataError(f"labels of type {values.dtype} are neither numbers nor strings", where, _CONVERT)


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, or what pandas has for no value."""
    return value is None or (isinstance(value, float) and value != value) or type(value).__name__ in _NO_VALUE


def fixed_width(texts: list[str], where: str) -> np.ndarray:
    """Texts as an array of fixed-width strings.

    Raises DataError for one that ends with NUL, which such an array would leave out: two texts would become one.
    """
    ended = next((text for text in texts if text.endswith("\0")), None)
    if ended is not None:
        hint = "leave it out: NumPy takes it for the end of the text"
        raise DataError(f"the text {ended[:80]!r} ends with the character NUL", where, hint)
    return np.array(texts, dtype=str)


class ColumnName(str):
    """The name of a column, which is not its number, even if it looks like one."""


class CodedLabels(NamedTuple):
    """Text labels as codes.  As fixed-width strings each row would take as much as the longest label.

    classes : strings, ascending;  of_rows : integers, shape (n,), the index of each row's label in `classes`
    """

    classes: np.ndarray
    of_rows: np.ndarray

    @property
    def n(self) -> int:
        return len(self.of_rows)


def n_labels(labels: np.ndarray | CodedLabels) -> int:
    """The number of rows."""
    return labels.n if isinstance(labels, CodedLabels) else len(labels)


def is_text(values: np.ndarray) -> bool:
    """Whether labels are strings, or objects that must turn out to be strings."""
    return values.dtype.kind in "UTO"


def distinct_texts(values: np.ndarray, where: str) -> tuple[np.ndarray, np.ndarray]:
    """(distinct labels, fixed-width strings, ascending; for each of `values` the index of its label).

    Only the distinct labels become fixed-width strings: all values would each take as much as the longest.

    values : strings, as `as_labels` takes them

    Raises DataError if they are not strings, or too many or too long to be labels.
    """
    if values.dtype == object and not all(isinstance(value, str) for value in values):
        as_labels(values, where)  # raises the error
    number: dict[str, int] = {}  # not np.unique, which has crashed for StringDType
    which = np.fromiter((number.setdefault(text, len(number)) for text in values.tolist()), np.int64, len(values))
    check_texts(len(number), max(map(len, number), default=0), where)
    distinct = fixed_width(list(number), where)
    order = np.argsort(distinct, kind="stable")
    return distinct[order], np.argsort(order)[which]


def check_texts(n: int, longest: int, where: str) -> None:
    """Raise DataError if n distinct strings, the longest of so many characters, are too many or too long for labels."""
    if n > MAX_CLASSES:
        raise DataError(f"more than {MAX_CLASSES} classes", where, "is this a label?")
    if 4 * n * longest > _MOST_TEXT:
        raise DataError(f"{n} classes, with names of up to {longest} characters", where, "is this a label?")


def as_targets(labels: np.ndarray, where: str, first_row: int = 0) -> np.ndarray:
    """Labels (`as_labels`) as targets of a regression, float64.

    Raises DataError for strings, and for a whole number that float64 would round; names the row.
    """
    if labels.dtype.kind not in "biuf":
        what = f"target {str(labels[0])!r} of row {first_row} is not a number"
        raise DataError(what, where, "make numbers of the targets, or choose a loss for classes")
    targets = labels.astype(np.float64)
    places = np.flatnonzero(_rounded(labels))
    if len(places):
        row = int(places[0])
        raise DataError(f"target {labels[row]} of row {first_row + row} is beyond 2^53, where float64 rounds", where)
    return targets


def _rounded(labels: np.ndarray) -> np.ndarray:
    """bool, shape (n,): labels that are whole numbers and that float64 would round."""
    if labels.dtype.kind not in "iu" or labels.itemsize < 8:
        return np.zeros(len(labels), bool)
    numbers = labels.astype(np.float64)
    # float(max) is rounded up to 2^63 or 2^64; converting that back would overflow.
    beyond = numbers >= float(np.iinfo(labels.dtype).max)
    return beyond | (np.where(beyond, 0.0, numbers).astype(labels.dtype) != labels)


def label_bits(labels: np.ndarray) -> np.ndarray:
    """64 bits for each label, the same for every type that the label may be stored in; uint64, shape (n,).

    For numbers they are the bits of the float64; for whole numbers that float64 cannot hold, xxh3-64 of the digits; for
    strings xxh3-64 of the UTF-8.

    labels : numbers or strings, shape (n,)
    """
    if labels.dtype.kind in "biuf":
        bits = (labels.astype(np.float64) + 0.0).view(np.uint64)  # + 0.0 turns -0.0 into 0.0
        rounded = _rounded(labels)
        if rounded.any():
            bits[rounded] = _text_bits(labels[rounded])
        return bits
    return _text_bits(labels)


def _text_bits(labels: np.ndarray) -> np.ndarray:
    """xxh3-64 of each label as text, uint64, shape (n,).

    Raises DataError for a text that has no UTF-8, such as the name of a file in another encoding.
    """
    names, which = np.unique(labels, return_inverse=True)
    try:
        return np.array([xxhash.xxh3_64_intdigest(str(name).encode()) for name in names], np.uint64)[which]
    except UnicodeEncodeError as error:
        hint = "decode it as what it is, such as os.fsencode(name).decode('latin-1')"
        raise DataError(f"label {error.object!r} is not valid Unicode", hint=hint) from error


def alike(labels: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both arrays of labels in one type that holds all of them exactly.

    NumPy would convert int64 and uint64 to float64, in which different labels may become equal.

    Raises DataError if there is no such type: strings with numbers, or whole numbers beyond 2^53 with fractions.
    """
    kinds = {labels.dtype.kind, others.dtype.kind}
    if kinds == {"U"} or labels.dtype == others.dtype:
        return labels, others
    if "U" in kinds:
        raise DataError("labels mix numbers and strings", hint="store all of them as strings")
    for kind in (np.float64, np.int64, np.uint64):
        if _holds(kind, labels) and _holds(kind, others):
            return labels.astype(kind, copy=False), others.astype(kind, copy=False)
    raise DataError("labels mix whole numbers beyond 2^53 with other numbers", hint="store them as strings")


def _holds(kind: type, labels: np.ndarray) -> bool:
    """Whether the type `kind` holds all of these numbers exactly."""
    if labels.dtype == kind or labels.dtype.kind == "b":
        return True
    if kind is np.float64:
        return not _rounded(labels).any()
    least, most = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    whole = labels.dtype.kind != "f" or bool(np.all(labels == np.rint(labels)))
    return whole and (len(labels) == 0 or (int(labels.min()) >= least and int(labels.max()) <= most))


def label_codes(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The index of each label in `classes` (ascending, with all labels), in the smallest signed integer type."""
    dtype = np.int8 if len(classes) < 128 else np.int16 if len(classes) < 32768 else np.int32
    labels, known = alike(labels, classes)
    return np.searchsorted(known, labels).astype(dtype)


def normal_classes(values: np.ndarray) -> np.ndarray:
    """Distinct labels, ascending; whole numbers as int64, or as uint64 if int64 is too narrow."""
    classes = np.unique(values)
    whole = classes.dtype.kind == "f" and np.all(np.abs(classes) < LARGEST_WHOLE) and _holds(np.int64, classes)
    if whole or (classes.dtype.kind == "u" and _holds(np.int64, classes)):
        return classes.astype(np.int64)
    return classes


def listed_classes(labels: list[Any]) -> np.ndarray:
    """Classes from a list in a JSON document, in their original type; np.array alone may turn integers into float64."""
    if labels and all(type(label) is int for label in labels):
        return np.array(labels, np.int64 if max(labels) < 2**63 else np.uint64)
    return np.array(labels)


def scan_classes(pieces: Iterable[np.ndarray], task: Task) -> np.ndarray | None:
    """The classes of a column that is given in pieces (of `as_labels`); None if it is a regression target.

    task : 'auto': numbers are classes if all are whole, and at most MAX_CLASSES are distinct
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
    """Sample weights as float64.

    weights : numbers, or Python objects all of which are numbers
    first_row, rows : number of the first row, or numbers of all rows, for messages

    Raises DataError naming the row of a negative, NaN or infinite weight, and of one that is no number.
    """
    if weights.dtype.kind in "OSU" and weights.ndim == 1:
        given = weights.tolist()
        strange = [k for k, value in enumerate(given) if not isinstance(value, Real | Decimal)]
        if strange:
            # Of texts the first that does not even read as a number: it is the one to repair.
            place = next((k for k in strange if not _reads_as_number(given[k])), strange[0])
            row = first_row + place if rows is None else rows[place]
            what = f"the weight of row {row} is {shortened(repr(given[place]))}, which is not a number"
            raise DataError(what, where, _WEIGHTS)
        weights = np.array([_float_of(value) for value in given])
    if weights.dtype.kind not in "biuf":
        raise DataError(f"weights of type {weights.dtype} are not numbers", where, _WEIGHTS)
    numbers = np.ascontiguousarray(weights, np.float64)
    if len(numbers) and not (numbers.min() >= 0.0 and numbers.max() < np.inf):
        place = int(np.flatnonzero(~((numbers >= 0.0) & (numbers < np.inf)))[0])
        row = first_row + place if rows is None else rows[place]
        raise DataError(f"weight of row {row} is {numbers[place]}", where, "weights are finite and >= 0")
    return numbers


def _reads_as_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _float_of(value: Any) -> float:
    """A number as a float; infinity where it is beyond the range of float64."""
    try:
        return float(value)
    except OverflowError:
        return float("inf")
