"""SIGINT and SIGTERM while pyarrow parses text: they are left to the handlers of the program."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_ACTION_BYTES = 1024  # more than a `struct sigaction` has anywhere
_HANDLER_BYTES = 16  # of its beginning, where the handler lies; C libraries leave bytes of the mask as they come


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

    pyarrow does not say.  But while it reads, its own handlers lie beneath those of Python, and the system knows them.
    Without its class for that, which is not public, it is taken for switched on, as by default.
    """
    stopping = getattr(pa.lib, "SignalStopHandler", None)
    if stopping is None:
        return True
    before = _handlers()
    # Where a signal comes just as pyarrow's handlers go, it is lost, so signals wait.
    held = set(_SIGNALS) - signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        with stopping():
            return _handlers() != before
    except pa.ArrowCancelled:  # a signal to another thread; pyarrow has sent it again, to the program
        return True
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, held)


def _handlers() -> list[bytes]:
    """What the system does with the signals."""
    found, library = [], ctypes.CDLL(None)
    for number in _SIGNALS:
        action = ctypes.create_string_buffer(_ACTION_BYTES)
        library.sigaction(int(number), None, action)
        found.append(action.raw[:_HANDLER_BYTES])
    return found
