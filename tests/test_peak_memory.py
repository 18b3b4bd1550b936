"""The sampler sees what was held for a moment."""

from __future__ import annotations

import gc
import mmap
import threading
from collections.abc import Callable

import pytest

from bigsvm.peak_memory import PeakMemory
from bigsvm.units import MIB


class Watched(PeakMemory):
    """Tells when its thread has looked."""

    def __init__(self) -> None:
        super().__init__()
        self.looked = threading.Semaphore(0)

    def sample(self) -> None:
        super().sample()
        if threading.current_thread().name == "bigsvm-memory":
            self.looked.release()

    def wait_for_a_look(self) -> None:
        """A look that begins after this call has ended when it returns: the one under way may have missed what is."""
        while self.looked.acquire(blocking=False):
            pass
        for _ in range(2):
            self.looked.acquire()


def test_a_short_peak_is_seen() -> None:
    """Threads of earlier tests may give memory back meanwhile: one of a few looks is of what is held here alone."""
    seen = []
    for _ in range(5):
        gc.collect()
        # Not from the C library, which may have as much from a test before.
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        with Watched() as memory, mmap.mmap(-1, 64 * MIB, flags=private) as held:
            for _ in range(64):
                held.write(bytes(MIB))
            memory.wait_for_a_look()
        assert memory.peak_rss_bytes >= memory.peak_anon_bytes - MIB
        seen.append(memory.peak_anon_bytes - memory.base_bytes)
        if 60 * MIB <= seen[-1] <= 90 * MIB:
            return
    pytest.fail(f"peaks of {seen} bytes where 64 MiB were held")


def test_nothing_held_is_nothing_seen() -> None:
    with Watched() as memory:
        memory.wait_for_a_look()
    assert memory.peak_anon_bytes - memory.base_bytes < 4 * MIB


def test_stop_ends_the_thread_and_may_be_repeated(started_and_alive: Callable[[], list[str]]) -> None:
    memory = PeakMemory().start()
    memory.start()
    assert started_and_alive() == ["bigsvm-memory"]
    memory.stop()
    memory.stop()
    assert started_and_alive() == []
