"""The rows of a store but for one fold: its rows weigh 0, and so take no part in a fit by any solver."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from bigsvm.run.tune.folds import Folds
from bigsvm.store.addresses import make_refs
from bigsvm.store.blocks import Block, BlockRef, RowBlocks, StoreBase
from bigsvm.store.identity import Identity, digest_of


class TrainingRows(StoreBase):
    """RowBlocks over a store, with weight 0 for the rows of fold `held_out`; the folds belong to the identity."""

    content_fingerprint: str | None = None
    has_weights = True

    def __init__(self, store: RowBlocks, folds: Folds, held_out: int) -> None:
        self._store, self._folds, self._held_out = store, folds, held_out
        self.uri, self.layout, self.dtype = store.uri, store.layout, store.dtype
        self.n_samples, self.n_features, self.index_dtype = store.n_samples, store.n_features, store.index_dtype
        self.fingerprint, self.recipe = store.fingerprint, store.recipe
        self.row_order, self.working_row, self.feature_order = store.row_order, store.working_row, store.feature_order
        self.empty_chunks, self.feature_names = store.empty_chunks, store.feature_names
        self.classes = store.classes
        said = f"{held_out} of {digest_of(folds.document())}"
        self.identity = Identity.of(store.identity.store, **{**dict(store.identity.selection), "without_fold": said})

    @property
    def nnz(self) -> int | None:
        """Stored entries, those of the store."""
        return self._store.nnz

    @property
    def content(self) -> Any:
        """What is known of the columns: the same rows are read."""
        return self._store.content

    @property
    def chunk_nbytes(self) -> int:
        """As of the store."""
        return self._store.chunk_nbytes

    def refs(self, block_rows: int) -> Sequence[BlockRef]:
        return make_refs(cast(RowBlocks, self), block_rows)

    def read(self, ref: BlockRef) -> Block:
        block = self._store.read(ref)
        weight = np.ones(block.n_rows) if block.sample_weight is None else block.sample_weight.copy()
        weight[self._folds.of(block.start, block.stop) == self._held_out] = 0.0
        return dataclasses.replace(block, sample_weight=weight)

    def forget(self) -> None:
        self._store.forget()
