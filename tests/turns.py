"""Locks that somebody else holds until it is asked for whom one waits, and what is told of the waiting."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bigsvm.events import Event, WorkEnded, WorkStarted
from bigsvm.files import locks


def _sign_as_dead(lock: Any) -> None:
    """As a process leaves it that was killed while it held the lock."""
    locks.sign(lock)
    lock.seek(0)
    who = {**json.loads(lock.read()), "started": 1}
    os.ftruncate(lock.fileno(), 0)
    os.write(lock.fileno(), json.dumps(who).encode())


HOLDERS: dict[str, tuple[Callable[[Any], None], str]] = {
    "ours": (locks.sign, f"process {os.getpid()} on "),
    "another program": (lambda lock: None, "another process"),
    "another program after one of ours was killed": (_sign_as_dead, "another process"),
}
"""Who holds a lock -> (how the lock is signed, what is said of the holder)."""


def hold(path: Path, who: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Hold the lock until it is asked for whom one waits, which is at once; what is said then."""
    signed, said = HOLDERS[who]
    lock = open(path, "a+")  # noqa: SIM115
    assert locks.take(lock, fcntl.LOCK_EX)
    signed(lock)
    gone = locks._holder_is_gone

    def asked(theirs: Any) -> bool:
        found = gone(theirs)
        if not lock.closed:
            lock.close()
        return found

    monkeypatch.setattr(locks, "_UNTOLD_S", 0.0)
    monkeypatch.setattr(locks, "_holder_is_gone", asked)
    return said


def check_told(waits: Sequence[Event], said: str, does: str, path: Path) -> None:
    """One wait was told, for the holder and what it does; whoever had the lock is not taken for the next one."""
    begun, ended = waits
    assert isinstance(begun, WorkStarted)
    assert isinstance(ended, WorkEnded)
    assert begun.what == ended.what
    assert begun.what.startswith(f"waiting for {said}")
    assert begun.what.endswith(f", which {does}")
    assert path.read_bytes() == b""
