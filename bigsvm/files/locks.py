"""Locks (flock) that name their holder, and that the kernel releases when the holder ends.

The kernel releases a lock when its last descriptor is closed.  A forked child inherits the descriptors, and would keep
the locks of a parent that was killed.  So a child gives up all inherited locks as soon as it is forked.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

from bigsvm.errors import OutputError
from bigsvm.files.space import cannot_write
from bigsvm.process import Process, this_process

_LOOK_S = 0.01
_UNTOLD_S = 1.0
"""Seconds to wait for a lock before the user is told of it; most locks are held for less."""
_LOOKS = 200  # attempts to get a lock whose holder has ended, before it is reported as held
_NOBODY_KNOWN = "another process"
_NO_LOCKS = "this file system may have no locks: choose a folder on another disk, or mount it with locks (flock)"
_locks: weakref.WeakSet[IO[Any]] = weakref.WeakSet()
"""All lock files of this process that may still be open."""


def _let_go_in_child() -> None:
    """Redirect each lock's descriptor to another file: so it stays valid, and closing it later does no harm."""
    if not _locks:
        return
    with suppress(OSError):
        nothing = os.open(os.devnull, os.O_RDWR)
        for lock in list(_locks):
            with suppress(OSError, ValueError):  # it was already closed
                os.dup2(nothing, lock.fileno(), inheritable=False)
        os.close(nothing)


os.register_at_fork(after_in_child=_let_go_in_child)


@contextmanager
def alone(path: Path, what: str) -> Iterator[None]:
    """Hold the lock `path` during the block, or fail at once; the lock file is deleted at the end.

    what : what the lock protects, such as "the run", for messages

    Raises OutputError if another process holds the lock (the message names it), or the file cannot be made or locked.
    """
    looks = 0
    while True:
        try:
            lock = open(path, "a+")  # noqa: SIM115
        except OSError as error:
            raise cannot_write(path, error) from error
        with lock:
            try:
                is_ours = take(lock, fcntl.LOCK_EX)
            except OutputError:
                if os.fstat(lock.fileno()).st_size == 0:  # signed by nobody: we made it
                    path.unlink(missing_ok=True)
                raise
            if not is_ours:
                looks += 1
                if looks < _LOOKS and _holder_is_gone(lock):
                    time.sleep(_LOOK_S)  # a child that the dead holder had just forked has not released it yet
                    continue
                raise _in_use(path, what, lock)
            if not is_that(path, lock):
                continue  # its last holder took the file away between our opening and locking it
            sign(lock)
            try:
                yield
            finally:
                if is_that(path, lock):  # its folder may have made way for another, with a holder of its own
                    path.unlink(missing_ok=True)
            return


@contextmanager
def folder_alone(folder: Path, name: str, what: str) -> Iterator[None]:
    """A folder, ours alone while the block runs.  If it is empty at the end, it goes.

    An empty folder would be an existing output to the next fit.  One that was empty before belongs to the user.

    name : of the lock in it;  what : as in `alone`

    Raises OutputError: another process is at it (named), or it cannot be written.
    """
    try:
        was_empty = folder.is_dir() and not any(folder.iterdir())
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    try:
        with alone(folder / name, what):
            yield
    finally:
        if not was_empty:
            with suppress(OSError):
                folder.rmdir()


def flock(lock: IO[Any], how: int) -> None:
    """As `fcntl.flock`, but a file system that has no locks is told by name, with what helps.

    Without a lock two processes would write one run, copy or registry, so there is no way around it.

    Raises OutputError; BlockingIOError where `how` has LOCK_NB and another process holds the lock.
    """
    try:
        fcntl.flock(lock, how)
    except BlockingIOError:
        raise
    except OSError as error:
        path = Path(os.fsdecode(lock.name))
        raise OutputError(f"cannot lock {path.name}: {error.strerror or error}", str(path.parent), _NO_LOCKS) from error


def take(lock: IO[Any], how: int) -> bool:
    """Take a lock if it is free now; returns whether it was.

    how : fcntl.LOCK_SH or LOCK_EX

    Raises OutputError where the file system has no locks; so does `wait_for`.
    """
    _locks.add(lock)
    try:
        flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for(lock: IO[Any], tell: Callable[[str], None] | None = None) -> None:
    """Take an exclusive lock, however long others hold it.

    tell : called once with the name of the holder, if the wait takes longer than a second
    """
    _locks.add(lock)
    until = time.monotonic() + _UNTOLD_S
    while tell is not None:
        if take(lock, fcntl.LOCK_EX):
            return
        if time.monotonic() >= until:
            # A killed process leaves its name in the file, although another one holds the lock now.
            tell(_NOBODY_KNOWN if _holder_is_gone(lock) else holder(lock))
            break
        time.sleep(_LOOK_S)
    flock(lock, fcntl.LOCK_EX)


def check_free(path: Path, what: str) -> None:
    """Raise OutputError naming the process that holds `path` by `alone`; a lock file of a dead process is ignored."""
    for look in range(1, _LOOKS + 1):
        try:
            lock = open(path, "r+")  # noqa: SIM115
        except OSError:  # missing: nobody holds it; unreadable: whoever takes the lock reports it
            return
        with lock:
            if take(lock, fcntl.LOCK_SH):
                return
            if look == _LOOKS or not _holder_is_gone(lock):
                raise _in_use(path, what, lock)
        time.sleep(_LOOK_S)


def _in_use(path: Path, what: str, lock: IO[str]) -> OutputError:
    return OutputError(f"{what} is in use by {holder(lock)}", str(path.parent), "wait for it or stop it")


def sign(lock: IO[str]) -> None:
    """Write the name of this process into a lock that it holds."""
    machine, pid, started = this_process()
    now = datetime.now(UTC).isoformat(timespec="seconds")
    who = {"pid": pid, "host": platform.node(), "since": now, "machine": machine, "started": started}
    try:
        os.ftruncate(lock.fileno(), 0)
        os.write(lock.fileno(), json.dumps(who).encode() + b"\n")  # appended, because of the mode of opening
    except OSError:  # a full disk: the lock still works, but messages cannot name its holder
        pass


def unsign(lock: IO[str]) -> None:
    """Remove the name of this process from a lock whose file stays, before the lock is released."""
    with suppress(OSError):
        os.ftruncate(lock.fileno(), 0)


def holder(lock: IO[str]) -> str:
    """The process that signed a lock, for a message."""
    try:
        lock.seek(0)
        who = json.loads(lock.read())
        return f"process {who['pid']} on {who['host']} since {who['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return _NOBODY_KNOWN


class Holder(NamedTuple):
    """The process that signed a lock, and whether it has certainly ended."""

    who: str
    gone: bool


def signed_by(path: Path) -> Holder | None:
    """The holder named in the lock at `path`, which is not touched; None if there is no such lock."""
    try:
        with open(path) as lock:
            return Holder(holder(lock), _holder_is_gone(lock))
    except OSError:
        return None


def _holder_is_gone(lock: IO[str]) -> bool:
    """Whether the process that signed a lock has certainly ended."""
    try:
        lock.seek(0)
        who = json.loads(lock.read())
        return Process(str(who["machine"]), int(who["pid"]), int(who["started"])).is_gone()
    except (OSError, ValueError, KeyError, TypeError):
        return False


def is_that(path: Path, lock: IO[str]) -> bool:
    """Whether an open lock is the file at `path` still; it may have been removed before it was taken."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(lock.fileno()))
    except OSError:
        return False
