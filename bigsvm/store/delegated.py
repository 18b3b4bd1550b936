"""What all rows share that are those of a store in their order, with something changed as they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from bigsvm.store.addresses import make_refs
from bigsvm.store.blocks import Block, BlockRef, CompiledCall, RowBlocks, StoreBase
from bigsvm.store.identity import Identity


class DelegatedRows(StoreBase):
    """RowBlocks over a store, block by block; a subclass has `changed`.

    selected, recipe : what is added to the identity and to the recipe of the store
    dtype : of the values; None: the store's
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
        """A block of the store as these rows have it."""
        raise NotImplementedError

    def over(self, store: RowBlocks) -> DelegatedRows:
        """Other rows, changed alike."""
        raise NotImplementedError

    @property
    def below(self) -> RowBlocks:
        """The rows before they are changed."""
        return self._store

    @property
    def row_lengths(self) -> Callable[[int, int], np.ndarray] | None:
        """Of what keeps pointers to its rows: entries of each of rows [start, stop)."""
        return getattr(self._store, "row_lengths", None)

    @property
    def classes(self) -> np.ndarray | None:
        """Labels in ascending order; None for a regression target."""
        return self._store.classes

    @property
    def nnz(self) -> int | None:
        """Stored entries, those of the store."""
        return self._store.nnz

    @property
    def chunk_nbytes(self) -> int:
        """As of the store."""
        return self._store.chunk_nbytes

    @property
    def compiled_calls(self) -> Sequence[CompiledCall]:
        """As of the store."""
        return self._store.compiled_calls

    def refs(self, block_rows: int) -> Sequence[BlockRef]:
        return make_refs(cast(RowBlocks, self), block_rows)

    def read(self, ref: BlockRef) -> Block:
        return self.changed(self._store.read(ref))

    def forget(self) -> None:
        self._store.forget()


def content_but_classes(store: RowBlocks) -> Mapping[str, Any]:
    """What is known of the columns of a store; counts of its classes would be of other rows, or of other classes."""
    return {name: value for name, value in store.content.items() if name != "class_counts"}
