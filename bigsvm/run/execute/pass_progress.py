"""A pass over streamed rows as work that goes on, for whoever watches: one over terabytes takes hours."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from bigsvm.events import Emit, WorkAdvanced, WorkEnded, WorkStarted
from bigsvm.solvers.context import ReadAccount

_TELL_S = 2.0
"""Seconds between two events.  A shorter pass is not shown: its certificates are enough."""


class PassProgress:
    """Emits how far the current pass has come, as the work `pass 3`, in decoded bytes.

    reads : what has been read; passes are counted by its bytes
    data_bytes : decoded bytes of a pass
    clock : the time in seconds
    """

    def __init__(
        self, reads: ReadAccount, data_bytes: int, emit: Emit, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._reads, self._data_bytes, self._emit, self._clock = reads, max(data_bytes, 1), emit, clock
        self._what, self._lock = "", threading.Lock()
        self._began_s = self._told_s = clock()

    def look(self) -> None:
        """Emit what is due; called after each block, on any thread."""
        if self._clock() < self._told_s + _TELL_S or not self._lock.acquire(blocking=False):
            return
        try:
            read = self._reads.bytes_read  # once, since other threads go on
            number = max(read - 1, 0) // self._data_bytes  # a pass that is just complete is the current one
            done = read - number * self._data_bytes
            what = f"pass {number + 1}"
            if what != self._what:
                if self._what:
                    self._end()
                self._what = what
                self._emit(WorkStarted(what, self._data_bytes, "bytes"))
            self._emit(WorkAdvanced(what, done))
            self._told_s = self._clock()
        finally:
            self._lock.release()

    def ended(self) -> None:
        """The step or the proof that read has ended."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        now = self._clock()
        if self._what:
            self._emit(WorkEnded(self._what, now - self._began_s))
        self._what, self._began_s, self._told_s = "", now, now
