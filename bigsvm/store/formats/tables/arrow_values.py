"""Arrow columns as NumPy arrays: a single column without a copy, and many columns as dense rows."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from bigsvm.compiled.tables.arrow_columns import find_columns, turn_columns
from bigsvm.errors import DataError
from bigsvm.store.blocks import CompiledCall
from bigsvm.store.checks import as_values, check_finite

_TOGETHER_BYTES = 1 << 18  # bytes of columns that are converted before they are transposed; they stay in a core's cache

_ArrowArray = ctypes.c_uint64 * 10
"""Room for a `struct ArrowArray`: https://arrow.apache.org/docs/format/CDataInterface.html"""


def numbers_of(column: pa.Array) -> np.ndarray:
    """A column of numbers or truth values without nulls as a read-only NumPy array; only truth values are copied.

    pyarrow's `to_numpy` is not used, because it imports pandas if that is installed.  This would take a third of a
    second and some 40 MiB in the middle of a fit, whose budget does not include them.
    """
    if pa.types.is_boolean(column.type):
        return np.from_dlpack(column.cast(pa.uint8())).view(bool)
    return np.from_dlpack(column)


def column_of(values: np.ndarray) -> pa.Array:
    """An array as a column.  pyarrow itself cuts text in NumPy's fixed width off at the first NUL, without a word."""
    return pa.array(values.tolist() if values.dtype.kind == "U" else values)


def dtype_of(kind: pa.DataType) -> np.dtype | None:
    """The NumPy dtype of a column of numbers or truth values; None for a column of anything else.

    pyarrow's `to_pandas_dtype` is not used, for the same reason.
    """
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        return None
    name = str(kind)
    return np.dtype({"halffloat": "float16", "float": "float32", "double": "float64"}.get(name, name))


def decoded(column: pa.Array) -> pa.Array:
    """The column with its dictionary replaced by the values; a column without a dictionary is returned as it is.

    `dictionary_decode` alone does not work for the string views that polars writes.
    """
    if not pa.types.is_dictionary(column.type):
        return column
    if pa.types.is_string_view(column.type.value_type):
        column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(pa.large_string()))
    return column.dictionary_decode()


