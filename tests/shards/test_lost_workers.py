"""Workers are killed while they hold shards: the fit goes on, to the same bytes."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm.config import FitConfig
from bigsvm.run.execute.dask import DaskMapper, open_dask_mapper
from bigsvm.run.fit.fit import fit_store
from bigsvm.solvers.dcd.shards.sharded_pass import ShardedGroup
from bigsvm.solvers.primal.shards.sharded_rows import ShardedRows
from bigsvm.tasks import ShardSum
from tests.products import WHOLE, on_request
from tests.shards.test_shard_stiffness import words
from tests.shards.test_sharded_fits import folder_bytes, rows_of
from tests.store.test_files import a_dead_process

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("forked_workers")]
KILLED_BEFORE = (3, 20, 21)  # rounds
HYPERPASS = {"solver": "hyperpass", "loss": "hinge", "tol": 1e-5}


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize(
    ("n_classes", "own", "rounds_of", "name", "mapper_of"),
    [
        (3, {"solver": "dcd", "C": 0.1, "rounds_per_pass": 8}, ShardedGroup, "round", lambda one: one._states._mapper),
        (2, {"solver": "newton-ws", "C": 10.0, "max_passes": 2}, ShardedRows, "tell", lambda rows: rows._ctx.mapper),
        *on_request((2, HYPERPASS, ShardedRows, "tell", lambda rows: rows._ctx.mapper)),
    ],
)
def test_same_bytes_on_worker_processes_that_are_killed(
    n_classes: int,
    own: dict[str, Any],
    rounds_of: Any,
    name: str,
    mapper_of: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = rows_of("hinge", n_classes=n_classes)
    options: dict[str, Any] = {"loss": "squared_hinge", "tol": 1e-2, "memory": "64MiB", "shards": 3, **own}
    here = folder_bytes(fit_store(rows, FitConfig.of(scheduler="serial", **options)), tmp_path / "m")
    whole, killed = getattr(rounds_of, name), []

    def deadly(self: Any, *told: Any) -> Any:
        if self.rounds in KILLED_BEFORE and self.rounds not in killed:
            killed.append(self.rounds)
            client = mapper_of(self)._client
            pids = client.run(os.getpid)
            os.kill(pids[sorted(pids)[0]], signal.SIGKILL)
        return whole(self, *told)

    monkeypatch.setattr(rounds_of, name, deadly)
    # Of a caller that was killed, and of one that may live elsewhere.
    machine, pid, started = a_dead_process()
    left, elsewhere = (tmp_path / "s" / f".shards.tmp-{at}-{pid}-{started}-00000000" for at in (machine, "ffffffff"))
    for home in (left, elsewhere):
        (home / "00000-00000002").mkdir(parents=True)
    near = str(tmp_path / "near")
    there = fit_store(
        rows,
        FitConfig.of(scheduler="processes", workers=2, scratch=str(tmp_path / "s"), worker_scratch=near, **options),
    )
    assert killed == list(KILLED_BEFORE)
    assert folder_bytes(there, tmp_path / "m") == here
    assert list((tmp_path / "near").iterdir()) == []  # workers had files there, which have no names
    assert list((tmp_path / "s").glob("**/.shards*")) == [elsewhere]


OF_ALL: list[tuple[int, dict[str, Any]]] = [
    (300, {"solver": "dcd", "loss": "hinge", "rounds_per_pass": 6}),
    (300, {"solver": "newton-cg", "loss": "squared_hinge"}),
    (20, {"solver": "newton", "loss": "squared_hinge"}),
    (20, {"solver": "newton-ws", "loss": "hinge", "max_passes": 1}),
    (300, {"solver": "hyperpass", "loss": "hinge", "max_passes": 8}),
    (20, {"solver": "pegasos", "loss": "hinge", "solver_options": {"batch": 0}}),
    *on_request(
        (300, {"solver": "dcd", "loss": "hinge", "bias": "none", "solver_options": {"row_buffer": "off"}}),
        (20, {"solver": "ssvm", "loss": "squared_hinge"}),
    ),
]


def shrink(client: Any, n_workers: int) -> None:
    """Stop all but `n_workers` workers of a client's cluster: a new cluster would have to be started and warmed."""
    client.cluster.scale(n_workers)
    while len(client.scheduler_info(n_workers=-1)["workers"]) > n_workers:
        client.sync(asyncio.sleep, 0.01)


@pytest.mark.usefixtures("streaming_hundreds")
def test_same_bytes_for_any_number_of_workers(tmp_path: Path) -> None:
    """Sparse rows, whose features are in several buckets; a worker has one shard, half of 8, or all of them."""
    data = {n_features: words(2000, n_features) for n_features in (20, 300)}

    def fitted(shards: int, n_features: int, own: dict[str, Any], **how: Any) -> dict[str, bytes]:
        options = {"tol": 1e-3, "memory": "64MiB", "max_passes": 3, "shards": shards, **own, **how}
        return folder_bytes(fit_store(data[n_features], FitConfig.of(**options)), tmp_path / "m")

    of_8 = [fitted(8, *case, threads=3) for case in OF_ALL]
    of_3 = [fitted(3, *case, scheduler="serial") for case in OF_ALL]
    with open_dask_mapper("processes", None, 3) as mapper, mapper._client.as_current():
        for turn, (workers, shards, without) in enumerate(((3, 3, of_3), (2, 8, of_8), (1, 8, of_8))):
            shrink(mapper._client, workers)
            for number, (case, expected) in enumerate(zip(OF_ALL, without, strict=True)):
                if WHOLE or number % 3 == turn:  # else each case with one of the three
                    assert fitted(shards, *case, scheduler="dask") == expected, (workers, case)


def with_its_number(shard: int, published: int) -> ShardSum:
    return ShardSum((shard * published,), (np.full(3, float(shard)),))


def test_a_sum_that_is_lost_before_it_is_fetched_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was made of was for the worker that had it and for no other, or is there no more."""
    monkeypatch.setattr("bigsvm.run.execute.dask._FETCH_S", 1.0)
    fetch = DaskMapper._result
    killed: list[int] = []
    due: list[bool] = []

    def deadly(self: DaskMapper, future: Any, *patience: float) -> Any:
        if due:
            due.clear()
            client = self._client
            (at,) = client.who_has([future])[future.key]
            killed.append(client.run(os.getpid, workers=[at])[at])
            os.kill(killed[-1], signal.SIGKILL)
            while at in client.scheduler_info(n_workers=-1)["workers"]:
                client.sync(asyncio.sleep, 0.01)  # the scheduler sees the end of the connection
        return fetch(self, future, *patience)

    monkeypatch.setattr(DaskMapper, "_result", deadly)
    with open_dask_mapper("processes", None, 2) as mapper:
        for shards in (4, 6):  # one sum of four, and sums of sums
            due.append(True)
            found = mapper.reduce(mapper.on_shards(with_its_number, range(shards), mapper.publish(10)))
            assert found.each == tuple(10 * shard for shard in range(shards))
            np.testing.assert_array_equal(found.vectors[0], np.full(3, shards * (shards - 1) / 2))
    assert len(killed) == 2
