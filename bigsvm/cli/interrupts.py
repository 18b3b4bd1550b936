"""SIGTERM, SIGINT and SIGHUP outside of training: the first unwinds the program, the second ends it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from bigsvm.run.signals import INTERRUPTED, handled_by

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

    to_the_end : as in `handled_by`
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        if _came:
            os._exit(INTERRUPTED)
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
        sys.unraisablehook = hook
        _came.clear()
