"""Locks that name their holder, and that no dead holder keeps: the kernel lets go of them (flock).

It does so when the last descriptor of the lock is closed.  A forked child has them all, and would keep the locks of
a parent that was killed; so each lock taken here is let go in a child as soon as it is forked.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

from bigsvm.errors import OutputError
from bigsvm.files.atomic import cannot_write
from bigsvm.process import Process, this_process

_LOOK_S = 0.01
_LOOKS = 200  # at the lock of a process that is gone, before it is taken for held
_locks: weakref.WeakSet[IO[Any]] = weakref.WeakSet()
"""All files that were locked here and may still be open."""


def _let_go_in_child() -> None:
    """Another file takes the place of each lock: its number stays in use, so that closing it harms nobody."""
    if not _locks:
        return
    with suppress(OSError):
        nothing = os.open(os.devnull, os.O_RDWR)
        for lock in list(_locks):
            with suppress(OSError, ValueError):  # closed already
                os.dup2(nothing, lock.fileno(), inheritable=False)
        os.close(nothing)


os.register_at_fork(after_in_child=_let_go_in_child)


@contextmanager
def alone(path: Path, what: str) -> Iterator[None]:
    """Hold `path` while the block runs, or fail at once; the file goes away at the end.

    what : what is held, such as "the run"

    Raises OutputError: another process holds it (named), or the lock cannot be written.
    """
    looks = 0
    while True:
        try:
            lock = open(path, "a+")  # noqa: SIM115
        except OSError as error:
            raise cannot_write(path, error) from error
        with lock:
            if not take(lock, fcntl.LOCK_EX):
                looks += 1
                if looks < _LOOKS and _holder_is_gone(lock):
                    time.sleep(_LOOK_S)  # a child that it had just forked has not let go yet
                    continue
                raise OutputError(f"{what} is in use by {holder(lock)}", str(path.parent), "wait for it or stop it")
            if not _is_that(path, lock):
                continue  # its last holder took the file away between our opening and locking it
            sign(lock)
            try:
                yield
            finally:
                if _is_that(path, lock):  # its folder may have made way for another, with a holder of its own
                    path.unlink(missing_ok=True)
            return


def take(lock: IO[Any], how: int) -> bool:
    """Take a lock if it is free now.

    how : fcntl.LOCK_SH or LOCK_EX
    """
    _locks.add(lock)
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for(lock: IO[Any]) -> None:
    """Take a lock alone, however long others hold it."""
    _locks.add(lock)
    fcntl.flock(lock, fcntl.LOCK_EX)


def sign(lock: IO[str]) -> None:
    """Write into a lock that we hold who we are."""
    machine, pid, started = this_process()
    now = datetime.now(UTC).isoformat(timespec="seconds")
    who = {"pid": pid, "host": platform.node(), "since": now, "machine": machine, "started": started}
    try:
        os.ftruncate(lock.fileno(), 0)
        os.write(lock.fileno(), json.dumps(who).encode() + b"\n")  # appends: that is how it was opened
    except OSError:  # a full disk: the lock holds all the same, it only does not say whose it is
        pass


def holder(lock: IO[str]) -> str:
    """Who signed a lock, for a message."""
    try:
        lock.seek(0)
        who = json.loads(lock.read())
        return f"process {who['pid']} on {who['host']} since {who['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


class Holder(NamedTuple):
    """Who signed a lock, and whether that process has certainly ended."""

    who: str
    gone: bool


def signed_by(path: Path) -> Holder | None:
    """Who signed the lock at `path`, which is left alone; None where there is none."""
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


def _is_that(path: Path, lock: IO[str]) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(lock.fileno()))
    except OSError:
        return False
