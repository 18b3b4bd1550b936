"""Bounded read-ahead: the blocks of a pass are read by threads while the ones before them are used."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

from bigsvm.store.blocks import Block, BlockGroup, RowBlocks
from bigsvm.store.join import read_group


class ReadAhead:
    """Reads `groups` of blocks of `data`, at most `depth` groups ahead of the last one asked for.

    The blocks in flight are paid for by the plan under "block window".  A pickled copy is the store itself:
    read-ahead belongs to the process that asked for it.

    Use: `with ReadAhead(data, groups, depth) as source: ... source.read_group(g) ... source.done(g)`.
    """

    def __init__(self, data: RowBlocks, groups: Iterable[BlockGroup], depth: int) -> None:
        self._data = data
        self._waiting = deque(groups)
        self._depth = depth
        self._reading: dict[int, Future[Block]] = {}
        self._pool = ThreadPoolExecutor(1, "bigsvm-read")
        self.waited_s = 0.0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._data, name)

    def read_group(self, group: BlockGroup) -> Block:
        """The group's rows, waiting for them if need be; groups must be asked for in their order."""
        self._fill()
        if group.start not in self._reading:
            return read_group(self._data, group)
        began = time.monotonic()
        block = self._reading.pop(group.start).result()
        self.waited_s += time.monotonic() - began
        self._fill()
        return block

    def done(self, group: BlockGroup) -> None:
        """The group is not used any more: its pages need not stay in the page cache."""
        release = getattr(self._data, "release", None)
        if release is not None:
            for ref in group.refs:
                release(ref)

    def _fill(self) -> None:
        while self._waiting and len(self._reading) < self._depth:
            group = self._waiting.popleft()
            will_need = getattr(self._data, "will_need", None)
            if will_need is not None:
                for ref in group.refs:
                    will_need(ref)
            self._reading[group.start] = self._pool.submit(read_group, self._data, group)

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
