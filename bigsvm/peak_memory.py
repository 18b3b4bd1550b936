"""How much memory a piece of work really held, sampled while it runs.

The kernel keeps a high-water mark of resident memory, which counts mapped files, but none of anonymous
memory, which is what a budget is about.  So a thread looks every 20 ms; kernels release the GIL, so it
gets its turn.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

from bigsvm.machine import anonymous_bytes, memory_now, resident_peak_bytes

INTERVAL_S = 0.02


class PeakMemory:
    """Anonymous and resident memory of this process between `start` and `stop`; a context manager.

    base_bytes : anonymous memory at `start`: interpreter, libraries and compiled kernels, when they are
        loaded before
    peak_anon_bytes : largest anonymous memory seen, at least base_bytes
    peak_rss_bytes : largest resident set, mapped files included
    """

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self.base_bytes = 0
        self.peak_anon_bytes = 0
        self.peak_rss_bytes = 0
        self._interval_s = interval_s
        self._mark_at_start = 0
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> PeakMemory:
        """Take the base and begin to look; harmless when already started."""
        if self._thread is None:
            self.base_bytes = self.peak_anon_bytes = anonymous_bytes()
            self._mark_at_start = resident_peak_bytes()
            self.sample()
            self._done.clear()
            self._thread = threading.Thread(target=self._watch, name="bigsvm-memory", daemon=True)
            self._thread.start()
        return self

    def document(self, budget_bytes: int | None) -> dict[str, Any]:
        """The `memory` object of a result; `budget_bytes` is None where none was given."""
        return {
            "budget_bytes": budget_bytes,
            "base_bytes": self.base_bytes,
            "peak_anon_bytes": self.peak_anon_bytes,
            "peak_rss_bytes": self.peak_rss_bytes,
        }

    def sample(self) -> None:
        """Look once; also called by those who know that a peak is now."""
        anonymous, resident = memory_now()
        self.peak_anon_bytes = max(self.peak_anon_bytes, anonymous)
        self.peak_rss_bytes = max(self.peak_rss_bytes, resident)

    def stop(self) -> None:
        """Look a last time and end the thread; harmless when already stopped."""
        if self._thread is None:
            return
        self._done.set()
        self._thread.join()
        self._thread = None
        self.sample()
        # The kernel's mark misses nothing, but it is of the whole life of the process: it speaks of this
        # piece of work only where it rose meanwhile.
        mark = resident_peak_bytes()
        if mark > self._mark_at_start:
            self.peak_rss_bytes = max(self.peak_rss_bytes, mark)

    def _watch(self) -> None:
        while not self._done.wait(self._interval_s):
            self.sample()

    def __enter__(self) -> PeakMemory:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
