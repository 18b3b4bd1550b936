"""The files of an open store: they must not change while it is open, and each thread is at its place in them."""

from __future__ import annotations

import functools
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

import xxhash

from bigsvm.errors import DataError, MissingInput
from bigsvm.files.file_array import TICK_NS, times_are_past
from bigsvm.store.sealing.manifest import read_failed

_PIECE = 1 << 20
_MANY, _WHILE_S = 64, 2.0
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class File:
    """A file as it was when the store was opened.  changed_ns : time of the last change of its status"""

    path: str
    size: int
    mtime_ns: int
    changed_ns: int
    group_starts: tuple[int, ...]  # first row of each row group, in rows of the store

    @classmethod
    def of(cls, path: str, status: os.stat_result, group_starts: tuple[int, ...] = ()) -> File:
        """The file that has this status."""
        return cls(path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, group_starts)

    @property
    def known_by(self) -> list[str | int]:
        """What must be unchanged if the content is to count as unchanged without being read.

        It includes the time of the last change of the status, because `rsync -t`, `cp -p` and archives set the time of
        the content.
        """
        return [str(self.path), self.size, self.mtime_ns, self.changed_ns]


class KnownFiles:
    """The files of a store; `check` is thread-safe.

    fingerprint : `files_fingerprint` of all files, set by the store.  If it is set, a file whose status alone has
        changed (by a new name or other permissions) is read, and accepted if its content is the same
    """

    def __init__(self, files: Sequence[File]) -> None:
        self.fingerprint = ""
        self._files = list(files)
        self._known = {file.path: file.known_by for file in files}
        self._digests: dict[str, str] = {}  # digest of each file, after all of them were read again
        self._lock = threading.Lock()
        self._looked = -math.inf

    def check(self, path: str) -> None:
        """Raise DataError if a file has changed since the store was opened."""
        now = File.of(path, stat_file(path)).known_by
        if now == self._known[path]:
            return
        if now[:-1] == self._known[path][:-1] and self._same_content(path):
            return
        raise DataError("the file changed since it was opened", path)

    def check_all(self, often: bool = False) -> None:
        """As `check`, for all files.

        often : called for each task: very many files are looked at only once in a while, because each read checks its
            own
        """
        if often and len(self._files) > _MANY and time.monotonic() < self._looked + _WHILE_S:
            return
        for file in self._files:
            self.check(file.path)
        self._looked = time.monotonic()

    def _same_content(self, path: str) -> bool:
        """Whether a file of which the status changed has the content that it had.

        The first time all files are read, since it is of all of them that the fingerprint is known; then one at a time.
        """
        with self._lock:
            now = File.of(path, stat_file(path))
            if now.known_by == self._known[path]:
                return True  # another thread has found it out
            if self._digests:
                same = _digest(xxhash.xxh3_128(), now, None) == self._digests[path]
                self._known[path] = now.known_by if same else self._known[path]
                return same
            files = [File.of(file.path, stat_file(file.path)) for file in self._files]
            digests: dict[str, str] = {}
            if not self.fingerprint or files_fingerprint(files, digests) != self.fingerprint:
                return False
            self._known, self._digests = {file.path: file.known_by for file in files}, digests
            return True


class Places(Generic[T]):
    """The place of each thread in some files, for the columns that it reads: it reads on from there.

    in_turn : number of sets of columns of which a thread keeps its place.  Labels in several columns are read in turn
        with X.  If a thread had only one place, it would have to go back to the beginning of a compressed file, or of a
        row group, for each block.
    """

    def __init__(self) -> None:
        self.in_turn = 1
        self._threads = threading.local()

    def take(self, columns: Sequence[str]) -> T | None:
        """Remove and return this thread's place for these columns, if it has one; others may be released."""
        kept: dict[tuple[str, ...], T] = vars(self._threads).setdefault("kept", {})
        found = kept.pop(tuple(columns), None)
        while len(kept) >= self.in_turn:
            del kept[next(iter(kept))]  # the one that was put back before all others
        return found

    def put(self, columns: Sequence[str], place: T) -> None:
        """Keep a place for the next read of these columns; call `take` before."""
        vars(self._threads).setdefault("kept", {})[tuple(columns)] = place  # another thread may have called `forget`

    def forget(self) -> None:
        """Release the places of all threads."""
        self._threads = threading.local()


def opened_once(reopen: Callable[P, T]) -> Callable[P, T]:
    """Make `reopen`, which opens the store of a pickled one, keep what it opens as long as the files do not change.

    Stores have `check_files`.  A process may live for days, and if the files get another time meanwhile, a store that
    was opened before would be refused by every fit; so it is opened again.  `reopen` itself finds out, by the
    fingerprint, whether the content has changed.
    """
    opened: Any = functools.lru_cache(maxsize=8)(reopen)

    @functools.wraps(reopen)
    def open_or_find(*args: P.args, **options: P.kwargs) -> T:
        store = opened(*args, **options)
        try:
            store.check_files(often=True)
        except (DataError, MissingInput):
            opened.cache_clear()
            store = opened(*args, **options)
        return store

    return open_or_find


def files_fingerprint(files: Sequence[File], digests: dict[str, str] | None = None) -> str:
    """xxh3-128 over the sizes and bytes of files; takes one pass.  Raises ReadFailed.

    If a file changed just now, the pass waits until a further change gives it other times: what is remembered under
    these times is then of these bytes.

    digests : filled with the digest of each file
    """
    newest = max((max(file.mtime_ns, file.changed_ns) for file in files), default=0)
    if not times_are_past(newest):
        time.sleep(TICK_NS / 1e9)
    hasher = xxhash.xxh3_128()
    for file in files:
        hasher.update(f"{file.size}\0".encode())
        found = _digest(xxhash.xxh3_128(), file, hasher)
        if digests is not None:
            digests[file.path] = found
    return hasher.hexdigest()


def _digest(own: Any, file: File, of_all: Any) -> str:
    """The digest of a file's bytes.  own : an empty hasher;  of_all : a hasher that gets the bytes too, or None"""
    hashers = [own] if of_all is None else [own, of_all]
    try:
        with open(file.path, "rb", buffering=0) as content:
            while piece := content.read(_PIECE):
                for hasher in hashers:
                    hasher.update(piece)
    except OSError as error:
        raise read_failed(file.path, error) from error
    return str(own.hexdigest())


def stat_file(path: str) -> os.stat_result:
    """The status of a file, with its size and times.  Raises MissingInput, ReadFailed."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        raise MissingInput("no such file", path) from None
    except OSError as error:
        raise read_failed(path, error) from error
