"""Locks that name their holder, and that no dead holder keeps: the kernel lets go of them (flock)."""

from __future__ import annotations

import fcntl
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from bigsvm.errors import OutputError
from bigsvm.store.files import cannot_write


@contextmanager
def alone(path: Path, what: str) -> Iterator[None]:
    """Hold `path` while the block runs, or fail at once; the file goes away at the end.

    what : what is held, such as "the run"

    Raises OutputError: another process holds it (named), or the lock cannot be written.
    """
    while True:
        try:
            lock = open(path, "a+")  # noqa: SIM115
        except OSError as error:
            raise cannot_write(path, error) from error
        with lock:
            if not take(lock, fcntl.LOCK_EX):
                raise OutputError(f"{what} is in use by {holder(lock)}", str(path.parent), "wait for it or stop it")
            if not _is_that(path, lock):
                continue  # its last holder took the file away between our opening and locking it
            sign(lock)
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def take(lock: IO[str], how: int) -> bool:
    """Take a lock if it is free now.

    how : fcntl.LOCK_SH or LOCK_EX
    """
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sign(lock: IO[str]) -> None:
    """Write into a lock that we hold who we are."""
    who = {"pid": os.getpid(), "host": platform.node(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
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


def _is_that(path: Path, lock: IO[str]) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(lock.fileno()))
    except OSError:
        return False
