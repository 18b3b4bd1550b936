"""What a caller gave as a plain array: no mask, and of a frame the numbers of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from bigsvm.errors import DataError
from bigsvm.store.checks import LARGEST_WHOLE
from bigsvm.store.frames.columns import (
    check_whole_column,
    check_whole_columns,
    column_of,
    is_arrow,
    is_frame,
    labels_of_columns,
)

_NUMBERS = "biuf"
_TIMES = ("date", "time", "timestamp", "duration", "month_day")
"""How the names begin of pyarrow's types of times, which NumPy may take for numbers."""
_PACKED = ("dictionary", "run_end_encoded")
"""The same of its types whose values are not written out."""
_DROP = "drop the column, or make numbers of it"
_TEXT = "drop the column, or write the frame to a Feather file, in which text and categories become features"


def plain_rows(X: Any, where: str, first_row: int = 0) -> np.ndarray:
    """Rows as a plain array; of a frame whose columns are numbers of several types, an array of one type.

    Python objects become float64 if all are numbers or missing.  Text is no number, whatever the type of the array.

    Raises DataError naming the first row with a masked value or with an object that is no number, or the first column
    of a frame that has no numbers.
    """
    refuse_unread(X)
    if is_frame(X) and hasattr(X, "compute"):  # of dask
        X = X.compute()
    if is_arrow(X) or (is_frame(X) and hasattr(X, "iloc") and not _is_plain(X)):
        return _numbers(X, where)
    for name, kind in zip(X.columns, X.dtypes, strict=True) if is_frame(X) else ():
        if getattr(kind, "is_temporal", bool)():  # of polars, whose dates NumPy takes for numbers of days
            raise DataError(f"values of type {kind} are not numbers", f"{where}, column {name!r}", _DROP)
    found = unmasked(X, where, first_row)
    if found.dtype == object and is_frame(X):
        return _numbers(X, where)
    return _of_objects(found, where, first_row) if found.dtype == object and found.ndim == 2 else found


def _of_objects(values: np.ndarray, where: str, first_row: int) -> np.ndarray:
    """An array of Python objects as numbers, float64, (n, d); missing values are NaN.  Raises DataError."""
    out = np.empty(values.shape)
    for row, objects in enumerate(values):
        out[row] = [_number(value, first_row + row, f"{where}, column {k}", _DROP) for k, value in enumerate(objects)]
    return out


def unmasked(values: Any, where: str, first_row: int = 0) -> np.ndarray:
    """`values` as a plain array; of Python objects where an array of text would change them (`changed_in_text`).

    Raises DataError naming the first row with a masked value.
    """
    if not isinstance(values, np.ma.MaskedArray):
        if changed_in_text(values) is not None:
            return np.array(values, dtype=object)
        found = np.asarray(values)
        if is_frame(values) and found.dtype == np.float64:
            check_whole_columns(values)
        return found
    mask = np.atleast_1d(np.ma.getmaskarray(values))
    if mask.any():
        row = first_row + int(np.flatnonzero(mask.reshape(len(mask), -1).any(axis=1))[0])
        raise DataError(f"row {row} is masked: it has no value", where, "fill it in, or drop the row")
    return np.asarray(values.data)


def changed_in_text(values: Any) -> int | None:
    """The place of the first value of a list of text that NumPy would change in an array of it; None if there is none.

    It would make text of what is no text: of NaN, which means that there is no value, `nan`.  And it would leave out a
    NUL at the end of a text.
    """
    if not isinstance(values, Sequence) or not any(isinstance(value, str) for value in values):
        return None
    return next((k for k, value in enumerate(values) if not isinstance(value, str) or value.endswith("\0")), None)


def refuse_unread(X: Any) -> None:
    """Raise DataError for a query of polars, whose rows nobody has read yet."""
    if hasattr(X, "collect_schema") and not hasattr(X, "shape"):
        raise DataError(f"X is a {type(X).__name__}, whose rows are not read yet", hint="give X.collect()")


def refuse_times(X: Any) -> None:
    """Raise DataError for times in an array or a frame of pandas or polars, which scikit-learn takes for numbers."""
    kinds = zip(labels_of_columns(X), X.dtypes, strict=True) if is_frame(X) else [(None, getattr(X, "dtype", None))]
    for name, kind in kinds:
        if getattr(kind, "kind", "") in tuple("mM") or getattr(kind, "is_temporal", bool)():
            where = "X" if name is None else f"X, column {str(name)!r}"
            raise DataError(f"values of type {kind} are not numbers", where, _DROP)


def _is_plain(frame: Any) -> bool:
    """Whether NumPy makes one array of numbers of a pandas frame: it makes Python objects of bool beside numbers."""
    kinds = {kind.kind if isinstance(kind, np.dtype) else "" for kind in frame.dtypes}
    return kinds <= set("iuf") or kinds == {"b"}


