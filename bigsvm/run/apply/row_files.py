"""Export of the rows of a store to files of other programs (`bigsvm dump`); reading a file back gives the same rows.

    svmlight  text without weights (`store/text/dump.py`)
    jsonl     {"row": 0, "label": 1, "values": [...]}; sparse rows have "indices" (from 0) and "values"; "weight" if
              there are weights
    csv       a header, then label[,weight] and a column for each feature, including zeros
    parquet   label[, weight] and a column for each feature; if there are many features, one fixed-size list; sparse
              rows as the lists `indices` and `values`, with their width in the metadata of the schema
    zarr      a store as `ingest` makes it

A file appears when it is complete, and otherwise not at all.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np

from bigsvm.csr import CSR
from bigsvm.errors import BigSVMError, DataError, UsageError
from bigsvm.events import Emit, Warned, WorkAdvanced, WorkEnded, WorkStarted, silent
from bigsvm.files.outputs import form_of_suffix, output_file
from bigsvm.files.space import Share, cannot_write
from bigsvm.files.temporary import temporary_folder
from bigsvm.store.blocks import Block, RowBlocks, row_bytes
from bigsvm.store.text.dump import dump, told_of_changes
from bigsvm.store.transforms.label_sets import LABEL_SETS
from bigsvm.units import MIB

FORMATS = ("svmlight", "jsonl", "csv", "parquet", "zarr")
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".zarr": "zarr",
}
_BLOCK_BYTES = 2 * MIB  # size of a block of rows; its text takes several times more
_MOST_COLUMNS = 10_000
_COLUMNS = 1000  # number of features from which Parquet has one list instead of columns
_OWN = ("label", "weight")


def row_format(out: str, asked: str | None) -> str:
    """The format asked for, else the format of the suffix of the output, else svmlight.

    Raises UsageError if the format cannot be written to standard output, or the suffix is that of another format.
    """
    chosen = asked or form_of_suffix(out, _SUFFIXES, "svmlight")
    if out == "-" and chosen in ("parquet", "zarr"):
        raise UsageError(f"{chosen} cannot be written to standard output", hint="name a file")
    return chosen


def write_rows(
    store: RowBlocks, out: str | Path, form: str, emit: Emit = silent, overwrite: bool = False
) -> dict[str, Any]:
    """Write all rows of `store`, in their order, holding a few MiB of them at a time.

    out : a path, or "-" to write text to standard output
    form : one of FORMATS

    Returns n_samples, n_features, nnz (number of stored entries written), bytes, seconds, out, warnings.

    Raises
    ------
    DataError : svmlight cannot hold the labels, a table would have too many columns, or a block is damaged
    OutputError : `out` exists, or cannot be written.
    """
    if form == "svmlight":
        return dump(store, out, emit=emit, overwrite=overwrite)
    if form == "zarr":
        from bigsvm.store.ingest.ingest import ingest  # here, because the code that writes stores is large

        made = ingest(store, out, overwrite=overwrite, task=_task(store), emit=emit)
        kept = {name: made[name] for name in ("n_samples", "n_features", "nnz", "bytes", "seconds", "warnings")}
        return {**kept, "out": str(out)}
    began = time.perf_counter()
    layout = _Layout.of(store, form)
    if told := told_of_changes(store):
        layout = layout._replace(warnings=(told, *layout.warnings))
    for warning in layout.warnings:
        emit(Warned(warning))
    emit(WorkStarted("dump", store.n_samples, "rows"))
    width = row_bytes(store) if store.layout == "dense" or form != "csv" else 8 * store.n_features + 16
    nnz, share = 0, Share(store.n_samples)
    with output_file(out, overwrite, share) as file:
        counted = _Counted(file, Path(out))
        with _writer(counted, form, layout) as writer:
            for ref in store.refs(max(1, int(_BLOCK_BYTES / max(width, 1)))):
                block = store.read(ref)
                writer.write(block)
                share.done = block.stop
                nnz += len(block.X.data) if isinstance(block.X, CSR) else block.X.size
                emit(WorkAdvanced("dump", block.stop))
    store.forget()
    seconds = time.perf_counter() - began
    emit(WorkEnded("dump", seconds))
    return {
        "n_samples": store.n_samples, "n_features": store.n_features, "nnz": nnz, "bytes": counted.nbytes,
        "seconds": seconds, "out": str(out), "warnings": list(layout.warnings),
    }  # fmt: skip


def _task(store: RowBlocks) -> Any:
    return "regression" if store.classes is None else "classification"


class _Layout(NamedTuple):
    """The properties of a store that the writers need."""

    classes: np.ndarray | None
    has_weights: bool
    sparse: bool
    names: list[str]
    n_features: int
    dtype: np.dtype
    index_dtype: np.dtype
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, store: RowBlocks, form: str) -> _Layout:
        """The layout of a store.  Raises DataError if a table would have too many columns."""
        sparse, d = store.layout == "csr", store.n_features
        if form == "csv" and d > _MOST_COLUMNS:
            what = f"csv needs a column for each of the {d} features, and at most {_MOST_COLUMNS} are possible"
            raise DataError(what, store.uri, "write .svm (svmlight), .parquet, .jsonl or .zarr")
        sets = LABEL_SETS in store.recipe  # sets are read back as text in any case
        if form == "csv" and store.classes is not None and not sets and not _are_read_back(store.classes):
            text = store.classes.dtype.kind not in "biuf"
            what = "some text labels would be read back from CSV as numbers, or as missing values"
            what = what if text else "labels from 2^63 on would not be read back from CSV"
            raise DataError(what, store.uri, "write .parquet, .jsonl or .zarr, or rename them with --label-map")
        named, warnings = store.feature_names, ()
        columns = form == "csv" or (form == "parquet" and not sparse and d <= _COLUMNS)
        names = [f"f{j}" for j in range(d)] if columns else []
        if columns and named is not None:
            given = list(named)
            if len(set(given)) == d and not set(given) & set(_OWN):
                names = given
            else:
                why = "their names are not all different, or one is `label` or `weight`"
                warnings = (f"features are called f0, f1, ... in the output: {why}",)  # type: ignore[assignment]
        return cls(store.classes, store.has_weights, sparse, names, d, store.dtype, store.index_dtype, warnings)

    def labels(self, block: Block) -> np.ndarray:
        """Labels or targets of the rows of a block."""
        return block.y if self.classes is None else self.classes[block.y]

    def weights(self, block: Block) -> np.ndarray:
        """Weights of the rows of a block."""
        return np.ones(block.n_rows) if block.sample_weight is None else block.sample_weight


class _Writer(Protocol):
    def write(self, block: Block) -> None: ...


class _Counted:
    """The file of the writers of text and Parquet: counts the bytes, and raises OutputError for standard output."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self._path, self.nbytes = file, path, 0
        self.closed = self.over = False

    def write(self, content: Any) -> int:
        """Write all of `content`.  Raises OutputError."""
        size = memoryview(content).nbytes
        if self.over:  # the file is discarded anyway
            return size
        try:
            self._file.write(content)
        except BrokenPipeError:
            raise
        except OSError as error:
            if str(self._path) != "-":
                raise  # `output_file` tells of it
            raise cannot_write(self._path, error) from error
        self.nbytes += size
        return size

    def tell(self) -> int:
        return self.nbytes

    def flush(self) -> None:
        """Files are flushed by those who opened them."""

    def close(self) -> None:
        """Files are closed by those who opened them."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def _writer(file: _Counted, form: str, layout: _Layout) -> Any:
    """A context manager that yields a `_Writer`."""
    if form == "jsonl":
        return nullcontext(_Jsonl(file, layout))
    return _table(file, form, layout)


class _Jsonl:
    def __init__(self, file: _Counted, layout: _Layout) -> None:
        self._file, self._layout = file, layout

    def write(self, block: Block) -> None:
        X, labels = block.X, self._layout.labels(block).tolist()
        weights = self._layout.weights(block).tolist() if self._layout.has_weights else None
        lines = []
        for i, label in enumerate(labels):
            row: dict[str, Any] = {"row": block.start + i, "label": label}
            if weights is not None:
                row["weight"] = weights[i]
            if isinstance(X, CSR):
                a, b = X.indptr[i], X.indptr[i + 1]
                row |= {"indices": X.indices[a:b].tolist(), "values": X.data[a:b].tolist()}
            else:
                row["values"] = X[i].tolist()
            lines.append(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
        self._file.write("".join(lines).encode())


@contextmanager
def _table(file: _Counted, form: str, layout: _Layout) -> Iterator[_Writer]:
    import pyarrow as pa

    sink = pa.PythonFile(file, mode="w")
    schema = _schema(layout)
    if form == "csv":
        from pyarrow.csv import CSVWriter

        made: Any = CSVWriter(sink, schema)
    else:
        from pyarrow.parquet import ParquetWriter

        made = ParquetWriter(sink, schema, compression="zstd")
    try:
        yield _Table(made, schema, layout)
    except BaseException:
        file.over = True
        with contextlib.suppress(Exception):
            made.close()  # otherwise pyarrow would write its footer when it is garbage-collected
        raise
    made.close()


def _are_read_back(classes: np.ndarray) -> bool:
    """Whether CSV reads these labels back unchanged: it has no types, and quoted numbers are read as numbers."""
    if classes.dtype.kind in "biuf":
        return classes.dtype.kind != "u" or int(classes.max(initial=0)) < 2**63
    from pyarrow import array, string, table
    from pyarrow.csv import write_csv

    from bigsvm.store.formats.opener import open_store

    with temporary_folder() as folder:
        path = folder / "labels.csv"
        write_csv(table({"label": array(classes.tolist(), string()), "f0": np.zeros(len(classes))}), path)
        try:
            found = open_store(path, label="label").classes
        except BigSVMError:
            return False
    return found is not None and found.dtype.kind == classes.dtype.kind and found.tolist() == classes.tolist()


def _schema(layout: _Layout) -> Any:
    """The columns of the table; sparse rows that get a column for each feature have those of dense rows."""
    import pyarrow as pa

    kind = pa.from_numpy_dtype(np.float64 if layout.classes is None else layout.classes.dtype)
    if layout.classes is not None and layout.classes.dtype.kind not in "biuf":
        kind = pa.string()
    fields = [pa.field("label", kind, nullable=False)]
    if layout.has_weights:
        fields.append(pa.field("weight", pa.float64(), nullable=False))
    value = pa.from_numpy_dtype(layout.dtype)
    if layout.names:
        return pa.schema([*fields, *(pa.field(name, value, nullable=False) for name in layout.names)])
    if not layout.sparse:
        return pa.schema([*fields, pa.field("features", pa.list_(value, layout.n_features), nullable=False)])
    fields.append(pa.field("indices", pa.list_(pa.from_numpy_dtype(layout.index_dtype)), nullable=False))
    fields.append(pa.field("values", pa.list_(value), nullable=False))
    return pa.schema(fields, {"n_features": str(layout.n_features)})


class _Table:
    def __init__(self, file: Any, schema: Any, layout: _Layout) -> None:
        from bigsvm.store.formats.tables.arrow_values import column_of

        self._file, self._schema, self._layout = file, schema, layout
        self._classes = None if layout.classes is None else column_of(layout.classes)

    def write(self, block: Block) -> None:
        import pyarrow as pa

        layout, X = self._layout, block.X
        labels = pa.array(block.y)
        columns = [(labels if self._classes is None else self._classes.take(labels)).cast(self._schema.field(0).type)]
        if layout.has_weights:
            columns.append(pa.array(layout.weights(block)))
        if layout.names:
            filled = _filled(X, layout)
            columns += [pa.array(np.ascontiguousarray(filled[:, j])) for j in range(layout.n_features)]
        elif isinstance(X, CSR):
            offsets = pa.array(X.indptr.astype(np.int32))
            columns += [pa.ListArray.from_arrays(offsets, pa.array(part)) for part in (X.indices, X.data)]
        else:
            columns.append(pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), layout.n_features))
        self._file.write_table(pa.Table.from_arrays(columns, schema=self._schema))


def _filled(X: Any, layout: _Layout) -> np.ndarray:
    """Rows as a dense array."""
    if not isinstance(X, CSR):
        return np.asarray(X)
    filled = np.zeros((len(X.indptr) - 1, layout.n_features), X.data.dtype)
    filled[np.repeat(np.arange(len(filled)), np.diff(X.indptr)), X.indices] = X.data
    return filled
