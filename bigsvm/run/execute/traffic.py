"""What moves between processes: counted by the mapper, in bytes of the values that are sent.

Nothing is asked of the network.  A task knows on which worker it runs and where its operands were made; what was made
elsewhere has come here.  These counts ride on the results of the tasks, so that they cost no message of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, is_dataclass
from typing import Any, NamedTuple

import numpy as np

from bigsvm.tasks import ShardSum


class Count(NamedTuple):
    """Of one worker in one round.

    nbytes : that came to it: what was published, and results of other workers that it added up
    seconds : that its tasks on shards worked
    made_anew, replayed : shards whose state it had to make, and rounds that it repeated for that
    """

    nbytes: int = 0
    seconds: float = 0.0
    made_anew: int = 0
    replayed: int = 0

    def plus(self, other: Count) -> Count:
        """The two together."""
        return Count(
            self.nbytes + other.nbytes,
            self.seconds + other.seconds,
            self.made_anew + other.made_anew,
            self.replayed + other.replayed,
        )

    def less(self, other: Count) -> Count:
        """Without the other."""
        return self.plus(Count(-other.nbytes, -other.seconds, -other.made_anew, -other.replayed))


Counts = dict[str, Count]
"""By the address of the worker."""


def together(parts: Iterable[Counts]) -> Counts:
    """The counts of several results."""
    total: Counts = {}
    for part in parts:
        for worker, count in part.items():
            total[worker] = total.get(worker, Count()).plus(count)
    return total


@dataclass
class Traffic:
    """What one client and its workers have moved since the mapper was opened, or since `since`.

    rounds : tasks on all shards, and the sum of what they found
    published_bytes : values that the client sent to all workers, each once
    gathered_bytes : sums that came back to the client
    task_bytes : tasks on shards, as the client sent them: which rows, and what they are worked on with
    row_bytes : shares and results of tasks over blocks of rows (staging, proofs, predictions)
    work_s, sum_s : seconds of the slowest worker of each round, and the others of the round
    workers : what came to each, and what it did
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
        """A round has ended."""
        slowest = max((count.seconds for count in counts.values()), default=0.0)
        self.rounds += 1
        self.gathered_bytes += gathered
        self.work_s += slowest
        self.sum_s += max(wall_s - slowest, 0.0)
        self.workers = together([self.workers, counts])

    def copy(self) -> Traffic:
        """As it is now."""
        return Traffic(**{**vars(self), "workers": dict(self.workers)})

    def since(self, before: Traffic) -> Traffic:
        """What has moved after `before` was taken; workers to which nothing came are left out."""
        new = Traffic(
            **{name: value - getattr(before, name) for name, value in vars(self).items() if name != "workers"}
        )
        for worker, count in self.workers.items():
            old = before.workers.get(worker, Count())
            if count != old:
                new.workers[worker] = count.less(old)
        return new

    def document(self) -> dict[str, Any]:
        """Numbers for events and results; of the workers their number, the largest and the sum of what came to them."""
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
    """What a task on a shard gave, or a sum of such: where it was made, and what has moved for it.

    nbytes : of `found`
    """

    found: ShardSum
    at: str
    nbytes: int
    counts: Counts


def sum_of(add: Callable[..., ShardSum], parts: tuple[Made, ...], here: str) -> Made:
    """Parts added up on the worker `here`."""
    came = sum(part.nbytes for part in parts if part.at != here)
    found = add(*(part.found for part in parts))
    return Made(found, here, nbytes_of(found), together([*(part.counts for part in parts), {here: Count(came)}]))
