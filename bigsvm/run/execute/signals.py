"""SIGTERM, SIGINT and SIGHUP: the first asks a run to stop at the next block, a second one waits for nothing.

A command of `bigsvm` owns its process, and ends it.  A program that calls `bigsvm.fit` has its own way with signals,
and gets them back.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from bigsvm.errors import Interrupted

INTERRUPTED = 75
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Handler = Callable[[int, FrameType | None], None]

_commands: list[None] = []
"""Not empty while a command of ours owns the process."""


class Stop:
    """Whether, and by which signal, a run was asked to stop."""

    def __init__(self) -> None:
        self.by: str | None = None

    def __bool__(self) -> bool:
        return self.by is not None


@contextmanager
def stop_on_signals(stop: Stop) -> Iterator[None]:
    """Signals set `stop` while the block runs; former handlers come back after it.

    A second signal ends a command at once with 75.  In another program it goes to the former handler, as if there were
    no block: Ctrl-C twice raises KeyboardInterrupt, SIGTERM twice ends the process.
    """
    former = {number: signal.getsignal(number) for number in _SIGNALS}

    def handle(number: int, frame: FrameType | None) -> None:
        if not stop:
            stop.by = signal.Signals(number).name
            return
        if _commands:
            os._exit(INTERRUPTED)
        handler = former[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    try:
        with handled_by(handle):
            yield
    except Interrupted as error:
        error.by = stop.by  # whoever noticed it
        raise


@contextmanager
def owning_the_process() -> Iterator[None]:
    """A command of ours runs during the block, and may end the process."""
    _commands.append(None)
    try:
        yield
    finally:
        _commands.pop()


def hand_on(by: str) -> NoReturn:
    """Give a program the signal that stopped a fit, after the fit saved its state and the program's handlers are back.

    by : such as SIGTERM

    Raises what the program's handler raises, such as KeyboardInterrupt for Ctrl-C.  If the handler returns, raises
    KeyboardInterrupt.  If there is none, raises SystemExit with the exit code of a process that the signal ended, so
    that with-blocks remove their temporary files.  None of these is an Exception, which a search would take for a fit
    that failed.
    """
    number = signal.Signals[by]
    handler = signal.getsignal(number)
    if not callable(handler):
        raise SystemExit(128 + number)
    handler(number, None)
    raise KeyboardInterrupt(f"stopped by {by}")


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