def without_views(column: pa.Array) -> pa.Array:
    """The column with string views as strings: Arrow cannot choose some of the views, nor leave out the nulls."""
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type without the dictionary, if that has numbers or truth values; other types are returned as they are.

    A dictionary of numbers only saves space.  It does not make categories of them; Parquet and text do not even record
    it.
    """
    if not pa.types.is_dictionary(kind):
        return kind
    value = kind.value_type
    is_number = pa.types.is_integer(value) or pa.types.is_floating(value) or pa.types.is_boolean(value)
    return value if is_number else kind


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with `plain_type` of each column."""
    return pa.schema([field.with_type(plain_type(field.type)) for field in schema], schema.metadata)


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the types of `plain_schema`."""
    columns = [decoded(column) if plain_type(column.type) != column.type else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=plain_schema(batch.schema))


def first_null(column: pa.Array) -> int:
    """The place of the first null of a column that has one."""
    return int(np.flatnonzero(numbers_of(column.is_null()))[0])


def refuse_nulls(column: pa.Array, where: str, first_row: int, per_row: int | None = 1) -> None:
    """Raise DataError naming the first row with a null.  per_row : number of values of the column in a row"""
    if column.null_count:
        row = first_null(column) // (per_row or 1)
        raise DataError(f"row {first_row + row} holds a null", where, "repair or drop the row")


def refuse_missing(column: pa.Array, name: str, where: str, first_row: int) -> None:
    """Raise DataError naming the first row without a value in a column of one feature.  where : name of the store"""
    if column.null_count:
        raise missing_at(first_row + first_null(column), name, where)


def missing_at(row: int, name: str, where: str) -> DataError:
    """The error of a row without a value in the column `name`, which is one feature."""
    hint = "repair or drop the row"
    if name and "`" not in name:
        hint += f"; for a file, --rows '`{name}` is not null' leaves out all such rows"
    return DataError(f"row {row} holds a null", f"{where}, column {name!r}", hint)


class ColumnsAsRows:
    """Converts columns of numbers to dense rows, for the batches of one table.

    names : of the columns, in the order of the features;  dtype : of the rows
    """

    def __init__(self, names: Sequence[str], dtype: np.dtype) -> None:
        self._names, self._dtype = names, dtype
        self._known: tuple[pa.Schema, np.ndarray, bool] | None = None

    @property
    def compiled_calls(self) -> tuple[CompiledCall, ...]:
        """The compiled functions that `fill` calls."""
        return (CompiledCall(("columns as rows", self._dtype.name), self._fill_one),)

    def fill(self, batch: pa.RecordBatch, out: np.ndarray, where: str, first_row: int) -> None:
        """Write the columns of a batch to `out` as rows.

        out : shape (batch.num_rows, number of columns), C order, of the dtype

        Raises DataError naming the column and row of a null, of a number that the conversion would change
        (`as_values`), or of one that is not finite.
        """
        places, as_they_lie = self._places(batch.schema)
        finite = _turned(batch, places, out) if as_they_lie and batch.num_rows else None
        if finite is None:
            self._fill_in_parts(batch, places, out, where, first_row)
        if not finite:
            check_finite(out, where, first_row, self._names)

    def _places(self, schema: pa.Schema) -> tuple[np.ndarray, bool]:
        """(places of the columns, whether all have the dtype); found once, as all batches of a table are alike."""
        known = self._known
        if known is None or not schema.equals(known[0]):
            places = [schema.get_field_index(name) for name in self._names]
            if min(places) < 0:
                name = self._names[places.index(-1)]
                raise DataError(f"no column {name!r}, or more than one", hint="give each column a name of its own")
            dtypes = [dtype_of(schema.field(place).type) for place in places]
            alike = all(dtype is not None and dtype == self._dtype for dtype in dtypes)
            known = schema, np.array(places, np.int64), alike
            self._known = known
        return known[1:]

    def _fill_in_parts(
        self, batch: pa.RecordBatch, places: np.ndarray, out: np.ndarray, where: str, first_row: int
    ) -> None:
        """As `fill`, for columns that have other types or nulls; whether values are finite is not checked."""
        together = max(_TOGETHER_BYTES // max(out.shape[0] * out.itemsize, 1), 1)
        for first in range(0, len(places), together):
            some = places[first : first + together]
            values = np.empty((len(some), out.shape[0]), self._dtype)
            for to, place in zip(values, some.tolist(), strict=True):
                column, name = batch.column(place), batch.schema.names[place]
                refuse_missing(column, name, where, first_row)
                to[:] = as_values(numbers_of(column), self._dtype, f"{where}, column {name!r}", first_row)
            at = values.ctypes.data + np.arange(len(some), dtype=np.uint64) * np.uint64(values.strides[0])
            turn_columns(at, first, out)

    def _fill_one(self) -> None:
        """Call what `fill` calls for columns of the dtype, with one value."""
        column = one_zero(self._dtype)
        _turned(pa.record_batch([column], ["x"]), np.zeros(1, np.int64), np.empty((1, 1), self._dtype))


def _turned(batch: pa.RecordBatch, places: np.ndarray, out: np.ndarray) -> bool | None:
    """Write columns that have the dtype of `out` to it.

    Returns whether all values are finite; None if some may be null.
    """
    addresses = np.empty(len(places), np.uint64)
    exported = export(batch)
    if not find_columns(ctypes.addressof(exported), places, out.itemsize, addresses):
        return None
    return bool(turn_columns(addresses, 0, out))


def export(batch: pa.RecordBatch) -> ctypes.Array[ctypes.c_uint64]:
    """The batch as an ArrowArray of structs, one for each row; whoever receives it must release it.

    `__arrow_c_array__` would export the schema too, which costs more than all the rest.
    """
    exported = _ArrowArray()
    batch._export_to_c(ctypes.addressof(exported))
    return exported


def one_zero(dtype: np.dtype) -> pa.Array:
    """An array with a single 0, made without `pa.array`, which imports pandas."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(dtype), 1, [None, pa.py_buffer(bytes(8))])
