"""Addresses of blocks that are made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

from bigsvm.store.blocks import BlockRef


class LazyRefs(Sequence[BlockRef]):
    """The addresses that `RowBlocks.refs` promises as a sequence that takes no memory: blocks may be millions.

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
