"""Copying objects into files: several at a time, in pieces, each verified before its file gets its final name."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.errors import DataError, MissingInput
from bigsvm.files.atomic import open_regular
from bigsvm.files.space import cannot_write
from bigsvm.store.remote.client import Client
from bigsvm.store.remote.faults import OTHER_BYTES, REMEDY, Believed, Changed, NoRanges, Passing, Patience
from bigsvm.store.remote.journal import Journal
from bigsvm.store.remote.tags import Tags
from bigsvm.store.remote.versions import Held, Listed
from bigsvm.units import KIB, MIB

_CONNECTIONS = 8
_LEAST_PIECE, _LARGEST_PIECE = 64 * KIB, 8 * MIB
_LOOK_S = 0.2
_TRIES = 4

Check = Callable[[str, Any], None]
"""A function of (path, bytes) that raises DataError if these are not the bytes that were sealed."""


class _Copying:
    """An object that is being copied."""

    def __init__(self, path: str, listed: Listed, target: Path, piece: int) -> None:
        self.path, self.listed, self.target = path, listed, target
        self.starts = list(range(0, listed.size, piece)) or [0]
        self.left = len(self.starts)
        self.lock = threading.Lock()
        self.held = Held(listed)
        self.streamed = False

    @property
    def unfinished(self) -> Path:
        return self.target.with_name(f".{self.target.name}.part")


class Fetcher:
    """Copies objects into a folder to which nobody else writes.

    in_flight : limit of the bytes of all pieces that are being read
    check : compares the bytes of an object with a manifest; None: only ETags are compared
    """

    def __init__(
        self, client: Client, patience: Patience, folder: Path, journal: Journal, tags: Tags, in_flight: int,
        check: Check | None = None,
    ) -> None:  # fmt: skip
        self._client, self._patience, self._folder, self._journal = client, patience, folder, journal
        self._tags, self._check = tags, check
        # obstore holds a piece a second time while it is handed over
        self._piece = min(max(in_flight // (2 * _CONNECTIONS), _LEAST_PIECE), _LARGEST_PIECE)
        self._failed = threading.Event()
        self._held: dict[str, Held] = {}

    def fetch(self, objects: Mapping[str, Listed], advanced: Callable[[int], None]) -> None:
        """Copy the objects that are missing.

        objects : path below the folder -> object
        advanced : called on this thread with the number of further bytes that are there

        Raises
        ------
        ReadFailed : a piece was given up at its deadline; names the object.  DataError : an object changed, or its
            bytes are wrong.  MissingInput : it was deleted.  OutputError : it cannot be written.
        """
        self._run(self._copy, self._pieces(objects), advanced)

    def read_again(self, objects: Mapping[str, Listed], advanced: Callable[[int], None]) -> None:
        """Read objects that were copied once more, and compare them with their copies.

        The second reading begins when the first one has ended.  So what is the same in both was all there at the
        instant between them: the copies are of one version, although no answer names it.  (An object that changed and
        changed back is not noticed.)  A single object that came in one answer is not read again.

        Raises as `fetch`; DataError if an object is no longer what was copied.
        """
        if len(objects) == 1 and self._held[next(iter(objects))].n_answers == 1:
            return
        again = (_Copying(path, listed, self._folder / path, self._piece) for path, listed in objects.items())
        self._run(self._compare, ((copied, start) for copied in again for start in copied.starts), advanced)

    def _run(
        self, work: Callable[[_Copying, int], int], pieces: Iterable[tuple[_Copying, int]],
        advanced: Callable[[int], None],
    ) -> None:  # fmt: skip
        """Call `work`, which returns a number of bytes, for all pieces, on several threads."""
        self._failed.clear()
        pool = ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="bigsvm-fetch")
        running: set[Future[int]] = set()
        try:
            for copying, start in pieces:
                running.add(pool.submit(self._unless_failed, work, copying, start))
                while len(running) >= 4 * _CONNECTIONS:
                    running = _some_done(running, advanced)
            while running:
                running = _some_done(running, advanced)
        finally:
            self._patience.stopping.set()
            pool.shutdown(wait=True, cancel_futures=True)
            self._patience.stopping.clear()

    def _pieces(self, objects: Mapping[str, Listed]) -> Iterator[tuple[_Copying, int]]:
        for path, listed in objects.items():
            copying = _Copying(path, listed, self._folder / path, self._piece)
            self._held[path] = copying.held
            try:
                copying.target.parent.mkdir(parents=True, exist_ok=True)
                if len(copying.starts) > 1 and copying.target.exists():  # finished by a run that was killed afterwards
                    os.replace(copying.target, copying.unfinished)
            except OSError as error:
                raise cannot_write(copying.target.parent, error) from error
            for start in copying.starts:
                yield copying, start

    def _unless_failed(self, work: Callable[[_Copying, int], int], copying: _Copying, start: int) -> int:
        """Do one piece of the work; after one failed for good no further one begins, however late `_run` learns it."""
        if self._failed.is_set():
            return 0
        try:
            return work(copying, start)
        except BaseException:
            self._failed.set()
            raise

    def _copy(self, copying: _Copying, start: int) -> int:
        """Copy one piece; the last one finishes the object.  Returns the number of its bytes."""
        listed = copying.listed
        stop = min(start + self._piece, listed.size)
        if len(copying.starts) == 1 and self._is_whole(copying):
            return stop - start
        content = _read(copying.unfinished, start, stop)
        if len(copying.starts) == 1 or not self._journal.holds(copying.path, start, content):
            self._take(copying, start, stop)
        with copying.lock:
            copying.left -= 1
            last = copying.left == 0
        if last:
            self._finish(copying)
        return stop - start

    def _take(self, copying: _Copying, start: int, stop: int) -> None:
        """Read a piece, write it to its file, and then add it to the journal."""
        content = self._bring(copying, start, stop)
        if content is not None:
            self._write(copying, start, content)
            self._journal.add(copying.path, start, content)

    def _is_whole(self, copying: _Copying) -> bool:
        """Whether a small object was copied before, completely and correctly."""
        content = _read(copying.target, 0, copying.listed.size + 1)
        if not self._journal.holds(copying.path, 0, content) or len(content) != copying.listed.size:
            return False
        return self._is_right(copying, content) and self._tags.agrees(copying.listed, [content])

    def _is_right(self, copying: _Copying, content: Any) -> bool:
        if self._check is None:
            return True
        try:
            self._check(copying.path, content)
        except DataError:
            return False
        return True

    def _bring(self, copying: _Copying, start: int, stop: int) -> Any:
        """The bytes of a piece; None if the whole object was streamed into its file."""
        listed, where = copying.listed, self._client.uri(copying.listed.key)
        if listed.size == 0:
            return b""
        if copying.streamed:
            return None
        alone = len(copying.starts) == 1

        def attempt() -> Any:
            content = self._client.get(listed, start, stop, copying.held)
            if alone and not self._is_right(copying, content):
                raise Believed("other bytes than were sealed: damaged or exchanged", "wrong")
            if alone and self._check is None and not self._tags.agrees(listed, [content]):
                raise Believed(OTHER_BYTES, "tag")
            return content

        try:
            return self._patience.ask(where, attempt)
        except NoRanges:
            with copying.lock:
                if not copying.streamed:
                    self._patience.ask(where, lambda: self._stream(copying))
                    copying.streamed = True
            return None

    def _stream(self, copying: _Copying) -> None:
        """Copy a whole object from one answer."""
        done = 0
        for piece in self._client.whole(copying.listed, copying.held):
            self._write(copying, done, piece)
            done += len(piece)
            if self._patience.stopping.is_set():
                break
        if done != copying.listed.size:
            raise Passing(f"{done} bytes came instead of {copying.listed.size}")
        for start in copying.starts:
            stop = min(start + self._piece, copying.listed.size)
            self._journal.add(copying.path, start, _read(copying.unfinished, start, stop))

    def _compare(self, copied: _Copying, start: int) -> int:
        """Read one piece again, and compare it with the copy.  Returns the number of its bytes."""
        listed, where = copied.listed, self._client.uri(copied.listed.key)
        stop = min(start + self._piece, listed.size)
        if copied.streamed:
            return stop - start

        def attempt() -> None:
            if listed.size == 0:
                listed.check(self._client.head(listed.key))
            elif self._client.get(listed, start, stop) != _read(copied.target, start, stop):
                raise Changed

        def stream() -> None:
            done = 0
            for piece in self._client.whole(listed, Held(listed)):
                if piece != _read(copied.target, done, done + len(piece)):
                    raise Changed
                done += len(piece)
            if done != listed.size:
                raise Passing(f"{done} bytes came instead of {listed.size}")

        try:
            self._patience.ask(where, attempt)
        except NoRanges:
            with copied.lock:
                if not copied.streamed:
                    self._patience.ask(where, stream)
                    copied.streamed = True
        return stop - start

    def _write(self, copying: _Copying, start: int, content: Any) -> None:
        try:
            handle = os.open(copying.unfinished, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                view = memoryview(content)
                while view:
                    written = os.pwrite(handle, view, start)
                    view, start = view[written:], start + written
            finally:
                os.close(handle)
        except OSError as error:
            raise cannot_write(copying.target, error, copying.listed.size) from error

    def _finish(self, copying: _Copying) -> None:
        """Compare a large object with its digest, and any object with its listing; flush it, and rename it."""
        where = self._client.uri(copying.listed.key)
        if len(copying.starts) > 1:
            for number in range(_TRIES):
                if self._whole_is_right(copying):
                    break
                if number == _TRIES - 1:
                    sealed = self._check is not None
                    what = "other bytes than were sealed: damaged or exchanged" if sealed else OTHER_BYTES
                    raise DataError(what, where, "restore the object" if sealed else REMEDY)
                copying.streamed = False
                for start in copying.starts:
                    self._take(copying, start, min(start + self._piece, copying.listed.size))
        if self._check is None:
            try:
                self._patience.ask(where, lambda: self._client.confirm(copying.listed, copying.held))
            except (DataError, MissingInput):
                copying.unfinished.unlink(missing_ok=True)  # another run must not go on with these bytes
                raise
        try:
            handle = os.open(copying.unfinished, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.ftruncate(handle, copying.listed.size)
                os.fsync(handle)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)
            os.replace(copying.unfinished, copying.target)
        except OSError as error:
            raise cannot_write(copying.target, error) from error

    def _whole_is_right(self, copying: _Copying) -> bool:
        """Whether a file has the bytes of its object."""
        path = copying.unfinished
        if self._check is not None:
            return self._is_right(copying, np.memmap(path, np.uint8, mode="r").view(np.ndarray))
        return self._tags.agrees(copying.listed, _file_pieces(path))


def _some_done(running: set[Future[int]], advanced: Callable[[int], None]) -> set[Future[int]]:
    """Wait for some of them; reports progress even if nothing moved, so that the observer can stop the copying."""
    done, rest = wait(running, _LOOK_S, FIRST_COMPLETED)
    advanced(sum(future.result() for future in done))
    return set(rest)


def _read(path: Path, start: int, stop: int) -> bytes:
    """Bytes of a file; fewer if it ends before."""
    try:
        with open(open_regular(path), "rb", buffering=0) as file:
            file.seek(start)
            found = bytearray()
            while len(found) < stop - start and (piece := file.read(stop - start - len(found))):
                found += piece
            return bytes(found)
    except OSError:
        return b""


def _file_pieces(path: Path) -> Iterator[bytes]:
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(MIB):
            yield piece
