"""Partitions of a dask dataframe as rows; its columns are treated as those of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError, UsageError
from bigsvm.store.blocks import Matrix
from bigsvm.store.checks import as_values, check_finite
from bigsvm.store.formats.parquet_columns import as_number_type, is_text, plain_of
from bigsvm.store.formats.tables.arrow_values import plain_batch, plain_schema, plain_type
from bigsvm.store.formats.tables.column_choice import chosen_columns, column_of_weights
from bigsvm.store.formats.tables.encoding import (
    MAX_CATEGORIES,
    Encoding,
    as_texts,
    encoding_of,
    too_many_categories,
)
from bigsvm.store.frames.columns import told_of_weights
from bigsvm.store.labels import Missing
from bigsvm.units import columns_there


@dataclass(frozen=True)
class FrameOptions:
    """The options of `ingest` about columns.

    like : the recipe of the store to which the rows are appended
    """

    label: str | None
    weight: str | None
    columns: tuple[str, ...]
    hash_bits: int | None
    missing: Missing
    like: dict[str, Any] | None


@dataclass(frozen=True)
class Frame:
    """A dask dataframe with the needed columns, and their conversion to rows.

    label, weight : names of columns; None if labels or weights are given beside the frame
    """

    collection: Any
    encoding: Encoding
    label: str | None
    weight: str | None
    missing: Missing
    where: str
    warnings: Sequence[str] = ()

    def rows(
        self, part: Any, dtype: np.dtype, number: int, first_row: int
    ) -> tuple[Matrix, np.ndarray | None, np.ndarray | None]:
        """(X, labels, weights) of partition `number`, given as a pandas frame.

        Raises DataError naming the row of a null, an infinite number, or another invalid value of its column.
        """
        batch = self._batch(part, number)
        if self.missing == "drop" and self.label is not None:
            batch = batch.filter(batch.column(self.label).is_valid())
        X = self.encoding.matrix(batch, self.where, first_row)
        if isinstance(X, CSR):
            X = X._replace(data=as_values(X.data, dtype, self.where, first_row, X.indptr))
        else:
            X = as_values(X, dtype, self.where, first_row)
        check_finite(X, self.where, first_row)
        return X, self._beside(batch, self.label, first_row), self._beside(batch, self.weight, first_row)

    def _beside(self, batch: pa.RecordBatch, name: str | None, first_row: int) -> np.ndarray | None:
        """A column as labels or weights; None if no column is named."""
        return None if name is None else plain_of(batch.column(name), f"{self.where}, column {name!r}", first_row)

    def _batch(self, part: Any, number: int) -> pa.RecordBatch:
        batch = _as_batch(part, f"{self.where}, partition {number}")
        for column in self.encoding.columns:
            kind = batch.schema.field(column.name).type if column.name in batch.schema.names else None
            plain = None if kind is None else plain_type(kind)
            # Earlier versions took dictionaries of numbers as text; rows may be appended to a store made by one of
            # them.
            good = plain is not None and (
                as_number_type(plain) is not None if column.kind == "number" else is_text(plain) or plain != kind
            )
            if not good and not (
                kind is not None and pa.types.is_null(kind)
            ):  # a column of nulls is reported elsewhere, with its row
                what = f"column {column.name!r} has type {kind} in partition {number}, but {column.kind} elsewhere"
                raise DataError(what, self.where, "use astype() on the collection to make it one type")
        return plain_batch(batch)


def frame_of(collection: Any, options: FrameOptions, beside: tuple[bool, bool], where: str, parts: Any) -> Frame:
    """The feature, label and weight columns of a dask dataframe, and how they become features.

    beside : whether labels, and weights, are given beside the frame
    parts : a function from a collection to (DaskParts, number of partitions at a time)

    Raises UsageError, DataError if a column is missing, or cannot be a feature.
    """
    names = [str(name) for name in collection.columns]
    if len(set(names)) != len(names):
        raise DataError("has two columns with the same name", where, "rename one of them")
    label = None if beside[0] else options.label or "label"
    weight = None if beside[1] else options.weight
    for name in (label, weight):
        if name and name not in names:
            hint = f"{columns_there(name, names)}; name the column of labels with --label"
            raise DataError(f"no column {name!r}", where, hint)
    no_features: frozenset[str] = frozenset()
    if not beside[1]:
        weight, no_features = column_of_weights(weight, names, options.columns)
    chosen = chosen_columns(options.columns, names, (label, *no_features), where)
    if options.missing == "drop" and (label is None or any(beside)):
        raise UsageError("--missing drop needs labels in a column", where, "drop the rows beforehand")
    features = [name for name in names if name in chosen and name not in (label, *no_features)]
    schema = pa.Schema.from_pandas(_named(collection._meta), preserve_index=False)
    # A column of objects in an empty frame has no known type; it must be text.
    schema = pa.schema([f.with_type(pa.large_string()) if pa.types.is_null(f.type) else f for f in schema])
    before = None if not options.like else options.like.get("encoding")
    if before is not None:
        encoding = Encoding.of_document(before)
        features = [column.name for column in encoding.columns]
        for name in (n for n in features if n not in names):
            raise DataError(f"no column {name!r}, which the store was made with", where, columns_there(name, names))
    wanted = collection[[collection.columns[names.index(n)] for n in (*features, label, weight) if n is not None]]
    frame = Frame(wanted, Encoding.of([], None, np.dtype(np.float32)), label, weight, options.missing, where)
    if before is not None:
        return replace(frame, encoding=encoding)
    schema = _told_of_categories(schema, collection, features, where, parts)
    texts = [n for n in features if is_text(schema.field(n).type)] if options.hash_bits is None else []
    values = _values(collection, names, texts, where, parts)
    encoding = encoding_of(schema, features, options.hash_bits, lambda name: values[name], where)
    return replace(frame, encoding=encoding, warnings=told_of_weights(features, options.columns))


def _told_of_categories(schema: pa.Schema, collection: Any, features: list[str], where: str, parts: Any) -> pa.Schema:
    """The schema, with dictionaries of numbers as numbers; looks up unknown categories in the first partition."""
    columns = [column for column in collection.columns if str(column) in features]
    unknown = [column for column in columns if collection._meta.dtypes[column] == "category"
               and not collection[column].cat.known]  # fmt: skip
    if unknown:
        (first,) = parts(collection[unknown])[0].first()
        for field in _as_batch(first, f"{where}, partition 0").schema:
            if plain_type(field.type) != field.type:
                schema = schema.set(schema.get_field_index(field.name), field)
    return plain_schema(schema)


def _values(
    collection: Any, names: list[str], texts: Sequence[str], where: str, parts: Any
) -> dict[str, tuple[str, ...]]:
    """The distinct values of text columns, ascending, from one pass over these columns."""
    found: dict[str, set[str]] = {name: set() for name in texts}
    if not texts:
        return {}
    column_parts, at_most = parts(collection[[collection.columns[names.index(name)] for name in texts]])
    row = 0
    for number, (part,) in enumerate(column_parts.computed(0, at_most)):
        batch = _as_batch(part, f"{where}, partition {number}")
        for name in texts:
            column = as_texts(batch.column(name), name, where, row)
            found[name].update(pc.unique(column).to_pylist())
            if len(found[name]) > MAX_CATEGORIES:
                raise too_many_categories(name, where)
        row += batch.num_rows
    return {name: tuple(sorted(values)) for name, values in found.items()}


def _named(frame: Any) -> Any:
    return frame.set_axis([str(name) for name in frame.columns], axis=1)


def _as_batch(frame: Any, where: str) -> pa.RecordBatch:
    try:
        return pa.RecordBatch.from_pandas(_named(frame), preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        lines = str(error).splitlines()
        raise DataError(f"has values of several types: {lines[0]}", where, "use astype() to make it one type") from None
