"""What all rows share that are those of a store with their values changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from bigsvm.store.addresses import make_refs
from bigsvm.store.blocks import Block, BlockRef, Matrix, RowBlocks, StoreBase
from bigsvm.store.identity import Identity


class TransformedRows(StoreBase):
    """RowBlocks over a store, with other values in the same places; a subclass has `change`.

    selected, recipe : what is added to the identity and to the recipe of the store
    """

    content_fingerprint: str | None = None

    def __init__(self, store: RowBlocks, dtype: np.dtype, selected: dict[str, str], recipe: dict[str, Any]) -> None:
        self._store = store
        self.uri, self.layout, self.dtype = store.uri, store.layout, dtype
        self.n_samples, self.n_features, self.index_dtype = store.n_samples, store.n_features, store.index_dtype
        self.has_weights, self.fingerprint = store.has_weights, store.fingerprint
        self.row_order, self.working_row, self.feature_order = store.row_order, store.working_row, store.feature_order
        self.warnings, self.empty_chunks, self.feature_names = store.warnings, store.empty_chunks, store.feature_names
        self.recipe = {**store.recipe, **recipe}
        self.identity = Identity.of(store.identity.store, **{**dict(store.identity.selection), **selected})

    def change(self, X: Matrix, first_row: int) -> Matrix:
        """The values of some rows; `first_row` names them in errors."""
        raise NotImplementedError

    def over(self, store: RowBlocks) -> TransformedRows:
        """Other rows, changed alike."""
        raise NotImplementedError

    @property
    def below(self) -> RowBlocks:
        """The rows before they are changed."""
        return self._store

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

    def refs(self, block_rows: int) -> Sequence[BlockRef]:
        return make_refs(cast(RowBlocks, self), block_rows)

    def read(self, ref: BlockRef) -> Block:
        block = self._store.read(ref)
        return Block(block.start, block.stop, self.change(block.X, block.start), block.y, block.sample_weight)

    def forget(self) -> None:
        self._store.forget()
