"""Counts of what moves between processes, in bytes of the values that are sent.

The network is not measured.  A task knows on which worker it runs and on which workers its operands were made, and so
which of them were sent.  The counts come back with the results of the tasks, and cost no message of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, is_dataclass
from typing import Any, NamedTuple

import numpy as np

from bigsvm.tasks import ShardSum


class Count(NamedTuple):
    """The counts of one worker in one round.

    nbytes : received bytes: published values, and results of other workers that it added up
    seconds : spent in tasks on shards
    made_anew, replayed : shards that it had to rebuild, and rounds that it replayed for that
    """

    nbytes: int = 0
    seconds: float = 0.0
    made_anew: int = 0
    replayed: int = 0

    def plus(self, other: Count) -> Count:
        """The sum of both."""
        return Count(
            self.nbytes + other.nbytes,
            self.seconds + other.seconds,
            self.made_anew + other.made_anew,
            self.replayed + other.replayed,
        )

    def less(self, other: Count) -> Count:
        """The difference."""
        return self.plus(Count(-other.nbytes, -other.seconds, -other.made_anew, -other.replayed))


Counts = dict[str, Count]
"""Address of a worker -> its counts."""


def together(parts: Iterable[Counts]) -> Counts:
    """The sum of counts, worker by worker."""
    total: Counts = {}
    for part in parts:
        for worker, count in part.items():
            total[worker] = total.get(worker, Count()).plus(count)
    return total


@dataclass
class Traffic:
    """What moved between one client and its workers since the mapper was opened.

    rounds : a round is one task on each shard, with the sum of the results
    published_bytes : values that the client published, each counted once
    gathered_bytes : sums that came back to the client
    task_bytes : tasks on shards, as the client sent them
    row_bytes : shares and results of tasks over blocks of rows (staging, proofs, predictions)
    work_s : seconds that the slowest worker of each round worked;  sum_s : the rest of the time of the rounds
    workers : counts of each worker
    """

    rounds: int = 0
    published_bytes: int = 0
    gathered_bytes: int = 0
    task_bytes: int = 0
    row_bytes: int = 0
    work_s: float = 0.0
    sum_s: float = 0.0
    workers: Counts = field(default_factory=dict)

    def round(self, gathered: int, counts: Counts, wall_s: float) -> None:
        """Add a round.  gathered : bytes of its sum;  counts : of its workers;  wall_s : its duration"""
        slowest = max((count.seconds for count in counts.values()), default=0.0)
        self.rounds += 1
        self.gathered_bytes += gathered
        self.work_s += slowest
        self.sum_s += max(wall_s - slowest, 0.0)
        self.workers = together([self.workers, counts])

    def copy(self) -> Traffic:
        """A copy that later rounds do not change."""
        return Traffic(**{**vars(self), "workers": dict(self.workers)})

    def since(self, before: Traffic) -> Traffic:
        """The difference to `before`, an earlier copy; workers whose counts have not changed are left out."""
        new = Traffic(
            **{name: value - getattr(before, name) for name, value in vars(self).items() if name != "workers"}
        )
        for worker, count in self.workers.items():
            old = before.workers.get(worker, Count())
            if count != old:
                new.workers[worker] = count.less(old)
        return new

    def document(self) -> dict[str, Any]:
        """Numbers for events and results; of the workers only how many they are, and what they received."""
        came = [count.nbytes for count in self.workers.values()]
        return {
            "rounds": self.rounds,
            "published_bytes": self.published_bytes,
            "gathered_bytes": self.gathered_bytes,
            "task_bytes": self.task_bytes,
            "row_bytes": self.row_bytes,
            "workers": len(came),
            "worker_bytes": max(came, default=0),
            "worker_bytes_sum": sum(came),
            "work_s": self.work_s,
            "sum_s": self.sum_s,
            "shards_made": sum(count.made_anew for count in self.workers.values()),
            "rounds_replayed": sum(count.replayed for count in self.workers.values()),
        }


def nbytes_of(value: Any) -> int:
    """Bytes of the arrays in nested tuples, lists, dictionaries and dataclasses, and 8 for each other value."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, dict):
        return sum(map(nbytes_of, value.values()))
    if isinstance(value, (tuple, list)):
        return sum(map(nbytes_of, value))
    if isinstance(value, (str, bytes)):
        return len(value)
    if is_dataclass(value):
        return sum(map(nbytes_of, vars(value).values()))
    return 8


class Made(NamedTuple):
    """The result of a task on a shard, or a sum of such results.

    at : worker that made it;  nbytes : of `found`;  counts : of all workers that had a part
    """

    found: ShardSum
    at: str
    nbytes: int
    counts: Counts


def sum_of(add: Callable[..., ShardSum], parts: tuple[Made, ...], here: str) -> Made:
    """The sum of `parts`, computed on the worker `here`."""
    came = sum(part.nbytes for part in parts if part.at != here)
    found = add(*(part.found for part in parts))
    return Made(found, here, nbytes_of(found), together([*(part.counts for part in parts), {here: Count(came)}]))
