"""Shards on dask workers: the placement of shards, and the messages of a round.

Each task on a shard is bound to the worker that had the shard last.  Otherwise dask would move tasks to idle workers
(work stealing), and the state of the shard would have to be rebuilt there.  So that no task waits for a worker that is
gone, the caller checks every two seconds which workers are alive, and sends the shards of dead ones to others.  The
state of a shard stays in the process that worked on it, as a cache (`solvers/shard_tasks.py`).  Dask itself holds no
state, so it has nothing to recompute when a worker leaves.
"""

from __future__ import annotations

import threading
import time
import uuid
import warnings
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from distributed import get_worker
from distributed.protocol import pickle as wire

from bigsvm.compiled.cache.stamp import versions
from bigsvm.run.execute.dask_checks import checked
from bigsvm.run.execute.traffic import Count, Made, Traffic, nbytes_of, sum_of
from bigsvm.tasks import FAN_IN, LOOK_S, PassLeft, ShardSum, added, leaving_when, noting

_GOING_ON = ("pending", "finished")  # any other status of a future means that it failed or was lost


class Placement:
    """Assigns shards to workers.  A shard stays on its worker while that lives, and all workers have equally many.

    Neighbouring shards, whose results are added up first, are put on one worker if possible: their sum need not travel.
    The model does not depend on the placement.
    """

    def __init__(self) -> None:
        self._at: dict[int, str] = {}

    def of(self, n_shards: int, workers: Sequence[str]) -> list[str]:
        """The worker of each shard.  As few shards as possible are moved."""
        least, more = divmod(n_shards, len(workers))
        load = dict.fromkeys(sorted(workers), 0)
        before, self._at = self._at, {}

        def has_room(worker: str) -> bool:
            return load[worker] < least or (load[worker] == least and more > 0)

        def put(shard: int, worker: str) -> None:
            nonlocal more
            more -= load[worker] == least
            load[worker] += 1
            self._at[shard] = worker

        for shard in range(n_shards):
            worker = before.get(shard, "")
            if worker in load and has_room(worker):
                put(shard, worker)
        for shard in range(n_shards):
            if shard not in self._at:
                first = shard - shard % FAN_IN
                beside = Counter(self._at.get(other) for other in range(first, first + FAN_IN))
                put(shard, max(filter(has_room, load), key=lambda worker: (beside[worker], load[worker])))
        return [self._at[shard] for shard in range(n_shards)]


class Handle(NamedTuple):
    """A published value: its future, its name, and the value itself, to publish it again if the future fails."""

    future: Any
    value: Any
    name: str


class Begun(NamedTuple):
    """A round that was started.

    futures : of each shard;  where : the worker that each was sent to;  began : time of the start
    """

    task: Callable[..., ShardSum]
    shards: Sequence[Any]
    published: Handle
    futures: list[Any]
    where: list[str]
    began: float


