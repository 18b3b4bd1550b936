"""Addresses of blocks and of groups of them, made when they are asked for.

There may be millions: kept, they would take memory that grows with the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

import numpy as np

from bigsvm.store.blocks import BlockGroup, BlockRef, RowBlocks, row_bytes


class LazyRefs(Sequence[BlockRef]):
    """The addresses that `RowBlocks.refs` promises as a sequence that takes no memory.

    n_samples, block_rows : rows in all and in a block (the last may have fewer)
    mean : bytes of a row, for addresses whose bytes nobody knows
    known : bytes of rows [start, stop), where somebody does
    """

    def __init__(
        self, n_samples: int, block_rows: int, mean: float, known: Callable[[int, int], int] | None = None
    ) -> None:
        self._n_samples, self._rows, self._mean, self._known = n_samples, block_rows, mean, known

    def __len__(self) -> int:
        return -(-self._n_samples // self._rows)

    @overload
    def __getitem__(self, number: int) -> BlockRef: ...
    @overload
    def __getitem__(self, number: slice) -> list[BlockRef]: ...
    def __getitem__(self, number: int | slice) -> BlockRef | list[BlockRef]:
        if isinstance(number, slice):
            return [self[k] for k in range(len(self))[number]]
        number = range(len(self))[number]  # negative numbers, and the IndexError that ends an iteration
        start, stop = number * self._rows, min((number + 1) * self._rows, self._n_samples)
        nbytes = int((stop - start) * self._mean) + 8 if self._known is None else self._known(start, stop)
        return BlockRef(start, stop, nbytes)


class Groups(Sequence[BlockGroup]):
    """The blocks numbered by `order`, `blocks` a group (the last may be smaller)."""

    def __init__(self, refs: Sequence[BlockRef], order: Sequence[int] | np.ndarray, blocks: int) -> None:
        self._refs, self._order, self._blocks = refs, order, blocks

    def __len__(self) -> int:
        return -(-len(self._order) // self._blocks)

    @overload
    def __getitem__(self, number: int) -> BlockGroup: ...
    @overload
    def __getitem__(self, number: slice) -> Groups: ...
    def __getitem__(self, number: int | slice) -> BlockGroup | Groups:
        if isinstance(number, slice):
            start, stop, step = number.indices(len(self))
            if step != 1:
                raise ValueError("groups are sliced in their order")
            return Groups(self._refs, self._order[start * self._blocks : stop * self._blocks], self._blocks)
        first = range(len(self))[number] * self._blocks
        return BlockGroup(tuple(self._refs[k] for k in self._order[first : first + self._blocks]))


def make_refs(store: RowBlocks, block_rows: int) -> LazyRefs:
    """The addresses that `RowBlocks.refs` promises, with sizes by the mean row."""
    return LazyRefs(store.n_samples, block_rows, row_bytes(store))


def cut_to(refs: Sequence[BlockRef], rows: int) -> Sequence[BlockRef]:
    """The addresses of the same rows, in pieces of at most `rows` rows."""
    return [
        BlockRef(start, stop := min(start + rows, ref.stop), ref.nbytes * (stop - start) // ref.n_rows)
        for ref in refs
        for start in range(ref.start, ref.stop, rows)
    ]


def in_groups(refs: Sequence[BlockRef], order: Sequence[int] | np.ndarray, blocks: int) -> Groups:
    """The blocks numbered by `order`, `blocks` a group (the last may be smaller)."""
    return Groups(refs, order, blocks)
