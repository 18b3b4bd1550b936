"""Partitions of dask collections, computed in order, a bounded number of them at a time."""

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

_RETRIES = 3  # of a partition whose worker was lost
_COMING = 3  # partitions that are fetched from workers at one time, or wait here
_LOST = ("KilledWorker", "CancelledError", "FutureCancelledError", "CommClosedError", "ClosedClientError")
_AGAIN = "start a cluster again and repeat the command"


class DaskParts:
    """Partitions of one or more collections side by side; each is computed when its turn is near.

    columns : for each collection its partitions, as `partitions` gives them; equally many
    where : names the collection in errors
    client : a `distributed.Client`, on whose workers they are computed; None: that which is current in dask, else
        threads of this process

    What every partition needs, such as the mean of a column, is computed once and kept; what only some need is
    computed again for each of them.
    """

    def __init__(self, columns: Sequence[Sequence[Any]], where: str, client: Any = None) -> None:
        self.where, self._client = where, client or _current_client()
        if len({len(column) for column in columns}) != 1:
            counts = " and ".join(str(len(column)) for column in columns)
            hint = "repartition one like the other; or call compute_chunk_sizes() on both, which tells their rows"
            raise UsageError(f"rows and labels have {counts} partitions, of unknown lengths", where, hint)
        self.n_parts = len(columns[0])
        together = [dask.delayed(_together, pure=False)(*parts) for parts in zip(*columns, strict=True)]
        self._keys = [part.key for part in together]
        # One graph for all, of which each partition takes what it needs: a copy for each would grow with the square.
        self._graph: dict[Any, Any] = convert_legacy_graph(dict(dask.delayed(list)(together).__dask_graph__()))
        self._shared_is_known = False
        self._begun: dict[int, Any] = {}

    @property
    def workers(self) -> int | None:
        """Threads of the cluster; None where threads of this process compute."""
        if self._client is None:
            return None
        try:
            return sum(self._client.nthreads().values())
        except (OSError, RuntimeError, AttributeError) as error:  # the last of a client that has closed by itself
            raise ReadFailed(f"the cluster was lost: {_said(error)}", self.where, _AGAIN) from error

    def first(self, ahead: int = 1) -> tuple[Any, ...]:
        """The first partition: a tuple with the part of each collection.

        ahead : partitions, that one among them, that workers begin with
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
        """What workers make of partitions from `start` on, in order, where each was computed.

        count : rows of a partition;  make : of it, and of what `told` says of its number and its first row
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
        """Partitions from `start` on, in order; at most `at_most` are being computed or waiting.

        Raises
        ------
        DataError : a partition raised something; names it. ReadFailed : OSError, or the cluster was lost.
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
        """What to try after a partition was lost: another cluster, or workers that do not die of it."""
        if self._is_closed:
            return _AGAIN
        return (
            "give its workers more memory, or make smaller partitions; where workers are killed for other reasons, "
            "set distributed.scheduler.allowed-failures higher on the scheduler"
        )

    def _in_order(
        self, start: int, at_most: int, here: int, begin: Callable[[int], Any], fetch: Callable[[Any], Any]
    ) -> Generator[tuple[Any, ...], None, None]:
        """What `begin` has begun, a future for each partition from `start` on; at most `at_most` at a time.

        here, fetch : so many of them, the next ones, are on their way here, and what waits for one
        """
        begun: deque[Any] = deque()
        coming: deque[tuple[Any, Any]] = deque()
        numbers = iter(range(start, self.n_parts))
        try:
            for number in range(start, self.n_parts):
                begun.extend(map(begin, islice(numbers, at_most - len(begun) - len(coming))))
                while begun and len(coming) < here:
                    coming.append((begun[0], fetch(begun.popleft())))
                self._wait_for(coming[0][1], number)  # where nobody comes, it is cancelled with the others
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
        """The future of a task that workers take before partitions that nobody waits for yet."""
        how = {"pure": False, "retries": _RETRIES, "priority": 1}
        return self._asked(lambda: self._client.submit(task, *given, **how), number)

    def _task(self, number: int) -> Callable[[], tuple[Any, ...]]:
        graph, key = self._needed(number), self._keys[number]
        # Its own thread runs one partition: the pools of dask would compute ahead without bound.
        return lambda: self._asked(lambda: dask.get(graph, key), number)

    def _needed(self, number: int) -> dict[Any, Any]:
        self._compute_shared()
        return cull(self._graph, [self._keys[number]])[0]

    def _compute_shared(self) -> None:
        """Replace what the first and the last partition both ask for, if it is computed, by its value."""
        if self._shared_is_known or self.n_parts < 2:
            return
        self._shared_is_known = True
        first, depends = cull(self._graph, [self._keys[0]])
        last, depends_last = cull(self._graph, [self._keys[-1]])
        shared = first.keys() & last.keys()
        # Not what lies below: of a mean that is the whole collection.
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
        # Under names of their own: a scheduler may still know the old ones for something that is computed.
        named = {key: f"shared-{dask.base.tokenize(key)}" for key in wanted}
        for key, node in list(self._graph.items()):
            if not _is_value(node) and not named.keys().isdisjoint(node.dependencies):
                self._graph[key] = node.substitute(named)
        for key, found in zip(wanted, values, strict=True):
            self._graph[named[key]] = DataNode(named[key], found)

    def _taken(self, future: Any, number: int | None) -> Any:
        """What a future holds, of whoever computes it."""
        self._wait_for(future, number)
        return self._asked(future.result, number)

    def _wait_for(self, future: Any, number: int | None) -> None:
        """Return when a future has ended.

        Raises ReadFailed where the cluster has no worker at all for too long: dask itself would wait for ever.
        """
        seen = time.monotonic()
        while self._client is not None and not self._asked(lambda: self._ends(future), number):
            if self.workers:
                seen = time.monotonic()
            elif time.monotonic() - seen > NOBODY_S:
                raise ReadFailed(f"the cluster was lost: no worker for {NOBODY_S:g} seconds", self.where, _AGAIN)

    def _ends(self, future: Any) -> bool:
        """Wait for a future, of the cluster or of a thread, but not for long; whether it has ended."""
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
        """The answer; errors of whoever made the collection name the partition."""
        what = "what all partitions need" if number is None else f"partition {number}"
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
            hint = f"collection.partitions[{number}].compute() shows where" if number is not None else ""
            raise DataError(f"{what} could not be computed: {_said(error)}", self.where, hint) from error


def partitions(collection: Any, rows: tuple[int, ...] | None, where: str) -> tuple[list[Any], tuple[int, ...] | None]:
    """(its partitions along the rows, their lengths where these are known).

    collection : a dask array of one or two dimensions, dataframe or series; a Delayed or a list of such; an xarray
        array over one
    rows : lengths that an array of known length is to have; None: its own

    Raises UsageError for other things.
    """
    if isinstance(collection, Delayed):
        return [collection], None
    if isinstance(collection, list | tuple):
        return list(collection), None
    if hasattr(collection, "dims") and hasattr(collection, "chunk"):
        if not hasattr(collection, "data"):
            raise UsageError("a dataset of xarray has several arrays", where, "give one of its variables")
        # What xarray would read as a whole becomes a dask array first.
        if collection.chunks is None:
            collection = collection.chunk({dim: -1 if place else "auto" for place, dim in enumerate(collection.dims)})
        collection = collection.data
    if hasattr(collection, "npartitions") and hasattr(collection, "to_delayed") and not hasattr(collection, "chunks"):
        if not hasattr(collection, "divisions"):
            raise UsageError("a dask bag has no columns", where, "to_dataframe() gives it some")
        return collection.to_delayed(), None
    if not 1 <= collection.ndim <= 2:
        raise DataError(f"has shape {collection.shape}", where, "rows and columns")
    if collection.ndim == 2 and collection.numblocks[1] > 1:
        collection = collection.rechunk({1: -1})
    lengths = collection.chunks[0]
    if any(length != length for length in lengths):  # dask says NaN for a length that it does not know
        return list(collection.to_delayed().ravel()), None
    if rows is not None and lengths != rows and sum(lengths) == sum(rows):
        collection, lengths = collection.rechunk({0: rows}), rows
    return list(collection.to_delayed().ravel()), tuple(int(length) for length in lengths)


def _together(*parts: Any) -> tuple[Any, ...]:
    return parts


def _current_client() -> Any:
    """The client that dask itself would compute with; None where nobody made one."""
    if "distributed" not in sys.modules:
        return None
    from distributed import Client

    try:
        client = Client.current(allow_global=True)
    except ValueError:
        return None
    return client if client.status == "running" else None


def _cancel(*futures: Any) -> None:
    """Nobody wants these any more; of a client that has closed, nobody can be told so."""
    with suppress(Exception):
        for future in futures:
            future.cancel()


def _is_value(node: Any) -> bool:
    """Whether a node of a graph is there already."""
    return isinstance(node, DataNode) or not isinstance(node, GraphNode)


def _said(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
