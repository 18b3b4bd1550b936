"""The working copies that this process reads: one reader each, for as long as the copy is the one that was opened."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Opened(NamedTuple):
    document: Path
    mark: tuple[int, ...] | None
    reader: Any

    def is_another(self) -> bool:
        """Whether another copy lies there by now, or none; not of one that somebody gave up, which others still use."""
        mark = _mark(self.document)
        return mark != self.mark and (mark is not None or not self.document.parent.exists())


class OpenCopies(Generic[T]):
    """Readers by what they read.

    A worker of a cluster lives for days.  A copy that was deleted, or a part of which was made anew, is another one.
    The reader of the former one would keep its files: their places on the disk would not be free, and what was damaged
    in them would be read again and again.
    """

    def __init__(self) -> None:
        self._opened: dict[tuple[Any, ...], _Opened] = {}
        self._lock = threading.Lock()

    def reader(self, document: Path, key: tuple[Any, ...], open_copy: Callable[[], T]) -> T:
        """The reader of a copy, opened where it is not open, or is another one by now.

        document : the file of the copy that is written last, and anew where any part of the copy is
        """
        with self._lock:
            found = self._opened.get(key)
            if found is None or found.is_another():
                self._opened = {k: old for k, old in self._opened.items() if not old.is_another()}
                found = self._opened[key] = _Opened(document, _mark(document), open_copy())
            reader: T = found.reader
            return reader

    def clear(self) -> None:
        """Forget all readers: who holds one keeps it."""
        with self._lock:
            self._opened = {}


def _mark(document: Path) -> tuple[int, ...] | None:
    try:
        status = os.stat(document)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns
