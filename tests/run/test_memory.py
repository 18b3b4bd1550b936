"""The sampler sees what was held for a moment."""

from __future__ import annotations

import threading
import time

import numpy as np

from bigsvm.run.memory import PeakMemory
from bigsvm.units import MIB


def test_a_short_peak_is_seen() -> None:
    with PeakMemory() as memory:
        held = np.ones(64 * MIB // 8)
        time.sleep(0.1)
        del held
    assert 60 * MIB <= memory.peak_anon_bytes - memory.base_bytes <= 90 * MIB
    assert memory.peak_rss_bytes >= memory.peak_anon_bytes - MIB


def test_nothing_held_is_nothing_seen() -> None:
    with PeakMemory() as memory:
        time.sleep(0.05)
    assert memory.peak_anon_bytes - memory.base_bytes < 4 * MIB


def test_stop_ends_the_thread_and_may_be_repeated() -> None:
    memory = PeakMemory().start()
    memory.start()
    memory.stop()
    memory.stop()
    assert not any(thread.name == "bigsvm-memory" for thread in threading.enumerate())
