"""A scratch file of equal slots: rows out of memory, each checked by its digest when it comes back."""

from __future__ import annotations

import os
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

import numpy as np
import xxhash

from bigsvm.files.atomic import cannot_write


class SlotFile:
    """`n_slots` places of `slot_bytes` bytes in one file that has no name: nothing is left of it, however a run ends.

    All its blocks are asked for at once, so that a full disk shows here and not in the middle of a pass.  Read and
    written by position, never mapped: a device that fails gives an error and no signal, and what was read is counted
    as this process's memory nowhere.

    Raises
    ------
    OutputError : the folder cannot hold the file; the path, the bytes needed and those free are named.
    """

    def __init__(self, slot_bytes: int, n_slots: int, folder: Path) -> None:
        self.slot_bytes, self.n_slots = slot_bytes, n_slots
        self.nbytes = slot_bytes * n_slots
        self._digests = np.zeros(n_slots, np.uint64)
        path, handle = folder / "row-slots", -1
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=".row-slots-", dir=folder)
            os.unlink(name)
            os.posix_fallocate(handle, 0, self.nbytes)
        except OSError as error:
            if handle >= 0:
                os.close(handle)
            raise cannot_write(path, error, self.nbytes) from error
        self._handle = handle
        self._close = weakref.finalize(self, os.close, handle)

    def write(self, slot: int, row: np.ndarray) -> None:
        """Fill a slot with the bytes of a contiguous row.  Raises OSError; the slot then holds nothing."""
        data = row.data.cast("B")
        start = done = slot * self.slot_bytes
        while len(data):
            written = os.pwrite(self._handle, data, done)
            done, data = done + written, data[written:]
        self._digests[slot] = xxhash.xxh3_64_intdigest(row.data.cast("B"))
        self._forget_pages(start)

    def read(self, slot: int, row: np.ndarray) -> None:
        """Fill a contiguous row from a slot.

        Raises OSError, also where the file is too short or its bytes are not those that were written; `row` then
        holds anything.
        """
        data = row.data.cast("B")
        start = done = slot * self.slot_bytes
        while len(data):
            got = os.preadv(self._handle, [data], done)
            if got == 0:
                raise OSError("a scratch file is shorter than it was made")
            done, data = done + got, data[got:]
        if xxhash.xxh3_64_intdigest(row.data.cast("B")) != int(self._digests[slot]):
            raise OSError("a row of a scratch file is not what was written: its digest does not match")
        self._forget_pages(start)

    def close(self) -> None:
        """Give the disk back; harmless when done twice."""
        self._close()

    def _forget_pages(self, start: int) -> None:
        # The tier above decides what stays in memory; the system's copies would push out pages of the data.
        with suppress(OSError):
            os.posix_fadvise(self._handle, start, self.slot_bytes, os.POSIX_FADV_DONTNEED)
