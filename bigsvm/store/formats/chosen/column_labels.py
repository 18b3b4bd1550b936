"""Labels and weights from columns of files, and which rows have a label."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from bigsvm.errors import DataError
from bigsvm.store.blocks import StoreBase
from bigsvm.store.formats.parquet_columns import Layout, distinct_of, is_text, plain_of
from bigsvm.store.formats.tables.arrow_values import decoded, dtype_of, numbers_of, without_views
from bigsvm.store.labels import (
    Missing,
    Task,
    as_labels,
    as_targets,
    bits_between,
    check_weights,
    label_codes,
    packed_from,
    scan_classes,
)
from bigsvm.store.transforms.expression import Column
from bigsvm.units import columns_there

_TEXT_TOGETHER = 1 << 20  # bytes of labels that are coded at a time


class ColumnLabels(StoreBase):
    """The common base of rows whose labels and weights are columns of the same files (`ParquetRows`).

    With missing="drop" rows without a label have an arbitrary label, `labelled_rows` tells which rows these are, and
    weights are returned unchecked; `KeptRows` checks those that count.
    """

    uri: str
    n_samples: int
    _files: Any
    """ParquetFiles, or a reader of another format with the same methods."""
    _layout: Layout
    _task: Task
    _missing: Missing
    _bits: np.ndarray | None = None
    _counting: np.ndarray | None = None
    _types: Mapping[str, pa.DataType] = MappingProxyType({})
    """The types as which labels and weights are read, if the files have text."""

    def labels_of_only(self, rows: np.ndarray) -> Self:
        """The store restricted to labels and weights of some rows (`rows`, packed); all other rows have none.

        So only these rows decide whether labels are classes, and which classes there are.
        """
        found = copy.copy(self)
        for name in ("classes", "_number_labels"):
            vars(found).pop(name, None)
        found._missing, found._bits, found._counting = "drop", None, rows
        return found

    @functools.cached_property
    def classes(self) -> np.ndarray | None:
        """Labels in ascending order; None for a regression target.  Reads the label column once."""
        if self._layout.label is None:
            return None
        return scan_classes(self._label_pieces(), self._task)

    def labels_between(self, start: int, stop: int) -> np.ndarray:
        """The y of rows [start, stop), as in blocks, without reading X."""
        labels = LabelParts(self._y, start)
        for _, batch in self._files.batches(start, stop, [self._label_name()]):
            labels.add(batch.column(0))
        return labels.y()

    def columns_between(self, names: Sequence[str], start: int, stop: int) -> dict[str, Column]:
        """The named columns of rows [start, stop).  Raises DataError for a missing column; the hint lists others."""
        there = list(self._files.schema.names)
        for name in names:
            if there.count(name) != 1:
                raise DataError(f"no column {name!r}", self.uri, columns_there(name, there))
        parts: dict[str, list[Column]] = {name: [] for name in names}
        for first, batch in self._files.batches(start, stop, list(names)):
            for name in names:
                parts[name].append(_column_of(batch.column(name), name, self.uri, first))
        return {name: Column(*map(np.concatenate, zip(*found, strict=True))) for name, found in parts.items()}

    def labelled_rows(self) -> np.ndarray:
        """Whether each row has a label, packed.  Reads the column once."""
        if self._bits is None:
            name = self._label_name()
            bits, n_missing, absent = np.zeros(-(-self.n_samples // 8), np.uint8), 0, -1
            for first, batch in self._label_batches():
                there = self._there(batch.column(name), name, first)[0]
                bits[first // 8 : -(-(first + len(there)) // 8)] |= packed_from(there, first)
                missing = len(there) - int(there.sum())
                if missing and absent < 0:
                    absent = first + int(there.argmin())
                n_missing += missing
            if n_missing and self._missing == "refuse":
                what = f"{n_missing} of the {self.n_samples} rows have no label, row {absent} is the first"
                raise DataError(what, self.uri, "--missing drop leaves them out")
            self._bits = bits
        return self._bits

    def _there(self, column: pa.Array, name: str, first: int) -> tuple[np.ndarray, pa.Array]:
        """(which rows have a value that counts, these values) for a named column; NaN counts as missing.

        first : number of the column's first row in the store
        """
        there, values = self._counted(column, first)
        if name in self._types:
            values = values.cast(self._types[name])
        values = decoded(values)
        if not pa.types.is_floating(values.type):
            return there, values
        nan = np.isnan(numbers_of(values))
        if not nan.any():
            return there, values
        there = there.copy()
        there[there] = ~nan
        return there, values.filter(_truths(~nan))

    def _counted(self, column: pa.Array, first: int) -> tuple[np.ndarray, pa.Array]:
        """(which rows of a column have a value that counts, these values)."""
        there, column = numbers_of(column.is_valid()), without_views(column)
        if self._counting is None:
            return there, column.drop_null()
        there = there & bits_between(self._counting, first, first + len(column))
        return there, column.filter(_truths(there))

    def _y(self, column: pa.Array, first: int) -> np.ndarray:
        """Class codes or targets; first : number of the first row."""
        classes, there = self.classes, None
        if self._missing != "refuse":
            there, column = self._there(column, self._label_name(), first)
        if classes is not None and is_text(column.type):
            distinct, which = distinct_of(column, self.uri, first)
            codes = label_codes(distinct, classes)[which]
            return codes if there is None else _spread(codes, there)
        known = plain_of(column, self.uri, first)
        if there is not None and not there.all():
            # an arbitrary label, because callers ignore these rows
            known = _spread(known, there, classes[0] if classes is not None and len(classes) else 0)
        labels = as_labels(known, self.uri, first)
        return as_targets(labels, self.uri, first) if classes is None else label_codes(labels, classes)

    def _weights(self, column: pa.Array, name: str, first: int) -> np.ndarray:
        """The weights in a named column; first : number of the first row."""
        where = self._place_of(name)
        if self._missing == "refuse":
            return check_weights(plain_of(column, where, first), where, first)
        there, values = self._there(column, name, first)
        known = plain_of(values, where, first)
        if there.any() and known.dtype.kind not in "biuf":
            check_weights(known, where, rows=first + np.flatnonzero(there))
        weights = np.full(len(there), np.nan)
        weights[there] = known
        return weights

    @functools.cached_property
    def _number_labels(self) -> np.dtype | None:
        """The stored dtype of numeric labels, if every row has one; else None."""
        if self._layout.label is None or self._missing != "refuse":
            return None
        kind = self._files.schema.field(self._layout.label).type
        return None if pa.types.is_boolean(kind) else dtype_of(kind)

    def _place_of(self, name: str) -> str:
        """The name of a column, for messages."""
        return f"{self.uri}, column {name!r}"

    def _label_name(self) -> str:
        if self._layout.label is None:
            raise DataError("opened without its labels", self.uri)
        return self._layout.label

    def _label_batches(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(first row, record batch with the labels of some rows)."""
        yield from self._files.batches(0, self.n_samples, [self._label_name()])

    def _label_pieces(self) -> Iterator[np.ndarray]:
        """The labels in pieces; for text the distinct labels of each piece."""
        name = self._label_name()
        where = self._place_of(name)
        for first, batch in self._label_batches():
            column, rows = batch.column(name), None
            if self._missing != "refuse":
                there, column = self._there(column, name, first)
                rows = first + np.flatnonzero(there)
            elif column.null_count:
                self.labelled_rows()  # raises the error, with the number of rows
            if not len(column):
                continue
            if is_text(column.type):
                yield distinct_of(column, where, first)[0]
            else:
                yield as_labels(plain_of(column, where, first), self.uri, first, rows)


