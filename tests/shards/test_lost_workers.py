"""Workers are killed while they hold shards: the fit goes on, to the same bytes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from bigsvm.config import FitConfig
from bigsvm.run.fit.fit import fit_store
from bigsvm.solvers.dcd.shard_pass import ShardedGroup
from bigsvm.solvers.primal.sharded_rows import ShardedRows
from tests.products import pairs_of
from tests.shards.test_shard_stiffness import words
from tests.shards.test_sharded_fits import folder_bytes, rows_of

pytestmark = pytest.mark.cluster
KILLED_BEFORE = (3, 20, 21)  # rounds


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize(
    ("n_classes", "own", "rounds_of", "name", "mapper_of"),
    [
        (3, {"solver": "dcd", "C": 0.1, "rounds_per_pass": 8}, ShardedGroup, "round", lambda group: group._mapper),
        (2, {"solver": "newton-ws", "C": 10.0, "max_passes": 2}, ShardedRows, "tell", lambda rows: rows._ctx.mapper),
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
    rows = rows_of("squared_hinge", n_classes=n_classes)
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
    near = str(tmp_path / "near")
    there = fit_store(
        rows,
        FitConfig.of(scheduler="processes", workers=2, scratch=str(tmp_path / "s"), worker_scratch=near, **options),
    )
    assert killed == list(KILLED_BEFORE)
    assert folder_bytes(there, tmp_path / "m") == here
    assert list((tmp_path / "near").iterdir()) == []  # workers had files there, which have no names
    assert not list((tmp_path / "s").glob("**/shards-*"))


@pytest.mark.usefixtures("streaming_hundreds")
@pairs_of(
    shards=[4, 16],
    workers=[(1, 4), (2,)],
    n_features__own=[(300, {"solver": "dcd", "rounds_per_pass": 6}), (20, {"solver": "newton-ws", "max_passes": 1})],
)
def test_same_bytes_for_any_number_of_workers(
    shards: int, workers: tuple[int, ...], n_features: int, own: dict[str, Any], tmp_path: Path
) -> None:
    """Sparse rows, whose features are in several buckets."""
    rows = words(2000, n_features)
    options: dict[str, Any] = {"loss": "hinge", "tol": 1e-3, "memory": "64MiB", "max_passes": 3}
    options |= {"shards": shards, **own}
    found = []
    for how in [
        {"scheduler": "serial"},
        {"threads": 3},
        *({"scheduler": "processes", "workers": n} for n in workers),
    ]:
        found.append(folder_bytes(fit_store(rows, FitConfig.of(**options, **how)), tmp_path / "m"))
    assert all(other == found[0] for other in found)
