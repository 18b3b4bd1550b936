"""Deadlines of objects elsewhere that are over at a known instant, however busy the machine is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bigsvm.store.remote import faults


class _Clock:
    """Stands still, and goes on by an hour at each look once it is time."""

    def __init__(self, is_time: Callable[[], bool]) -> None:
        self._is_time, self._now = is_time, 0.0

    def monotonic(self) -> float:
        if self._is_time():
            self._now += 3600.0
        return self._now


@contextmanager
def deadlines_over_when(is_time: Callable[[], bool]) -> Iterator[None]:
    """Within the block no deadline of ours is over before `is_time`, and every one is after it."""
    plain = faults.time
    faults.time = _Clock(is_time)  # type: ignore[assignment]
    try:
        yield
    finally:
        faults.time = plain
