"""The common base of rows whose values are transformed as they are read."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsvm.store.blocks import Block, Matrix, RowBlocks
from bigsvm.store.delegated import DelegatedRows


class TransformedRows(DelegatedRows):
    """RowBlocks over a store with transformed values; a subclass defines `change`."""

    def __init__(self, store: RowBlocks, dtype: np.dtype, selected: dict[str, str], recipe: dict[str, Any]) -> None:
        super().__init__(store, selected, recipe, dtype)

    def change(self, X: Matrix, first_row: int) -> Matrix:
        """Transform the values of some rows; `first_row` is the number of the first one, for errors."""
        raise NotImplementedError

    def changed(self, block: Block) -> Block:
        return Block(block.start, block.stop, self.change(block.X, block.start), block.y, block.sample_weight)