def _numbers(frame: Any, where: str) -> np.ndarray:
    """The numbers of a frame, column by column: NumPy would make Python objects of all of it first.

    The result has the type that holds the types of all columns, as in NumPy; missing values are NaN.
    """
    check_whole_columns(frame)
    names = labels_of_columns(frame)
    out, n_columns = np.empty((len(frame) if is_arrow(frame) else 0, len(names)), np.uint8), len(names)
    for place, name in enumerate(names):
        read = _arrow_column if is_arrow(frame) else _column
        column = read(column_of(frame, place), f"{where}, column {str(name)!r}")
        if place == 0:
            out = np.empty((len(column), n_columns), column.dtype)
        else:
            kind = np.result_type(out.dtype, column.dtype)
            if kind != out.dtype:
                former, out = out, np.empty(out.shape, kind)
                out[:, :place] = former[:, :place]  # what the others hold, nobody has written
        out[:, place] = column
    return out


def _unpacked(column: Any) -> Any:
    """An array of pyarrow with each value written out."""
    if hasattr(column, "dictionary_decode"):
        return column.dictionary_decode()
    from pyarrow.compute import run_end_decode

    return run_end_decode(column)


def named_numbers(X: Any) -> Any:
    """A table of pyarrow, which may be a record batch, as scikit-learn reads it right: it finds no names in a batch.

    Raises DataError naming a column of times or bytes, which it would take for numbers, or of numbers that float64
    rounds.
    """
    from pyarrow import array, table

    columns = [X.column(place) for place in range(X.num_columns)]
    for place, column in enumerate(columns):
        kind = str(column.type)
        if kind.startswith(("decimal", *_PACKED, *_TIMES)) or "binary" in kind:
            columns[place] = array(_arrow_column(column, f"X, column {X.column_names[place]!r}"))
    return table(columns, names=X.column_names)


def _arrow_column(column: Any, where: str) -> np.ndarray:
    """A column of a table of pyarrow as numbers, (n,).  Raises DataError if it has no numbers."""
    if hasattr(column, "combine_chunks"):
        column = column.combine_chunks()
    if str(column.type).startswith(_PACKED):
        column = _unpacked(column)
        check_whole_column(column, where)
    kind = str(column.type)
    if kind.startswith(("decimal", "null")):
        return np.array([_number(value, row, where) for row, value in enumerate(column.to_pylist())], np.float64)
    values = column.to_numpy(zero_copy_only=False)
    if kind == "bool" and column.null_count:
        values = np.array([np.nan if value is None else float(value) for value in values])
    if values.dtype.kind not in _NUMBERS or kind.startswith(_TIMES):
        raise DataError(f"values of type {kind} are not numbers", where, _TEXT if "string" in kind else _DROP)
    return values


def _column(column: Any, where: str) -> np.ndarray:
    """A column of a frame as numbers, (n,).  Raises DataError if it has no numbers."""
    kind = column.dtype
    if getattr(kind, "kind", "") in tuple(_NUMBERS) and hasattr(kind, "numpy_dtype"):  # of pandas, which knows missing
        missing = bool(column.isna().any())
        plain = np.dtype(kind.numpy_dtype)
        plain = np.result_type(plain, np.float32 if plain.itemsize < 4 else np.float64) if missing else plain
        return column.to_numpy(plain, na_value=np.nan) if missing else column.to_numpy(plain)
    values = np.asarray(column)
    if values.dtype.kind in _NUMBERS:
        return values
    if str(kind) == "object" or str(kind).startswith("decimal"):
        return np.array([_number(value, row, where) for row, value in enumerate(values)], np.float64)
    hint = _TEXT if values.dtype.kind in "OUT" else _DROP
    raise DataError(f"values of type {kind} are not numbers", where, hint)


def _number(value: Any, row: int, where: str, of_text: str = _TEXT) -> float:
    """A Python object as a number; a missing value is NaN.  of_text : a remedy for text.  Raises DataError."""
    if isinstance(value, Real | Decimal | np.bool_):
        if isinstance(value, Decimal) and value.is_snan():
            return float("nan")
        try:
            number = float(value)
        except OverflowError:  # of whole numbers and fractions; their digits may be too many to be written
            what = f"row {row} holds a number beyond the range of float64"
            raise DataError(what, where, "scale the column") from None
        if abs(number) >= LARGEST_WHOLE and value != number:
            what = f"row {row} holds {value}, beyond 2^53, where float64 rounds"
            raise DataError(what, where, "scale the column")
        return number
    if value is None or str(value) == "<NA>":
        return float("nan")
    hint = of_text if isinstance(value, str) else _DROP
    raise DataError(f"row {row} holds {value!r} of type {type(value).__name__}, which is not a number", where, hint)
