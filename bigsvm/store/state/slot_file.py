"""A scratch file with slots of equal size: each row is verified by its digest when it is read back."""

from __future__ import annotations

import os
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

import numpy as np
import xxhash

from bigsvm.files.space import cannot_write


class SlotFile:
    """`n_slots` slots of `slot_bytes` bytes in a file without a name, so that nothing is left however a run ends.

    All disk blocks are allocated at once, so that a full disk is reported here and not during a pass.  The file is read
    and written by position, never mapped.  So a failing device causes an error, not a signal, and the pages do not
    count as memory of this process.

    Raises
    ------
    OutputError : the folder cannot hold the file; names the path, the bytes needed, and those free.
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
        """Write a contiguous row to a slot.  Raises OSError; the slot is then empty."""
        data = row.data.cast("B")
        start = done = slot * self.slot_bytes
        while len(data):
            written = os.pwrite(self._handle, data, done)
            done, data = done + written, data[written:]
        self._digests[slot] = xxhash.xxh3_64_intdigest(row.data.cast("B"))
        self._forget_pages(start)

    def read(self, slot: int, row: np.ndarray) -> None:
        """Fill a contiguous row from a slot.

        Raises OSError, also if the file is too short or its bytes have changed; `row` is then undefined.
        """
        data = row.data.cast("B")
        start = done = slot * self.slot_bytes
        while len(data):
            got = os.preadv(self._handle, [data], done)
            if got == 0:
                raise OSError("a scratch file was truncated")
            done, data = done + got, data[got:]
        if xxhash.xxh3_64_intdigest(row.data.cast("B")) != int(self._digests[slot]):
            raise OSError("a row of a scratch file has changed: its digest does not match")
        self._forget_pages(start)

    def close(self) -> None:
        """Release the disk space; may be called twice."""
        self._close()

    def _forget_pages(self, start: int) -> None:
        # The cache in memory decides what stays there; the page cache would evict pages of the data.
        with suppress(OSError):
            os.posix_fadvise(self._handle, start, self.slot_bytes, os.POSIX_FADV_DONTNEED)
