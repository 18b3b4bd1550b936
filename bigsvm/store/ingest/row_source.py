"""Rows of arrays, of files of arrays and of other stores, on their way into a store."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError
from bigsvm.store.blocks import CompiledCall, Matrix, RowBlocks, row_bytes
from bigsvm.store.checks import as_values, check_csr, check_finite, first_fall, unmasked, value_dtype
from bigsvm.store.ingest.sequential import Sequential, take_exactly
from bigsvm.store.labels import ONE_A_ROW, CodedLabels
from bigsvm.store.transforms.label_sets import LABEL_SETS
from bigsvm.units import MIB

_PART_BYTES = 4 * MIB  # of decoded rows; what a part of a source comes to
_PART_ROWS = 65536


class Rows(NamedTuple):
    """Some rows, in order.

    X : dense (n, n_features) or CSR with ascending indices, finite, in the dtype wanted; or `MadeRows`
    labels : float64 or strings, shape (n,), or strings by their codes
    weights : shape (n,), or None
    consumed : bytes of the source read so far
    """

    X: Any
    labels: np.ndarray | CodedLabels
    weights: np.ndarray | None
    consumed: int


@dataclass
class RowSource:
    """Where rows come from, and what the writer must know before the first."""

    where: str
    layout: Literal["csr", "dense"]
    dtype: np.dtype
    n_features: int | None
    has_weights: bool
    total_bytes: int
    rows: Callable[[], Generator[Rows, None, None]]
    held_bytes: int = 4 * _PART_BYTES
    """What reading holds at least: parts that are read, waiting and being written."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    feature_names: Sequence[str] | None = None
    remedy: str = "a smaller --chunk-bytes"
    """What to try where memory does not suffice."""
    compiled_calls: Sequence[CompiledCall] = ()
    """What reading such rows calls of compiled code."""
    came_as: str = ""
    """Type of the values as they came, where they may be read as another one."""
    placed: Callable[[Any], None] | None = None
    """Takes the `ChunkPlace` where workers may write, before `rows` is called; None: nobody would."""


def stored_dtype(given: np.dtype, wanted: str | None, where: str) -> np.dtype:
    """The dtype of a store for values of dtype `given`: that in which a fit would read them (`checks.value_dtype`).

    wanted : float32 or float64, or None for what `given` says

    Raises
    ------
    DataError : not numbers.
    """
    kept = value_dtype(given, where)
    return kept if wanted is None else np.dtype(wanted)


def array_source(X: Sequential, y: Sequential, weights: Sequential | None, dtype: str | None) -> RowSource:
    """Rows of a dense array.

    Raises
    ------
    DataError : shapes that do not go together; while reading, values that are not finite (names the row).
    """
    if len(X.shape) != 2:
        raise DataError(f"X has shape {X.shape}", X.where, "X has rows and columns")
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
    return RowSource(X.where, "dense", out, n_features, weights is not None, total, rows, came_as=X.dtype.name)


def csr_source(
    parts: tuple[Sequential, Sequential, Sequential],
    n_features: int | None,
    y: Sequential,
    weights: Sequential | None,
    dtype: str | None,
) -> RowSource:
    """Rows of a CSR matrix, given as (data, indices, indptr).

    Raises
    ------
    DataError : arrays that do not go together; while reading, an indptr that falls, an index out of range, a
    value that is not finite (each names the row).
    """
    data, indices, indptr = parts
    for part in parts:
        if len(part.shape) != 1:
            raise DataError(f"has shape {part.shape}, not one dimension", part.where)
    for part in (indices, indptr):
        if part.dtype.kind not in "iu":
            raise DataError(f"is of type {part.dtype}, not of integers", part.where)
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

    total, has_weights = nnz * entry, weights is not None
    return RowSource(data.where, "csr", out, n_features, has_weights, total, rows, came_as=data.dtype.name)


def _pointer_parts(indptr: Sequential, n_samples: int, nnz: int, entries: int) -> Iterator[np.ndarray]:
    """indptr of consecutive parts of at most `entries` entries (or one row), each from 0 as int64."""
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
            raise DataError(f"falls, or passes the {nnz} entries, at or after row {at}", indptr.where)
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
    """Rows of another store, in its order; classes become labels again."""
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

    total = int(row_bytes(store) * store.n_samples)
    held = 2 * _PART_BYTES + 3 * store.chunk_nbytes
    return RowSource(
        store.uri, store.layout, out, store.n_features, store.has_weights, total, rows, held,
        _recipe_of(store), store.feature_names, compiled_calls=store.compiled_calls,
        came_as=getattr(store, "came_as", ""),
    )  # fmt: skip


def _recipe_of(store: RowBlocks) -> dict[str, Any]:
    """What a store that is made of another says of its rows; sets of labels are its own labels then, as text."""
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
    """CSR in `dtype` with ascending indices in each row.

    Raises
    ------
    DataError : names the row of what is inconsistent, out of range, twice in a row or not finite.
    """
    # What float32 cannot hold becomes infinite, and is refused by its row.
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
        raise DataError(f"labels have shape {labels.shape}", y.where, "one label a row")
    return Rows(X, labels, None if weights is None else take_exactly(weights, n, first_row), consumed)


def _same_length(n_samples: int, y: Sequential, weights: Sequential | None) -> None:
    for what, part in (("labels", y), ("weights", weights)):
        if part is not None and part.shape != (n_samples,):
            raise DataError(f"{what} of shape {part.shape} for {n_samples} rows", part.where, ONE_A_ROW)
