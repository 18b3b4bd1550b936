"""Labels and weights that are columns of files, and which rows have any."""

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
from bigsvm.store.formats.tables.arrow_values import decoded, numbers_of
from bigsvm.store.labels import (
    Missing,
    Task,
    as_labels,
    as_targets,
    bits_between,
    check_weights,
    label_codes,
    scan_classes,
)
from bigsvm.store.transforms.expression import Column

_TEXT_TOGETHER = 1 << 20  # bytes of labels that are coded together


class ColumnLabels(StoreBase):
    """What rows share whose labels and weights are columns of the files that they are read from (`ParquetRows`).

    With missing="drop" rows without a label have any label, `labelled_rows` tells which these are, and weights are
    given as they lie: `KeptRows` looks at those that count.
    """

    uri: str
    n_samples: int
    _files: Any
    """ParquetFiles, or what reads files of another kind as they are read."""
    _layout: Layout
    _task: Task
    _missing: Missing
    _bits: np.ndarray | None = None
    _counting: np.ndarray | None = None
    _types: Mapping[str, pa.DataType] = MappingProxyType({})
    """What labels and weights are read as that files have as text."""

    def labels_of_only(self, rows: np.ndarray) -> Self:
        """These rows, of which some have labels and weights that count (`rows`, packed); all others have none.

        So it is they who say what the classes are, and whether there are any.
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
        """The y of rows [start, stop), as blocks have it, without reading X."""
        labels = LabelParts(self._y, start)
        for _, batch in self._files.batches(start, stop, [self._label_name()]):
            labels.add(batch.column(0))
        return labels.y()

    def columns_between(self, names: Sequence[str], start: int, stop: int) -> dict[str, Column]:
        """Columns by name, of rows [start, stop).  Raises DataError where there is none, naming those there."""
        there = list(self._files.schema.names)
        for name in names:
            if there.count(name) != 1:
                raise DataError(f"no column {name!r}", self.uri, f"columns there: {', '.join(there[:20])}")
        parts: dict[str, list[Column]] = {name: [] for name in names}
        for first, batch in self._files.batches(start, stop, list(names)):
            for name in names:
                parts[name].append(_column_of(batch.column(name), name, self.uri, first))
        return {name: Column(*map(np.concatenate, zip(*found, strict=True))) for name, found in parts.items()}

    def labelled_rows(self) -> np.ndarray:
        """Whether each row has a label, packed.  Reads the column once."""
        if self._bits is None:
            name = self._label_name()
            found = [self._there(batch.column(name), name, first)[0] for first, batch in self._label_batches()]
            there = np.concatenate([np.zeros(0, bool), *found])
            if self._missing == "refuse" and not there.all():
                what = (
                    f"{int((~there).sum())} of the {len(there)} rows have no label, row {there.argmin()} is the first"
                )
                raise DataError(what, self.uri, "--missing drop leaves them out")
            self._bits = np.packbits(there)
        return self._bits

    def _there(self, column: pa.Array, name: str, first: int) -> tuple[np.ndarray, pa.Array]:
        """(which rows of a column of a name have a value that counts, these values); a number that is NaN is none.

        first : row of the store that the first of the column is
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
        there = numbers_of(column.is_valid())
        if self._counting is None:
            return there, column.drop_null()
        there = there & bits_between(self._counting, first, first + len(column))
        return there, column.filter(_truths(there))

    def _y(self, column: pa.Array, first: int) -> np.ndarray:
        """Class codes, or targets, of labels of which the first is that of row `first`."""
        classes, there = self.classes, None
        if self._missing != "refuse":
            there, column = self._there(column, self._label_name(), first)
        if classes is not None and is_text(column.type):
            distinct, which = distinct_of(column, self.uri, first)
            codes = label_codes(distinct, classes)[which]
            return codes if there is None else _spread(codes, there)
        known = plain_of(column, self.uri, first)
        if there is not None and not there.all():
            # Some label that occurs: who leaves these rows out does not look.
            known = _spread(known, there, classes[0] if classes is not None and len(classes) else 0)
        labels = as_labels(known, self.uri, first)
        return as_targets(labels, self.uri, first) if classes is None else label_codes(labels, classes)

    def _weights(self, column: pa.Array, name: str, first: int) -> np.ndarray:
        """Weights of a column of a name, of which the first is that of row `first`."""
        if self._missing == "refuse":
            return check_weights(plain_of(column, self._place_of(name), first), self.uri, first)
        there, values = self._there(column, name, first)
        known = plain_of(values, self._place_of(name), first)
        if there.any():
            check_weights(known[:0], self.uri)  # their type, which is that of all
        weights = np.full(len(there), np.nan)
        weights[there] = known
        return weights

    @functools.cached_property
    def _number_labels(self) -> np.dtype | None:
        """The type of labels that are numbers as they are stored, each row having one; None of others."""
        if self._layout.label is None or self._missing != "refuse":
            return None
        kind = self._files.schema.field(self._layout.label).type
        return np.dtype(kind.to_pandas_dtype()) if pa.types.is_integer(kind) or pa.types.is_floating(kind) else None

    def _place_of(self, name: str) -> str:
        """A column, for messages."""
        return f"{self.uri}, column {name!r}"

    def _label_name(self) -> str:
        if self._layout.label is None:
            raise DataError("opened without its labels", self.uri)
        return self._layout.label

    def _label_batches(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(first row, a batch that has the labels of some rows)."""
        yield from self._files.batches(0, self.n_samples, [self._label_name()])

    def _label_pieces(self) -> Iterator[np.ndarray]:
        """Labels of a few rows after others; of text those that occur."""
        name = self._label_name()
        where = self._place_of(name)
        for first, batch in self._label_batches():
            column, rows = batch.column(name), None
            if self._missing != "refuse":
                there, column = self._there(column, name, first)
                rows = first + np.flatnonzero(there)
            elif column.null_count:
                self.labelled_rows()  # which says how many
            if not len(column):
                continue
            if is_text(column.type):
                yield distinct_of(column, where, first)[0]
            else:
                yield as_labels(plain_of(column, where, first), self.uri, first, rows)


class LabelParts:
    """The labels of a block that come in parts; text is coded as it comes, since labels may be longer than a row is.

    y_of : (labels, row of the first) -> class codes, or targets
    """

    def __init__(self, y_of: Callable[[pa.Array, int], np.ndarray], start: int) -> None:
        self._y_of, self._row, self._held, self._nbytes = y_of, start, list[pa.Array](), 0
        self._coded: list[np.ndarray] = []

    def add(self, column: pa.Array) -> None:
        """The labels of the next rows."""
        self._held.append(column)
        if is_text(column.type):
            self._nbytes += column.nbytes
            if self._nbytes > _TEXT_TOGETHER:
                self._code()

    def y(self) -> np.ndarray:
        """Of all parts, of which there is one at least."""
        if self._held:
            self._code()
        return self._coded[0] if len(self._coded) == 1 else np.concatenate(self._coded)

    def _code(self) -> None:
        column = joined(self._held)
        self._coded.append(self._y_of(column, self._row))
        self._row, self._held, self._nbytes = self._row + len(column), [], 0


def joined(columns: list[pa.Array]) -> pa.Array:
    """Parts of a column, one after another: what is asked of all at once costs as much as of one."""
    if len(columns) == 1:
        return columns[0]
    return pa.concat_arrays([decoded(column) for column in columns])  # each dictionary is one of its own


def _spread(known: np.ndarray, there: np.ndarray, other: Any = 0) -> np.ndarray:
    """Values of the rows that have one, in their places; elsewhere `other`."""
    values = np.full(len(there), other, known.dtype)
    values[there] = known
    return values


def _truths(values: np.ndarray) -> pa.Array:
    """Truth values as Arrow has them; `pa.array` would import pandas."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))])


def _column_of(column: pa.Array, name: str, where: str, first: int) -> Column:
    """Values as NumPy has them, and which are there.  Raises DataError for a type that nothing compares."""
    there = numbers_of(column.is_valid())
    try:
        known = plain_of(column.drop_null(), where, first)
    except DataError:
        what = f"column {name!r} is of type {column.type}: conditions and labels are of numbers, truth values and text"
        raise DataError(what, where, "write it as a number or as text") from None
    values = np.zeros(len(column), known.dtype)
    values[there] = known
    return Column(values, there)
