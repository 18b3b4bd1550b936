"""Uncompressed Zarr chunks: any range of their bytes, read from the file and verified.

Maps of the files would save a copy.  But a map shows what the file holds at each access: rows of another store after it
is overwritten in place, and a bus error, which ends the process without a word, after it is shortened.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import xxhash

from bigsvm.errors import DataError
from bigsvm.files.atomic import open_regular
from bigsvm.files.file_array import changes_are_seen, marks
from bigsvm.files.paths import local_path
from bigsvm.store.sealing.former import kept_file
from bigsvm.store.sealing.manifest import Manifest, read_failed

_LOCKS = 16  # chunks that may be verified at one time
_PIECE = 1 << 18  # bytes that are read at a time for the digest alone; they stay in a core's cache


class RawChunks:
    """The uncompressed chunks of one array; thread-safe.

    The first reading of a chunk compares all of it with its digest.  Later ones read only what is asked for, as long as
    the file has the same times.

    nbytes : of each chunk;  key_of : function that returns the key of the chunk with a number
    """

    def __init__(self, root: Path, manifest: Manifest, nbytes: int, key_of: Callable[[int], str]) -> None:
        self._root, self._manifest, self._nbytes, self._key_of = root, manifest, nbytes, key_of
        self._verified: dict[int, int] = {}  # number of a chunk -> `_file_of` the file that was verified
        self._verifying = [threading.Lock() for _ in range(_LOCKS)]

    def read(self, number: int, first: int, out: memoryview) -> bool:
        """Fill `out` with the bytes of a chunk from byte `first` on; False if the chunk is absent.

        Raises
        ------
        DataError : the chunk is missing, damaged or exchanged, or changes while it is read.
        ReadFailed : the device failed.
        """
        key = self._key_of(number)
        path = local_path(self._root, key)
        try:
            try:
                self._read_file(path, number, first, out)
            except (FileNotFoundError, DataError) as error:
                # Where rows were added, what the chunk was before lies in another file.
                kept = kept_file(self._root, self._manifest, key)
                if kept is not None:
                    self._read_file(kept, number, first, out)
                elif isinstance(error, DataError):
                    raise
                else:
                    self._manifest.verify(key, None)
                    return False
        except OSError as error:
            raise read_failed(key, error) from error
        return True

    def is_verified(self, number: int, status: os.stat_result) -> bool:
        """Whether the file with this status was compared with the digest of the chunk."""
        return self._verified.get(number) == _file_of(status)

    def remember(self, number: int, status: os.stat_result) -> None:
        """Record that the file with this status has the digest of the chunk.

        status : of a file that was not so new that a change might leave it the same times (`changes_are_seen`)
        """
        self._verified[number] = _file_of(status)

    def _read_file(self, path: Path, number: int, first: int, out: memoryview) -> None:
        handle = open_regular(path)
        try:
            before = os.fstat(handle)
            changes_seen = changes_are_seen(before)
            if self._read_verified(handle, before, number, first, out):
                return
            with self._verifying[number % _LOCKS]:
                if self._read_verified(handle, before, number, first, out):  # another thread has verified it meanwhile
                    return
                self._read_and_verify(handle, self._key_of(number), first, out)
                if changes_seen:
                    self.remember(number, before)
        finally:
            os.close(handle)

    def _read_verified(self, handle: int, before: os.stat_result, number: int, first: int, out: memoryview) -> bool:
        """Read only what is asked for; False if the file was not verified, or changes meanwhile."""
        if not self.is_verified(number, before):
            return False
        whole = _fill(handle, first, out)
        # A writer changes the times before the first byte, so they are looked at after the reading.
        return whole and _file_of(os.fstat(handle)) == _file_of(before)

    def _read_and_verify(self, handle: int, key: str, first: int, out: memoryview) -> None:
        """Read the whole file once, for its digest, and what is asked for to `out`."""
        found, room = xxhash.xxh3_128(key.encode() + b"\0"), memoryview(bytearray(_PIECE))
        at, stop = 0, first + len(out)
        while True:
            if first <= at < stop:
                piece = out[at - first : at - first + _PIECE]
            else:
                piece = room[: first - at] if at < first else room
            n = os.preadv(handle, [piece], at)
            if not n:
                break
            found.update(piece[:n])
            at += n
        self._manifest.verify_digest(key, found.hexdigest())
        if at != self._nbytes:
            raise DataError(f"chunk has {at} bytes, not {self._nbytes}", key)


def _fill(handle: int, at: int, left: memoryview) -> bool:
    """Fill memory with the bytes of a file; False if the file ends before."""
    while left:
        n = os.preadv(handle, [left], at)
        if not n:
            return False
        left, at = left[n:], at + n
    return True


def _file_of(status: os.stat_result) -> int:
    """By what a file is recognised: a number instead of its parts, which would take more memory for each chunk."""
    return hash((status.st_ino, *marks(status)))
