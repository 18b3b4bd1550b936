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

    A pass may extend over several steps: `newton-ws` reads a sample first, so that none of its steps ends where a pass
    does.  Each pass is shown once, also if a step is left and reads its rows again.

    reads : what has been read; passes are counted by its bytes
    data_bytes : decoded bytes of a pass
    clock : the time in seconds
    """

    def __init__(
        self, reads: ReadAccount, data_bytes: int, emit: Emit, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._reads, self._data_bytes, self._emit, self._clock = reads, max(data_bytes, 1), emit, clock
        self._number, self._done, self._open, self._over = -1, 0, False, False
        self._lock = threading.Lock()
        self._began_s = self._told_s = clock()

    def look(self) -> None:
        """Emit what is due; called after each block, on any thread."""
        if self._clock() < self._told_s + _TELL_S or not self._lock.acquire(blocking=False):
            return
        try:
            read = self._reads.bytes_read  # once, since other threads go on
            number = max(read - 1, 0) // self._data_bytes  # a pass that is just complete is the current one
            if self._over or number < self._number or (number == self._number and not self._open):
                return
            if number > self._number:
                if self._open:
                    self._end(read)
                self._number, self._open = number, True
                self._emit(WorkStarted(self._what, self._data_bytes, "bytes"))
            self._advance(read)
            self._told_s = self._clock()
        finally:
            self._lock.release()

    def ended(self) -> None:
        """The step or the proof that read has ended.  A pass that is not complete goes on with the next one."""
        with self._lock:
            read = self._reads.bytes_read
            if not self._open or read >= (self._number + 1) * self._data_bytes:
                self._end(read)

    def close(self) -> None:
        """End the pass that is shown, complete or not; nothing is shown any more."""
        with self._lock:
            self._end(self._reads.bytes_read)
            self._over = True

    @property
    def _what(self) -> str:
        return f"pass {self._number + 1}"

    def _done_of(self, read: int) -> int:
        return min(read - self._number * self._data_bytes, self._data_bytes)

    def _advance(self, read: int) -> None:
        self._done = self._done_of(read)
        self._emit(WorkAdvanced(self._what, self._done))

    def _end(self, read: int) -> None:
        now = self._clock()
        if self._open:
            if self._done_of(read) > self._done:
                self._advance(read)
            self._emit(WorkEnded(self._what, now - self._began_s))
        self._open, self._began_s, self._told_s = False, now, now
