"""An iterator that runs on its own thread, a bounded number of items ahead of its consumer."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
_LOOK = 0.1  # seconds between checks whether the consumer has stopped
_PATIENCE = 2.0  # seconds to wait for the thread to end; a thread blocked on a pipe is abandoned


@contextmanager
def on_thread(items: Generator[Item, None, None], depth: int = 1) -> Iterator[Iterator[Item]]:
    """Run `items` on a thread, with at most `depth` finished items waiting.  Its exceptions reach the consumer.

    At the end of the block the thread has stopped and `items` is closed.
    """
    waiting: queue.Queue[_End | Item] = queue.Queue(depth)
    stopped = threading.Event()

    def put(item: _End | Item) -> bool:
        while not stopped.is_set():
            try:
                waiting.put(item, timeout=_LOOK)
                return True
            except queue.Full:
                continue
        return False

    def produce() -> None:
        error: BaseException | None = None
        try:
            for item in items:
                if not put(item):
                    break
        except BaseException as caught:  # passed on to the consumer, which raises it
            error = caught
        finally:
            items.close()
        put(_End(error))

    def consume() -> Iterator[Item]:
        while True:
            item = waiting.get()
            if not isinstance(item, _End):
                yield item
            elif item.error is not None:
                raise item.error
            else:
                return

    thread = threading.Thread(target=produce, name="bigsvm-pipe", daemon=True)
    thread.start()
    try:
        yield consume()
    finally:
        stopped.set()
        thread.join(_PATIENCE)


class _End:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error
