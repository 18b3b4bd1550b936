"""Base class of stores that read another store, and change each block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from bigsvm.store.addresses import make_refs
from bigsvm.store.blocks import Block, BlockRef, CompiledCall, RowBlocks, StoreBase
from bigsvm.store.identity import Identity


class DelegatedRows(StoreBase):
    """The rows of another store, in the same order, with each block changed by the subclass's `changed`.

    selected, recipe : entries added to the identity, and to the recipe, of the store
    dtype : of the values; None: that of the store
    """

    content_fingerprint: str | None = None

    def __init__(
        self,
        store: RowBlocks,
        selected: Mapping[str, str],
        recipe: Mapping[str, Any] | None = None,
        dtype: np.dtype | None = None,
    ) -> None:
        self._store = store
        self.uri, self.layout, self.dtype = store.uri, store.layout, store.dtype if dtype is None else dtype
        self.n_samples, self.n_features, self.index_dtype = store.n_samples, store.n_features, store.index_dtype
        self.has_weights, self.fingerprint = store.has_weights, store.fingerprint
        self.row_order, self.working_row, self.feature_order = store.row_order, store.working_row, store.feature_order
        self.warnings, self.empty_chunks, self.feature_names = store.warnings, store.empty_chunks, store.feature_names
        self.came_as = getattr(store, "came_as", "")
        self.recipe = {**store.recipe, **(recipe or {})}
        self.identity = Identity.of(store.identity.store, **{**dict(store.identity.selection), **selected})

    def changed(self, block: Block) -> Block:
        """The changed block, for a block of the store."""
        raise NotImplementedError

    def over(self, store: RowBlocks) -> DelegatedRows:
        """The same change applied to another store."""
        raise NotImplementedError

    @property
    def below(self) -> RowBlocks:
        """The store whose rows are changed."""
        return self._store

    @property
    def row_lengths(self) -> Callable[[int, int], np.ndarray] | None:
        """The number of entries in each of rows [start, stop), if the store knows it from its row pointers."""
        return getattr(self._store, "row_lengths", None)

    @property
    def classes(self) -> np.ndarray | None:
        """Labels in ascending order; None for a regression target."""
        return self._store.classes

    @property
    def nnz(self) -> int | None:
        """Stored entries, as in the store."""
        return self._store.nnz

    @property
    def chunk_nbytes(self) -> int:
        """As in the store."""
        return self._store.chunk_nbytes

    @property
    def compiled_calls(self) -> Sequence[CompiledCall]:
        """As in the store."""
        return self._store.compiled_calls

    def refuse_known(self) -> None:
        """As in the store."""
        self._store.refuse_known()

    def refs(self, block_rows: int) -> Sequence[BlockRef]:
        return make_refs(cast(RowBlocks, self), block_rows)

    def read(self, ref: BlockRef) -> Block:
        return self.changed(self._store.read(ref))

    def forget(self) -> None:
        self._store.forget()


def check_unchanged(store: RowBlocks) -> None:
    """Raise DataError if files of a store changed since it was opened; for use after the last reading.

    Each reading checks its files when it begins.  What changes after that is found here, before any result is shown.
    """
    rows: Any = store
    while rows is not None:
        check = getattr(rows, "check_files", None)
        if check is not None:
            check()
        rows = getattr(rows, "below", None)


def chunks_below(store: RowBlocks) -> Any:
    """The `ListedChunks` of X where the rows are in a Zarr store; None in other formats, which know changed files."""
    rows: Any = store
    while rows is not None and getattr(rows, "listed_chunks", None) is None:
        rows = getattr(rows, "below", None)
    return None if rows is None else rows.listed_chunks


def check_chunks(store: RowBlocks) -> None:
    """Raise DataError if the chunks of a Zarr store are not those that its manifest lists.

    For whoever takes something for unchanged because the fingerprint is, and reads no row.  Chunks are read if the
    status of their files is another one than when they were last found right, or if they never were.
    """
    chunks = chunks_below(store)
    if chunks is not None:
        chunks.check()


def content_but_classes(store: RowBlocks) -> Mapping[str, Any]:
    """`content` without the class counts, which do not hold for the changed rows."""
    return {name: value for name, value in store.content.items() if name != "class_counts"}
