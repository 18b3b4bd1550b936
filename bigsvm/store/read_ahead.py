"""Bounded read-ahead: the groups of a pass are read by threads while the ones before them are used."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

from bigsvm.store.blocks import Block, BlockGroup, RowBlocks
from bigsvm.store.join import read_group

_EXTENTS_AT_ONCE = 4

Also = Callable[[Block, BlockGroup], None]


class ReadAhead:
    """Reads `groups` of `data` in their order, `depth` of them ahead of the one in use.

    A working copy is read straight into buffers that are used again and again (`buffers` makes one), its extents
    several at a time; anything else is read block by block and joined.  `also` is called with every group, in
    order, on a thread of its own, while the caller works on the same rows: neither may change them.

    The rows in flight are paid for by the plan under "block window".

    Use: `with ReadAhead(...) as source: for group, block in source: ...`; a block is good until the next one.
    """

    def __init__(
        self,
        data: RowBlocks,
        groups: Sequence[BlockGroup],
        depth: int,
        buffers: Callable[[], Any] | None = None,
        also: Also | None = None,
    ) -> None:
        self._data, self._groups, self._depth, self._also = data, groups, depth, also
        self._free: list[Any] = [] if buffers is None else [buffers() for _ in range(depth + 1)]
        self._reader = ThreadPoolExecutor(1, "bigsvm-read")
        self._extents = ThreadPoolExecutor(_EXTENTS_AT_ONCE, "bigsvm-extent")
        self._companion = ThreadPoolExecutor(1, "bigsvm-also")
        self._releasing = ThreadPoolExecutor(1, "bigsvm-release")
        self.waited_s = 0.0

    def __iter__(self) -> Iterator[tuple[BlockGroup, Block]]:
        flying: deque[tuple[BlockGroup, Any, Future[Block], Future[None] | None]] = deque()
        waiting = iter(self._groups)
        while True:
            while len(flying) <= self._depth and (group := next(waiting, None)) is not None:
                buffers = self._free.pop() if self._free else None
                read = self._reader.submit(self._read, group, buffers)
                also = None if self._also is None else self._companion.submit(self._also_with, read, group)
                flying.append((group, buffers, read, also))
            if not flying:
                return
            group, buffers, read, also = flying.popleft()
            began = time.monotonic()
            block = read.result()
            self.waited_s += time.monotonic() - began
            yield group, block
            if also is not None:
                also.result()
            if buffers is not None:
                self._free.append(buffers)
            self._releasing.submit(self._release, group)  # beside the work on the next group: it takes its time

    def _read(self, group: BlockGroup, buffers: Any) -> Block:
        if buffers is not None:
            return self._data.read_group(group, buffers, self._extents)  # type: ignore[attr-defined]
        for ref in group.refs:
            self._data.will_need(ref)
        return read_group(self._data, group)

    def _release(self, group: BlockGroup) -> None:
        for ref in group.refs:
            self._data.release(ref)

    def _also_with(self, read: Future[Block], group: BlockGroup) -> None:
        assert self._also is not None
        self._also(read.result(), group)

    def __enter__(self) -> ReadAhead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pool in (self._reader, self._companion, self._extents):
            pool.shutdown(wait=True, cancel_futures=True)
        self._releasing.shutdown(wait=True)
