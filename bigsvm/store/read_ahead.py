"""Bounded read-ahead: the blocks of a pass are read by threads while the ones before them are used."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

from bigsvm.store.blocks import Block, BlockRef, RowBlocks


class ReadAhead:
    """Reads `refs` of `data`, at most `depth` blocks ahead of the last one asked for.

    The blocks in flight are paid for by the plan under "block window".  A pickled copy is the store itself:
    read-ahead belongs to the process that asked for it.

    Use: `with ReadAhead(data, refs, depth) as source: ... source.read(ref) ... source.done(ref)`.
    """

    def __init__(self, data: RowBlocks, refs: Iterable[BlockRef], depth: int) -> None:
        self._data = data
        self._waiting = deque(refs)
        self._depth = depth
        self._reading: dict[int, Future[Block]] = {}
        self._pool = ThreadPoolExecutor(1, "bigsvm-read")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._data, name)

    def read(self, ref: BlockRef) -> Block:
        """The block, waiting for it if need be; blocks must be asked for in the order of `refs`."""
        self._fill()
        if ref.start not in self._reading:
            return self._data.read(ref)
        block = self._reading.pop(ref.start).result()
        self._fill()
        return block

    def done(self, ref: BlockRef) -> None:
        """The block is not used any more: its pages need not stay in the page cache."""
        release = getattr(self._data, "release", None)
        if release is not None:
            release(ref)

    def _fill(self) -> None:
        while self._waiting and len(self._reading) < self._depth:
            ref = self._waiting.popleft()
            self._reading[ref.start] = self._pool.submit(self._data.read, ref)

    def __enter__(self) -> ReadAhead:
        self._fill()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def __reduce__(self) -> Any:
        return _identity, (self._data,)


def _identity(data: RowBlocks) -> RowBlocks:
    return data
