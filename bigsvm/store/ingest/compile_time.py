"""The seconds that numba compiles during a block, which the rate of an ingest must not include."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from numba.core import event


class CompileTime(event.Listener):
    """Seconds during which at least one thread compiled a function."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._lock = threading.Lock()
        self._open, self._began = 0, 0.0

    def on_start(self, event: event.Event) -> None:
        """A compilation begins; they may be nested, and run on several threads."""
        with self._lock:
            if self._open == 0:
                self._began = time.perf_counter()
            self._open += 1

    def on_end(self, event: event.Event) -> None:
        """A compilation ends."""
        with self._lock:
            self._open -= 1
            if self._open == 0:
                self.seconds += time.perf_counter() - self._began


@contextmanager
def compile_time() -> Iterator[CompileTime]:
    """Measure during the block."""
    clock = CompileTime()
    with event.install_listener("numba:compile", clock):
        yield clock
