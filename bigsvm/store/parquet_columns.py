"""From Parquet columns to matrices, labels and weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from bigsvm.errors import DataError
from bigsvm.kernels.rows import CSR
from bigsvm.store.checks import value_dtype


@dataclass(frozen=True)
class Layout:
    """Which columns mean what."""

    kind: Literal["csr", "dense"]
    label: str
    weight: str | None
    features: tuple[str, ...]  # dense: one column a feature; csr: ("indices", "values")
    dtype: np.dtype  # of X as given

    @property
    def columns(self) -> list[str]:
        return [*self.features, self.label, *([self.weight] if self.weight else [])]


def find_layout(schema: pa.Schema, label: str | None, weight: str | None, where: str) -> Layout:
    """Sparse where `indices` and `values` are lists, else one feature per numeric column.

    Raises
    ------
    DataError : a column named is not there, or a feature column is not of numbers.
    """
    names = schema.names
    label = label or "label"
    for name in (label, weight):
        if name is not None and names.count(name) != 1:
            raise DataError(f"no column {name!r}", where, f"columns there: {', '.join(names[:20])}")
    if weight is None and names.count("weight") == 1:
        weight = "weight"
    if "indices" in names and "values" in names and _is_list(schema.field("indices").type):
        kinds = schema.field("indices").type, schema.field("values").type
        if not _is_list(kinds[1]) or not pa.types.is_integer(kinds[0].value_type):
            raise DataError("indices and values are not lists of integers and of numbers", where)
        return Layout(
            "csr", label, weight, ("indices", "values"), _dtype([kinds[1].value_type], ["values"], where)
        )
    features = tuple(name for name in names if name not in (label, weight))
    if not features:
        raise DataError("no feature columns", where)
    kinds_of = [schema.field(name).type for name in features]
    return Layout("dense", label, weight, features, _dtype(kinds_of, list(features), where))


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def _dtype(kinds: list[pa.DataType], names: list[str], where: str) -> np.dtype:
    """float64 where any column is, else float32."""
    dtypes = []
    for kind, name in zip(kinds, names, strict=True):
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            raise DataError(
                f"column {name!r} of type {kind} is not numeric", where, "drop it, or name it with --label"
            )
        dtypes.append(value_dtype(np.dtype(kind.to_pandas_dtype()), where))
    return np.dtype(np.float64 if np.dtype(np.float64) in dtypes else np.float32)


def csr_of(batch: pa.RecordBatch, dtype: np.dtype, where: str, first_row: int) -> CSR:
    """Rows of a batch of the sparse layout; indices int64, not yet checked against a width."""
    columns = [batch.column(name) for name in ("indices", "values")]
    parts = []
    for column in columns:
        refuse_nulls(column, where, first_row)
        # After a slice `values` would give the whole child; `flatten` gives what belongs to the rows.
        flat = column.flatten()
        offsets = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        offsets -= offsets[0]
        if flat.null_count:
            place = int(np.flatnonzero(flat.is_null().to_numpy(zero_copy_only=False))[0])
            row = int(np.searchsorted(offsets, place, "right")) - 1
            raise DataError(f"row {first_row + row} holds a null", where)
        parts.append((flat.to_numpy(zero_copy_only=False), offsets))
    (indices, indptr), (data, other) = parts
    if not np.array_equal(indptr, other):
        row = int(np.flatnonzero(np.diff(indptr) != np.diff(other))[0])
        raise DataError(
            f"row {first_row + row} has {np.diff(indptr)[row]} indices and {np.diff(other)[row]} values",
            where,
        )
    return CSR(np.asarray(data, dtype), indices, indptr)


def dense_of(
    batch: pa.RecordBatch, features: tuple[str, ...], dtype: np.dtype, where: str, first_row: int
) -> np.ndarray:
    """Rows of a batch of the one-column-a-feature layout."""
    out = np.empty((batch.num_rows, len(features)), dtype)
    for j, name in enumerate(features):
        column = batch.column(name)
        refuse_nulls(column, f"{where}, column {name!r}", first_row)
        out[:, j] = column.to_numpy(zero_copy_only=False)
    return out


def plain_of(column: pa.Array, where: str, first_row: int) -> np.ndarray:
    """A label or weight column as NumPy: numbers, or strings of fixed width."""
    refuse_nulls(column, where, first_row)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return np.array(column.to_pylist(), dtype=str)
    if not (
        pa.types.is_integer(column.type)
        or pa.types.is_floating(column.type)
        or pa.types.is_boolean(column.type)
    ):
        raise DataError(f"a column of type {column.type} can be neither label nor weight", where)
    return column.to_numpy(zero_copy_only=False)


def refuse_nulls(column: pa.Array, where: str, first_row: int) -> None:
    """Raise DataError naming the first row without a value."""
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError(f"row {first_row + row} holds a null", where, "repair or drop the row")
