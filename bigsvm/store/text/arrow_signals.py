"""SIGINT and SIGTERM while pyarrow parses text: they are left to the handlers of the program."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa


@contextmanager
def left_to_python() -> Iterator[None]:
    """In the block pyarrow does not handle SIGINT and SIGTERM, as it does otherwise in the main thread.

    It would raise ArrowCancelled, although a fit that is asked to stop goes on to where it can save its state.  Some
    signals that come just as it ends would be lost.  A piece of text takes milliseconds, so nobody waits for it.
    """
    if threading.current_thread() is not threading.main_thread() or not handled_by_pyarrow():
        yield
        return
    pa.enable_signal_handlers(False)
    try:
        yield
    finally:
        pa.enable_signal_handlers(True)


def handled_by_pyarrow() -> bool:
    """Whether pyarrow would handle signals in this thread; not if the program has switched that off, for example.

    pyarrow does not say.  But where it is on, it asks for Python's handlers before it puts its own there.  These are
    never put there here: signals that come just as they go are lost.  Without its class for that, which is not public,
    it is taken for switched on, as by default.
    """
    stopping = getattr(pa.lib, "SignalStopHandler", None)
    if stopping is None:
        return True
    handlers: list[object] = []
    usual = signal.getsignal

    def noticed(number: int) -> object:
        handlers.append(usual(number))
        return handlers[-1]

    signal.getsignal = noticed  # type: ignore[assignment]
    try:
        stopping()
    finally:
        signal.getsignal = usual
    return any(found not in (signal.SIG_DFL, signal.SIG_IGN, None) for found in handlers)
