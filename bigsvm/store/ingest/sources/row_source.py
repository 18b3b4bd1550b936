"""Sources of rows for `ingest`: arrays, files of arrays, and other stores."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError
from bigsvm.store.blocks import CompiledCall, Matrix, RowBlocks, row_bytes
from bigsvm.store.checks import as_values, check_csr, check_finite, first_fall, value_dtype
from bigsvm.store.delegated import check_unchanged
from bigsvm.store.frames.values import unmasked
from bigsvm.store.ingest.sources.sequential import Sequential, take_exactly
from bigsvm.store.labels import ONE_A_ROW, CodedLabels
from bigsvm.store.transforms.label_sets import LABEL_SETS
from bigsvm.units import MIB, counted

_PART_BYTES = 4 * MIB  # bytes of decoded rows in a part of a source, about
_PART_ROWS = 65536


class Rows(NamedTuple):
    """Consecutive rows.

    X : dense (n, n_features) or CSR with ascending indices; finite, in the dtype of the store; or `MadeRows`
    labels : float64 or strings, shape (n,), or codes of strings
    weights : shape (n,), or None
    consumed : bytes of the source that were read so far
    """

    X: Any
    labels: np.ndarray | CodedLabels
    weights: np.ndarray | None
    consumed: int


@dataclass
class RowSource:
    """An iterator of rows, and the properties that the writer must know before the first row."""

    where: str
    layout: Literal["csr", "dense"]
    dtype: np.dtype
    n_features: int | None
    total_bytes: int
    rows: Callable[[], Generator[Rows, None, None]]
    held_bytes: int = 4 * _PART_BYTES
    """Least bytes that reading holds: parts being read, waiting and being written."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    feature_names: Sequence[str] | None = None
    remedy: str = "a smaller --chunk-bytes"
    """What to try if the memory does not suffice, for messages."""
    compiled_calls: Sequence[CompiledCall] = ()
    """The compiled functions that reading calls."""
    came_as: str = ""
    """The dtype of the values in the source, if they may be read as another one."""
    placed: Callable[[Any], None] | None = None
    """Called before `rows` with the `ChunkPlace` for workers; None if no workers would write there."""
    warnings: Sequence[str] = ()
    """What to tell of the columns that were chosen."""
    weights_from: str | None = None
    """The column, array or file that the weights of rows come from; None if there are none."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """`label`, `weight` -> the name of the column that they come from; '' or absent if it is not known."""

    @property
    def has_weights(self) -> bool:
        return self.weights_from is not None


def stored_dtype(given: np.dtype, wanted: str | None, where: str) -> np.dtype:
    """The dtype of a store for values of dtype `given`: that in which a fit reads them (`checks.value_dtype`).

    wanted : float32 or float64, or None to choose by `given`

    Raises
    ------
    DataError : the values are not numbers.
    """
    kept = value_dtype(given, where)
    return kept if wanted is None else np.dtype(wanted)


def array_source(X: Sequential, y: Sequential, weights: Sequential | None, dtype: str | None) -> RowSource:
    """The rows of a dense array.

    Raises
    ------
    DataError : shapes do not go together; or, while reading, a value is not finite (names the row).
    """
    if len(X.shape) != 2:
        raise DataError(f"X has shape {X.shape}", X.where, "X must have two dimensions")
    n_samples, n_features = X.shape
    _same_length(n_samples, y, weights)
    out = stored_dtype(X.dtype, dtype, X.where)
    row_nbytes = n_features * X.dtype.itemsize
    step = max(1, min(_PART_ROWS, _PART_BYTES // max(1, row_nbytes)))

    def rows() -> Generator[Rows, None, None]:
        row = consumed = 0
        while row < n_samples:
            part = X.take(step)
            n = part.shape[0]
            consumed += n * row_nbytes
            block = as_values(unmasked(part, X.where, row), out, X.where, row)
            check_finite(block, X.where, row)
            yield _rows(block, y, weights, n, row, consumed)
            row += n

    total = n_samples * row_nbytes
    held = 4 * _PART_BYTES + X.held_bytes
    return RowSource(
        X.where, "dense", out, n_features, total, rows, held, came_as=X.dtype.name,
        weights_from=None if weights is None else weights.where,
    )  # fmt: skip


def csr_source(
    parts: tuple[Sequential, Sequential, Sequential],
    n_features: int | None,
    y: Sequential,
    weights: Sequential | None,
    dtype: str | None,
) -> RowSource:
    """The rows of a CSR matrix, given as (data, indices, indptr).

    Raises
    ------
    DataError : the arrays do not go together; or, while reading, an indptr that is not ascending, an index out of
        range, or a value that is not finite (names the row).
    """
    data, indices, indptr = parts
    for part in parts:
        if len(part.shape) != 1:
            raise DataError(f"has shape {part.shape}, not one dimension", part.where)
    for part in (indices, indptr):
        if part.dtype.kind not in "iu":
            raise DataError(f"has dtype {part.dtype}, not integers", part.where)
    if data.shape != indices.shape or indptr.shape[0] < 1:
        raise DataError(f"{data.shape[0]} values, {indices.shape[0]} indices", data.where)
    n_samples, nnz = indptr.shape[0] - 1, data.shape[0]
    _same_length(n_samples, y, weights)
    out = stored_dtype(data.dtype, dtype, data.where)
    limit = 2**63 - 1 if n_features is None else n_features
    entry = data.dtype.itemsize + indices.dtype.itemsize

    def rows() -> Generator[Rows, None, None]:
        row = consumed = 0
        for part in _pointer_parts(indptr, n_samples, nnz, max(1, _PART_BYTES // entry)):
            n, n_entries = len(part) - 1, int(part[-1])
            consumed += n_entries * entry
            X = ascending_csr(data.take(n_entries), indices.take(n_entries), part, limit, out, data.where, row)
            yield _rows(X, y, weights, n, row, consumed)
            row += n

    return RowSource(
        data.where, "csr", out, n_features, nnz * entry, rows, came_as=data.dtype.name,
        weights_from=None if weights is None else weights.where,
    )  # fmt: skip


def _pointer_parts(indptr: Sequential, n_samples: int, nnz: int, entries: int) -> Iterator[np.ndarray]:
    """Parts of indptr with at most `entries` entries (or one row) each, shifted to begin with 0; int64."""
    last, row = int(take_exactly(indptr, 1)[0]), 0
    if last != 0:
        raise DataError(f"begins with {last}, not 0", indptr.where)
    while row < n_samples:
        ends = np.asarray(indptr.take(_PART_ROWS)).astype(np.int64)
        if len(ends) == 0:
            raise DataError("ends too early", indptr.where)
        pointers = np.concatenate([[last], ends])
        falls = np.flatnonzero(np.diff(pointers) < 0)
        if len(falls) or pointers[-1] > nnz:
            at = row + int(falls[0]) if len(falls) else row
            raise DataError(f"is not ascending, or goes beyond the {nnz} entries, at or after row {at}", indptr.where)
        start = 0
        while start < len(ends):
            stop = int(np.searchsorted(pointers, pointers[start] + entries, "right")) - 1
            stop = max(stop, start + 1)
            yield pointers[start : stop + 1] - pointers[start]
            start = stop
        last, row = int(ends[-1]), row + len(ends)
    if last != nnz:
        raise DataError(f"ends with {last}, but there are {nnz} entries", indptr.where)


def store_source(store: RowBlocks, dtype: str | None) -> RowSource:
    """The rows of another store, in its order; class codes become labels again.

    Raises DataError for a row that is known to be bad.
    """
    store.refuse_known()
    block_rows = max(1, min(_PART_ROWS, int(_PART_BYTES / max(row_bytes(store), 1))))
    out = np.dtype(dtype) if dtype is not None else store.dtype

    def rows() -> Generator[Rows, None, None]:
        consumed = 0
        for ref in store.refs(block_rows):
            block = store.read(ref)
            labels: np.ndarray | CodedLabels = block.y
            if store.classes is not None:
                coded = CodedLabels(store.classes, block.y)
                labels = coded if store.classes.dtype.kind == "U" else store.classes[block.y]
            consumed += block.nbytes
            X: Matrix
            if isinstance(block.X, CSR):
                X = block.X._replace(data=as_values(block.X.data, out, store.uri, ref.start, block.X.indptr))
            else:
                X = as_values(block.X, out, store.uri, ref.start)
            check_finite(X, store.uri, ref.start)
            yield Rows(X, labels, block.sample_weight, consumed)
        check_unchanged(store)

    total = int(row_bytes(store) * store.n_samples)
    held = 2 * _PART_BYTES + 3 * store.chunk_nbytes
    return RowSource(
        store.uri, store.layout, out, store.n_features, total, rows, held,
        _recipe_of(store), store.feature_names, compiled_calls=store.compiled_calls,
        came_as=getattr(store, "came_as", ""), weights_from=_weights_from(store),
        columns=_columns_of(store),
    )  # fmt: skip


def _weights_from(store: RowBlocks) -> str | None:
    """What the weights of a store are called in the summary: a column, an array of the caller, or the store."""
    if not store.has_weights:
        return None
    uri, given = store.uri, getattr(store, "given", None) is not None
    column = getattr(_lowest(store), "weight_column", "")
    return f"column {column}" if column else "sample_weight" if given else uri


def _columns_of(store: RowBlocks) -> dict[str, str]:
    """The columns that the labels and weights of a store come from; of several columns of labels none is said."""
    lowest = _lowest(store)
    label = "" if LABEL_SETS in store.recipe else getattr(lowest, "label_column", "")
    return {"label": label, "weight": getattr(lowest, "weight_column", "")}


def _lowest(store: RowBlocks) -> RowBlocks:
    """The store that is read, below all that change its rows, which keep its labels' and weights' columns."""
    while (below := getattr(store, "below", None)) is not None:
        store = below
    return store


def _recipe_of(store: RowBlocks) -> dict[str, Any]:
    """The recipe of a store that is made from another; sets of labels are then text labels."""
    found = {name: value for name, value in store.recipe.items() if name not in ("matrix", "chosen")}
    if LABEL_SETS in found:
        found[LABEL_SETS] = {**found[LABEL_SETS], "columns": None}
    return found


def ascending_csr(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    n_features: int,
    dtype: np.dtype,
    where: str,
    first_row: int,
) -> CSR:
    """A CSR matrix in `dtype`, with ascending indices in each row.

    Raises
    ------
    DataError : an index is out of range or occurs twice in a row, or a value is not finite; names the row.
    """
    # Values beyond the range of float32 become infinite, and are refused with their row.
    values = as_values(data, dtype, where, first_row, indptr)
    if indices.dtype not in (np.dtype(np.int32), np.dtype(np.int64)):
        indices = indices.astype(np.int64)
    X = CSR(values, indices, np.asarray(indptr, np.int64))
    check_csr(X, n_features, where, first_row)
    if first_fall(X) < 0:
        return X
    width = int(X.indices.max()) + 1
    S = scipy.sparse.csr_matrix((X.data, X.indices, X.indptr), shape=(len(X.indptr) - 1, width), copy=True)
    S.sort_indices()
    return CSR(S.data, S.indices, S.indptr.astype(np.int64))


def _rows(X: Matrix, y: Sequential, weights: Sequential | None, n: int, first_row: int, consumed: int) -> Rows:
    labels = take_exactly(y, n, first_row)
    if labels.ndim != 1:
        raise DataError(f"labels have shape {labels.shape}", y.where, "there must be one label for each row")
    return Rows(X, labels, None if weights is None else take_exactly(weights, n, first_row), consumed)


def _same_length(n_samples: int, y: Sequential, weights: Sequential | None) -> None:
    for what, part in (("labels", y), ("weights", weights)):
        if part is not None and part.shape != (n_samples,):
            raise DataError(f"{what} of shape {part.shape} for {counted(n_samples, 'row')}", part.where, ONE_A_ROW)