class ShardVerbs:
    """The parts of `publish`, `on_shards` and `reduce` of a mapper on a dask client; counts what moves."""

    def __init__(self, client: Any, retries: int, traffic: Traffic) -> None:
        self._client, self._retries, self._traffic = client, retries, traffic
        self._placement, self._ours = Placement(), versions()
        self._workers: list[str] = []
        self._looked = -LOOK_S
        self._turn, self._any = 0, True

    def publish(self, value: Any) -> Handle:
        """Publish a value as the result of a task: workers fetch it from one another, and a lost copy is made again."""
        self._traffic.published_bytes += nbytes_of(value)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            name = uuid.uuid4().hex
            return Handle(self._submit(_published, name, value, at=None), value, name)

    def shared(self, task: Callable[[Any], Any], share: Any) -> Any:
        """Submit a task over a share; returns its future.  Handles in the share are replaced by their values."""
        values = share if isinstance(share, tuple) and hasattr(share, "_fields") else ()
        published = {share._fields[k]: value.future for k, value in enumerate(values) if isinstance(value, Handle)}
        if published:
            share = share._replace(**published)
        self._traffic.row_bytes += nbytes_of(share)
        # pure=False: the same share may be sent again in a later pass and must run again.
        given = (_on_share, task, share) if published else (task, share)
        return self._submit(*given, at=None)

    def on_shards(self, task: Callable[..., ShardSum], shards: Sequence[Any], published: Any) -> Begun:
        """Submit a task for each shard, bound to its worker."""
        where = self._placement.of(len(shards), self._present())
        self._traffic.task_bytes += len(shards) * len(wire.dumps((task, shards[0])))
        sent = Begun(task, shards, published, [], where, time.monotonic())
        return sent._replace(futures=[self._sent(sent, number, at) for number, at in enumerate(where)])

    def sent_again(self, begun: Begun) -> Begun:
        """The round, with the tasks that were lost sent to other workers; the others are not repeated.

        Dask fails a task, and all that wait for it, after several workers died while they had it.  The task is hardly
        the cause, so it is submitted as a new one.
        """
        there = self._present()
        if begun.published.future.status not in _GOING_ON:
            begun = begun._replace(published=self.publish(begun.published.value))
        where, futures = list(begun.where), list(begun.futures)
        for number, at in enumerate(self._placement.of(len(where), there)):
            if where[number] not in there or futures[number].status not in _GOING_ON:
                futures[number].cancel()
                where[number], futures[number] = at, self._sent(begun, number, at)
        return begun._replace(where=where, futures=futures)

    def leave(self, begun: Begun, total: Any) -> None:
        """Cancel the tasks of a round, and tell the workers to leave those that they are working on.

        A worker hears it at once, because it runs tasks on other threads than the one that listens.
        """
        self._client.cancel([*begun.futures, total])
        with suppress(Exception):  # a worker that does not hear it works to the end of its task
            name, ask = begun.published.name, self._client._run
            self._client.sync(ask, _leave, name, on_error="ignore", callback_timeout=LOOK_S)

    def total(self, begun: Begun) -> Any:
        """Submit the sums of a round, in the tree of `TreeSum`; returns the future of the total.

        Four results are added on the worker that has most of them; if each is on another one, workers take turns.
        """
        futures, where = begun.futures, begun.where
        while len(futures) > 1:
            fours = range(0, len(futures), FAN_IN)
            at = [self._most_of(where[first : first + FAN_IN]) for first in fours]
            futures = [
                self._submit(_added, *futures[first : first + FAN_IN], at=worker)
                if len(futures[first : first + FAN_IN]) > 1
                else futures[first]
                for first, worker in zip(fours, at, strict=True)
            ]
            where = at
        return futures[0]

    def somebody(self) -> bool:
        """Whether any worker is alive; asks the scheduler anew."""
        self._looked = -LOOK_S
        self._present()
        return self._any

    def stranded(self, begun: Begun) -> bool:
        """Whether a worker that has a task of the round is gone, as of the last call of `somebody`."""
        return not set(begun.where) <= set(self._present())

    def taken(self, begun: Begun, total: Made) -> ShardSum:
        """Count a round whose sum has arrived, and return the sum."""
        self._traffic.round(total.nbytes, total.counts, time.monotonic() - begun.began)
        return total.found

    def _most_of(self, where: Sequence[str]) -> str:
        """The worker that has most of some results; of several such workers another one in each call."""
        self._turn += 1
        number = Counter(where)
        most = max(number.values())
        first = [worker for worker in number if number[worker] == most]
        return first[self._turn % len(first)]

    def _sent(self, begun: Begun, number: int, at: str) -> Any:
        given = (begun.task, begun.shards[number], begun.published.future)
        return self._submit(_on_shard, *given, at=at, nowhere_else=True)

    def _submit(self, task: Callable[..., Any], *given: Any, at: str | None, nowhere_else: bool = False) -> Any:
        place = {"workers": [at], "allow_other_workers": not nowhere_else} if at else {}
        return self._client.submit(checked, self._ours, task, *given, pure=False, retries=self._retries, **place)

    def _present(self) -> list[str]:
        now = time.monotonic()
        if now - self._looked > LOOK_S or not self._workers:
            known = self._client.scheduler_info(n_workers=-1)
            if "workers" not in known:  # this is all that a client says that closed after its scheduler was lost
                raise ConnectionError("the scheduler does not answer any more")
            found = list(known["workers"])
            self._workers, self._looked, self._any = found or self._workers, now, bool(found)
        return self._workers or [""]


class _Published(NamedTuple):
    name: str
    nbytes: int
    value: Any


_CAME: deque[tuple[str, str]] = deque(maxlen=64)  # (worker of this process, published value that it received)
_LEFT: deque[str] = deque(maxlen=64)  # names of what was published for rounds that were left
_COMING = threading.Lock()


def _leave(name: str) -> None:
    """Called in each worker process: leave the tasks of the round for which this was published."""
    _LEFT.append(name)


def _published(name: str, value: Any) -> _Published:
    return _Published(name, nbytes_of(value), value)


def _on_share(task: Callable[[Any], Any], share: Any) -> Any:
    """Task: run a task over a share, after replacing published values by the values themselves."""
    values = {name: value.value for name, value in share._asdict().items() if isinstance(value, _Published)}
    return task(share._replace(**values))


def _on_shard(task: Callable[..., ShardSum], shard: Any, published: _Published) -> Made:
    """Task: run a task on a shard, and count what this worker received for it and how long it worked."""
    here = get_worker().address
    with _COMING:
        new = (here, published.name) not in _CAME
        if new:
            _CAME.append((here, published.name))
    began = time.monotonic()
    with noting() as notes, leaving_when(lambda: published.name in _LEFT):
        try:
            found = task(shard, published.value)
        except PassLeft:  # nobody waits for what comes back
            found = ShardSum(())
    count = Count(published.nbytes if new else 0, time.monotonic() - began, **notes)
    return Made(found, here, nbytes_of(found), {here: count})


def _added(*parts: Made) -> Made:
    return sum_of(added, parts, get_worker().address)
