"""A store that fits the budget: read once, kept as one block, never read again.

Rows keep the store's order, because solvers shuffle rows in memory themselves.  Features of wide sparse data are
renumbered by frequency (`working_order.py`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bigsvm.compiled.shared.rows import CSR, take_rows
from bigsvm.compiled.shared.shuffle import renumber
from bigsvm.errors import DataError
from bigsvm.store.addresses import make_refs
from bigsvm.store.blocks import Block, BlockRef, RowBlocks, StoreBase, frozen
from bigsvm.store.identity import Identity
from bigsvm.store.working_order import frequency_order, inverse_order


class ResidentRows(StoreBase):
    """All rows of `source` in memory, loaded by the first read.  Creating it may read a sample of the rows.

    A pickled copy in another process reads the rows there, once, and keeps them as long as the process lives.  The plan
    counts the rows as "resident data".
    """

    def __init__(self, source: RowBlocks, piece_rows: int) -> None:
        self.source, self.piece_rows = source, piece_rows
        for name in (
            "uri", "layout", "n_samples", "n_features", "nnz", "dtype", "index_dtype", "has_weights", "classes",
            "identity", "fingerprint", "content_fingerprint", "row_order",
        ):  # fmt: skip
            setattr(self, name, getattr(source, name))
        self.working_row: np.ndarray | None = source.working_row
        # An order of the source's features, which may have an order of their own relative to the store's.
        self._renumbering = frequency_order(source, piece_rows)
        self.feature_order = source.feature_order
        if self._renumbering is not None:
            order, before = self._renumbering, source.feature_order
            self.feature_order = order if before is None else before[order]
        self._block: Block | None = None

    # What `__init__` copies, for the type checker.
    uri: str
    layout: Any
    n_samples: int
    n_features: int
    nnz: int | None
    dtype: np.dtype
    index_dtype: np.dtype
    has_weights: bool
    classes: np.ndarray | None
    identity: Identity
    fingerprint: str
    content_fingerprint: str | None
    row_order: np.ndarray | None

    def refs(self, block_rows: int) -> Sequence[BlockRef]:
        return make_refs(self, block_rows)

    def read(self, ref: BlockRef) -> Block:
        whole = self.load()
        if (ref.start, ref.stop) == (0, self.n_samples):
            return whole
        weight = whole.sample_weight
        return Block(
            ref.start,
            ref.stop,
            take_rows(whole.X, ref.start, ref.stop),
            whole.y[ref.start : ref.stop],
            None if weight is None else weight[ref.start : ref.stop],
        )

    def load(self, seen: Callable[[Block], None] | None = None) -> Block:
        """All rows as one block.  seen : called with each piece when the rows are read, which happens only once"""
        if self._block is None:
            self._block = _load(self.source, self.piece_rows, self._renumbering, seen)
        return self._block

    def __reduce__(self) -> tuple[Any, ...]:
        return _resident, (self.source, self.piece_rows)


_open: dict[Identity, ResidentRows] = {}


def _resident(source: RowBlocks, piece_rows: int) -> ResidentRows:
    """The copy of these rows in this process, which all tasks share.  Loading other rows drops it."""
    held = _open.get(source.identity)
    if held is None:
        _open.clear()
        held = ResidentRows(source, piece_rows)
    elif held.uri != source.uri:
        # The same rows under another path.  The former path may be gone, so messages must name the new one.
        held = copy.copy(held)
        held.source, held.uri = source, source.uri
    _open[source.identity] = held
    return held


def _load(
    source: RowBlocks, piece_rows: int, feature_order: np.ndarray | None, seen: Callable[[Block], None] | None
) -> Block:
    refs = source.refs(piece_rows)
    n = source.n_samples
    weight = np.empty(n) if source.has_weights else None
    y: np.ndarray | None = None
    release = source.release
    rank = None if feature_order is None else inverse_order(feature_order)
    put_rows, finish = _dense(source) if source.layout == "dense" else _csr(source, refs, rank)
    for ref in refs:
        block = source.read(ref)
        if y is None:
            y = np.empty(n, block.y.dtype)
        y[ref.start : ref.stop] = block.y
        if weight is not None:
            weight[ref.start : ref.stop] = 1.0 if block.sample_weight is None else block.sample_weight
        put_rows(ref, block.X)
        if seen is not None:
            seen(block)
        release(ref)
    if y is None:
        raise DataError("the store has no rows", source.uri)
    return Block(0, n, finish(), y, weight)


def _dense(source: RowBlocks) -> tuple[Callable[[BlockRef, Any], None], Callable[[], Any]]:
    X = np.empty((source.n_samples, source.n_features), source.dtype)

    def put(ref: BlockRef, rows: Any) -> None:
        X[ref.start : ref.stop] = rows

    return put, lambda: X


def _csr(
    source: RowBlocks, refs: Sequence[BlockRef], rank: np.ndarray | None
) -> tuple[Callable[[BlockRef, Any], None], Callable[[], Any]]:
    # If the number of entries is unknown, they are counted in an extra pass: growing arrays would hold the data twice.
    nnz = source.nnz
    if nnz is None:
        nnz = 0
        for ref in refs:
            rows = source.read(ref).X
            assert isinstance(rows, CSR)
            nnz += len(rows.data)
    data = np.empty(nnz, source.dtype)
    indices = np.empty(nnz, source.index_dtype)
    indptr = np.zeros(source.n_samples + 1, np.int64)

    def put(ref: BlockRef, rows: CSR) -> None:
        a = indptr[ref.start]
        indptr[ref.start + 1 : ref.stop + 1] = a + rows.indptr[1:]
        b = indptr[ref.stop]
        if b > nnz:
            raise DataError(f"more entries than the {nnz} that the store announces", source.uri)
        data[a:b] = rows.data
        if rank is None:
            indices[a:b] = rows.indices
        else:
            renumber(frozen(rows.indices), frozen(rank), indices[a:b])

    return put, lambda: CSR(data, indices, indptr)
