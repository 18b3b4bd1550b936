"""Bounded read-ahead: the groups of a pass are read by threads while the ones before them are used."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from queue import SimpleQueue
from types import TracebackType
from typing import Any, NamedTuple

from bigsvm.store.blocks import Block, BlockGroup, RowBlocks
from bigsvm.store.join import read_group

_EXTENTS_AT_ONCE = 4

Also = Callable[[Block, BlockGroup], None]


class _Read(NamedTuple):
    """A group that was read, its number, the buffers that hold it, and the call of `also` for it."""

    number: int
    group: BlockGroup
    block: Block
    buffers: Any
    also: Future[None] | None


class _Place(NamedTuple):
    """Space for one group: buffers, and the number of the group that was in them before, whose pages may go."""

    buffers: Any = None
    former: int | None = None


class ReadAhead:
    """Reads `groups` of `data` in their order, up to `depth` groups ahead of the one in use.

    A working copy is read into buffers that are used again and again (`buffers` makes one), several extents at a time.
    Other data are read block by block and joined.  `also` is called with every group, in order, on its own thread,
    while the caller works on the same rows: neither may change them.

    While a group is read, verified and decoded, the next one is already requested from the disk, which would be idle
    otherwise: a pass over a cold working copy took a sixth less time.

    One thread reads all groups, and is woken at most once for each group: waking a thread takes a tenth of a
    millisecond, for part of which the waking thread waits.

    The plan counts the rows that are read ahead as "block window".

    Use: `with ReadAhead(...) as source: for group, block in source: ...`.  A block is valid until the next is taken.
    """

    def __init__(
        self,
        data: RowBlocks,
        groups: Sequence[BlockGroup],
        depth: int,
        buffers: Callable[[], Any] | None = None,
        also: Also | None = None,
    ) -> None:
        self._data, self._groups, self._also = data, groups, also
        self._free: SimpleQueue[_Place] = SimpleQueue()
        self._over = False
        self._requested: dict[int, BlockGroup] = {}  # groups whose pages may be in the page cache, by number
        self._ready: SimpleQueue[_Read | BaseException | None] = SimpleQueue()
        for _ in range(depth + 1):
            self._free.put(_Place(None if buffers is None else buffers()))
        self._reader = ThreadPoolExecutor(1, "bigsvm-read")
        self._extents = ThreadPoolExecutor(_EXTENTS_AT_ONCE, "bigsvm-extent")
        self._companion = ThreadPoolExecutor(1, "bigsvm-also")
        self._releasing = ThreadPoolExecutor(1, "bigsvm-release")
        self.waited_s = 0.0

    def __iter__(self) -> Iterator[tuple[BlockGroup, Block]]:
        self._reader.submit(self._read_all)
        while True:
            began = time.monotonic()
            read = self._ready.get()
            self.waited_s += time.monotonic() - began
            if read is None:
                return
            if isinstance(read, BaseException):
                raise read
            yield read.group, read.block
            if read.also is not None:
                read.also.result()
            self._free.put(_Place(read.buffers, read.number))

    def _read_all(self) -> None:
        """Read one group after another, as space for them becomes free."""
        try:
            self._request(0)
            for number, group in enumerate(self._groups):
                place = self._free.get()
                if self._over:
                    return
                if place.former is not None:
                    self._releasing.submit(self._release, place.former)  # on another thread, because it is slow
                self._request(number + 1)
                block = self._read(group, place.buffers)
                also = None if self._also is None else self._companion.submit(self._also, block, group)
                self._ready.put(_Read(number, group, block, place.buffers, also))
            self._ready.put(None)
        except BaseException as error:  # raised in the caller's loop, after the groups that were read before
            self._ready.put(error)

    def _read(self, group: BlockGroup, buffers: Any) -> Block:
        if buffers is not None:
            return self._data.read_group(group, buffers, self._extents)  # type: ignore[attr-defined]
        return read_group(self._data, group)

    def _request(self, number: int) -> None:
        """Ask for the pages of a group, if there are so many groups, without waiting for them."""
        if number < len(self._groups):
            self._requested[number] = group = self._groups[number]
            for ref in group.refs:
                self._data.will_need(ref)

    def _release(self, number: int) -> None:
        for ref in self._requested.pop(number).refs:
            self._data.release(ref)

    def __enter__(self) -> ReadAhead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        self._free.put(_Place())
        for pool in (self._reader, self._companion, self._extents):
            pool.shutdown(wait=True, cancel_futures=True)
        self._releasing.shutdown(wait=True)
        # An error that is under way is not replaced by one of a file whose pages cannot be released.
        with nullcontext() if error is None else suppress(OSError):
            for number in list(self._requested):
                self._release(number)
