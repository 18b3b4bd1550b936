"""Partitions of dask collections, computed in order, with a bounded number of them in flight."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import islice
from typing import Any

import dask
from dask._task_spec import DataNode, GraphNode, convert_legacy_graph
from dask.delayed import Delayed
from dask.optimization import cull

from bigsvm.errors import BigSVMError, DataError, MissingInput, ReadFailed, UsageError
from bigsvm.tasks import LOOK_S, NOBODY_S

_RETRIES = 3  # attempts for a partition whose worker was lost
_COMING = 3  # partitions that are being fetched from workers, or wait here, at a time
_LOST = ("KilledWorker", "CancelledError", "FutureCancelledError", "CommClosedError", "ClosedClientError")
_AGAIN = "start a cluster again and repeat the command"


class DaskParts:
    """Partitions of one or more collections side by side; each is computed shortly before its turn.

    columns : the partitions of each collection, as from `partitions`; as many of each
    where : name of the collection in errors
    client : a `distributed.Client` whose workers compute them; None: dask's current client, else threads of this
        process

    Whatever all partitions need, such as the mean of a column, is computed once and kept.  Whatever only some
    partitions need is computed again for each of them.
    """

    def __init__(self, columns: Sequence[Sequence[Any]], where: str, client: Any = None) -> None:
        self.where, self._client = where, client or _current_client()
        if len({len(column) for column in columns}) != 1:
            counts = " and ".join(str(len(column)) for column in columns)
            hint = "repartition one like the other; or call compute_chunk_sizes() on both"
            raise UsageError(f"rows and labels have different partitions ({counts}), of unknown lengths", where, hint)
        self.n_parts = len(columns[0])
        together = [dask.delayed(_together, pure=False)(*parts) for parts in zip(*columns, strict=True)]
        self._keys = [part.key for part in together]
        # One graph, from which each partition takes its part: a copy for each would take quadratic memory.
        self._graph: dict[Any, Any] = convert_legacy_graph(dict(dask.delayed(list)(together).__dask_graph__()))
        self._shared_is_known = False
        self._begun: dict[int, Any] = {}

    @property
    def workers(self) -> int | None:
        """Threads of the cluster; None if threads of this process compute."""
        if self._client is None:
            return None
        try:
            return sum(self._client.nthreads().values())
        except (
            OSError,
            RuntimeError,
            AttributeError,
        ) as error:  # AttributeError comes from a client that has closed itself
            raise ReadFailed(f"the cluster was lost: {_said(error)}", self.where, _AGAIN) from error

    def first(self, ahead: int = 1) -> tuple[Any, ...]:
        """The first partition, as a tuple with the part of each collection.

        ahead : number of partitions, including this one, that workers start to compute
        """
        if self._client is None:
            return self._task(0)()
        first = self._sent(0)
        self._begun = {number: self._sent(number) for number in range(1, min(ahead, self.n_parts))}
        return self._taken(first, 0)

    def made(
        self,
        start: int,
        at_most: int,
        count: Callable[[tuple[Any, ...]], int],
        make: Callable[[tuple[Any, ...], Any], Any],
        told: Callable[[int, int], Any],
        row: int,
    ) -> Generator[Any, None, None]:
        """What workers make of the partitions from `start` on, in order; each is converted where it was computed.

        count : partition -> its number of rows
        make : (partition, the value of `told`) -> result
        told : (number of the partition, number of its first row) -> the second argument of `make`
        row : number of the first row of partition `start`

        Raises as `computed` does.
        """
        self._compute_shared()
        begun: deque[tuple[int, Any, Any]] = deque()
        coming: deque[tuple[int, Any]] = deque()
        numbers = iter(range(start, self.n_parts))
        try:
            while True:
                for number in islice(numbers, at_most - len(begun) - len(coming)):
                    part = self._sent(number)
                    begun.append((number, part, self._urgent(number, count, part)))
                while begun and len(coming) < max(at_most // 2, 1):
                    number, part, counted = begun.popleft()
                    n = self._taken(counted, number)
                    coming.append((number, self._urgent(number, make, part, told(number, row))))
                    row += n
                    del part, counted
                if not coming:
                    return
                number, found = coming.popleft()
                yield self._taken(found, number)
                del found
        finally:
            _cancel(*(future for one in begun for future in one[1:]), *(future for _, future in coming))

    def computed(self, start: int, at_most: int) -> Generator[tuple[Any, ...], None, None]:
        """The partitions from `start` on, in order; at most `at_most` are being computed or waiting.

        Raises
        ------
        DataError : the computation of a partition raised an error; names the partition.
        ReadFailed : it raised OSError, or the cluster was lost.
        """
        self._compute_shared()
        if self._client is None and at_most == 1:
            for number in range(start, self.n_parts):
                yield self._task(number)()
            return
        if self._client is None:
            with ThreadPoolExecutor(at_most, thread_name_prefix="bigsvm-dask") as pool:
                yield from self._in_order(
                    start, at_most, at_most, lambda n: pool.submit(self._task(n)), lambda one: one
                )
            return
        here = min(at_most, _COMING)
        with ThreadPoolExecutor(here, thread_name_prefix="bigsvm-dask") as pool:
            yield from self._in_order(start, at_most, here, self._sent, lambda future: pool.submit(future.result))

    @property
    def _is_closed(self) -> bool:
        return self._client is not None and self._client.status != "running"

    def _remedy(self) -> str:
        """What to try after a partition was lost: another cluster, or settings under which its workers survive."""
        if self._is_closed:
            return _AGAIN
        return (
            "give its workers more memory, or make smaller partitions; if workers are killed for other reasons, "
            "set distributed.scheduler.allowed-failures higher on the scheduler"
        )

    def _in_order(
        self, start: int, at_most: int, here: int, begin: Callable[[int], Any], fetch: Callable[[Any], Any]
    ) -> Generator[tuple[Any, ...], None, None]:
        """The results of the futures that `begin` starts, one for each partition from `start` on, in order.

        at_most : number of partitions that are in flight at a time

        here, fetch : the number of results that are fetched ahead, and the function that waits for one
        """
        begun: deque[Any] = deque()
        coming: deque[tuple[Any, Any]] = deque()
        numbers = iter(range(start, self.n_parts))
        try:
            for number in range(start, self.n_parts):
                begun.extend(map(begin, islice(numbers, at_most - len(begun) - len(coming))))
                while begun and len(coming) < here:
                    coming.append((begun[0], fetch(begun.popleft())))
                self._wait_for(coming[0][1], number)  # if no worker comes, it is cancelled with the others below
                yield self._asked(coming.popleft()[1].result, number)
        finally:
            _cancel(*begun, *(one for two in coming for one in two))

    def _sent(self, number: int) -> Any:
        """The future of a partition that a worker computes."""
        if number in self._begun:
            return self._begun.pop(number)
        part = Delayed(self._keys[number], self._needed(number))
        return self._asked(lambda: self._client.compute(part, optimize_graph=False, retries=_RETRIES), number)

    def _urgent(self, number: int, task: Callable[..., Any], *given: Any) -> Any:
        """The future of a task that workers run before partitions that are not needed yet."""
        how = {"pure": False, "retries": _RETRIES, "priority": 1}
        return self._asked(lambda: self._client.submit(task, *given, **how), number)

    def _task(self, number: int) -> Callable[[], tuple[Any, ...]]:
        graph, key = self._needed(number), self._keys[number]
        # One thread runs one partition, because dask's pools would compute ahead without bound.
        return lambda: self._asked(lambda: dask.get(graph, key), number)

    def _needed(self, number: int) -> dict[Any, Any]:
        self._compute_shared()
        return cull(self._graph, [self._keys[number]])[0]

    def _compute_shared(self) -> None:
        """Compute the nodes that both the first and the last partition need, and replace them by their values."""
        if self._shared_is_known or self.n_parts < 2:
            return
        self._shared_is_known = True
        first, depends = cull(self._graph, [self._keys[0]])
        last, depends_last = cull(self._graph, [self._keys[-1]])
        shared = first.keys() & last.keys()
        # But not the nodes below: those of a mean are the whole collection.
        asked = [
            {key for outer in cone.keys() - shared for key in below.get(outer, ()) if key in shared}
            for cone, below in ((first, depends), (last, depends_last))
        ]
        wanted = [key for key in asked[0] & asked[1] if not _is_value(self._graph[key])]
        if not wanted:
            return
        graph = cull(self._graph, wanted)[0]
        if self._client is None:
            values = self._asked(lambda: dask.threaded.get(graph, wanted), None)
        else:
            futures = self._asked(lambda: self._client.get(graph, wanted, sync=False), None)
            values = [self._taken(future, None) for future in futures]
        # With new names, because the scheduler may still hold the old ones as nodes to be computed.
        named = {key: f"shared-{dask.base.tokenize(key)}" for key in wanted}
        for key, node in list(self._graph.items()):
            if not _is_value(node) and not named.keys().isdisjoint(node.dependencies):
                self._graph[key] = node.substitute(named)
        for key, found in zip(wanted, values, strict=True):
            self._graph[named[key]] = DataNode(named[key], found)

    def _taken(self, future: Any, number: int | None) -> Any:
        """The result of a future, from a cluster or a thread."""
        self._wait_for(future, number)
        return self._asked(future.result, number)

    def _wait_for(self, future: Any, number: int | None) -> None:
        """Wait until a future has ended.

        Raises ReadFailed if the cluster has no worker for too long; dask itself would wait for ever.
        """
        seen = time.monotonic()
        while self._client is not None and not self._asked(lambda: self._ends(future), number):
            if self.workers:
                seen = time.monotonic()
            elif time.monotonic() - seen > NOBODY_S:
                raise ReadFailed(f"the cluster was lost: no worker for {NOBODY_S:g} seconds", self.where, _AGAIN)

    def _ends(self, future: Any) -> bool:
        """Wait for a future of the cluster or of a thread, but only briefly; returns whether it has ended."""
        if isinstance(future, Future):
            return bool(wait([future], LOOK_S).done)
        if not future.done():
            import distributed

            try:
                with self._client.as_current():
                    distributed.wait([future], timeout=LOOK_S)
            except TimeoutError:
                return False
        return True

    def _asked(self, ask: Callable[[], Any], number: int | None) -> Any:
        """Call `ask`; errors from the user's collection name the partition."""
        what = "the common part of all partitions" if number is None else f"partition {number}"
        try:
            return ask()
        except (BigSVMError, MemoryError):
            raise
        except FileNotFoundError as error:
            raise MissingInput(f"{what} could not be computed: {_said(error)}", self.where) from error
        except (OSError, TimeoutError) as error:
            raise ReadFailed(f"{what} could not be computed: {_said(error)}", self.where) from error
        except Exception as error:
            if type(error).__name__ in _LOST or self._is_closed:
                raise ReadFailed(f"the cluster lost {what}: {_said(error)}", self.where, self._remedy()) from error
            hint = f"collection.partitions[{number}].compute() shows the error" if number is not None else ""
            raise DataError(f"{what} could not be computed: {_said(error)}", self.where, hint) from error


