"""Reading blocks of a working copy directly into the places of their arrays, and decoding them there."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import xxhash

from bigsvm.store.copy.group_buffers import BlockPlaces
from bigsvm.store.copy.stage_index import ALIGN, BlockEntry, damaged_block

_MOST_PIECES = 1024  # IOV_MAX of Linux
_WORTH_A_THREAD = 64 << 10  # bytes of an extent below which handing it to a thread takes longer than reading it


@dataclass
class Extent:
    """Adjacent blocks of one segment, read with one system call or a few."""

    handle: int
    path: Path
    segment: int
    offset: int
    blocks: list[_Target]
    nbytes: int = field(default=0, init=False)

    def add(self, number: int, found: BlockEntry, places: BlockPlaces) -> None:
        """Append the next block; its arrays go to `places`, each followed by padding."""
        pieces = []
        for place in places.pieces:
            if len(place):
                pieces.append(place)
            padding = -len(place) % ALIGN
            if padding:
                # Padding is read, too, because the digest covers it.
                pieces.append(memoryview(bytearray(padding)))
        self.blocks.append(_Target(number, found.nbytes, pieces, found.digest, places.decode))
        self.nbytes += found.nbytes


@dataclass(frozen=True)
class _Target:
    number: int
    nbytes: int
    pieces: list[memoryview]
    digest: bytes
    decode: list[Callable[[], None]]


def read_extents(extents: Sequence[Extent], pool: ThreadPoolExecutor | None) -> None:
    """Read and verify all extents; large ones in parallel if there is a pool.  Raises DataError."""
    if pool is None or len(extents) < 2 or sum(extent.nbytes for extent in extents) < _WORTH_A_THREAD:
        for extent in extents:
            _read_extent(extent)
        return
    reading = [pool.submit(_read_extent, extent) for extent in extents]
    # The caller reuses the buffers afterwards, so wait for all reads, even if one has failed.
    errors = [error for error in (future.exception() for future in reading) if error is not None]
    if errors:
        raise errors[0]


def _read_extent(extent: Extent) -> None:
    offset, blocks = extent.offset, extent.blocks
    while blocks:
        count = pieces = 0
        while count < len(blocks) and pieces + len(blocks[count].pieces) <= _MOST_PIECES:
            pieces += len(blocks[count].pieces)
            count += 1
        _read(extent, blocks[:count], offset)
        offset += sum(block.nbytes for block in blocks[:count])
        blocks = blocks[count:]


def _read(extent: Extent, blocks: Sequence[_Target], offset: int) -> None:
    """Read the blocks from `offset` on into their places, compare each with its digest, and decode it."""
    pieces = [piece for block in blocks for piece in block.pieces]
    while pieces:
        try:
            got = os.preadv(extent.handle, pieces, offset)
        except OSError as error:
            raise damaged_block(extent.path, blocks[0].number, str(error)) from error
        if got == 0:
            raise damaged_block(extent.path, blocks[-1].number, "the file ends within it")
        offset += got
        while pieces and got >= len(pieces[0]):  # a read may return fewer bytes than asked for
            got -= len(pieces.pop(0))
        if got:
            pieces[0] = pieces[0][got:]
    for block in blocks:
        digest = xxhash.xxh3_128()
        for piece in block.pieces:
            digest.update(piece)
        if digest.digest() != block.digest:
            raise damaged_block(extent.path, block.number)
        for decode in block.decode:
            decode()
