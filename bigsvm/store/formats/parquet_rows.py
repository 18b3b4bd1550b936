"""Rows of Parquet files: sparse lists, or one column per feature."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError
from bigsvm.store.addresses import make_refs
from bigsvm.store.blocks import Block, BlockRef, CompiledCall, RowBlocks, bounds
from bigsvm.store.checks import index_dtype, naming_lines
from bigsvm.store.formats.chosen.column_labels import ColumnLabels, LabelParts, joined
from bigsvm.store.formats.parquet_columns import (
    Layout,
    came_as,
    check_size,
    csr_of,
    dense_calls,
    fill_dense,
    find_layout,
    measure,
    plain_of,
    stored_indices,
)
from bigsvm.store.formats.parquet_files import ParquetFiles, find_files
from bigsvm.store.formats.tables.arrow_values import refuse_missing
from bigsvm.store.formats.tables.block_memory import BlockMemory, GrowingRows, growing_calls
from bigsvm.store.formats.tables.column_choice import told_of_index
from bigsvm.store.formats.tables.known_files import opened_once
from bigsvm.store.formats.tables.lists_as_rows import NO_LABELS
from bigsvm.store.formats.tables.table_names import PARQUET, told_of_others
from bigsvm.store.frames.columns import told_of_weights
from bigsvm.store.identity import Identity, digest_of
from bigsvm.store.labels import Missing, Task, as_labels, as_targets, label_codes
from bigsvm.store.remembered import recall, remember
from bigsvm.units import columns_there


class ParquetRows(ColumnLabels):
    """RowBlocks over a Parquet file, a folder of files or a glob; the files are taken in the order of their names.

    Layouts: `label`, `indices: list<int>`, `values: list<float>` (CSR); Spark ML vectors (CSR); one numeric
    column per feature beside the label (dense, in the schema's order); one fixed-size list (dense).
    A column `weight` is taken for weights; columns of `apart` are no features.  `columns` are those that are, by name
    or pattern: a model keeps which these were, and `like` it they are taken by their names.  So are columns that go by
    the names of its features, where none were chosen.
    Opened with labelled=False, for prediction, columns of labels and weights are left out, and every y is 0.
    All bytes are read once at the first opening, for the fingerprint; it is kept in the cache folder as long
    as names, sizes and times stay.

    Raises
    ------
    MissingInput : no files. DataError : damaged, or columns that cannot be used (names the file or row).
    """

    content_fingerprint: str | None = None
    _options: tuple[Any, ...]

    def __init__(
        self,
        name: str,
        *,
        label: str | None = None,
        weight: str | None = None,
        task: Task = "auto",
        labelled: bool = True,
        missing: Missing = "refuse",
        apart: tuple[str, ...] = (),
        columns: tuple[str, ...] = (),
        like: Mapping[str, Any] | None = None,
    ) -> None:
        self.uri = os.path.realpath(name)
        self.warnings: list[str] = told_of_others(name, PARQUET)
        self._files = ParquetFiles(find_files(name))
        assert self._files.schema is not None
        kept, named = columns_of(like, self._files.schema.names, self.uri), False
        if not kept and not columns:
            kept = named_like(like, self._files.schema.names)
            named = bool(kept)
        self._options = (label, weight, task, labelled, missing, apart, columns, kept, named)
        self._task, self._missing = task, missing
        if labelled and len(apart) > 1:
            self._files.read_in_turn()
        self._select_columns(self._files.schema, label, weight, labelled, apart, columns, kept, named)

    def _select_columns(
        self,
        schema: pa.Schema,
        label: str | None,
        weight: str | None,
        labelled: bool,
        apart: tuple[str, ...],
        columns: tuple[str, ...],
        kept: tuple[str, ...],
        named: bool = False,
    ) -> None:
        """Choose the feature columns: those of a model, in its order, otherwise those that were asked for.

        named : the model keeps them as the names of its features alone, and not as columns that were asked for
        """
        asked = kept or columns
        self._select(find_layout(schema, label, weight, self.uri, labelled, apart, asked, in_order=bool(kept)))
        self.warnings += told_of_index(schema, self._layout.columns)
        self.warnings += told_of_weights(self._layout.features, asked)
        if asked and not named:
            self.recipe = {"columns": list(self._layout.features)}
        if self._layout.form == "columns":
            self.feature_names = list(self._layout.features)

    def _select(self, layout: Layout) -> None:
        """Use the feature columns of a layout."""
        self._memory = BlockMemory()
        self._layout, task = layout, self._task
        self.n_samples = self._files.n_samples
        self.layout: Literal["csr", "dense"] = "csr" if self._layout.sparse else "dense"
        self.dtype = self._layout.dtype
        self.came_as = came_as(self._files.schema, self._layout)
        self.label_column, self.weight_column = layout.label or "", layout.weight or ""
        self.has_weights = self._layout.weight is not None
        self._known = self._load_known()
        self.fingerprint: str = self._known["fingerprint"]
        self._files.known.fingerprint = self.fingerprint
        self.identity = Identity.of(
            self.fingerprint,
            matrix=self._matrix_name(),
            label=self._layout.label or "",
            weight=self._layout.weight or "",
            task=task,
        )

    def _matrix_name(self) -> str:
        """A description of the columns of X, for the identity."""
        return json.dumps(self._layout.features)

    def _csr(self, batch: pa.RecordBatch, first: int) -> CSR:
        """The rows of a batch of a sparse layout; first : number of its first row."""
        return csr_of(batch, self._layout, self.uri, first, self.n_features)

    def _fill(self, batch: pa.RecordBatch, first: int, out: np.ndarray) -> None:
        """Write the rows of a batch of a dense layout, which must be finite, to `out`."""
        fill_dense(batch, self._layout, self.uri, first, out)

    @property
    def compiled_calls(self) -> Sequence[CompiledCall]:
        """The compiled functions that `read` calls."""
        if not self._layout.sparse:
            return dense_calls(self._layout)
        stored = self._stored_indices()
        calls = growing_calls(self.dtype, stored, self.index_dtype)
        if self._layout.as_lists is not None:
            calls += self._layout.as_lists.compiled_calls(stored, self.index_dtype)
        return calls

    def _stored_indices(self) -> np.dtype:
        """The dtype of the indices from `_csr`."""
        return stored_indices(self._files.schema, self._layout)

    def check_files(self, often: bool = False) -> None:
        """Raise DataError if a file has changed since the store was opened.  often : see `KnownFiles.check_all`"""
        self._files.known.check_all(often)

    def __reduce__(self) -> tuple[Callable[..., ParquetRows], tuple[Any, ...]]:
        return reopen, (self.uri, *self._options, self.fingerprint)

    def __repr__(self) -> str:
        return f"ParquetRows({self.uri!r}, {self.n_samples} rows, {self.layout})"

    @property
    def n_features(self) -> int:
        """Number of features.  Sparse: `n_features` in the schema's metadata, else one more than the largest index."""
        return int(self._scan()["n_features"]) if self._layout.width is None else self._layout.width

    @property
    def nnz(self) -> int | None:
        """Number of stored entries.  Sparse: found by reading the indices once."""
        return self.n_samples * self.n_features if self.layout == "dense" else int(self._scan()["nnz"])

    @property
    def stored_bytes(self) -> int:
        """Total bytes of the files."""
        return sum(file.size for file in self._files.files)

    @property
    def chunk_nbytes(self) -> int:
        """Decoded bytes that a reader holds in addition to the block: pages of every column (an estimate)."""
        return self._files.page_bytes

    @property
    def index_dtype(self) -> np.dtype:
        return np.dtype(np.int32) if self.layout == "dense" else index_dtype(self.n_features)

    def forget(self) -> None:
        self._files.forget()
        self._memory.forget()

    def refs(self, block_rows: int) -> Sequence[BlockRef]:
        return make_refs(cast(RowBlocks, self), block_rows)

    @naming_lines
    def read(self, ref: BlockRef) -> Block:
        start, stop = bounds(ref, self.n_samples, self.uri)
        # Before the batches, because the first reading of labels moves this thread's position in the files.
        layout, classes = self._layout, self.classes
        n_features, as_lists = self.n_features, layout.as_lists
        # A tenth more than the average row, so that most blocks fit at the first attempt.
        expected = int(1.1 * int(self._known.get("nnz", 0)) * (stop - start) / self.n_samples)
        sparse = GrowingRows(stop - start, n_features, self.dtype, index_dtype(n_features), self._memory, expected)
        is_sparse, label, weighted = layout.sparse, layout.label, layout.weight
        # For sparse rows even an empty array with n_features columns may exceed the limit of NumPy.
        dense = self._memory.array("dense", (0, 0) if is_sparse else (stop - start, n_features), self.dtype)
        labels, weights = LabelParts(self._y, start), []
        numbers = np.empty(stop - start if as_lists is not None else 0, self._number_labels or np.uint8)
        in_one_go = numbers.view(np.uint8) if self._number_labels is not None else NO_LABELS
        for first, batch in self._files.batches(start, stop, layout.columns):
            if not is_sparse:
                self._fill(batch, first, dense[first - start : first - start + batch.num_rows])
            elif as_lists is None or not as_lists.add(batch, sparse, n_features, in_one_go):
                sparse.add(self._csr(batch, first), self.uri, first)
                if len(in_one_go):
                    known = plain_of(batch.column(label), self.uri, first)
                    numbers[first - start : first - start + batch.num_rows] = known
            if label is not None and not len(in_one_go):
                labels.add(batch.column(label))
            if weighted is not None:
                weights.append(batch.column(weighted))
        X = sparse.whole() if is_sparse else dense
        if label is None:
            y = np.zeros(stop - start)
        elif len(in_one_go):
            y = as_labels(numbers, self.uri, start)
            y = as_targets(y, self.uri, start) if classes is None else label_codes(y, classes)
        else:
            y = labels.y()
        weight = self._weights(joined(weights), str(weighted), start) if weights else None
        return Block(start, stop, X, y, weight)

    def entries_of(self, start: int, stop: int) -> int:
        """Number of stored entries of rows [start, stop)."""
        if not self._layout.sparse:
            return (stop - start) * self.n_features
        columns = list(self._layout.features)
        return sum(len(self._csr(batch, first).data) for first, batch in self._files.batches(start, stop, columns))

    def refuse_known(self) -> None:
        """Raise DataError for a feature without a value, if the footers of the files tell of it."""
        names = self._layout.features if self._layout.form == "columns" else ()
        for start, stop, name in self._files.told_nulls(names):
            for first, batch in self._files.batches(start, stop, [name]):
                refuse_missing(batch.column(name), name, self.uri, first)

    def _load_known(self) -> dict[str, Any]:
        """What earlier openings of exactly these files and columns found, else only the fingerprint."""
        files = [file.known_by for file in self._files.files]
        of = digest_of({"files": files, "features": self._layout.features, "form": self._layout.form})
        self._known_name = f"parquet-{of}.json"
        known = recall(self._known_name, lambda document: document if document["of"] == of else None)
        if known is None:
            known = {"of": of, "fingerprint": self._files.fingerprint()}
            self._remember(known)
        return known

    def _remember(self, known: dict[str, Any]) -> None:
        remember(self._known_name, known)

    def _scan(self) -> dict[str, Any]:
        """n_features and nnz of the sparse layout; found in one pass over the indices, and cached."""
        if isinstance(self._known.get("n_features"), int) and isinstance(self._known.get("nnz"), int):
            return self._known
        n_features, nnz, spark = 0, 0, self._layout.form == "spark"
        for first, batch in self._files.batches(0, self.n_samples, [self._layout.features[0]]):
            width, entries = measure(batch, self._layout, self.uri, first)
            if spark and first > 0:
                check_size(width, n_features, self.uri, first)
            n_features, nnz = max(n_features, width), nnz + entries
        assert self._files.schema is not None
        told = (self._files.schema.metadata or {}).get(b"n_features", b"")
        if told.isdigit():
            if spark and int(told) != n_features:
                raise DataError(f"vectors of size {n_features}, and {int(told)} features in the schema", self.uri)
            if int(told) < n_features:
                raise DataError(f"index {n_features - 1} is beyond the {int(told)} features of the schema", self.uri)
            n_features = int(told)
        self._known = {**self._known, "n_features": n_features, "nnz": nnz}
        self._remember(self._known)
        return self._known


def columns_of(like: Mapping[str, Any] | None, names: Sequence[str], where: str) -> tuple[str, ...]:
    """The columns that a model's rows were chosen from another file by, which this one has to have; () where none were.

    Raises DataError where one is not there: no other one stands for it.
    """
    found = () if not like or "encoding" in like else tuple(map(str, like.get("columns", ())))
    for name in found:
        if name not in names:
            raise DataError(f"no column {name!r}, which the model was trained on", where, columns_there(name, names))
    return found


def named_like(like: Mapping[str, Any] | None, names: Sequence[str]) -> tuple[str, ...]:
    """The columns with the names of a model's features, if all of them exist; else ()."""
    features = tuple(map(str, (like or {}).get("features", ())))
    return features if set(features) <= set(names) else ()


@opened_once
def reopen(
    uri: str,
    label: str | None,
    weight: str | None,
    task: Task,
    labelled: bool,
    missing: Missing,
    apart: tuple[str, ...],
    columns: tuple[str, ...],
    kept: tuple[str, ...],
    named: bool,
    fingerprint: str,
) -> ParquetRows:
    """Rebuild a pickled ParquetRows; opened once in each process.  Raises DataError if the files have changed."""
    store = ParquetRows(
        uri, label=label, weight=weight, task=task, labelled=labelled, missing=missing, apart=apart, columns=columns,
        like={"features" if named else "columns": kept},
    )  # fmt: skip
    if store.fingerprint != fingerprint:
        raise DataError("the store changed since the run began", uri)
    return store
