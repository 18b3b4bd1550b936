"""The rows of delimited text and of Arrow files, with text columns encoded one-hot or hashed."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError, UsageError
from bigsvm.files.packed_text import listed
from bigsvm.store.blocks import CompiledCall
from bigsvm.store.checks import naming_lines
from bigsvm.store.formats.parquet_columns import Layout, as_number_type
from bigsvm.store.formats.parquet_files import find_files
from bigsvm.store.formats.parquet_rows import ParquetRows, columns_of, named_like
from bigsvm.store.formats.tables.arrow_files import ArrowFiles
from bigsvm.store.formats.tables.arrow_values import missing_at
from bigsvm.store.formats.tables.column_choice import (
    chosen_columns,
    column_of_weights,
    index_columns,
    refuse_absent,
    refuse_twice,
    told_of_index,
)
from bigsvm.store.formats.tables.delimited import TYPES, joined, kind_of_texts, read_header
from bigsvm.store.formats.tables.delimited_files import DelimitedFiles
from bigsvm.store.formats.tables.encoding import Encoding, encoding_of, too_many_categories
from bigsvm.store.formats.tables.known_files import opened_once
from bigsvm.store.formats.tables.table_names import SUFFIXES, kind_of_table, told_of_others
from bigsvm.store.frames.columns import told_of_weights
from bigsvm.store.identity import digest_of
from bigsvm.store.labels import ColumnName, Missing, Task
from bigsvm.units import columns_there, counted

_NUMBER_OTHERWISE = re.compile(
    r"""\s*[-+\u2212]?[$\u20ac\u00a3\u00a5]?\s?           # a sign, a currency
    (?:0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]+(?:[pP][-+]?\d+)?   # hexadecimal digits, or
    |(?=[.,]?\d)                                           # decimal ones, with or without separators
    (?:\d{1,3}(?:[,.'\u2019\u00a0\u202f\ ]\d{3})+|\d+(?:_\d+)*|)(?:[.,]\d*)?(?:[eE][-+]?\d+)?)
    \s?[%\u2030$\u20ac\u00a3\u00a5]?\s*\Z""",
    re.VERBOSE,
)
"""A number as other programs write it: with a decimal comma, thousands separators, hexadecimal digits, or a unit."""
_UNNAMED = (
    "the column without a name is a feature: where it numbers the rows, as pandas and R write them, leave it out with "
    "--columns '?*'"
)
_PLAIN = re.compile(r"[-+]?\d*\.?\d*\Z", re.ASCII)
_MOSTLY = 5  # values of a column for each that is no number, from which it is thought to hold numbers
_FEW_ROWS = 20  # rows up to which many different values in a column are no reason for a warning


def _few_that_are_no_numbers(values: Sequence[str]) -> str | None:
    """The values of a column, in words, that are no numbers, if these are few and all others are; else None."""
    most = len(values) // _MOSTLY
    all_others = (value for value in values if not (value.strip() and _NUMBER_OTHERWISE.match(value)))
    others = list(itertools.islice(all_others, most + 1))
    if not 0 < len(others) <= most:
        return None
    return ", ".join(map(repr, others[:3])) + (", ..." if len(others) > 3 else "")


@dataclass(frozen=True)
class EncodedLayout(Layout):
    """The layout of columns of numbers and text, with their encoding."""

    encoding: Encoding | None = None

    @property
    def sparse(self) -> bool:
        return self.encoding is not None and self.encoding.sparse


class TableRows(ParquetRows):
    """RowBlocks over .csv, .tsv (also compressed), .arrow and .feather files: a file, a folder of them, or a glob.

    columns : for files with a header, the feature columns, as names or patterns; for files without, the names of all
        columns, or `numbers`
    hash_bits : text columns share 2^hash_bits features by their hash; None: each value that occurs has its own feature
    like : how the rows of a model were made (`recipe`); these are made in the same way
    sets : labels are sets of labels as text, even if a set looks like a number, or is empty between quotes

    If all columns are numbers, rows are dense, with features in the order of the schema.  With a column of text they
    are CSR.  Arrow files may also have the layouts of Parquet.  Other parameters are as for ParquetRows.
    """

    def __init__(
        self,
        name: str,
        *,
        label: str | None = None,
        weight: str | None = None,
        task: Task = "auto",
        labelled: bool = True,
        columns: tuple[str, ...] = (),
        hash_bits: int | None = None,
        like: dict[str, Any] | None = None,
        missing: Missing = "refuse",
        apart: tuple[str, ...] = (),
        sets: bool = False,
    ) -> None:
        self.uri = os.path.realpath(name)
        self._task, self._labelled = task, labelled
        self._options = (
            label,
            weight,
            task,
            labelled,
            columns,
            hash_bits,
            like,
            missing,
            apart,
            sets,
        )
        self._apart = apart
        self._missing = missing
        kind = kind_of_table(name)
        assert kind is not None
        self.warnings: list[str] = told_of_others(name, SUFFIXES[kind])
        paths = find_files(name, SUFFIXES[kind], {"text": "delimited text", "arrow": "Arrow"}[kind])
        encoding = None if not like or "encoding" not in like else Encoding.of_document(like["encoding"])
        self._files: Any
        written: tuple[str, ...] = ()
        if kind == "text":
            if encoding is not None and not columns:
                columns = _names_without_header(paths[0], encoding, like or {})
            self._files = DelimitedFiles(paths, columns)
            if not self._files.header.written:
                written, columns = columns, ()
        else:
            self._files = ArrowFiles(paths)
        if labelled and len(apart) > 1:
            self._files.read_in_turn()
        label, weight = (_by_number(self._files.schema.names, name) for name in (label, weight))
        if sets and kind == "text":
            self._files.read_sets(label or "label")
        schema = self._files.schema
        kept = columns_of(like, schema.names, self.uri)
        if encoding is None and not kept and not columns:
            kept = named_like(like, schema.names)
        if kind == "arrow" and encoding is None:
            asked = kept or columns
            others = {label or "label", weight or "weight", *apart} - set(asked)
            if _is_nested(schema, chosen_columns(asked, schema.names, others, self.uri)):
                if hash_bits is not None:
                    raise UsageError("hash bits are for columns of text", self.uri)
                self._select_columns(schema, label, weight, labelled, apart, columns, kept)
                return
        layout = self._table_layout(schema, label, weight, kept or columns)
        if kept:
            layout = dataclasses.replace(layout, features=kept)
        if encoding is None:
            encoding = encoding_of(schema, layout.features, hash_bits, self._categories, self.uri)
        else:
            layout = self._as_before(schema, layout, encoding)
        features = tuple(column.name for column in encoding.columns)
        self._select(EncodedLayout(
            "columns", layout.label, layout.weight, features, encoding.dtype, encoding.n_features, encoding
        ))  # fmt: skip

        self.warnings += told_of_index(schema, self._layout.columns)
        self.warnings += [] if self._foreign() else told_of_weights(features, kept or columns)
        if isinstance(self._files, DelimitedFiles):
            self._files.read_in_a_loop(self._layout.columns)
            if "" in features and not like:
                self.warnings.append(_UNNAMED)
        self.recipe = {"encoding": encoding.document(), **({"columns": list(written)} if written else {})}
        self.feature_names = encoding.feature_names()
        if isinstance(self._files, DelimitedFiles):
            self._files.forget_categories()

    def __reduce__(self) -> tuple[Callable[..., TableRows], tuple[Any, ...]]:
        like = self._options[6]
        told = None if like is None else json.dumps(like, default=listed)
        return reopen, (self.uri, *self._options[:6], told, *self._options[7:], self.fingerprint)

    def __repr__(self) -> str:
        return f"TableRows({self.uri!r}, {self.n_samples} rows, {self.layout})"

    def labels_of_only(self, rows: np.ndarray) -> Self:
        """As in ParquetRows.  In text files, the types of label and weight are then those of these rows alone.

        A field of another row that is not a number does not make them text.
        """
        found = super().labels_of_only(rows)
        if not isinstance(self._files, DelimitedFiles) or self._options[9]:
            return found
        types = {}
        for name in (self._layout.label, self._layout.weight):
            if name is not None and self._files.kinds[name] == "text":
                kind = "null"
                for first, batch in self._files.batches(0, self.n_samples, [name]):
                    kind = joined(kind, kind_of_texts(found._counted(batch.column(name), first)[1]))
                    if kind == "text":
                        break
                if kind not in ("text", "null"):
                    types[name] = TYPES[kind]
        found._types = types
        return found

    @property
    def encoding(self) -> Encoding | None:
        """The encoding of the columns; None if the file has rows in a layout of Parquet."""
        return self._layout.encoding if isinstance(self._layout, EncodedLayout) else None

    @property
    def nnz(self) -> int | None:
        """Number of stored entries; for hashed columns, and Arrow files with text, it takes one pass the first time."""
        if self.encoding is None or not self.encoding.sparse:
            return super().nnz
        if self.encoding.hash_bits is None and isinstance(self._files, DelimitedFiles) and not self._foreign():
            numbers = (c.name for c in self.encoding.columns if c.kind == "number")
            categories = sum(c.kind == "category" for c in self.encoding.columns)
            return sum(self._files.nonzero(name) for name in numbers) + categories * self.n_samples
        key = "nnz " + self.encoding.digest
        if not isinstance(self._known.get(key), int):
            self._known = {**self._known, key: self.entries_of(0, self.n_samples)}
            self._remember(self._known)
        return int(self._known[key])

    @property
    def line_of(self) -> Callable[[int], tuple[str, int]] | None:
        """The file and line of a row, of several text files; None where the number of a row says as much."""
        files = self._files
        return files.line_of if isinstance(files, DelimitedFiles) and len(files.files) > 1 else None

    @naming_lines
    def refuse_known(self) -> None:
        if self.encoding is None:
            super().refuse_known()
        elif isinstance(self._files, DelimitedFiles):
            found = self._files.first_null(self._layout.features)
            if found is not None:
                raise missing_at(*found, self.uri)

    def entries_of(self, start: int, stop: int) -> int:
        if self.encoding is None or not self.encoding.sparse:
            return super().entries_of(start, stop)
        return self.encoding.count_entries(self._files.batches(start, stop, list(self._layout.features)), self.uri)

    def _foreign(self) -> bool:
        """Whether the columns are read like those of another table, as `like` says."""
        return self._options[6] is not None

    def _csr(self, batch: pa.RecordBatch, first: int) -> CSR:
        if self.encoding is None:
            return super()._csr(batch, first)
        return self.encoding.csr(batch, self.uri, first)

    def _fill(self, batch: pa.RecordBatch, first: int, out: np.ndarray) -> None:
        if self.encoding is None:
            super()._fill(batch, first, out)
        else:
            self.encoding.as_rows.fill(batch, out, self.uri, first)

    @property
    def compiled_calls(self) -> Sequence[CompiledCall]:
        """The compiled functions that `read` calls."""
        if self.encoding is None:
            return super().compiled_calls
        if self.encoding.sparse:
            return (*super().compiled_calls, *self.encoding.compiled_calls)
        of_text = self._files.compiled_calls if isinstance(self._files, DelimitedFiles) else ()
        return (*of_text, *self.encoding.compiled_calls)

    def _stored_indices(self) -> np.dtype:
        """The type of the indices in the results of `_csr`."""
        return super()._stored_indices() if self.encoding is None else np.dtype(np.int64)

    def _matrix_name(self) -> str:
        parts = [super()._matrix_name()]
        if self.encoding is not None:
            parts.append(self.encoding.digest)
        if isinstance(self._files, DelimitedFiles) and not self._files.header.written:
            parts.append(digest_of(list(self._files.header.names)))  # names that the caller gave are part of the matrix
        return " ".join(parts)

    def _table_layout(
        self, schema: pa.Schema, label: str | None, weight: str | None, columns: tuple[str, ...]
    ) -> Layout:
        """The columns of labels, weights and features, by their names; their types are checked later."""
        names = list(schema.names)
        if self._labelled:
            label = label or "label"
            refuse_twice((label, weight), names, self.uri)
            refuse_absent(label, weight, names, self.uri)
            weight, no_features = column_of_weights(weight, names, columns)
            others = {label, *no_features}
        else:
            others = {label or "label", weight or "weight"} - set(columns)
        others |= set(self._apart) | (set(index_columns(schema)) - set(columns))
        chosen = chosen_columns(columns, names, others, self.uri)
        features = tuple(name for name in names if name in chosen and name not in others)
        refuse_twice(features, names, self.uri)
        told = (label, weight) if self._labelled else (None, None)
        return Layout("columns", *told, features, np.dtype(np.float64))

    def _categories(self, name: str) -> tuple[str, ...]:
        values = self._files.categories(name)
        if values is None:
            raise too_many_categories(name, self.uri)
        if values and all(map(_NUMBER_OTHERWISE.match, values)):
            odd = next((value for value in values if not _PLAIN.match(value)), values[0])
            self.warnings.append(
                f"column {name!r} is read as text, such as {odd!r}, with {counted(len(values), 'value')}, each a "
                "feature: where these are numbers, write them with a decimal point, and without separators or units"
            )
        elif (others := _few_that_are_no_numbers(values)) is not None:
            self.warnings.append(
                f"column {name!r} is read as text because of {others}, with {counted(len(values), 'value')}, each a "
                "feature: where it holds numbers, leave such a field empty, and such rows out with --rows"
            )
        elif self._files.n_samples > _FEW_ROWS and len(values) > self._files.n_samples // 2:
            self.warnings.append(
                f"column {name!r} has {len(values)} different values in {self._files.n_samples} rows, each a feature: "
                "where it is a name or a date, leave it out with --columns"
            )
        return tuple(values)

    def _as_before(self, schema: pa.Schema, layout: Layout, encoding: Encoding) -> Layout:
        """The layout with a model's columns as features.  Raises DataError if one is missing or of another type."""
        kinds = {c.name: "float" if c.kind == "number" else "text" for c in encoding.columns}
        if isinstance(self._files, DelimitedFiles):
            self._files.read_as(kinds)
        for name, kind in kinds.items():
            if name not in schema.names:
                hint = columns_there(name, schema.names)
                raise DataError(f"no column {name!r}, which the model was trained on", self.uri, hint)
            found = self._files.schema.field(name).type
            if kind == "float" and as_number_type(found) is None:
                what = f"column {name!r} is of type {found}, but the model was trained on a column of numbers"
                raise DataError(what, self.uri)
        seen = {}
        for column in encoding.columns:
            if column.kind == "category" and column.name in schema.names:
                seen[column.name] = self._files.categories(column.name) or []
        self.warnings += encoding.unknown(seen)
        return layout


@opened_once
def reopen(
    uri: str,
    label: str | None,
    weight: str | None,
    task: Task,
    labelled: bool,
    columns: tuple[str, ...],
    hash_bits: int | None,
    like: str | None,
    missing: Missing,
    apart: tuple[str, ...],
    sets: bool,
    fingerprint: str,
) -> TableRows:
    """The store of a pickled TableRows, opened once per process.  Raises DataError if it changed."""
    recipe = None if like is None else json.loads(like)
    store = TableRows(
        uri, label=label, weight=weight, task=task, labelled=labelled, columns=columns, hash_bits=hash_bits,
        like=recipe, missing=missing, apart=apart, sets=sets,
    )  # fmt: skip
    if store.fingerprint != fingerprint:
        raise DataError("the store changed since the run began", uri)
    return store


def _names_without_header(path: str, encoding: Encoding, like: dict[str, Any]) -> tuple[str, ...]:
    """The column names that were given for a model's file without a header; () if this file has a header."""
    names = tuple(map(str, like.get("columns", ())))
    try:
        header = read_header(path, ())
    except UsageError:
        return names
    return () if {c.name for c in encoding.columns} & set(header.names) else names


def _by_number(names: list[str], name: str | None) -> str | None:
    """The name of a column that is given by its name, or by its number from 0, or from -1 at the end."""
    if name is None or name in names or isinstance(name, ColumnName):
        return name
    try:
        return names[int(name)]
    except (ValueError, IndexError):
        return name


def _is_nested(schema: pa.Schema, names: Collection[str]) -> bool:
    return any(pa.types.is_nested(field.type) for field in schema if field.name in names)
