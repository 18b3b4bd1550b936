"""Mappers of this process: plain `map`, and a pool of threads (compiled kernels let go of the GIL)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


class SerialMapper:
    """One task after another, here."""

    in_process = True
    n_workers = 1

    def map(self, task: Callable[[T], U], shares: Iterable[T], at_most: int | None = None) -> Iterator[U]:
        return map(task, shares)


class ThreadMapper:
    """`n_workers` threads."""

    in_process = True

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self._pool = ThreadPoolExecutor(n_workers, "bigsvm-task")

    def map(self, task: Callable[[T], U], shares: Iterable[T], at_most: int | None = None) -> Iterator[U]:
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
            for future in flying:
                future.cancel()

    def __enter__(self) -> ThreadMapper:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
