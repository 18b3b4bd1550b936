"""Hedged requests: if a request is silent for unusually long, a second one runs beside it; the first answer counts."""

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
"""Limit of second requests at a time, including abandoned ones that have not ended yet."""
_LOOK_S = 0.2
_END = object()


class Pace:
    """The usual waiting times of one server, and how long it may be silent.

    timeout_s : a request is given up after so much silence
    stopping : set when copying is given up: nobody waits any more
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s, self.stopping = timeout_s, threading.Event()
        self.beside = threading.BoundedSemaphore(_MOST_BESIDE)
        self._waits: deque[float] = deque(maxlen=_REMEMBERED)
        self._lock = threading.Lock()

    def waited(self, seconds: float) -> None:
        """Record how long a piece of an answer took to come."""
        with self._lock:
            self._waits.append(seconds)

    @property
    def pause_s(self) -> float:
        """Seconds of silence after which a second request starts: a multiple of the usual time."""
        with self._lock:
            waits = list(self._waits)
        if not waits:
            return min(self.timeout_s / _UNKNOWN_SHARE, _UNKNOWN_S)
        return max(_USUAL_TIMES * statistics.median(waits), _LEAST_S)


class _Request:
    """A request that its own thread reads; `came` receives (request, item), the last item being _END or a Fault.

    A thread that waits for a dead server is abandoned; it ends when obstore gives up.
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
    """The items of an answer as they come, from the fastest request.

    A slow server is not a dead one: the first request is never given up early.  Second requests are replaced one at a
    time, each after twice as much silence.

    begin : begins a request for the items that have not come yet; called again for each second request
    alone : do not run a second request

    Raises
    ------
    Fault : of the last remaining request.  Silence : nothing came for `timeout_s`.
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
            _leave([other for other in requests if other is not request])  # they are for an item that has just come
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
