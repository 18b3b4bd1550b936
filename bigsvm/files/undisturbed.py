"""Steps between which no signal may come, and the step after which a signal comes too late."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_done: list[bool] = []  # of the calls that go on, the last one innermost


@contextmanager
def that_is_done_once() -> Iterator[None]:
    """Around a command which must not be repeated once it has done what it is for: adding rows, promoting a model.

    Its last step calls `it_is_done`.  What comes after only tells of it, so a signal must not say that it failed.
    """
    _done.append(False)
    try:
        yield
    finally:
        _done.pop()


def it_is_done() -> None:
    """What the innermost `that_is_done_once` is for has been done; of no effect outside of one."""
    if _done:
        _done[-1] = True


def is_done() -> bool:
    """Whether a signal comes too late to stop what the program was called for."""
    return bool(_done) and _done[-1]


@contextmanager
def undisturbed() -> Iterator[None]:
    """SIGTERM, SIGINT and SIGHUP that come while the block runs are sent again after it.

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
        for number in came:
            os.kill(os.getpid(), number)
