"""Dask collections as row sources: arrays, dataframes, Delayed blocks, xarray arrays."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse

from bigsvm.compiled.cache.stamp import versions
from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError, UsageError
from bigsvm.store.ingest.collections.array_parts import (
    WHERE,
    ArrayParts,
    Told,
    beside_rows,
    check_lengths,
    make_part,
    rows_in,
)
from bigsvm.store.ingest.collections.dask_frames import Frame, FrameOptions, frame_of
from bigsvm.store.ingest.collections.dask_parts import DaskParts, partitions
from bigsvm.store.ingest.collections.lazy import is_lazy
from bigsvm.store.ingest.collections.made_rows import ChunkPlace
from bigsvm.store.ingest.sources import row_source
from bigsvm.store.ingest.sources.row_source import Rows, RowSource, stored_dtype
from bigsvm.store.ingest.sources.sequential import Sequential, take_exactly
from bigsvm.store.labels import ONE_A_ROW
from bigsvm.units import show_bytes

_A_WORKER = 3  # partitions for each thread of a worker: one being computed, one being fetched, one waiting
_REMEDY = "smaller partitions: rechunk() or repartition() the collection"


def dask_source(
    X: Any,
    y: Any,
    weights: Any,
    *,
    dtype: str | None,
    options: FrameOptions,
    memory: int | None,
    threads: int,
    client: Any,
    sequential: Callable[[Any, str], Sequential],
) -> RowSource:
    """The rows of a collection, partition by partition, in order; as many at a time as `memory` allows.

    X : a dask array (blocks dense or sparse), a dask dataframe, a Delayed or a list of them, an xarray array
    y, weights : collections partitioned alike, arrays, or None: then columns of a dataframe, or the second and third
        value of each Delayed
    client : see DaskParts
    sequential : converts an array to a `Sequential`

    Raises
    ------
    UsageError : arguments that do not go together.  DataError : bad shapes, or, while reading, a bad row or partition.
    """
    in_flight = InFlight(memory, threads)
    frame: Frame | None = None
    if hasattr(X, "columns") and hasattr(X, "_meta"):

        def of_columns(collection: Any) -> tuple[DaskParts, int]:
            parts = DaskParts([partitions(collection, None, WHERE)[0]], WHERE, client)
            return parts, in_flight.at_most(parts, 0)

        frame = frame_of(X, options, (y is not None, weights is not None), WHERE, of_columns)
        X = frame.collection
    else:
        _refuse_frame_options(options)
        if y is None and not isinstance(X, list) and type(X).__name__ != "Delayed":
            raise UsageError("arrays need labels", hint="call ingest((X, y), path)")
    blocks, lengths = partitions(X, None, WHERE)
    columns = [blocks]
    beside: list[Any] = []
    for name, given in (("y", y), ("sample_weight", weights)):
        if given is None or not is_lazy(given):
            array = None if given is None else sequential(given, name)
            beside.append(array)
            n = None if array is None else array.shape
            if lengths is not None and n is not None and n != (sum(lengths),):
                raise DataError(f"labels or weights of shape {n} for {sum(lengths)} rows", name, ONE_A_ROW)
            continue
        theirs, own = partitions(given, lengths, name)
        if lengths is not None and own is not None and sum(own) != sum(lengths):
            raise DataError(f"{sum(own)} labels or weights for {sum(lengths)} rows", name, ONE_A_ROW)
        columns.append(theirs)
        beside.append(len(columns) - 1)
    parts = DaskParts(columns, WHERE, client)
    # Without a limit on memory the number in flight does not depend on their size.
    first = parts.first(in_flight.at_most(parts, 0) if memory is None else 1)
    block_bytes = max(nbytes_of(first), 1)
    if lengths is not None:  # the first partition may be shorter than others
        block_bytes = block_bytes * max(lengths) // max(lengths[0], 1)
    at_most = in_flight.at_most(parts, block_bytes)
    reader = _Reader(parts, beside, frame, at_most, [first], dtype)
    held = (at_most + 1) * block_bytes + 4 * row_source._PART_BYTES
    return RowSource(
        WHERE, reader.layout, reader.dtype, reader.n_features,
        block_bytes * parts.n_parts, reader.rows, held,
        {} if frame is None else {"encoding": frame.encoding.document()},
        None if frame is None else frame.encoding.feature_names(),
        f"{_REMEDY} (the largest takes {show_bytes(block_bytes)})",
        [] if frame is None else frame.encoding.compiled_calls,
        reader.came_as,
        reader.take_place if reader.makes_chunks else None, () if frame is None else frame.warnings,
        reader.weights_from,
        {} if frame is None else {"label": frame.label or "", "weight": frame.weight or ""},
    )  # fmt: skip


@dataclass(frozen=True)
class InFlight:
    """The number of partitions that are computed or waiting at a time: as many as fit half of the memory."""

    memory: int | None
    threads: int

    def at_most(self, parts: DaskParts, block_bytes: int) -> int:
        wanted = self.threads if parts.workers is None else _A_WORKER * max(parts.workers, 1)
        room = wanted if self.memory is None else self.memory // 2 // max(block_bytes, 1)
        return max(1, min(wanted, room, parts.n_parts))


class _Reader:
    """Converts partitions to rows; all must be like the first.

    beside : for labels and for weights: None, the index of their collection in a partition, or an array
    first : the first partition, in a list that is emptied when it is read
    """

    def __init__(
        self,
        parts: DaskParts,
        beside: list[Any],
        frame: Frame | None,
        at_most: int,
        first: list[Any],
        dtype: str | None,
    ) -> None:
        self._parts, self._beside, self._frame, self._at_most, self._first = parts, beside, frame, at_most, first
        self._place: ChunkPlace | None = None
        self._arrays = ArrayParts(tuple(place if isinstance(place, int) else place is not None for place in beside))
        self.layout: Literal["csr", "dense"]
        self.weights_from: str | None
        if frame is not None:
            self.layout = "csr" if frame.encoding.sparse else "dense"
            self.dtype, self.came_as = stored_dtype(frame.encoding.dtype, dtype, WHERE), ""
            self.n_features = frame.encoding.n_features
            own = None if frame.weight is None else f"column {frame.weight}"
            self.weights_from = own if beside[1] is None else "sample_weight"
            return
        X, _, weights = self._arrays.split(first[0], 0)
        self.layout = "csr" if scipy.sparse.issparse(X) else "dense"
        self.dtype, self.n_features = stored_dtype(X.dtype, dtype, WHERE), int(X.shape[1])
        own = None if weights is None else "the third value of each Delayed"
        self.weights_from = own if beside[1] is None else "sample_weight"
        self.came_as = np.dtype(X.dtype).name
        self._arrays = self._arrays._replace(
            layout=self.layout, dtype=self.dtype, n_features=self.n_features, asked=dtype
        )

    @property
    def makes_chunks(self) -> bool:
        """Whether workers can make chunks: if the rows are dense, and their labels are in the same partition."""
        theirs = all(place is None or isinstance(place, int) for place in self._beside)
        return self._frame is None and self.layout == "dense" and theirs and self._parts.workers is not None

    def take_place(self, place: ChunkPlace) -> None:
        """Let workers write chunks there."""
        self._place = place

    def rows(self) -> Generator[Rows, None, None]:
        """All rows, in the order of the collection."""
        if self._place is not None:
            yield from self._made_rows(self._place)
            return
        row = consumed = 0
        computed = self._parts.computed(1, self._at_most)
        try:
            for number in range(self._parts.n_parts):
                values = self._first.pop() if number == 0 else next(computed)
                size, done = nbytes_of(values), 0
                for X, labels, weights in self._pieces(values, number, row):
                    n = len(labels)
                    done += n
                    yield Rows(X, labels, weights, consumed)
                    row += n
                del values  # frees the partition while the next one is awaited
                consumed += size
        finally:
            computed.close()
        for array in self._beside:
            if array is not None and not isinstance(array, int) and array.shape != (row,):
                raise DataError(f"{array.shape[0]} labels or weights for {row} rows", array.where, ONE_A_ROW)

    def _made_rows(self, place: ChunkPlace) -> Generator[Rows, None, None]:
        """All rows: the first partition is converted here, the others by workers."""
        values, row = self._first.pop(), 0
        size = nbytes_of(values)
        for X, labels, weights in self._pieces(values, 0, 0):
            yield Rows(X, labels, weights, 0)
            row += len(labels)
        del values

        def told(number: int, first: int) -> Told:
            return Told(place, self._arrays, number, first, versions())

        made = self._parts.made(1, self._at_most, rows_in, make_part, told, row)
        try:
            for number, part in enumerate(made, 1):
                yield Rows(part.X, part.labels, part.weights, number * size)
        finally:
            made.close()

    def _pieces(self, values: tuple[Any, ...], number: int, row: int) -> Iterator[Any]:
        """(X, labels, weights) of the partition, in pieces of bounded size."""
        X: Any
        if self._frame is None:
            X, labels, weights = self._arrays.split(values, number)
            self._arrays.check_alike(X, number)
        else:
            X, labels, weights = values[0], *(self._arrays.own(values, which) for which in (0, 1))
        n = X.shape[0]
        check_lengths(n, labels, weights, number)
        step = max(1, min(row_source._PART_ROWS, row_source._PART_BYTES * n // max(nbytes_of((X,)), 1)))
        for start in range(0, n, step):
            stop = min(start + step, n)
            if self._frame is not None:
                matrix, own, own_weights = self._frame.rows(X.iloc[start:stop], self.dtype, number, row)
            else:
                matrix, own, own_weights = self._arrays.matrix(X[start:stop], row), None, None
            kept = len(matrix.indptr) - 1 if isinstance(matrix, CSR) else len(matrix)
            found = [
                mine if mine is not None else self._taken(given, which, start, stop, row)
                for which, (mine, given) in enumerate(((own, labels), (own_weights, weights)))
            ]
            if kept:
                yield matrix, found[0], found[1]
            row += kept

    def _taken(self, given: Any, which: int, start: int, stop: int, row: int) -> np.ndarray | None:
        """Labels (0) or weights (1) of some rows of a partition: from the partition, or from the array beside."""
        if given is not None:
            return beside_rows(given[start:stop], which, row)
        array = self._beside[which]
        return None if array is None else take_exactly(array, stop - start, row)


def _refuse_frame_options(options: FrameOptions) -> None:
    given = {
        "columns": options.columns,
        "hash_bits": options.hash_bits,
        "label": options.label,
        "weight": options.weight,
    }
    given["missing"] = "drop" if options.missing == "drop" else None
    for name in (name for name, value in given.items() if value):
        raise UsageError(f"--{name.replace('_', '-')} is for dataframes", WHERE, "leave it out")


def nbytes_of(values: tuple[Any, ...]) -> int:
    """Bytes of the parts of a partition in memory."""
    total = 0
    for part in values:
        if isinstance(part, tuple):
            total += nbytes_of(part)
        elif hasattr(part, "memory_usage"):
            usage = part.memory_usage(deep=True)
            total += int(usage.sum()) if hasattr(usage, "sum") else int(usage)
        elif scipy.sparse.issparse(part):
            total += sum(getattr(part, name).nbytes for name in ("data", "indices", "indptr") if hasattr(part, name))
        else:
            total += int(getattr(part, "nbytes", 0))
    return total
