"""Steps between which no signal may come: it is heeded after the last of them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


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
