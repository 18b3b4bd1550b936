"""SIGTERM, SIGINT and SIGHUP outside of training: the first unwinds the program, the second ends it."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from bigsvm.files.undisturbed import is_done
from bigsvm.run.execute.signals import INTERRUPTED, handled_by

_AGAIN_S = 0.02  # until a signal that came within an import is sent again
_TELLING_S = 1.0  # in which a program tells what it did: signals that come meanwhile are let pass
_COMPILER = re.compile(r"/(numba|llvmlite)/")
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

    Where the command has done what it is for (`is_done`), it is let pass: it would be told that it failed.

    to_the_end : as in `handled_by`
    """

    later: list[threading.Timer] = []
    too_late: list[float] = []
    user = sys._getframe(2)  # beyond the generator and the context manager

    def interrupt(number: int, frame: FrameType | None) -> None:
        if is_done():
            now = time.monotonic()
            if too_late and now - too_late[0] > _TELLING_S:  # somebody does not read what is told
                os._exit(0)
            too_late.append(now)
            return
        if _came:
            os._exit(INTERRUPTED)
        if _delicate(frame, user):
            # Extensions do not survive an exception half-way: they say that they cannot be imported, or crash.
            # A thread that was not quite started is waited for at the end.
            later[:] = [threading.Timer(_AGAIN_S, os.kill, (os.getpid(), number))]
            later[0].daemon = True
            later[0].start()
            return
        _came.append(number)
        # zarr reads on an event loop of its own: what is left there would be reported, with tracebacks, at the end.
        logging.getLogger("asyncio").disabled = True
        raise Interruption

    def not_ours(unraisable: Any) -> None:
        # An interruption is raised again, and needs no traceback; nor do objects that it left half made.
        if not _came and not isinstance(unraisable.exc_value, Interruption):
            hook(unraisable)

    _came.clear()
    hook, sys.unraisablehook = sys.unraisablehook, not_ours
    try:
        with handled_by(interrupt, to_the_end):
            yield
    finally:
        for timer in later:
            timer.cancel()
        sys.unraisablehook = hook
        _came.clear()


def _delicate(frame: FrameType | None, user: FrameType) -> bool:
    """Whether an import, a compilation or the start of a thread has begun since `user`, and goes on."""
    while frame is not None and frame is not user:
        name = frame.f_code.co_filename
        if name.startswith("<frozen importlib") or _COMPILER.search(name):
            return True
        if frame.f_code.co_name == "start" and name.endswith("threading.py"):
            return True
        frame = frame.f_back
    return False
