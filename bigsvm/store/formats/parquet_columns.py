"""Conversion of Arrow columns, as Parquet and Arrow files have them, to matrices, labels and weights."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bigsvm.compiled.shared.rows import CSR
from bigsvm.compiled.tables.taken_rows import take_values
from bigsvm.errors import DataError
from bigsvm.store.blocks import CompiledCall, frozen
from bigsvm.store.checks import as_values, check_finite, value_dtype
from bigsvm.store.formats.tables.arrow_values import (
    ColumnsAsRows,
    decoded,
    dtype_of,
    numbers_of,
    refuse_nulls,
    without_views,
)
from bigsvm.store.formats.tables.column_choice import (
    chosen_columns,
    column_of_weights,
    index_columns,
    refuse_absent,
    refuse_twice,
)
from bigsvm.store.formats.tables.lists_as_rows import ListsAsRows
from bigsvm.store.labels import check_texts, fixed_width

_SPARK = ("type", "size", "indices", "values")


Form = Literal["lists", "spark", "columns", "fixed"]


@dataclass(frozen=True)
class Layout:
    """Which columns hold features, labels and weights, and in which form.

    form : 'lists': two columns of lists, `indices` and `values`;  'spark': one column of Spark ML vectors;
        'columns': one column for each feature;  'fixed': one column of lists that all have the same length
    label, weight : names of columns; None without labels, or without weights
    features : names of the columns that hold X, in the order of the features
    width : number of features if the schema determines it, else None
    """

    form: Form
    label: str | None
    weight: str | None
    features: tuple[str, ...]
    dtype: np.dtype  # of the values of X
    width: int | None = None

    @property
    def sparse(self) -> bool:
        return self.form in ("lists", "spark")

    @functools.cached_property
    def as_rows(self) -> ColumnsAsRows:
        """Converts batches of the form 'columns' to dense rows."""
        return ColumnsAsRows(self.features, self.dtype)

    @functools.cached_property
    def as_lists(self) -> ListsAsRows | None:
        """Converts batches of the forms 'lists' and 'spark' to sparse rows; None for other forms."""
        return ListsAsRows(self.features, self.dtype, self.label) if self.form in ("lists", "spark") else None

    @property
    def columns(self) -> list[str]:
        return [*self.features, *(name for name in (self.label, self.weight) if name is not None)]


def find_layout(
    schema: pa.Schema, label: str | None, weight: str | None, where: str, labelled: bool = True,
    apart: tuple[str, ...] = (), columns: tuple[str, ...] = (), in_order: bool = False,
) -> Layout:  # fmt: skip
    """The layout of the columns of a schema: the first form that fits.

    The order is: lists `indices` and `values`; one column of vectors; one column of lists of fixed length; columns of
    numbers.

    label, weight : names of columns; by default `label`, and `weight` if there is one; '' for no weights
    where : name of the store, for errors
    labelled : if False, rows are read without labels and weights, and these columns are no features
    apart : further columns that are no features
    columns : the feature columns, as names or patterns; if it is empty, all columns but those above
    in_order : the features have the order of `columns`, which are names then; else that of the schema

    Raises
    ------
    DataError : the column of labels or weights does not exist, or a feature column does not hold numbers.
    UsageError : one of `columns` does not exist.
    """
    names = schema.names
    if not labelled:
        others = ({label or "label", weight or "weight"} - set(columns)) | set(apart)
        return _of_features(_kinds_of(schema, others, columns, in_order, where), names, where)
    label = label or "label"
    refuse_twice((label, weight), names, where)
    refuse_absent(label, weight, names, where)
    weight, no_features = column_of_weights(weight, names, columns)
    kinds = _kinds_of(schema, {label, *apart} | no_features, columns, in_order, where)
    layout = _of_features(kinds, names, where)
    return dataclasses.replace(layout, label=label, weight=weight)


def _kinds_of(
    schema: pa.Schema, others: set[str], columns: tuple[str, ...], in_order: bool, where: str
) -> dict[str, pa.DataType]:
    """Name -> type of the columns that may be features.  others : names of columns that are not"""
    others = others | (set(index_columns(schema)) - set(columns))
    chosen = chosen_columns(columns, schema.names, others, where)
    fields = enumerate(schema.names)
    found = {name: schema.field(i).type for i, name in fields if name in chosen and name not in others}
    return {name: found[name] for name in columns if name in found} if in_order else found


def _of_features(kinds: dict[str, pa.DataType], names: list[str], where: str) -> Layout:
    """The layout of feature columns, without label and weight.

    kinds : name -> type of the feature columns;  names : of all columns
    """
    if "indices" in kinds and "values" in kinds and _is_list(kinds["indices"]):
        if not _is_list(kinds["values"]) or not pa.types.is_integer(kinds["indices"].value_type):
            raise DataError("indices and values are not lists of integers and of numbers", where)
        dtype = _dtype({"values": kinds["values"].value_type}, where)
        return Layout("lists", None, None, ("indices", "values"), dtype)
    vectors = [name for name, kind in kinds.items() if _is_vector(kind)]
    if vectors:
        name = _the_vector(vectors, where)
        dtype = _dtype({name: kinds[name].field("values").type.value_type}, where)
        return Layout("spark", None, None, (name,), dtype)
    for name, kind in kinds.items():
        if pa.types.is_fixed_size_list(kind) and len(kinds) == 1:
            dtype = _dtype({name: kind.value_type}, where)
            return Layout("fixed", None, None, (name,), dtype, kind.list_size)
    refuse_twice(kinds, names, where)
    if not kinds:
        raise DataError("no feature columns", where)
    return Layout("columns", None, None, tuple(kinds), _dtype(kinds, where), len(kinds))


def _is_vector(kind: pa.DataType) -> bool:
    """Whether a column of this type holds Spark ML vectors."""
    return pa.types.is_struct(kind) and [field.name for field in kind] == list(_SPARK)


def _the_vector(names: list[str], where: str) -> str:
    """The column of vectors to read: the only one, or the one that is called `features`, as in Spark."""
    if len(names) == 1 or "features" in names:
        return names[0] if len(names) == 1 else "features"
    what = f"several columns of vectors: {', '.join(names[:20])}"
    raise DataError(what, where, "say which one with --columns")


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def _dtype(kinds: dict[str, pa.DataType], where: str) -> np.dtype:
    """The dtype of X: that of all columns if they agree, else float64 if any column needs it, else float32."""
    dtypes = []
    for name, kind in kinds.items():
        dtype = as_number_type(kind)
        if dtype is None:
            hint = "choose others with --columns, name it with --label, or write it as a number"
            if is_plain_text(kind) or pa.types.is_dictionary(kind):
                hint += "; or write the table as CSV or Feather, in which text columns become features"
            raise DataError(f"column {name!r} of type {kind} is not numeric", where, hint)
        dtypes.append(dtype)
    if len(set(dtypes)) == 1:
        return dtypes[0]
    return np.dtype(np.float64 if np.dtype(np.float64) in dtypes else np.float32)


def as_number_type(kind: pa.DataType) -> np.dtype | None:
    """The dtype of X for a column of numbers of this type (`value_dtype`); None if it does not hold numbers."""
    dtype = dtype_of(kind)
    return None if dtype is None else value_dtype(dtype, "")


def came_as(schema: pa.Schema, layout: Layout) -> str:
    """The types of the columns that determine the dtype of the layout, such as 'float64', joined by 'and'."""
    kinds = [schema.field(name).type for name in layout.features]
    if layout.form == "spark":
        kinds = [kinds[0].field("values").type]
    kinds = [kind.value_type if _is_list(kind) or pa.types.is_fixed_size_list(kind) else kind for kind in kinds]
    if layout.form == "lists":
        kinds = kinds[1:]
    stored = [dtype for dtype in map(dtype_of, kinds) if dtype is not None]
    names = [dtype.name for dtype in stored if value_dtype(dtype, "") == layout.dtype]
    return " and ".join(dict.fromkeys(names))


def csr_of(batch: pa.RecordBatch, layout: Layout, where: str, first_row: int, width: int) -> CSR:
    """The rows of a batch in a sparse form.  Indices are as stored, and not yet checked.

    where, first_row : name of the store, and number of the batch's first row, for errors
    width : number of features of the data, with which the sizes of vectors are compared
    """
    if layout.form == "lists":
        return _csr_of_lists(batch, layout.dtype, where, first_row)
    X, size = _csr_of_vectors(batch.column(layout.features[0]), layout.dtype, where, first_row)
    check_size(size, width, where, first_row)
    return X


def fill_dense(batch: pa.RecordBatch, layout: Layout, where: str, first_row: int, out: np.ndarray) -> None:
    """Write the rows of a batch in a dense form to `out`, shape (n_rows, width).

    Raises DataError naming the row of a null, or of a value that is not finite.
    """
    if layout.form == "columns":
        layout.as_rows.fill(batch, out, where, first_row)
        return
    column = batch.column(layout.features[0])
    refuse_nulls(column, where, first_row)
    # Not `flatten`, which uses Arrow's compute module.  For a slice, `values` are those of the whole column.
    width = column.type.list_size
    flat = column.values.slice(column.offset * width, len(column) * width)
    refuse_nulls(flat, where, first_row, width)
    values = numbers_of(flat)
    if values.dtype != layout.dtype:
        values = as_values(values.reshape(out.shape), layout.dtype, where, first_row).reshape(-1)
    if not take_values(frozen(values), out.reshape(-1)):
        check_finite(out, where, first_row)


def dense_calls(layout: Layout) -> tuple[CompiledCall, ...]:
    """The compiled functions that `fill_dense` calls."""
    if layout.form == "columns":
        return layout.as_rows.compiled_calls
    one = np.zeros(1, layout.dtype)
    return (CompiledCall(("lists as rows", layout.dtype.name), lambda: take_values(frozen(one), np.empty_like(one))),)


def stored_indices(schema: pa.Schema, layout: Layout) -> np.dtype:
    """The type of the indices in the results of `csr_of`: int32, or int64 for all other types."""
    kind = schema.field(layout.features[0]).type
    if layout.form == "spark":
        kind = kind.field("indices").type
    return np.dtype(np.int32 if kind.value_type == pa.int32() else np.int64)


def measure(batch: pa.RecordBatch, layout: Layout, where: str, first_row: int) -> tuple[int, int]:
    """(number of features that a batch in a sparse form needs, number of its entries).

    For the form 'lists' a batch with the column `indices` alone is enough.

    Raises DataError for an index that is negative, or too large for 64 bits.
    """
    if layout.form == "spark":
        X, width = _csr_of_vectors(batch.column(layout.features[0]), layout.dtype, where, first_row)
        indices, width_told = X.indices, width
    else:
        indices = numbers_of(batch.column("indices").flatten().drop_null())
        width_told = 0
    if len(indices) == 0:
        return width_told, 0
    largest = np.iinfo(np.int64).max - 1  # so that the number of features, one more, fits int64
    if int(indices.min()) < 0 or int(indices.max()) > largest:
        indices, indptr = (X.indices, X.indptr) if layout.form == "spark" else _flat(batch.column(0), where, first_row)
        place = int(np.argmax((indices < 0) | (indices > largest)))
        row = first_row + int(np.searchsorted(indptr, place, "right")) - 1
        hint = "indices begin with 0" if indices[place] < 0 else f"the largest that there may be is {largest}"
        raise DataError(f"row {row} has index {indices[place]}", where, hint)
    return max(width_told, int(indices.max()) + 1), len(indices)


def _csr_of_lists(batch: pa.RecordBatch, dtype: np.dtype, where: str, first_row: int) -> CSR:
    indices, indptr = _flat(batch.column("indices"), where, first_row)
    data, other = _flat(batch.column("values"), where, first_row)
    if not np.array_equal(indptr, other):
        _refuse_lengths(np.diff(indptr), np.diff(other), where, first_row)
    return CSR(as_values(data, dtype, where, first_row, indptr), indices, indptr)


def _csr_of_vectors(column: pa.StructArray, dtype: np.dtype, where: str, first_row: int) -> tuple[CSR, int]:
    """(rows, size of the vectors) of a column of Spark ML vectors.

    A vector of type 0 is sparse and has a size, indices and values; one of type 1 is dense and has values only.  The
    size is 0 if there are no rows.
    """
    refuse_nulls(column, where, first_row)
    # `flatten`, not `field`, whose result after a slice would be that of the whole column.
    kinds, told, indices, values = column.flatten()
    refuse_nulls(kinds, where, first_row)
    sparse = numbers_of(kinds) == 0
    unknown = np.flatnonzero(~sparse & (numbers_of(kinds) != 1))
    if len(unknown):
        row = int(unknown[0])
        raise DataError(f"the vector of row {first_row + row} has type {kinds[row]}", where, "0 is sparse, 1 is dense")
    data, indptr = _flat(values, where, first_row)
    lengths, all_sparse = np.diff(indptr), bool(sparse.all())
    if all_sparse and told.null_count == 0:  # the usual case
        stored, own = _flat(indices, where, first_row)
        sizes = numbers_of(told)
    else:
        of_kind_0 = pc.invert(kinds.cast(pa.bool_()))
        stored, own = _flat(indices.filter(of_kind_0), where, first_row)
        sizes = np.where(sparse, -1, lengths)
        there = sparse & numbers_of(told.is_valid())
        sizes[there] = numbers_of(told.filter(pc.and_(of_kind_0, told.is_valid())))
    if not (all_sparse and np.array_equal(own, indptr)):
        _refuse_lengths(np.diff(own), lengths[sparse], where, first_row)
    _check_sizes(sizes, where, first_row)
    if all_sparse and len(sizes) and (len(stored) == 0 or stored.max() < sizes[0]):
        return CSR(as_values(data, dtype, where, first_row, indptr), stored, indptr), int(sizes[0])
    places = np.arange(len(data)) - np.repeat(indptr[:-1], lengths)
    entries = np.repeat(sparse, lengths)
    places[entries] = stored
    beyond = np.flatnonzero(places >= np.repeat(sizes, lengths))
    if len(beyond):
        row = int(np.searchsorted(indptr, beyond[0], "right")) - 1
        raise DataError(
            f"row {first_row + row} has index {places[beyond[0]]} in a vector of size {sizes[row]}", where,
            "write the vectors again with their full size",
        )  # fmt: skip
    if len(sizes) and sizes[0] <= np.iinfo(np.int32).max and stored.dtype == np.int32:
        places = places.astype(np.int32)  # the type that indices of sparse vectors have
    return CSR(as_values(data, dtype, where, first_row, indptr), places, indptr), int(sizes[0]) if len(sizes) else 0


def check_size(size: int, width: int, where: str, first_row: int) -> None:
    """Raise DataError unless vectors have the same size as those before them.

    size : of the vectors from `first_row` on;  width : of those before
    """
    if size != width:
        what = f"the vector of row {first_row} has size {size}, and those before it {width}"
        raise DataError(what, where, "vectors of one column have one size")


def _check_sizes(sizes: np.ndarray, where: str, first_row: int) -> None:
    """Raise DataError naming the first vector that has no size, or another size than the first vector."""
    odd = np.flatnonzero(sizes != sizes[:1]) if len(sizes) and sizes[0] >= 0 else np.flatnonzero(sizes < 0)
    if len(odd):
        row = int(odd[0])
        what = f"has size {sizes[row]} and row {first_row} has size {sizes[0]}" if sizes[row] >= 0 else "has no size"
        raise DataError(f"the vector of row {first_row + row} {what}", where, "vectors of one column have one size")


def _flat(column: pa.Array, where: str, first_row: int) -> tuple[np.ndarray, np.ndarray]:
    """(values, offsets that begin with 0) of a column of lists.  Raises DataError naming the row of a null."""
    refuse_nulls(column, where, first_row)
    offsets = numbers_of(column.offsets).astype(np.int64)
    # `values` are those of the whole column, also after a slice.  `flatten` would use Arrow's compute module.
    flat = column.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    offsets -= offsets[0]
    if flat.null_count:
        place = int(np.flatnonzero(numbers_of(flat.is_null()))[0])
        row = int(np.searchsorted(offsets, place, "right")) - 1
        raise DataError(f"row {first_row + row} holds a null", where)
    return numbers_of(flat), offsets


def _refuse_lengths(indices: np.ndarray, values: np.ndarray, where: str, first_row: int) -> None:
    """Raise DataError naming the first row whose two lists differ in length, if there is one.

    indices, values : lengths of the lists
    """
    odd = np.flatnonzero(indices != values)
    if len(odd):
        row = int(odd[0])
        raise DataError(f"row {first_row + row} has {indices[row]} indices and {values[row]} values", where)


def plain_of(column: pa.Array, where: str, first_row: int) -> np.ndarray:
    """A column of labels or weights as a NumPy array of numbers, or of strings of fixed width.

    Raises DataError naming the row of a null, or for a column of another type.
    """
    refuse_nulls(column, where, first_row)
    column = decoded(column)
    if is_plain_text(column.type):
        return fixed_width(column.to_pylist(), where)
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type)):
        raise DataError(f"a column of type {column.type} can be neither label nor weight", where)
    return numbers_of(column)


def distinct_of(column: pa.Array, where: str, first_row: int) -> tuple[np.ndarray, np.ndarray]:
    """(distinct strings of a column of text, place of each row's string among them), as `distinct_texts`."""
    refuse_nulls(column, where, first_row)
    column = without_views(decoded(column))  # a dictionary may have strings that do not occur, and one string twice
    coded = column.dictionary_encode()
    longest = pc.max(pc.utf8_length(coded.dictionary)).as_py() or 0
    check_texts(len(coded.dictionary), longest, where)
    return fixed_width(coded.dictionary.to_pylist(), where), numbers_of(coded.indices)


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds strings, or a dictionary of strings."""
    return is_plain_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def is_plain_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds strings; polars writes string views to Arrow files."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
