"""Rows of a Zarr store (version 2 or 3) in AnnData's form, dense or CSR."""

from __future__ import annotations

import copy
import functools
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self, cast

import numpy as np
import zarr
import zarr.errors
from zarr.storage import LocalStore

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import BigSVMError, DataError, UsageError
from bigsvm.files.paths import no_such_store
from bigsvm.store.addresses import make_refs
from bigsvm.store.blocks import Block, BlockRef, RowBlocks, StoreBase, bounds
from bigsvm.store.checks import as_values, check_csr, check_finite, index_dtype, value_dtype
from bigsvm.store.formats.chunked import ChunkedArray
from bigsvm.store.formats.csc_rows import rows_of_columns
from bigsvm.store.formats.layouts.binsparse import RowMajor, described
from bigsvm.store.formats.layouts.packed_numbers import refuse_packed
from bigsvm.store.formats.zarr_label import LabelColumn, Open, Readable, WeightColumn, open_label, open_weights
from bigsvm.store.formats.zarr_names import columns_of, feature_names, is_of_ingest, recipe_of, split_of
from bigsvm.store.identity import Identity
from bigsvm.store.labels import Missing, Task, check_weights
from bigsvm.store.sealing.former import snapshot
from bigsvm.store.sealing.listed_chunks import ListedChunks
from bigsvm.store.sealing.manifest import load_manifest
from bigsvm.store.sealing.places import naming, naming_its_store
from bigsvm.store.sealing.seal import EmptyChunks, absent_chunks, load_or_make_manifest, verify_documents
from bigsvm.store.sealing.verified import VerifyingStore
from bigsvm.store.transforms.expression import Column