class LabelParts:
    """The labels of a block, collected in parts; text is coded at once, because a label may be longer than its row.

    y_of : a function of (labels, number of their first row) that returns class codes or targets
    """

    def __init__(self, y_of: Callable[[pa.Array, int], np.ndarray], start: int) -> None:
        self._y_of, self._row, self._held, self._nbytes = y_of, start, list[pa.Array](), 0
        self._coded: list[np.ndarray] = []

    def add(self, column: pa.Array) -> None:
        """Append the labels of the next rows."""
        self._held.append(column)
        if is_text(column.type):
            self._nbytes += column.nbytes
            if self._nbytes > _TEXT_TOGETHER:
                self._code()

    def y(self) -> np.ndarray:
        """The y of all parts; there must be at least one."""
        if self._held:
            self._code()
        return self._coded[0] if len(self._coded) == 1 else np.concatenate(self._coded)

    def _code(self) -> None:
        column = joined(self._held)
        self._coded.append(self._y_of(column, self._row))
        self._row, self._held, self._nbytes = self._row + len(column), [], 0


def joined(columns: list[pa.Array]) -> pa.Array:
    """Concatenate parts of a column; one call for all rows costs as much as one for a part."""
    if len(columns) == 1:
        return columns[0]
    return pa.concat_arrays([decoded(column) for column in columns])  # parts may have different dictionaries


def _spread(known: np.ndarray, there: np.ndarray, other: Any = 0) -> np.ndarray:
    """Values of the rows that have one, at their positions; `other` elsewhere."""
    values = np.full(len(there), other, known.dtype)
    values[there] = known
    return values


def _truths(values: np.ndarray) -> pa.Array:
    """Booleans as an Arrow array; `pa.array` would import pandas."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))])


def _column_of(column: pa.Array, name: str, where: str, first: int) -> Column:
    """The values as NumPy, and which are present.  Raises DataError for a type that cannot be compared."""
    there, column = numbers_of(column.is_valid()), without_views(column)
    try:
        known = plain_of(column.drop_null(), f"{where}, column {name!r}", first)
    except DataError:
        if is_text(column.type):
            raise
        what = f"column {name!r} is of type {column.type}: conditions and labels are of numbers, truth values and text"
        raise DataError(what, where, "write it as a number or as text") from None
    values = np.zeros(len(column), known.dtype)
    values[there] = known
    return Column(values, there)
