"""SIGTERM, SIGINT and SIGHUP outside of training: the first unwinds the program, the second ends it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

INTERRUPTED = 75

_came: list[int] = []


class Interruption(KeyboardInterrupt):
    """Unwinds as Ctrl-C does.

    Not KeyboardInterrupt itself: where one passes through `exec`, as in imports, the interpreter remembers it and
    ends the process by SIGINT, whatever exit code was asked for.
    """


def check_interrupted() -> None:
    """Raise again what a callback of a library has swallowed; asked wherever progress is reported."""
    if _came:
        raise Interruption


@contextmanager
def unwinding_on_signals(to_the_end: bool) -> Iterator[None]:
    """The first signal raises Interruption, a second one ends the process at once with 75.

    to_the_end : the process ends after the block; what comes then is too late to change anything, and is ignored

    A signal that is ignored stays so (`nohup`); in a thread that is not the main one nothing is changed.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        if _came:
            os._exit(INTERRUPTED)
        _came.append(number)
        raise Interruption

    def not_ours(unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, Interruption):  # else it is raised again, and needs no traceback
            hook(unraisable)

    former: dict[signal.Signals, Any] = {}
    _came.clear()
    try:
        for which in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(which) is not signal.SIG_IGN:
                former[which] = signal.signal(which, interrupt)
    except ValueError:  # not in the main thread: whoever called us owns the signals
        yield
        return
    hook, sys.unraisablehook = sys.unraisablehook, not_ours
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in former.items():
            signal.signal(number, signal.SIG_IGN if to_the_end else handler)
        _came.clear()
