"""SIGTERM, SIGINT and SIGHUP outside of training: the first unwinds the program, the second ends it at once."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from bigsvm.files.undisturbed import is_done
from bigsvm.run.execute.signals import INTERRUPTED, handled_by, owning_the_process

_AGAIN_S = 0.02  # time after which a signal that came during an import is sent again
_TELLING_S = 1.0  # time that a finished command has to print its result; signals are ignored meanwhile
_COMPILER = re.compile(r"/(numba|llvmlite)/")
_came: list[int] = []  # the signal that unwinds the program, once it has come
_postponed: list[int] = []  # a signal that came where an exception would do harm, and is to be sent again


class Interruption(KeyboardInterrupt):
    """Unwinds the program as Ctrl-C does.

    A plain KeyboardInterrupt would not do: if one passes through `exec`, as in imports, the interpreter remembers it,
    and later ends the process by SIGINT instead of the exit code that was asked for.
    """


def check_interrupted() -> None:
    """Raise the Interruption again, if some library swallowed it in a callback; called with every progress event."""
    if _came:
        raise Interruption


def check_postponed() -> None:
    """Raise the Interruption of a signal that came before this, also if it is still to be sent again.

    Called before a result is written: a short command would end before that, though somebody interrupted its imports a
    second ago.
    """
    if _postponed and not is_done():
        _came[:] = _came or _postponed
        hush_event_loops()
    check_interrupted()


@contextmanager
def unwinding_on_signals(to_the_end: bool) -> Iterator[None]:
    """During the block the first signal raises Interruption, and a second one ends the process at once with 75.

    If the command has already done its work (`is_done`), signals are ignored: otherwise it would report a failure.

    to_the_end : as in `handled_by`
    """

    later: list[threading.Timer] = []
    too_late: list[float] = []
    user = sys._getframe(2)  # the caller, beyond this generator and the context manager

    def interrupt(number: int, frame: FrameType | None) -> None:
        if is_done():
            now = time.monotonic()
            if too_late and now - too_late[0] > _TELLING_S:  # the reader of our output blocks
                os._exit(0)
            too_late.append(now)
            return
        if _came:
            os._exit(INTERRUPTED)
        if _delicate(frame, user):
            # An exception now would do harm: extension modules cannot be imported any more, or crash, and Python would
            # wait at exit for a thread that never quite started.  So send the signal again, a little later.
            _postponed[:] = [number]
            later[:] = [threading.Timer(_AGAIN_S, os.kill, (os.getpid(), number))]
            later[0].daemon = True
            later[0].start()
            return
        _postponed.clear()
        _came.append(number)
        hush_event_loops()
        raise Interruption

    def not_ours(unraisable: Any) -> None:
        # Python reports exceptions in destructors here.  After an interruption they are expected.
        if not _came and not isinstance(unraisable.exc_value, Interruption):
            hook(unraisable)

    _came.clear()
    _postponed.clear()
    hook, sys.unraisablehook = sys.unraisablehook, not_ours
    try:
        with owning_the_process(), handled_by(interrupt, to_the_end):
            yield
    finally:
        for timer in later:
            timer.cancel()
        if _came:  # again, for what is destroyed at exit
            hush_event_loops()
        sys.unraisablehook = hook
        _came.clear()
        _postponed.clear()


def hush_event_loops() -> None:
    """Let nothing be told of what the interruption left undone on an event loop: zarr reads on one of its own.

    asyncio would report unfinished tasks with tracebacks at exit, and Python coroutines that were never awaited.
    """
    logging.getLogger("asyncio").disabled = True
    warnings.simplefilter("ignore", RuntimeWarning)


def _delicate(frame: FrameType | None, user: FrameType) -> bool:
    """Whether an import, a compilation or the start of a thread is going on in the frames above `user`."""
    while frame is not None and frame is not user:
        name = frame.f_code.co_filename
        if name.startswith("<frozen importlib") or _COMPILER.search(name):
            return True
        if frame.f_code.co_name == "start" and name.endswith("threading.py"):
            return True
        frame = frame.f_back
    return False