class ZarrRows(StoreBase):
    """RowBlocks over a local Zarr store; every byte that is read is verified with the store's manifest.

    path : the store's folder
    label : path of the label column, `obs/label`, or `label` for short
    weight : path of the weight column; default: `obs/weight`, if it exists; '' for no weights
    task : whether numeric labels are classes or targets (`labels.scan_classes`)
    empty_chunks : `zeros` vouches that chunks which are missing from an unsealed store hold the fill value
    labelled : False opens only X, for prediction: no labels or weights are needed, and every y is 0
    matrix : X, layers/NAME, obsm/NAME or raw/X: dense, CSR, or CSC, which is converted to rows once
    missing : `drop` gives rows without a label an arbitrary label, and returns weights unchecked; `labelled_rows` tells
        which rows these are
    fingerprint : open the store as it was with this fingerprint, if rows were added since and the old version is kept

    Raises
    ------
    MissingInput : there is no store. DataError : its metadata or contents are bad (names key or row), or chunks of an
    array that is used are missing.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        label: str | None = None,
        weight: str | None = None,
        task: Task = "auto",
        empty_chunks: EmptyChunks = "refuse",
        labelled: bool = True,
        matrix: str | None = None,
        missing: Missing = "refuse",
        fingerprint: str | None = None,
    ) -> None:
        root = Path(path)
        if not root.is_dir():
            raise no_such_store(str(path))
        self.uri = str(root.resolve())
        self.warnings: list[str] = []
        manifest, made = load_or_make_manifest(root, empty_chunks)
        if fingerprint not in (None, manifest.fingerprint):
            manifest = snapshot(root, fingerprint) or manifest
        vouched: EmptyChunks = "zeros" if manifest.vouched else "refuse"
        self._options: tuple[Any, ...] = (label, weight, task, vouched, labelled, matrix, missing)
        if made:
            self.warnings.append(f"{root} was not sealed: its digests were taken now; seal it with: bigsvm seal {root}")
        verify_documents(root, manifest)
        self._manifest, self._root = manifest, root
        self._arrays: list[str] = []
        self.empty_chunks: dict[str, str] = {}
        self.fingerprint = manifest.fingerprint
        with _zarr_errors(self.uri):
            group = zarr.open_group(
                VerifyingStore(LocalStore(root, read_only=True), manifest), mode="r", use_consolidated=False
            )
            open_array = functools.cache(functools.partial(self._open_array, group))
            self._select(group, open_array, *self._options)
        self.content_fingerprint = self._known_content()
        if manifest.vouched:
            self.warnings += [f"{root}: {what}, read as the fill value" for what in self.empty_chunks.values()]

    def _select(
        self,
        group: Any,
        open_array: Open,
        label: str | None,
        weight: str | None,
        task: Task,
        _: Any,
        labelled: bool,
        matrix: str | None,
        missing: Missing,
    ) -> None:
        """Open the selected parts of a group of zarr or h5py."""
        self._matrix, self._missing = matrix_path(matrix), missing
        self._open_matrix(group, open_array)
        self.recipe, self.recorded_split = recipe_of(group), split_of(group)
        if self._matrix != "X":
            self.recipe = {"matrix": self._matrix}
        frame = {"raw": "raw/var", "obsm": ""}.get(self._matrix.partition("/")[0], "var")
        self.feature_names = feature_names(group, frame, self.n_features, open_array) if frame else None
        self._column = functools.cache(lambda path: open_label(group, path, open_array, "auto", "drop"))
        self._label: LabelColumn | None = None
        self._weight: WeightColumn | None = None
        self._label_name = self._weight_name = ""
        if labelled:
            came_from = columns_of(group)
            if label is not None and label == came_from.get("label") and _column(label) not in group:
                label = None
            if weight and weight == came_from.get("weight") and _column(weight) not in group:
                weight = None
            self._label_name = _column(label or "label")
            self._label = open_label(group, self._label_name, open_array, task, missing)
            self.label_column = _came_from(group, self._label_name, "label", came_from)
            self._open_weights(group, open_array, weight, came_from)
        self.has_weights = self._weight is not None
        self.identity = Identity.of(
            self.fingerprint, matrix=self._matrix, label=self._label_name, weight=self._weight_name, task=task
        )
        if self._label is not None and self._label.n_samples != self.n_samples:
            raise DataError(f"{self._label.n_samples} labels for {self.n_samples} rows", self.uri)

    @naming_its_store
    def labels_between(self, start: int, stop: int) -> np.ndarray:
        """The y of rows [start, stop), as in blocks, without reading X."""
        assert self._label is not None
        return self._label.y(start, stop)

    @naming_its_store
    def columns_between(self, names: Sequence[str], start: int, stop: int) -> dict[str, Column]:
        """The named columns of obs for rows [start, stop).  Raises DataError for a missing one."""
        with _zarr_errors(self.uri):
            found = {name: self._column(_column(name)) for name in names}
        for name, column in found.items():
            if column.n_samples != self.n_samples:
                raise DataError(f"{column.n_samples} values for {self.n_samples} rows", _column(name))
        return {name: column.column(start, stop) for name, column in found.items()}

    @naming_its_store
    def labelled_rows(self) -> np.ndarray:
        """Whether each row has a label, packed (`LabelColumn`)."""
        assert self._label is not None
        return self._label.labelled_rows()

    def labels_of_only(self, rows: np.ndarray) -> Self:
        """These rows, of which some have labels and weights that count (`rows`, packed); all others have none.

        So it is they who say what the classes are, and whether there are any.
        """
        assert self._label is not None
        found = copy.copy(self)
        found._label, found._missing = self._label.of_only(rows), "drop"
        return found

    @naming_its_store
    def entries_of(self, start: int, stop: int) -> int:
        """Number of stored entries of rows [start, stop)."""
        if self._indptr is None:
            return (stop - start) * self.n_features
        return int(self._indptr.read(stop, stop + 1)[0]) - int(self._indptr.read(start, start + 1)[0])

    @naming_its_store
    def row_lengths(self, start: int, stop: int) -> np.ndarray:
        """Number of stored entries of each of the rows [start, stop), for sparse rows."""
        assert self._indptr is not None
        return np.diff(self._indptr.read(start, stop + 1))

    def __reduce__(self) -> tuple[Callable[..., ZarrRows], tuple[Any, ...]]:
        return reopen, (self.uri, *self._options, self.fingerprint)

    def __repr__(self) -> str:
        return f"ZarrRows({self.uri!r}, {self.n_samples} x {self.n_features} {self.layout})"

    @property
    def raw(self) -> bool:
        """Whether blocks of X are read as they are stored."""
        parts = (self._data, self._indices) if self._indices is not None else (self._data,)
        return all(part.raw for part in parts) and self.dtype == self._data.dtype

    @property
    def chunk_nbytes(self) -> int:
        """Decoded bytes of one chunk of each array, which a reader holds in addition to the block."""
        parts = (self._data, self._indices, self._indptr, self._weight)
        return sum(part.chunk_nbytes for part in parts if part is not None)

    @property
    @naming_its_store
    def classes(self) -> np.ndarray | None:
        """Labels in ascending order; None for a regression target.  The first call reads the labels."""
        return None if self._label is None else self._label.classes

    @property
    def content(self) -> dict[str, Any]:
        """What the manifest records about the content: counts, scales of columns; may be empty."""
        return self._manifest.content

    def refs(self, block_rows: int) -> Sequence[BlockRef]:
        return make_refs(cast(RowBlocks, self), block_rows)

    @naming_its_store
    def read(self, ref: BlockRef) -> Block:
        start, stop = bounds(ref, self.n_samples, self.uri)
        X = self._read_dense(start, stop) if self._indptr is None else self._read_csr(start, stop)
        weight = None
        if self._weight is not None and self._missing == "drop":  # `KeptRows` checks the weights that count
            weight = self._weight.read(start, stop, absent=np.nan)
        elif self._weight is not None:
            weight = check_weights(self._weight.read(start, stop), self._weight_name, start)
        y = np.zeros(stop - start) if self._label is None else self._label.y(start, stop)
        return Block(start, stop, X, y, weight)

    @property
    def listed_chunks(self) -> ListedChunks | None:
        """The chunks of X, labels and weights, on which copies of the rows depend; None if there is no manifest."""
        if not hasattr(self, "_manifest"):
            return None
        names = ("var/", "raw/var/")  # of features, which are read whenever the store is opened
        return ListedChunks(
            self._root, self._manifest, sorted(path for path in self._arrays if not path.startswith(names))
        )

    def is_replaced(self) -> bool:
        """Whether another sealed store lies where this one was opened; one to which rows were added is the same."""
        if not hasattr(self, "_manifest"):  # of a format that has none
            return False
        try:
            now = load_manifest(self._root).fingerprint
        except (OSError, DataError):
            return False
        return now != self.fingerprint and snapshot(self._root, self.fingerprint) is None

    def forget(self) -> None:
        """Release the chunks that are kept for the next read; for a caller that has read everything."""
        for array in vars(self).values():
            if hasattr(array, "forget"):
                array.forget()

    def _known_content(self) -> str | None:
        """The content fingerprint that `ingest` recorded, if the selected columns are those of `ingest`."""
        known = self._manifest.content.get("content_fingerprint")
        theirs = (self._label_name, self._weight_name) == ("obs/label", "obs/weight" if self.has_weights else "")
        return known if theirs and self._matrix == "X" and isinstance(known, str) else None

    def _read_dense(self, start: int, stop: int) -> np.ndarray:
        X = as_values(self._data.read(start, stop), self.dtype, self._matrix, start)
        check_finite(X, self._matrix, start)
        return X

    def _read_csr(self, start: int, stop: int) -> CSR:
        assert self._indptr is not None
        assert self._indices is not None
        indptr = self._indptr.read(start, stop + 1).astype(np.int64)
        a, b = int(indptr[0]), int(indptr[-1])
        if not 0 <= a <= b <= len(self._data):
            raise DataError(f"indptr of rows {start} to {stop} points past the {len(self._data)} values", self._matrix)
        indptr -= a
        indices = self._indices.read(a, b)
        if indices.dtype != self.index_dtype:
            if len(indices) and int(indices.max()) > np.iinfo(self.index_dtype).max:
                raise DataError(f"rows {start} to {stop} have index {indices.max()}", self._matrix)
            indices = indices.astype(self.index_dtype)
        X = CSR(as_values(self._data.read(a, b), self.dtype, self._matrix, start, indptr), indices, indptr)
        check_csr(X, self.n_features, self._matrix, start)
        return X

    def _open_matrix(self, group: Any, open_array: Open) -> None:
        path = self._matrix
        node = _find_matrix(group, path)
        self.layout: Literal["csr", "dense"]
        self._data: Readable
        self._indices: Readable | None = None
        self._indptr: Readable | None = None
        self.nnz: int | None
        if hasattr(node, "shape"):
            self._data = open_array(path)
            if len(self._data.shape) != 2:
                raise DataError(f"{path} has {len(self._data.shape)} dimensions, not 2", self.uri)
            self.layout = "dense"
            self.n_samples, self.n_features = self._data.shape
            self.nnz = self.n_samples * self.n_features
            self.index_dtype = np.dtype(np.int32)
        elif (told := described(node, path)) is not None and told.kind == "dense":
            self._data, self.layout = RowMajor(open_array(f"{path}/values"), told.shape), "dense"
            self.n_samples, self.n_features = told.shape
            self.nnz, self.index_dtype = self.n_samples * self.n_features, np.dtype(np.int32)
        else:
            self.layout = "csr"
            kind, self.n_samples, self.n_features = (
                sparse_shape(node, path) if told is None else (told.kind, *told.shape)
            )
            names = ("data", "indices", "indptr") if told is None else told.parts
            parts = cast(tuple[Readable, Readable, Readable], tuple(open_array(f"{path}/{name}") for name in names))
            _check_sparse_arrays(*parts, self.n_features if kind == "csc" else self.n_samples, path)
            value_dtype(parts[0].dtype, path)
            if kind == "csc":
                of = {"store": self.fingerprint, "matrix": path}
                parts = rows_of_columns(parts, self.n_samples, path, of, self.listed_chunks)
            self._data, self._indices, self._indptr = parts
            self.nnz = len(self._data)
            self.index_dtype = index_dtype(self.n_features)
        self.dtype, self.came_as = value_dtype(self._data.dtype, path), self._data.dtype.name

    def _open_weights(self, group: Any, open_array: Open, weight: str | None, came_from: Mapping[str, str]) -> None:
        path = _column(weight or "weight")
        if weight or (weight is None and path in group):
            self._weight, self._weight_name = open_weights(group, path, open_array), path
            self.weight_column = _came_from(group, path, "weight", came_from)
            if self._weight.shape != (self.n_samples,):
                raise DataError(f"weights of shape {self._weight.shape} for {self.n_samples} rows", path)

    def _open_array(self, group: Any, path: str) -> ChunkedArray:
        node = group[path]
        if not hasattr(node, "shape"):
            raise DataError("is a group where an array was expected", path)
        n_absent, n_chunks, first = absent_chunks(self._root, path, self._manifest)
        if n_absent:
            self.empty_chunks[path] = f"{n_absent} of the {n_chunks} chunks of {path} are absent, {first} first"
        fill = node.metadata.fill_value if node.metadata.zarr_format == 2 else None
        refuse_packed(node.attrs.asdict(), node.dtype, path, fill)
        self._arrays.append(path)
        return ChunkedArray(node, path, self._root, self._manifest)


@functools.lru_cache(maxsize=8)
def reopen(
    uri: str,
    label: str | None,
    weight: str | None,
    task: Task,
    empty_chunks: EmptyChunks,
    labelled: bool,
    matrix: str | None,
    missing: Missing,
    fingerprint: str,
) -> ZarrRows:
    """The store of a pickled ZarrRows, opened once per process.  Raises DataError when it changed since."""
    with naming(uri):
        store = ZarrRows(
            uri, label=label, weight=weight, task=task, empty_chunks=empty_chunks, labelled=labelled, matrix=matrix,
            missing=missing, fingerprint=fingerprint,
        )  # fmt: skip
    if store.fingerprint != fingerprint:
        raise DataError("the store changed since the run began", uri)
    return store


def _came_from(group: Any, path: str, what: str, came_from: Mapping[str, str]) -> str:
    """The name of the column of labels or weights at `path`; '' if `ingest` called it so and did not record its name.

    what : label or weight;  came_from : as of `columns_of`
    """
    if path == f"obs/{what}" and is_of_ingest(group):
        return came_from.get(what, "")
    return path.removeprefix("obs/")


def _column(name: str) -> str:
    return name if "/" in name else f"obs/{name}"


def matrix_path(matrix: str | None) -> str:
    """The path of the matrix that a user named.  Raises UsageError if the name is invalid."""
    name = "X" if matrix is None else matrix.strip("/")
    head, _, rest = name.partition("/")
    if name in ("X", "raw/X") or (head in ("layers", "obsm") and rest):
        return name
    raise UsageError(f"no matrix is called {matrix!r}", hint="X, layers/NAME, obsm/NAME or raw/X")


def _find_matrix(group: Any, path: str) -> Any:
    """The array or group of a matrix.  Raises DataError; the hint lists those that exist."""
    if path in group:
        return group[path]
    if str(group.attrs.get("encoding-type", "")).startswith("annbatch"):
        parts = sorted((name for name in group if name.startswith("dataset_")), key=lambda name: (len(name), name))
        what = f"an annbatch collection of {len(parts)} stores, each of which is read by itself"
        raise DataError(what, "", "bigsvm ingest COLLECTION/dataset_0 rows.zarr, then the others with --append")
    there = ["X"] if "X" in group else []
    there += [f"{head}/{name}" for head in ("layers", "obsm") if head in group for name in sorted(group[head])]
    there += ["raw/X"] if "raw/X" in group else []
    raise DataError("no such matrix", path, f"--matrix names one of: {', '.join(there)}" if there else "")


def sparse_shape(node: Any, path: str) -> tuple[str, int, int]:
    """(csr or csc, rows, columns) of a sparse matrix from its attributes.  Raises DataError if it is not sparse."""
    attributes = dict(node.attrs)
    # names of AnnData before 0.7 (h5sparse)
    kind = attributes.get("encoding-type", attributes.get("h5sparse_format"))
    shape = attributes.get("shape", attributes.get("h5sparse_shape"))
    kinds = {"csr_matrix": "csr", "csr": "csr", "csc_matrix": "csc", "csc": "csc"}
    if kind not in kinds:
        hint = "rows are needed: a dense array, csr_matrix, csc_matrix, or a binsparse descriptor"
        raise DataError(f"{path} is stored as {kind!r}", path, hint)
    shape = shape.tolist() if isinstance(shape, np.ndarray) else shape
    if not isinstance(shape, list) or len(shape) != 2 or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise DataError(f"bad shape {shape!r}", path)
    return kinds[kind], shape[0], shape[1]


def _check_sparse_arrays(data: Readable, indices: Readable, indptr: Readable, n: int, path: str) -> None:
    """Raise DataError unless the arrays of `n` rows (for CSC: columns) are consistent."""
    if any(len(part.shape) != 1 for part in (data, indices, indptr)):
        raise DataError("data, indices and indptr must have one dimension each", path)
    if indices.dtype.kind not in "iu" or indptr.dtype.kind not in "iu":
        raise DataError(f"indices of type {indices.dtype}, indptr of type {indptr.dtype}: not both are integers", path)
    if len(indptr) != n + 1 or len(data) != len(indices):
        raise DataError(
            f"{len(data)} values, {len(indices)} indices and {len(indptr)} row pointers for {n} rows",
            path,
        )
    if int(indptr.read(0, 1)[0]) != 0 or int(indptr.read(n, n + 1)[0]) != len(data):
        raise DataError("indptr does not run from 0 to the number of values", f"{path}/indptr")


@contextmanager
def _zarr_errors(uri: str) -> Iterator[None]:
    """Raise what zarr raises for bad metadata as DataError; suppress its warnings about foreign stores."""
    try:
        with warnings.catch_warnings():
            # zarr warns that its format 3 does not specify variable-length strings, such as string categories.
            warnings.simplefilter("ignore", zarr.errors.UnstableSpecificationWarning)
            yield
    except BigSVMError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, OSError, RecursionError) as error:
        if isinstance(error, zarr.errors.ContainsArrayError) or (Path(uri) / ".zarray").exists():
            hint = "with labels it is rows, in Python: bigsvm.ingest((dask.array.from_zarr(path), y), 'rows.zarr')"
            raise DataError("one Zarr array, not a group with labels beside it", uri, hint) from error
        # zarr 3.1 reads documents of format 3 in assertions, so that with -O none is understood.
        hint = "zarr needs assertions: run without python -O and PYTHONOPTIMIZE" if sys.flags.optimize else ""
        raise DataError(f"not a store that can be read: {error}", uri, hint) from error
