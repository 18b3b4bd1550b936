"""Mappers of this process: one task after another, and a pool of threads (compiled loops let go of the GIL)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import TypeVar

from bigsvm.tasks import MapperHere, SerialMapper

__all__ = ["SerialMapper", "ThreadMapper"]

import numpy as np

T = TypeVar("T")
U = TypeVar("U")


class ThreadMapper(MapperHere):
    """`n_workers` threads."""

    in_process = True

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self._is_worker = threading.local()
        self._pool = ThreadPoolExecutor(n_workers, "bigsvm-task", self._begin)

    def _begin(self) -> None:
        self._is_worker.yes = True
        np.seterr(all="ignore")  # as in the thread of the fit, where the proof tells what overflowed

    def map(self, task: Callable[[T], U], shares: Iterable[T], at_most: int | None = None) -> Generator[U, None, None]:
        """As `Mapper` says."""
        if isinstance(shares, list) and len(shares) == 1:
            # A round of one block: no thread could help, and the hop costs more than a small block.
            yield task(shares[0])
            return
        flying: deque[Future[U]] = deque()
        limit = min(at_most or self.n_workers + 1, self.n_workers + 1)
        try:
            for share in shares:
                flying.append(self._pool.submit(task, share))
                if len(flying) >= limit:
                    yield flying.popleft().result()
            while flying:
                yield flying.popleft().result()
        finally:
            running = [future for future in flying if not future.cancel()]
            # They may write into the caller's arrays: when the loop is left, that is over.  A generator that nobody
            # closed is closed by the collector of garbage, on any thread; a task would then wait for itself.
            if not hasattr(self._is_worker, "yes"):
                wait(running)

    def __enter__(self) -> ThreadMapper:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