def partitions(collection: Any, rows: tuple[int, ...] | None, where: str) -> tuple[list[Any], tuple[int, ...] | None]:
    """(partitions along the rows, their lengths if known).

    collection : a dask array with one or two dimensions, a dataframe or series, a Delayed or a list of them, or an
        xarray array over dask
    rows : the lengths that an array with known lengths is rechunked to; None: its own

    Raises UsageError for other types.
    """
    if isinstance(collection, Delayed):
        return [collection], None
    if isinstance(collection, list | tuple):
        return list(collection), None
    if hasattr(collection, "dims") and hasattr(collection, "chunk"):
        if not hasattr(collection, "data"):
            raise UsageError("an xarray dataset has several arrays", where, "pass one of its variables")
        # An array that xarray would load as a whole becomes a dask array first.
        if collection.chunks is None:
            collection = collection.chunk({dim: -1 if place else "auto" for place, dim in enumerate(collection.dims)})
        collection = collection.data
    if hasattr(collection, "npartitions") and hasattr(collection, "to_delayed") and not hasattr(collection, "chunks"):
        if not hasattr(collection, "divisions"):
            raise UsageError("a dask bag has no columns", where, "convert it with to_dataframe()")
        return collection.to_delayed(), None
    if not 1 <= collection.ndim <= 2:
        raise DataError(f"has shape {collection.shape}", where, "it must have rows and columns")
    if collection.ndim == 2 and collection.numblocks[1] > 1:
        collection = collection.rechunk({1: -1})
    lengths = collection.chunks[0]
    if any(length != length for length in lengths):  # dask uses NaN for an unknown length
        return list(collection.to_delayed().ravel()), None
    if rows is not None and lengths != rows and sum(lengths) == sum(rows):
        collection, lengths = collection.rechunk({0: rows}), rows
    return list(collection.to_delayed().ravel()), tuple(int(length) for length in lengths)


def _together(*parts: Any) -> tuple[Any, ...]:
    return parts


def _current_client() -> Any:
    """The client with which dask itself would compute; None if there is none."""
    if "distributed" not in sys.modules:
        return None
    from distributed import Client

    try:
        client = Client.current(allow_global=True)
    except ValueError:
        return None
    return client if client.status == "running" else None


def _cancel(*futures: Any) -> None:
    """Cancel futures that are not needed any more; a client that has closed is ignored."""
    with suppress(Exception):
        for future in futures:
            future.cancel()


def _is_value(node: Any) -> bool:
    """Whether a node of a graph is a value, not a computation."""
    return isinstance(node, DataNode) or not isinstance(node, GraphNode)


def _said(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
