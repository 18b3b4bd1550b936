"""`ZarrWriter`: writes a store (Zarr v3 in AnnData's form) in whole chunks, holding a bounded number of bytes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import numpy as np
import zarr
from zarr.storage import LocalStore

from bigsvm.compiled.shared.rows import CSR, n_rows_of
from bigsvm.errors import DataError, OutputError, UsageError
from bigsvm.files.atomic import remove
from bigsvm.files.space import cannot_write
from bigsvm.store.checks import VALUE_DTYPES, as_values, check_csr, check_finite
from bigsvm.store.content import ColumnScales, ContentHash, scale_warning
from bigsvm.store.formats.zarr_names import COLUMNS, RECIPE, SPLIT
from bigsvm.store.ingest.anndata_shape import array_attributes, unnamed_features, write_frames
from bigsvm.store.ingest.chunk_files import DEFAULT_CHUNK_BYTES, ChunkFiles
from bigsvm.store.ingest.collections.made_rows import FOLDER, ChunkPlace, MadeRows, opened_place, put_chunks
from bigsvm.store.ingest.label_spool import LabelSpool
from bigsvm.store.labels import CodedLabels, as_labels, as_targets, check_weights, label_bits, n_labels
from bigsvm.store.sealing.manifest import EMPTY, is_document, write_manifest
from bigsvm.store.sealing.one_writer import new_store
from bigsvm.store.sealing.verified import DigestingStore
from bigsvm.store.transforms.label_sets import named_sets
from bigsvm.units import counted

_INT32_MAX = 2**31 - 1
P = ParamSpec("P")
T = TypeVar("T")


class _Abandoned(Exception):
    """Raised so that the temporary folder is removed."""


MARKS = ("bigsvm-manifest.json",)
"""Files by which a folder is recognised as a store."""


def _only_writes(
    method: Callable[Concatenate[ZarrWriter, P], T],
) -> Callable[Concatenate[ZarrWriter, P], T]:
    """Decorator: an OSError inside the method becomes an OutputError about the store, not about an input."""

    @functools.wraps(method)
    def named(self: ZarrWriter, *given: P.args, **options: P.kwargs) -> T:
        try:
            return method(self, *given, **options)
        except OSError as error:
            raise cannot_write(self.path, error) from error

    return named


class ZarrWriter:
    """Receives rows in order, and makes a sealed store at `path` if all goes well, otherwise nothing.

    layout : 'csr' or 'dense', for X and all blocks that are appended
    dtype : dtype of X in the store: float32, float64, int8 or uint8
    n_features : width, if known; CSR grows as needed, dense takes the width of the first block
    codec : lz4, zstd or none (with none, parts of chunks can be read)
    chunk_bytes : size of a decoded chunk, 4 MiB by default
    task : 'regression' keeps labels as numbers
    recipe, feature_names : recorded for readers of the store (see `RowBlocks`)
    split : record this share of the rows, on which fits train by default; None records none
    columns : `label`, `weight` -> the column that they come from, which is recorded where it has another name

    Holds one chunk of each array (data, indices, indptr, codes, weights), in addition to the block being appended.
    """

    def __init__(
        self,
        path: Path,
        *,
        layout: Literal["csr", "dense"],
        dtype: Any,
        n_features: int | None = None,
        codec: str = "lz4",
        chunk_bytes: int | None = None,
        has_weights: bool = False,
        task: str = "classification",
        overwrite: bool = False,
        recipe: Mapping[str, Any] | None = None,
        feature_names: Sequence[str] | None = None,
        split: float | None = None,
        columns: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._columns = {what: name for what, name in columns.items() if name not in ("", what)}
        self._recipe, self._names, self._split = dict(recipe or {}), feature_names, split
        self.path, self.layout, self.dtype = Path(path), layout, np.dtype(dtype)
        if self.dtype not in VALUE_DTYPES:
            raise UsageError(f"a store holds {', '.join(map(str, VALUE_DTYPES))}, not {self.dtype}")
        if task not in ("classification", "regression"):
            raise UsageError(f"unknown task {task!r}", hint="classification or regression")
        self.n_features, self.has_weights, self.task = n_features, has_weights, task
        self._codec, self._chunk_bytes, self._overwrite = codec, chunk_bytes or DEFAULT_CHUNK_BYTES, overwrite
        self.n_samples = self.nnz = 0
        self._width = 0  # largest index seen so far, plus 1
        self._hash, self._scales = ContentHash(), ColumnScales()
        self._arrays: dict[str, ChunkFiles] = {}
        self._context: AbstractContextManager[Path] | None = None
        self._finished = False

    def __enter__(self) -> ZarrWriter:
        self._labels: LabelSpool | None = None
        self._context = new_store(self.path, self._overwrite, MARKS)
        self._root = self._context.__enter__()
        try:
            self._begin()
        except BaseException as error:  # __exit__ is not called if __enter__ fails
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    @_only_writes
    def _begin(self) -> None:
        """Open the files for rows."""
        if self.layout == "csr":
            self._open("X/data", self.dtype)
            self._open("X/indices", np.dtype(np.int32))
            self._open("X/indptr", np.dtype(np.int64)).append(np.zeros(1, np.int64))
        if self.has_weights:
            self._open("obs/weight", np.dtype(np.float64))
        if self.task == "classification":
            self._labels = LabelSpool(self._root / ".codes.tmp", str(self.path))
        else:
            self._open("obs/label", np.dtype(np.float64))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._context is not None
        if self._labels is not None:
            self._labels.close()
        if kind is None and self._finished:
            self._context.__exit__(None, None, None)
        elif isinstance(error, OutputError):
            self._context.__exit__(kind, error, trace)
        else:
            # Another exception than the caller's: an OSError of the input must not be reported as one of the output.
            self._context.__exit__(_Abandoned, _Abandoned(), None)

    @_only_writes
    def place(self) -> ChunkPlace | None:
        """Where workers may write chunks of the rows that are appended first; None if they cannot."""
        if self.layout == "csr" or self.n_features is None or self.n_features < 1:
            return None
        return opened_place(self._root, self._open("X", self.dtype, width=self.n_features), self.task)

    @_only_writes
    def append(
        self, X: CSR | np.ndarray | MadeRows, labels: np.ndarray | CodedLabels, weights: np.ndarray | None = None
    ) -> None:
        """Append any number of rows.

        X : CSR (indices may be unsorted, and stay so) or dense (n, n_features); or rows that a worker has prepared
        labels : numbers or strings, shape (n,), or codes of strings
        weights : shape (n,), each >= 0; required if and only if the writer has weights

        Raises
        ------
        DataError : a value, label or weight is invalid, or a row is too wide; names the row.
        OutputError : the disk is full or fails.
        """
        where, first = str(self.path), self.n_samples
        n_rows = X.n if isinstance(X, MadeRows) else n_rows_of(X)
        if n_labels(labels) != n_rows or (weights is None) == self.has_weights:
            raise UsageError("rows, labels and weights do not go together", where)
        if weights is not None:
            weights = check_weights(weights, where, first)
        if not isinstance(labels, CodedLabels):
            labels = as_labels(np.asarray(labels), where, first)
        elif self._labels is None:
            labels = labels.classes[labels.of_rows]
        if isinstance(X, MadeRows):
            self._put(X, first)
        else:
            matrix = self._append_csr(X, first) if self.layout == "csr" else self._append_dense(X, first)
        if self._labels is None:
            assert not isinstance(labels, CodedLabels)
            targets = as_targets(labels, where, first)
            self._arrays["obs/label"].append(targets)
            bits = label_bits(targets)
        else:
            bits = self._labels.append(labels, first)
        if weights is not None:
            self._arrays["obs/weight"].append(weights)
        if isinstance(X, MadeRows):
            self._take_note(X, bits)
        else:
            self._hash.add_bits(matrix, bits, weights, first)
            self._scales.add(matrix)
        self.n_samples += n_rows

    @_only_writes
    def finish(self, n_features: int | None = None) -> dict[str, Any]:
        """Write everything that is left, the metadata and the manifest; the store appears when the with-block ends.

        Returns n_samples, n_features, nnz, labels, bytes, store_fingerprint, content_fingerprint, warnings.
        """
        width = self._final_width(n_features)
        remove(self._root / FOLDER)
        classes, counts = None, None
        if self._labels is not None:
            classes, counts = self._finish_labels(self._labels)
            self._recipe = named_sets(self._recipe, classes, str(self.path))
        if self.layout == "dense" and "X" not in self._arrays:
            self._open("X", self.dtype, width=width)
        for part in self._arrays.values():
            part.flush()
        store, added, empty = self._write_metadata(width, classes)
        # The chunks of string categories were written by zarr itself, all other chunks by ChunkFiles.
        documents = {key: value for key, value in store.digests.items() if is_document(key)}
        chunks = {part.path: part.digests() for part in (*self._arrays.values(), *added)}
        for key, value in [*((k, v) for k, v in store.digests.items() if not is_document(k)), *empty]:
            chunks[key.rpartition("/c")[0]] = iter([(key, value)])
        scales = self._scale_summary()
        content = {
            **self._more_content(),
            "content_fingerprint": self._hash.hexdigest(), "n_samples": self.n_samples, "n_features": width,
            "nnz": self.nnz, "layout": self.layout, "task": self.task, "column_scale": scales,
            "class_counts": counts,
        }  # fmt: skip
        ordered = (item for path in sorted(chunks) for item in chunks[path])
        manifest = write_manifest(self._root, documents, ordered, content)
        self._finished = True
        warning = scale_warning(scales, names=self._names)
        return {
            "n_samples": self.n_samples, "n_features": width, "nnz": self.nnz,
            "labels": None if classes is None else classes.tolist(),
            "bytes": sum(part.nbytes for part in (*self._arrays.values(), *added)),
            "store_fingerprint": manifest.fingerprint, "content_fingerprint": self._hash.hexdigest(),
            "warnings": [] if warning is None else [warning],
        }  # fmt: skip

    def _finish_labels(self, labels: LabelSpool) -> tuple[np.ndarray, list[int]]:
        """Write the codes; returns the classes, and the number of rows of each."""
        return labels.finish(lambda dtype: self._open("obs/label/codes", dtype)), labels.counts()

    def _scale_summary(self) -> dict[str, object]:
        """The summary of the scales of columns, for the manifest."""
        return self._scales.summary()

    def _more_content(self) -> dict[str, Any]:
        """Further entries about the content, for the manifest."""
        return {}

    def _open(self, path: str, dtype: np.dtype, width: int | None = None) -> ChunkFiles:
        # A reader holds a chunk of each array, so arrays with one number for each row get smaller chunks than those
        # with hundreds.
        chunk_bytes = self._chunk_bytes if path.startswith("X") and path != "X/indptr" else self._chunk_bytes // 8
        self._arrays[path] = ChunkFiles(self._root, path, dtype, self._codec, max(chunk_bytes, 1), width)
        return self._arrays[path]

    def _append_csr(self, X: CSR | np.ndarray, first: int) -> CSR:
        if not isinstance(X, CSR):
            raise UsageError("this writer takes CSR rows")
        # Values beyond the range of float32 become infinite, and are refused below.
        X = X._replace(data=as_values(X.data, self.dtype, str(self.path), first, X.indptr))
        check_csr(X, 2**63 - 1 if self.n_features is None else self.n_features, str(self.path), first)
        width = int(X.indices.max()) + 1 if len(X.indices) else 0
        if width - 1 > _INT32_MAX and self._arrays["X/indices"].dtype.itemsize == 4:
            self._widen_indices()
        self._width = max(self._width, width)
        self._arrays["X/data"].append(X.data)
        self._arrays["X/indices"].append(X.indices)
        self._arrays["X/indptr"].append(X.indptr[1:].astype(np.int64) + self.nnz)
        self.nnz += len(X.data)
        return X

    def _append_dense(self, X: CSR | np.ndarray, first: int) -> np.ndarray:
        if isinstance(X, CSR) or X.ndim != 2:
            raise UsageError("this writer takes dense rows")
        if self.n_features is None:
            self.n_features = X.shape[1]
        if X.shape[1] == 0:
            raise DataError("rows without features", str(self.path))
        if X.shape[1] != self.n_features:
            raise DataError(f"row {first} has {counted(X.shape[1], 'feature')}, not {self.n_features}", str(self.path))
        if "X" not in self._arrays:
            self._open("X", self.dtype, width=self.n_features)
        X = as_values(X, self.dtype, str(self.path), first)
        check_finite(X, str(self.path), first)
        self._arrays["X"].append(X)
        self._width = self.n_features
        self.nnz += X.size
        return X

    def _put(self, X: MadeRows, first: int) -> None:
        """Append rows that a worker has prepared in the folder of `place`."""
        if X.first != first:
            raise UsageError(f"rows were prepared for position {X.first}, but arrive at {first}", str(self.path))
        put_chunks(self._root, self._arrays["X"], X)
        self._width = self._arrays["X"].width or 0
        self.nnz += X.n * self._width

    def _take_note(self, X: MadeRows, bits: np.ndarray) -> None:
        """Add the content of such rows to the fingerprint.  bits : of their labels, as in this store"""
        if not np.array_equal(bits, X.bits):
            raise DataError(f"the labels from row {X.first} on are not those that were hashed", str(self.path))
        other = ContentHash()
        other.total = X.content
        self._hash.merge(other)
        self._scales.merge(X.largest)

    def _widen_indices(self) -> None:
        """Rewrite the indices so far as int64, one chunk at a time."""
        narrow = self._arrays["X/indices"]
        narrow.flush()
        narrow.move("X/.indices32.tmp")
        wide = self._open("X/indices", np.dtype(np.int64))
        for values in narrow.read_back():
            wide.append(values)
        narrow.remove()

    def _final_width(self, n_features: int | None) -> int:
        width = n_features if n_features is not None else self.n_features
        if width is None:
            return self._width
        if width < self._width or (self.layout == "dense" and width != self._width and self.n_samples):
            raise DataError(f"the rows have {counted(self._width, 'feature')}, not {width}", str(self.path))
        return width

    def _write_metadata(
        self, width: int, classes: np.ndarray | None
    ) -> tuple[DigestingStore, list[ChunkFiles], list[tuple[str, str]]]:
        """Write all documents; returns the store that wrote them, the arrays added, and the keys of empty chunks."""
        store = DigestingStore(LocalStore(self._root))
        group = zarr.create_group(
            store, zarr_format=3,
            attributes={
                "encoding-type": "anndata", "encoding-version": "0.1.0",
                **({RECIPE: self._recipe} if self._recipe else {}),
                **({} if self._split is None else {SPLIT: self._split}),
                **({COLUMNS: self._columns} if self._columns else {}),
            },
        )  # fmt: skip
        names = self._names if self._names is not None and len(self._names) == width else None
        if self.layout == "csr":
            shape = [self.n_samples, width]
            matrix = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": shape}
            group.create_group("X", attributes=matrix)
            for name in ("X/data", "X/indices", "X/indptr"):
                self._arrays[name].create(group)
        else:
            self._arrays["X"].create(group, **array_attributes())
        added = write_frames(
            group, self._root, self.n_samples, width, classes, self.has_weights, self._arrays,
            self._codec, self._chunk_bytes, names,
        )  # fmt: skip
        empty = [] if names is not None else unnamed_features(group, width)
        return store, added, [(key, EMPTY) for key in empty]
