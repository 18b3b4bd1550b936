"""Arrays that hold a group of blocks, allocated once and refilled for every group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from bigsvm.compiled.shared.rows import CSR
from bigsvm.compiled.shared.shuffle import rebase_indptr
from bigsvm.store.blocks import Block
from bigsvm.store.copy.block_coding import land_numbers, land_values, number_bits
from bigsvm.store.copy.stage_index import BlockEntry


class BlockPlaces(NamedTuple):
    """The places of the arrays of a block, in file order, and the functions that decode them."""

    pieces: list[memoryview]
    decode: list[Callable[[], None]]


class GroupBuffers:
    """Memory for `rows` rows with `entries` stored entries in `blocks` blocks.

    It grows if a group is larger, and never shrinks.  A Block made from it is valid until the next group is read.

    data : dtype, shape (entries,)             dense: entries = rows * n_features
    indices : index_dtype, shape (entries,)    dense: empty
    indptr : int64, shape (rows + blocks,)     dense: empty; each block has one pointer more than rows
    y, weight, sqnorm : shape (rows,)          y_dtype, float64, float64; weight is empty if there are no weights
    """

    def __init__(
        self,
        layout: Literal["csr", "dense"],
        n_features: int,
        dtype: np.dtype,
        index_dtype: np.dtype,
        y_dtype: np.dtype,
        has_weights: bool,
        rows: int,
        entries: int,
        blocks: int,
    ) -> None:
        self.layout, self.n_features, self.has_weights = layout, n_features, has_weights
        self._number_bits = number_bits(n_features, index_dtype)
        self.data, self.indices = np.empty(0, dtype), np.empty(0, index_dtype)
        self.indptr, self.y = np.empty(0, np.int64), np.empty(0, y_dtype)
        self.weight, self.sqnorm = np.empty(0), np.empty(0)
        self.reserve(rows, entries, blocks)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays = (self.data, self.indices, self.indptr, self.y, self.weight, self.sqnorm)
        return sum(array.nbytes for array in arrays)

    def reserve(self, rows: int, entries: int, blocks: int) -> None:
        """Make sure that a group of this size fits; growing loses the content."""
        sparse = self.layout == "csr"
        self.data = _at_least(self.data, entries)
        self.indices = _at_least(self.indices, entries if sparse else 0)
        self.indptr = _at_least(self.indptr, rows + blocks if sparse else 0)
        self.y = _at_least(self.y, rows)
        self.weight = _at_least(self.weight, rows if self.has_weights else 0)
        self.sqnorm = _at_least(self.sqnorm, rows)

    def places(self, found: BlockEntry, rows: int, row: int, entry: int, block: int) -> BlockPlaces:
        """The places of the arrays of a block.

        found : the block's entry in the index;  rows : its number of rows
        row, entry, block : the number of rows, entries and blocks before it in the group
        """
        arrays: list[np.ndarray] = []
        last = entry + found.entries
        landings = [land_values(self.data[entry:last], found.table)]
        if self.layout == "csr":
            # There is one pointer more than rows, so the pointers of block k are shifted by k places.
            arrays.append(self.indptr[row + block : row + block + rows + 1])
            landings.insert(0, land_numbers(self.indices[entry:last], self._number_bits))
        for landing in landings:
            arrays += landing.pieces
        arrays.append(self.y[row : row + rows])
        if self.has_weights:
            arrays.append(self.weight[row : row + rows])
        arrays.append(self.sqnorm[row : row + rows])
        return BlockPlaces([array.view(np.uint8).data for array in arrays], [landing.decode for landing in landings])

    def block(self, start: int, rows: np.ndarray, entries: np.ndarray) -> Block:
        """The group as one block of views, after every place was filled.

        start : number of its first row
        rows, entries : int64, shape (n_blocks,)   of each block, in order
        """
        n, nnz = int(rows.sum()), int(entries.sum())
        X: Any
        if self.layout == "csr":
            rebase_indptr(self.indptr, rows, entries)
            X = CSR(self.data[:nnz], self.indices[:nnz], self.indptr[: n + 1])
        else:
            X = self.data[:nnz].reshape(n, self.n_features)
        weight = self.weight[:n] if self.has_weights else None
        return Block(start, start + n, X, self.y[:n], weight, self.sqnorm[:n])


def _at_least(array: np.ndarray, size: int) -> np.ndarray:
    return array if len(array) >= size else np.empty(size, array.dtype)
