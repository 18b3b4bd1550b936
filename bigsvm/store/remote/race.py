"""A request that is silent for longer than others were gets a second one beside it: what comes first is taken."""

from __future__ import annotations

import queue
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from bigsvm.store.remote.faults import Fault, Passing, Silence, fault_of

T = TypeVar("T")
_LEAST_S, _UNKNOWN_S, _UNKNOWN_SHARE = 0.1, 1.0, 8
_USUAL_TIMES = 4
_REMEMBERED = 64
_MOST_BESIDE = 16
"""Second requests at a time, with those that were left to themselves and have not ended yet."""
_LOOK_S = 0.2
_END = object()


class Pace:
    """How long answers of one server usually take to come, and how long it may be silent.

    timeout_s : a request that is silent for so long is given up
    stopping : set by whoever gives up: nobody waits any more
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s, self.stopping = timeout_s, threading.Event()
        self.beside = threading.BoundedSemaphore(_MOST_BESIDE)
        self._waits: deque[float] = deque(maxlen=_REMEMBERED)
        self._lock = threading.Lock()

    def waited(self, seconds: float) -> None:
        """A piece of an answer took so long to come."""
        with self._lock:
            self._waits.append(seconds)

    @property
    def pause_s(self) -> float:
        """After so long a silence a request gets a second one beside it: some times what is usual."""
        with self._lock:
            waits = list(self._waits)
        if not waits:
            return min(self.timeout_s / _UNKNOWN_SHARE, _UNKNOWN_S)
        return max(_USUAL_TIMES * statistics.median(waits), _LEAST_S)


class _Request:
    """One request, read by a thread of its own: `came` gets (request, item), an item being _END or a Fault in the end.

    A thread that waits for a dead server is left to itself; it ends when the library below gives up.
    """

    def __init__(self, items: Iterator[Any], came: queue.Queue[Any], pace: Pace, ended: Callable[[], None]) -> None:
        self._items, self._came, self._pace, self._ended = items, came, pace, ended
        self.left = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while not self.left.is_set():
                began = time.monotonic()
                item = next(self._items, _END)
                if item is not _END:
                    self._pace.waited(time.monotonic() - began)
                self._put(item)
                if item is _END:
                    return
        except Fault as fault:
            self._put(fault)
        except Exception as error:
            self._put(fault_of(error))
        finally:
            self._ended()

    def _put(self, item: Any) -> None:
        while not self.left.is_set():
            with suppress(queue.Full):
                return self._came.put((self, item), timeout=_LOOK_S)


def racing(begin: Callable[[], Iterator[T]], pace: Pace, *, alone: bool = False) -> Iterator[T]:
    """Items of an answer as they come, by whichever request has them first.

    A slow server is no dead one: the first request is waited for, and those beside it are begun anew, one at a time,
    each after twice as long a silence.

    begin : begins a request for what has not come yet; called again for each that runs beside
    alone : there can be one request only

    Raises
    ------
    Fault : of the last request that was left. Silence : nothing came for `timeout_s`.
    """
    came: queue.Queue[tuple[_Request, Any]] = queue.Queue(2)
    requests = [_Request(begin(), came, pace, lambda: None)]
    try:
        silent = time.monotonic()
        step = pace.pause_s
        second = silent + step
        while True:
            now = time.monotonic()
            if pace.stopping.is_set():
                raise Passing("stopped")
            try:
                request, item = came.get(timeout=max(min(second, silent + pace.timeout_s, now + _LOOK_S) - now, 0))
            except queue.Empty:
                now = time.monotonic()
                if now >= silent + pace.timeout_s:
                    raise Silence from None
                if now >= second:
                    step *= 2
                    second = now + step
                    if not alone and pace.beside.acquire(blocking=False):
                        _leave(requests[1:])
                        requests = [*requests[:1], _Request(begin(), came, pace, pace.beside.release)]
                continue
            if request not in requests:
                continue
            if isinstance(item, Fault):
                requests.remove(request)
                if not requests:
                    raise item
                continue
            _leave([other for other in requests if other is not request])  # they are for what has come now
            requests = [request]
            if item is _END:
                return
            yield item
            silent = time.monotonic()
            step = pace.pause_s
            second = silent + step
    finally:
        _leave(requests)


def _leave(requests: list[_Request]) -> None:
    for request in requests:
        request.left.set()
