"""Files whose bytes are verified stripe by stripe: written from front to back, with a digest of each stripe."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from bigsvm.files.space import cannot_write
from bigsvm.store.copy.stage_write import _write_all


@contextmanager
def written_file(path: Path, nbytes: int) -> Iterator[int]:
    """A new file to write; every OSError inside becomes an OutputError."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            yield handle
        finally:
            os.close(handle)
    except OSError as error:
        raise cannot_write(path, error, nbytes) from error


class StripeDigests:
    """xxh3-128 of each stripe of bytes that come one after another.

    edges : int64, shape (n_stripes + 1,)   first byte of each stripe, and the end
    """

    def __init__(self, edges: np.ndarray) -> None:
        self._edges, self._at, self._number = edges, 0, 0
        self._digest = xxhash.xxh3_128()
        self._digests = np.empty((len(edges) - 1, 16), np.uint8)

    def update(self, content: Any) -> None:
        left = memoryview(content)
        while left:
            room = int(self._edges[self._number + 1]) - self._at
            self._digest.update(left[:room])
            self._at += min(room, len(left))
            left = left[room:]
            self._close_full()

    def finish(self) -> np.ndarray:
        """uint8, shape (n_stripes, 16); all bytes have come."""
        self._close_full()
        assert self._number == len(self._digests)
        return self._digests

    def _close_full(self) -> None:
        while self._number < len(self._digests) and self._at == self._edges[self._number + 1]:
            self._digests[self._number] = np.frombuffer(self._digest.digest(), np.uint8)
            self._digest = xxhash.xxh3_128()
            self._number += 1


class StripedFile:
    """A file of the copy that is written from front to back, and the digests of its stripes.

    Raises OutputError.
    """

    def __init__(self, path: Path, edges: np.ndarray) -> None:
        self.path, self._digests = path, StripeDigests(edges)
        self._context = written_file(path, int(edges[-1]))

    def append(self, array: np.ndarray) -> None:
        content = array.view(np.uint8)
        self._digests.update(content)
        _write_all(self._handle, [content.data])

    def finish(self) -> np.ndarray:
        os.fsync(self._handle)
        return self._digests.finish()

    def __enter__(self) -> StripedFile:
        self._handle = self._context.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)
