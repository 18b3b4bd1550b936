"""Several blocks as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigsvm.compiled.shared.rows import CSR
from bigsvm.store.blocks import Block, BlockGroup, RowBlocks


def join_blocks(parts: Sequence[Block]) -> Block:
    """One block of all rows of `parts`, in their order; copies.

    It starts where the first part starts; its row numbers mean something only if the parts follow one another.
    """
    X: Any
    first = parts[0].X
    if isinstance(first, CSR):
        matrices = [part.X for part in parts]
        lengths = np.concatenate([np.diff(matrix.indptr) for matrix in matrices])  # type: ignore[union-attr]
        X = CSR(
            np.concatenate([matrix.data for matrix in matrices]),
            np.concatenate([matrix.indices for matrix in matrices]),  # type: ignore[union-attr]
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        )
    else:
        X = np.concatenate([np.asarray(part.X) for part in parts])
    weights = [part.sample_weight for part in parts]
    norms = [part.sqnorm for part in parts if part.sqnorm is not None]
    return Block(
        parts[0].start,
        parts[0].start + sum(part.n_rows for part in parts),
        X,
        np.concatenate([part.y for part in parts]),
        None if any(weight is None for weight in weights) else np.concatenate([w for w in weights if w is not None]),
        np.concatenate(norms) if len(norms) == len(parts) else None,
    )


class GrowingRows:
    """Sparse rows that come in parts, as one matrix: each part is copied to its place at once, and not kept.

    n_rows : of all parts;  dtype, index_dtype : of the whole
    """

    def __init__(self, n_rows: int, dtype: np.dtype, index_dtype: np.dtype) -> None:
        self._data, self._indices = np.empty(0, dtype), np.empty(0, index_dtype)
        self._indptr = np.zeros(n_rows + 1, np.int64)
        self._rows = 0

    def add(self, part: CSR) -> None:
        """The next rows."""
        n, began = len(part.indptr) - 1, int(self._indptr[self._rows])
        ended = began + len(part.data)
        if ended > len(self._data):
            # Room for the rows to come, should they be as long; what nobody writes to takes no memory.
            left = (len(self._indptr) - 1 - self._rows) / n
            room = began + int(len(part.data) * (1.1 * left if left > 1.0 else 1.0))
            if began:
                self._resize(room)
            else:
                self._data, self._indices = np.empty(room, self._data.dtype), np.empty(room, self._indices.dtype)
        self._data[began:ended], self._indices[began:ended] = part.data, part.indices
        self._indptr[self._rows + 1 : self._rows + n + 1] = part.indptr[1:] + began
        self._rows += n

    def whole(self) -> CSR:
        """All of them."""
        self._resize(int(self._indptr[self._rows]))
        return CSR(self._data, self._indices, self._indptr)

    def _resize(self, n_entries: int) -> None:
        # In place: the system moves large arrays by their pages, which copies nothing.  What is new is filled with 0.
        self._data.resize(n_entries, refcheck=False)
        self._indices.resize(n_entries, refcheck=False)


def read_group(data: RowBlocks, group: BlockGroup) -> Block:
    """The rows of a group: the block itself where there is one, else a copy of all of them."""
    parts = [data.read(ref) for ref in group.refs]
    return parts[0] if len(parts) == 1 else join_blocks(parts)
