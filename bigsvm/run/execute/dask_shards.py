"""Shards on dask workers: where each one is, what a round sends and brings back.

A task names the worker that had its shard last, and may run on any other: a worker that is gone is replaced without
anybody waiting for it.  What a shard knows stays in the process that worked on it, as a cache
(`solvers/shard_tasks.py`); dask holds no state of ours, so that nothing of it must be computed again when one leaves.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from bigsvm.tasks import FAN_IN, ShardSum, added

_LOOK_AGAIN_S = 2.0  # after which workers that came or went are noticed; the bits do not depend on where a shard is


class Placement:
    """Which worker a shard is on: it stays there while that worker does, and no worker has more than its part."""

    def __init__(self) -> None:
        self._at: dict[int, str] = {}

    def of(self, n_shards: int, workers: Sequence[str]) -> list[str]:
        """The worker of each shard.  Only as many shards move as must."""
        most = -(-n_shards // len(workers))
        load = dict.fromkeys(sorted(workers), 0)
        for shard in range(n_shards):
            worker = self._at.get(shard)
            if worker in load and load[worker] < most:
                load[worker] += 1
            else:
                self._at.pop(shard, None)
        for shard in range(n_shards):
            if shard not in self._at:
                worker = min(load, key=lambda name: load[name])
                self._at[shard] = worker
                load[worker] += 1
        return [self._at[shard] for shard in range(n_shards)]


class ShardVerbs:
    """`publish`, `on_shards` and `reduce` of a mapper on a dask client."""

    def __init__(self, client: Any, retries: int) -> None:
        self._client, self._retries = client, retries
        self._placement = Placement()
        self._workers: list[str] = []
        self._looked = -_LOOK_AGAIN_S

    def publish(self, value: Any) -> Any:
        """A task whose result the value is: workers fetch it from one another, and a lost copy is made again."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            return self._client.submit(_same, value, pure=False, retries=self._retries)

    def on_shards(self, task: Callable[..., ShardSum], shards: Sequence[Any], published: Any) -> list[Any]:
        """A future for each shard, submitted to its worker."""
        where = self._placement.of(len(shards), self._present())
        return [
            self._client.submit(
                task, shard, published, pure=False, retries=self._retries, workers=[worker], allow_other_workers=True
            )
            for shard, worker in zip(shards, where, strict=True)
        ]

    def total(self, futures: list[Any]) -> Any:
        """A future of the sum, in the tree of `TreeSum`: added where the first of each four is."""
        while len(futures) > 1:
            futures = [
                self._client.submit(added, *futures[first : first + FAN_IN], pure=False, retries=self._retries)
                if len(futures[first : first + FAN_IN]) > 1
                else futures[first]
                for first in range(0, len(futures), FAN_IN)
            ]
        return futures[0]

    def _present(self) -> list[str]:
        now = time.monotonic()
        if now - self._looked > _LOOK_AGAIN_S or not self._workers:
            found = list(self._client.scheduler_info(n_workers=-1)["workers"])
            self._workers, self._looked = found or self._workers, now
        return self._workers or [""]


def _same(value: Any) -> Any:
    return value
