"""A run on shards that is asked to stop answers soon, wherever its shards are: rounds that read rows are left."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm.config import FitConfig
from bigsvm.problem import deferred
from bigsvm.run.execute.dask import DaskMapper, open_dask_mapper
from bigsvm.run.execute.signals import Stop
from bigsvm.run.fit.fit import fit_store
from bigsvm.solvers.dcd.shards.shard_state import ShardState
from bigsvm.solvers.newton_ws import subproblem, working_pass
from bigsvm.solvers.primal import row_pass
from bigsvm.tasks import PassLeft, ShardSum, asked_to_leave
from tests.shards.apart import Apart
from tests.shards.test_sharded_fits import rows_of
from tests.shards.test_sharded_newton import options_of

UNITS: list[tuple[Any, str]] = [
    (row_pass, "pass_task"),  # a run of blocks
    (working_pass, "working_task"),
    (subproblem, "add_hessian"),  # of a part of the kept rows
    (deferred.DeferredCertificate, "add"),  # a block of a proof
    (ShardState, "work"),  # a round of dcd on one shard
]
"""Work that takes about as long as reading some blocks, at most; nothing else depends on the number of rows times
features."""
L = 3


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("where", ["here", "apart"])
@pytest.mark.parametrize(
    ("solver", "loss", "most"),
    [
        ("newton", "squared_hinge", 2),
        ("newton-cg", "squared_hinge", 2),
        ("newton-ws", "hinge", 2),
        ("newton-ws", "squared_hinge", 2),
        ("hyperpass", "hinge", 2),
        ("ssvm", "squared_hinge", 2),
        ("pegasos", "hinge", 2),
        ("dcd", "hinge", 4 * L),  # a round of all shards, with the blocks of a deferred proof
    ],
)
def test_a_run_looks_for_a_stop_after_every_few_blocks(
    solver: str, loss: str, most: int, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = options_of(solver, loss=loss, tol=1e-3, shards=L, max_passes=7, scheduler="serial")
    rows, config = rows_of(loss), FitConfig.of(memory="64MiB", **options)
    fit_store(rows, config)  # with the code compiled, no small fit comes between
    since: list[int] = [0]

    def look(self: Stop) -> bool:
        since.append(0)
        return False

    def counted(work: Any) -> Any:
        def unit(*given: Any, **named: Any) -> Any:
            since[-1] += 1
            return work(*given, **named)

        return unit

    for owner, name in UNITS:
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
    monkeypatch.setattr(Stop, "__bool__", look)
    if where == "apart":
        monkeypatch.setattr("bigsvm.run.fit.fit.open_mapper", lambda *_: nullcontext(Apart(every=10**9)))
    assert fit_store(rows, config).figures["passes"] > 3
    assert sum(since) > 30
    assert max(since) <= most


def waits(shard: int, here: str) -> ShardSum:
    """Work that takes long, but for a caller who does not wait for it."""
    Path(here, str(shard)).touch()
    for _ in range(20_000):
        if asked_to_leave():
            raise PassLeft
        time.sleep(0.001)
    Path(here, f"{shard} was not left").touch()
    return ShardSum(())


def says(shard: int, told: int) -> ShardSum:
    return ShardSum((shard + told,), (np.ones(1),))


@pytest.mark.cluster
@pytest.mark.usefixtures("forked_workers")
def test_workers_leave_a_round_that_nobody_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are there for the next one."""
    monkeypatch.setattr("bigsvm.run.execute.dask.LOOK_S", 0.05)
    mapper: DaskMapper
    with open_dask_mapper("processes", None, 2) as mapper:
        begun = mapper.on_shards(waits, range(4), mapper.publish(str(tmp_path)))
        with pytest.raises(PassLeft):
            mapper.reduce(begun, lambda: len(list(tmp_path.iterdir())) == 2)  # each worker has begun one of two
        found = mapper.reduce(mapper.on_shards(says, range(4), mapper.publish(10)), lambda: False)
    assert found.each == (10, 11, 12, 13)
    assert len(list(tmp_path.iterdir())) == 2  # the others were not begun
