"""The working copies that this process has open: one reader for each, until the copy is replaced."""

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
        """Whether the copy was deleted or replaced; a copy that was only marked as unfinished is still in use."""
        mark = _mark(self.document)
        return mark != self.mark and (mark is not None or not self.document.parent.exists())


class OpenCopies(Generic[T]):
    """Readers of copies, by key.

    A worker of a cluster lives for days.  If a copy is deleted, or a part of it is made again, its reader must not be
    used any more: it would keep the old files, so that their disk space is not freed, and would read the same damage
    again and again.
    """

    def __init__(self) -> None:
        self._opened: dict[tuple[Any, ...], _Opened] = {}
        self._lock = threading.Lock()

    def reader(self, document: Path, key: tuple[Any, ...], open_copy: Callable[[], T]) -> T:
        """The reader of a copy; it is opened if it is not open, or if the copy was replaced.

        document : the file of the copy that is written last, and again whenever a part of the copy is made again
        """
        with self._lock:
            found = self._opened.get(key)
            if found is None or found.is_another():
                self._opened = {k: old for k, old in self._opened.items() if not old.is_another()}
                found = self._opened[key] = _Opened(document, _mark(document), open_copy())
            reader: T = found.reader
            return reader

    def clear(self) -> None:
        """Forget all readers; those still referenced elsewhere stay usable."""
        with self._lock:
            self._opened = {}


def close_files(handles: dict[int, int] | list[int]) -> None:
    """Close file descriptors, and take them out of their list, or out of the values of their dictionary.

    Readers leave this to `weakref.finalize`, which runs before the interpreter clears modules: a `__del__` may find
    neither `os` nor this function.
    """
    while handles:
        os.close(handles.popitem()[1] if isinstance(handles, dict) else handles.pop())


def _mark(document: Path) -> tuple[int, ...] | None:
    try:
        status = os.stat(document)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns
