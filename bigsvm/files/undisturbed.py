"""Blocks that no signal interrupts, and the point of a command after which a signal comes too late."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_places: list[str] = []  # the places that the running command is to change
_done: set[str] = set()  # those of them that it has changed


@contextmanager
def that_is_done_once(place: Path) -> Iterator[None]:
    """Around a command that must not be repeated once it has changed `place`: appending rows, promoting a model.

    Its last step calls `it_is_done`.  After that the command only reports, so a signal must not make it look failed.
    """
    _places.append(os.path.realpath(place))
    try:
        yield
    finally:
        _done.discard(_places.pop())


def it_is_done(place: Path) -> None:
    """Record that the change of `place` is complete, if the running command is about `place`; else nothing."""
    found = os.path.realpath(place)
    if found in _places:
        _done.add(found)


def is_done() -> bool:
    """Whether everything that the command was called for is done, so that a signal comes too late to stop it."""
    return bool(_done)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Defer SIGTERM, SIGINT and SIGHUP until the block ends; then send the first of them again.

    Python handles signals in the main thread only, so in other threads this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    # Leave signals alone that are ignored, or handled by a C library (None).
    heeded = [number for number in _SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    former = {each: signal.signal(each, lambda number, _: came.append(number)) for each in heeded}
    try:
        yield
    finally:
        for each, handler in former.items():
            signal.signal(each, handler)
        for number in came[:1]:  # several Ctrl-C during the block must not count as a second, impatient one
            os.kill(os.getpid(), number)
