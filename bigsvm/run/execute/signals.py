"""SIGTERM, SIGINT and SIGHUP: the first asks a run to stop at the next block, the second ends it at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 75
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Handler = Callable[[int, FrameType | None], None]


class Stop:
    """Whether, and by which signal, a run was asked to stop."""

    def __init__(self) -> None:
        self.by: str | None = None

    def __bool__(self) -> bool:
        return self.by is not None


@contextmanager
def stop_on_signals(stop: Stop) -> Iterator[None]:
    """Signals set `stop` while the block runs; former handlers come back after it."""

    def handle(number: int, frame: FrameType | None) -> None:
        if stop:
            os._exit(INTERRUPTED)
        stop.by = signal.Signals(number).name

    with handled_by(handle):
        yield


@contextmanager
def handled_by(handle: Handler, to_the_end: bool = False) -> Iterator[None]:
    """SIGTERM, SIGINT and SIGHUP call `handle` while the block runs; former handlers come back after it.

    to_the_end : the process ends after the block; what comes then is too late to change anything, and is ignored

    A signal that is ignored stays so: `nohup` and background jobs of a shell count on that.  In a thread that is
    not the main one signals are somebody else's business, and nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    former = {number: signal.signal(number, handle) for number in heeded}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, signal.SIG_IGN if to_the_end else handler)
