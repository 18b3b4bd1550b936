"""Arrow's columns as NumPy's arrays: one as it lies, and many of them as dense rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from bigsvm.errors import DataError
from bigsvm.store.checks import as_values

_TOGETHER_BYTES = 1 << 18  # of columns that are put side by side before they are turned: they stay in a core's cache
_SQUARE = (1024, 32)  # rows and columns turned at a time: half a line of the cache of float32, some four times as fast


def numbers_of(column: pa.Array) -> np.ndarray:
    """A column of numbers or truth values without nulls as NumPy, read-only, a copy of truth values alone.

    Not by pyarrow's `to_numpy`, which imports pandas where that is installed: a third of a second and some 40 MiB,
    in the middle of a fit whose budget does not know of them.
    """
    if pa.types.is_boolean(column.type):
        return np.from_dlpack(column.cast(pa.uint8())).view(bool)
    return np.from_dlpack(column)


def refuse_nulls(column: pa.Array, where: str, first_row: int, per_row: int | None = 1) -> None:
    """Raise DataError naming the first row without a value; `per_row` values make a row."""
    if column.null_count:
        row = int(np.flatnonzero(numbers_of(column.is_null()))[0]) // (per_row or 1)
        raise DataError(f"row {first_row + row} holds a null", where, "repair or drop the row")


def fill_rows(batch: pa.RecordBatch, names: Sequence[str], out: np.ndarray, where: str, first_row: int) -> None:
    """Write columns of numbers of a batch, by their names, into dense rows.

    out : shape (batch.num_rows, len(names)), C order, in the dtype wanted

    Raises DataError naming column and row of a null, and of a number that would come out as another.
    """
    places = [batch.schema.get_field_index(name) for name in names]
    together = max(_TOGETHER_BYTES // max(out.shape[0] * out.itemsize, 1), _SQUARE[1])
    for first in range(0, len(names), together):
        some = [batch.column(place) for place in places[first : first + together]]
        values = _side_by_side(some, names[first : first + together], out.dtype, where, first_row)
        for row in range(0, out.shape[0], _SQUARE[0]):
            rows = slice(row, row + _SQUARE[0])
            for j in range(0, len(some), _SQUARE[1]):
                turned = values[j : j + _SQUARE[1], rows]
                out[rows, first + j : first + j + len(turned)] = turned.T


def _side_by_side(
    columns: list[pa.Array], names: Sequence[str], dtype: np.dtype, where: str, first_row: int
) -> np.ndarray:
    """Columns as one array, shape (n_columns, n_rows)."""
    kind, alike = columns[0].type, all(column.type.equals(columns[0].type) for column in columns)
    if alike and not pa.types.is_boolean(kind) and np.dtype(kind.to_pandas_dtype()) == dtype:
        joined = pa.concat_arrays(columns)  # as most tables are: one call, where each column would take three
        if not joined.null_count:
            return numbers_of(joined).reshape(len(columns), -1)
    values = np.empty((len(columns), len(columns[0])), dtype)
    for to, column, name in zip(values, columns, names, strict=True):
        here = f"{where}, column {name!r}"
        refuse_nulls(column, here, first_row)
        to[:] = as_values(numbers_of(column), dtype, here, first_row)
    return values
