"""A working copy as a cluster's worker reads it: each block is copied to the worker's own disk at its first use.

So each worker reads its own shards from the shared disk only once, not in every pass.  The files have no name, and
vanish with the process; a worker that takes over a shard fetches it again.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import xxhash

from bigsvm.errors import DataError
from bigsvm.files.space import cannot_write
from bigsvm.store.blocks import Block, BlockGroup, BlockRef
from bigsvm.store.copy.group_buffers import GroupBuffers
from bigsvm.store.copy.open_copies import OpenCopies, close_files
from bigsvm.store.copy.stage import StagedRows
from bigsvm.store.copy.stage_index import damaged_block, give_up, segment_files
from bigsvm.store.identity import Identity


class NearRows(StagedRows):
    """The rows of a working copy; in another process they are read from that process's own disk.

    folder : the working copy, which all processes see
    scratch : folder for fetched blocks, on a disk of the worker's machine
    arrived : whether this object was unpickled in another process; if not, it reads the shared copy like `StagedRows`

    Raises OutputError if the own disk is full or cannot be written; DataError as `StagedRows`, or if a block changed.
    """

    def __init__(self, folder: Path, scratch: str, arrived: bool = False) -> None:
        super().__init__(folder)
        self.scratch, self._arrived = scratch, arrived
        self._shared: dict[int, int] = {}
        self._here: set[int] = set()
        weakref.finalize(self, close_files, self._shared)

    def close(self) -> None:
        """As in `StagedRows`; fetched blocks are deleted."""
        super().close()
        with self._opening:
            close_files(self._shared)
            self._here = set()

    def will_need(self, ref: BlockRef) -> None:
        """As in `StagedRows`; if some blocks have not been fetched yet, these are requested from the shared disk."""
        missing = [number for number in self._numbers(ref) if number not in self._here] if self._arrived else []
        for number in missing:
            segment, offset, nbytes, *_ = self._entry(number)
            self._file(segment)  # opens the shared file too
            os.posix_fadvise(self._shared[segment], offset, nbytes, os.POSIX_FADV_WILLNEED)
        if not missing:
            super().will_need(ref)

    def read_group(self, group: BlockGroup, buffers: GroupBuffers, pool: ThreadPoolExecutor | None = None) -> Block:
        """As in `StagedRows`."""
        for ref in group.refs:
            self._fetch(self._whole(ref))
        try:
            return super().read_group(group, buffers, pool)
        except DataError as error:
            raise self._told(error) from error

    def _block(self, number: int) -> Block:
        self._fetch((number,))
        try:
            return super()._block(number)
        except DataError as error:
            raise self._told(error) from error

    def _given_up(self, error: DataError) -> DataError:
        """The same error: the shared copy may be sound, only the fetched block is damaged."""
        return error if self._arrived else super()._given_up(error)

    def _file(self, segment: int) -> int:
        """The file of a segment on this process's own disk, which has the fetched blocks, with holes between them."""
        if not self._arrived:
            return super()._file(segment)
        with self._opening:
            if segment not in self._files:
                shared = super()._file(segment)
                try:
                    os.makedirs(self.scratch, exist_ok=True)
                    own, name = tempfile.mkstemp(".rows", "bigsvm-", self.scratch)
                    os.unlink(name)
                    os.ftruncate(own, os.fstat(shared).st_size)
                except OSError as error:
                    os.close(self._files.pop(segment))  # a repeated task must not write into the shared file
                    raise cannot_write(Path(self.scratch), error) from error
                self._shared[segment], self._files[segment] = shared, own
            return self._files[segment]

    def _fetch(self, numbers: Iterable[int]) -> None:
        """Fetch missing blocks; two threads that fetch the same block write the same bytes."""
        for number in numbers if self._arrived else ():
            if number in self._here:
                continue
            segment, offset, nbytes, _, _, digest = self._entry(number)
            own, path = self._file(segment), segment_files(self.folder, segment).blocks
            block = os.pread(self._shared[segment], nbytes, offset)
            if len(block) != nbytes or xxhash.xxh3_128_digest(block) != digest:
                raise give_up(damaged_block(path, number))
            os.posix_fadvise(self._shared[segment], offset, nbytes, os.POSIX_FADV_DONTNEED)
            view = memoryview(block)
            try:
                while view:
                    written = os.pwrite(own, view, offset)
                    view, offset = view[written:], offset + written
            except OSError as error:
                raise cannot_write(Path(self.scratch), error) from error
            self._here.add(number)

    def _told(self, error: DataError) -> DataError:
        """The error with the disk that it concerns: blocks were verified when they were fetched."""
        return DataError(f"on this worker's own disk: {error.what}", self.scratch) if self._arrived else error

    def __reduce__(self) -> tuple[Any, ...]:
        return _near, (str(self.folder), self.identity, self.scratch)


_open: OpenCopies[NearRows] = OpenCopies()


def _near(folder: str, identity: Identity, scratch: str) -> NearRows:
    """The single reader of this process for a copy.  Raises DataError if it is another copy by now."""

    def open_copy() -> NearRows:
        rows = NearRows(Path(folder), scratch, arrived=True)
        identity.check(rows.identity, "the working copy", folder, "bigsvm cache clear")
        return rows

    return _open.reader(Path(folder) / "staged.json", (folder, identity, scratch), open_copy)
