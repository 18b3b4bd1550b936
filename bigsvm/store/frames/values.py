"""What a caller gave as a plain array of numbers: no mask, no Python objects where a column holds numbers."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np

from bigsvm.errors import DataError
from bigsvm.store.checks import LARGEST_WHOLE
from bigsvm.store.frames.columns import check_whole_columns, column_of, is_frame

_NUMBERS = "biuf"
_NO_NUMBERS = "drop it, or write the frame to a Parquet file, in which text and categories become features"


def unmasked(values: Any, where: str, first_row: int = 0) -> np.ndarray:
    """`values` as a plain array; a frame of several types of numbers becomes an array of numbers.

    Raises DataError naming the first row with a masked value, or the first column of a frame that has no numbers.
    """
    refuse_unread(values)
    if not isinstance(values, np.ma.MaskedArray):
        found = np.asarray(values)
        if is_frame(values):
            if found.dtype == object:
                return _numbers(values, where)
            if found.dtype == np.float64:
                check_whole_columns(values)
        return found
    mask = np.ma.getmaskarray(values)
    if mask.any():
        row = first_row + int(np.flatnonzero(mask.reshape(len(mask), -1).any(axis=1))[0])
        raise DataError(f"row {row} is masked: it has no value", where, "fill it in, or drop the row")
    return np.asarray(values.data)


def refuse_unread(X: Any) -> None:
    """Raise DataError for a query of polars, whose rows nobody has read yet."""
    if hasattr(X, "collect_schema") and not hasattr(X, "shape"):
        raise DataError(f"X is a {type(X).__name__}, whose rows are not read yet", hint="give X.collect()")


def _numbers(frame: Any, where: str) -> np.ndarray:
    """The numbers of a frame that NumPy takes for Python objects: types that may have missing values, or bool columns.

    The result has the type that holds the types of all columns, as in NumPy; missing values are NaN.
    """
    check_whole_columns(frame)
    columns = [
        _column(column_of(frame, place), f"{where}, column {name!r}") for place, name in enumerate(frame.columns)
    ]
    out = np.empty(frame.shape, np.result_type(*columns))
    for place, column in enumerate(columns):
        out[:, place] = column
    return out


def _column(column: Any, where: str) -> np.ndarray:
    """A column of a frame as numbers, (n,).  Raises DataError if it has no numbers."""
    values = np.asarray(column)
    if values.dtype.kind in _NUMBERS:
        return values
    kind = column.dtype
    if getattr(kind, "kind", "") in tuple(_NUMBERS):  # of pandas, with missing values of its own
        missing = bool(column.isna().any())
        plain = np.dtype(getattr(kind, "numpy_dtype", np.float64))
        plain = np.result_type(plain, np.float32 if plain.itemsize < 4 else np.float64) if missing else plain
        return column.to_numpy(plain, na_value=np.nan) if missing else column.to_numpy(plain)
    if values.dtype == object and all(isinstance(value, int | float | Decimal) for value in values):
        for row, value in enumerate(values):
            if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
                raise DataError(
                    f"row {row} holds {value}, beyond 2^53, where float64 rounds", where, "scale the column"
                )
        return values.astype(np.float64)
    raise DataError(f"values of type {kind} are no numbers", where, _NO_NUMBERS)
