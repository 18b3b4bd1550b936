"""The common base of rows whose values are transformed as they are read."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsvm.errors import DataError
from bigsvm.store.blocks import Block, Matrix, RowBlocks
from bigsvm.store.delegated import DelegatedRows


def changed_otherwise(what: str, where: str) -> DataError:
    """The error for rows that were changed in another way than a model's when they were ingested."""
    hint = "give the rows as they were before bigsvm ingest: they are read as the model needs them"
    python = "open_store(..., like=model.about['rows']) reads the rows as the model needs them"
    return DataError(what, where, hint, hint_in_python=python)


class TransformedRows(DelegatedRows):
    """RowBlocks over a store with transformed values; a subclass defines `change`."""

    def __init__(self, store: RowBlocks, dtype: np.dtype, selected: dict[str, str], recipe: dict[str, Any]) -> None:
        super().__init__(store, selected, recipe, dtype)

    def change(self, X: Matrix, first_row: int) -> Matrix:
        """Transform the values of some rows; `first_row` is the number of the first one, for errors."""
        raise NotImplementedError

    def changed(self, block: Block) -> Block:
        return Block(block.start, block.stop, self.change(block.X, block.start), block.y, block.sample_weight)
