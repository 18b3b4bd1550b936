"""Steps between which no signal may come, and the step after which a signal comes too late."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_places: list[str] = []  # what the command that goes on is to change
_done: set[str] = set()  # of them, what it has changed


@contextmanager
def that_is_done_once(place: Path) -> Iterator[None]:
    """Around a command which must not be repeated once it has changed `place`: adding rows, promoting a model.

    Its last step calls `it_is_done`.  What comes after only tells of it, so a signal must not say that it failed.
    """
    _places.append(os.path.realpath(place))
    try:
        yield
    finally:
        _done.discard(_places.pop())


def it_is_done(place: Path) -> None:
    """What a `that_is_done_once` is for has been done, if `place` is its own; small work elsewhere is none of it."""
    found = os.path.realpath(place)
    if found in _places:
        _done.add(found)


def is_done() -> bool:
    """Whether a signal comes too late to stop what the program was called for."""
    return bool(_done)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Of SIGTERM, SIGINT and SIGHUP that come while the block runs the first is sent again after it.

    Only the main thread handles signals: in another one nothing is changed, and nothing is interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    # What is ignored stays so; what a library of C handles is none of Python's.
    heeded = [number for number in _SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    former = {each: signal.signal(each, lambda number, _: came.append(number)) for each in heeded}
    try:
        yield
    finally:
        for each, handler in former.items():
            signal.signal(each, handler)
        for number in came[:1]:  # several at once are no impatience
            os.kill(os.getpid(), number)
