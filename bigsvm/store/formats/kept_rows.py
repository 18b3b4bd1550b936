"""The labelled rows of a store that was opened with missing="drop"."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, cast

import numpy as np

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError
from bigsvm.store.addresses import make_refs
from bigsvm.store.blocks import Block, BlockRef, CompiledCall, Matrix, RowBlocks, StoreBase, bounds, tile
from bigsvm.store.formats.array_rows import gather_rows
from bigsvm.store.identity import Identity
from bigsvm.store.labels import check_weights
from bigsvm.store.transforms.expression import Column

_STEP = 1 << 16  # rows that are counted together
_SPAN = 4096  # least number of rows that are read at a time if few of them are kept


class Marked(Protocol):
    """A store that was opened with missing="drop": rows without a label have an arbitrary label, and are marked."""

    def labelled_rows(self) -> np.ndarray:
        """Whether each row has a label, packed: bit i of byte i // 8, most significant bit first."""
        ...

    def entries_of(self, start: int, stop: int) -> int:
        """Number of stored entries of the labelled rows among rows [start, stop)."""
        ...


class KeptRows(StoreBase):
    """RowBlocks over the labelled rows of a store, in its order; holds one bit for each of its rows.

    Errors name rows by their number in the store.
    """

    content_fingerprint: str | None = None

    def __init__(self, store: RowBlocks, kept: np.ndarray) -> None:
        self._store, self._kept = store, kept
        self._bad_between = False  # rows that are left out have values that the store refuses
        self._before = np.concatenate([[0], np.cumsum([self._bits(a).sum() for a in range(0, store.n_samples, _STEP)])])
        self.n_samples = int(self._before[-1])
        if self.n_samples == 0:
            raise DataError("no row has a label", store.uri)
        self.uri, self.layout, self.n_features = store.uri, store.layout, store.n_features
        self.dtype, self.index_dtype, self.has_weights = store.dtype, store.index_dtype, store.has_weights
        self.fingerprint, self.recipe, self.feature_names = store.fingerprint, store.recipe, store.feature_names
        self.empty_chunks = store.empty_chunks
        n_missing = store.n_samples - self.n_samples
        self.warnings = [*store.warnings, f"{n_missing} of the {store.n_samples} rows have no label and are left out"]
        self.identity = Identity.of(store.identity.store, **{**dict(store.identity.selection), "missing": "drop"})
        self._nnz: int | None = None

    def __reduce__(self) -> tuple[Callable[..., KeptRows], tuple[Any, ...]]:
        return of_store, (self._store,)

    def __repr__(self) -> str:
        return f"KeptRows({self._store!r}, {self.n_samples} of its rows)"

    @property
    def below(self) -> RowBlocks:
        """The underlying store, with all of its rows."""
        return self._store

    @property
    def classes(self) -> np.ndarray | None:
        """Labels in ascending order; None for a regression target."""
        return self._store.classes

    @property
    def chunk_nbytes(self) -> int:
        """As for the store, plus the rows between those that are kept."""
        return self._store.chunk_nbytes + len(self._kept)

    @property
    def compiled_calls(self) -> Sequence[CompiledCall]:
        """As for the store."""
        return self._store.compiled_calls

    @property
    def nnz(self) -> int | None:
        """Number of stored entries of the kept rows; the first call counts them."""
        if self.layout == "dense":
            return self.n_samples * self.n_features
        if self._nnz is None:
            count = 0
            for start, stop in tile(self.n_samples, _SPAN):
                for a, b in _runs(self._places(start, stop)):
                    count += cast(Marked, self._store).entries_of(a, b)
            self._nnz = count
        return self._nnz

    def store_rows(self, start: int, stop: int) -> np.ndarray:
        """The row numbers in the store of rows [start, stop), int64."""
        return self._places(start, stop)

    @property
    def labels_between(self) -> Callable[[int, int], np.ndarray] | None:
        """Class codes or targets of rows [start, stop), if the store knows them without reading X; else None."""
        read = getattr(self._store, "labels_between", None)
        return None if read is None else functools.partial(self._labels_between, read)

    def _labels_between(self, read: Callable[[int, int], np.ndarray], start: int, stop: int) -> np.ndarray:
        return np.concatenate([read(a, b)[some - a] for a, b, some in _spans(self._places(start, stop))])

    def columns_between(self, names: Sequence[str], start: int, stop: int) -> dict[str, Column]:
        """The named columns of rows [start, stop), if the store has columns."""
        read = getattr(self._store, "columns_between", None)
        if read is None:
            raise DataError("has no columns beside its rows", self.uri)
        found = []
        for a, b, some in _spans(self._places(start, stop)):
            there = read(names, a, b)
            found.append({name: [part[some - a] for part in column] for name, column in there.items()})
        return {
            name: Column(*(np.concatenate(parts) for parts in zip(*(one[name] for one in found), strict=True)))
            for name in found[0]
        }

    def refs(self, block_rows: int) -> Sequence[BlockRef]:
        return make_refs(cast(RowBlocks, self), block_rows)

    def read(self, ref: BlockRef) -> Block:
        start, stop = bounds(ref, self.n_samples, self.uri)
        places = self._places(start, stop)
        parts: list[Block] = []
        at, step = 0, max(stop - start, min(_SPAN, 4 * (stop - start)))
        while at < len(places):  # skip wide gaps, and read across narrow ones
            end = int(np.searchsorted(places, places[at] + step))
            parts += self._rows_at(places[at:end])
            at = end
        weights = [part.sample_weight for part in parts if part.sample_weight is not None]
        y = np.concatenate([part.y for part in parts])
        X = joined_rows([part.X for part in parts])
        # the store leaves the check of weights to this class, which knows the rows that count
        weight = check_weights(np.concatenate(weights), self.uri, rows=places) if weights else None
        return Block(start, stop, X, y, weight)

    def forget(self) -> None:
        self._store.forget()

    def _rows_at(self, places: np.ndarray) -> list[Block]:
        """The rows of the store at ascending places, in parts.

        The store checks the values of all rows that it reads.  Once it has refused one between the places, which does
        not count, only rows that are kept are read, run by run: each failed attempt leaves the reader's place in a
        compressed file or a row group, so that the next read begins there anew.
        """
        first, stop = int(places[0]), int(places[-1]) + 1
        if not self._bad_between:
            try:
                return [_chosen(self._store.read(BlockRef(first, stop, 0)), places - first)]
            except DataError:
                if stop - first == len(places):
                    raise
            self._bad_between = True
        return [self._store.read(BlockRef(a, b, 0)) for a, b in _runs(places)]

    def _bits(self, start: int) -> np.ndarray:
        """Whether rows [start, start + _STEP) are kept; `start` must be a multiple of _STEP."""
        stop = min(start + _STEP, self._store.n_samples)
        return np.unpackbits(self._kept[start // 8 : -(-stop // 8)])[: stop - start]

    def _places(self, start: int, stop: int) -> np.ndarray:
        """The row numbers in the store of the kept rows [start, stop), int64."""
        found = []
        step = int(np.searchsorted(self._before, start, "right")) - 1
        while start < stop:
            rows = np.flatnonzero(self._bits(step * _STEP)) + step * _STEP
            first = int(self._before[step])
            taken = rows[start - first : stop - first]
            found.append(taken)
            start, step = start + len(taken), step + 1
        return np.concatenate(found)


def labelled_only(store: Any) -> RowBlocks:
    """The labelled rows of a store opened with missing="drop"; the store itself if all rows have a label."""
    kept = store.labelled_rows()
    return store if int(np.unpackbits(kept)[: store.n_samples].sum()) == store.n_samples else KeptRows(store, kept)


def of_store(store: Any) -> KeptRows:
    """Rebuild a pickled KeptRows."""
    return KeptRows(store, store.labelled_rows())


def joined_rows(parts: list[Matrix]) -> Matrix:
    """Concatenate matrices of rows."""
    if len(parts) == 1:
        return parts[0]
    sparse = [part for part in parts if isinstance(part, CSR)]
    if not sparse:
        return np.concatenate(cast(list[np.ndarray], parts))
    pointers = [np.zeros(1, np.int64)]
    for part in sparse:
        pointers.append(part.indptr[1:] + pointers[-1][-1])
    data, indices = (np.concatenate([part[k] for part in sparse]) for k in (0, 1))
    return CSR(data, indices, np.concatenate(pointers))


def _chosen(block: Block, rows: np.ndarray) -> Block:
    if len(rows) == block.n_rows:
        return block
    X = gather_rows(block.X, rows) if isinstance(block.X, CSR) else np.ascontiguousarray(block.X[rows])
    weight = None if block.sample_weight is None else block.sample_weight[rows]
    return Block(0, len(rows), X, block.y[rows], weight)


def _spans(places: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
    """(a, b, places within [a, b)): the places in parts, so that rows between those far apart are not held together."""
    at = 0
    while at < len(places):
        first = int(places[at])
        end = int(np.searchsorted(places, first + _STEP))
        yield first, int(places[end - 1]) + 1, places[at:end]
        at = end


def _runs(places: np.ndarray) -> list[tuple[int, int]]:
    """Half-open ranges of consecutive numbers."""
    ends = np.flatnonzero(np.diff(places) > 1) + 1
    edges = np.concatenate([[0], ends, [len(places)]])
    return [(int(places[a]), int(places[b - 1]) + 1) for a, b in itertools.pairwise(edges)]
