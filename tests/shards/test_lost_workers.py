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
from tests.products import each_of
from tests.shards.test_shard_stiffness import words
from tests.shards.test_sharded_fits import folder_bytes, rows_of

pytestmark = pytest.mark.cluster
KILLED_BEFORE = (3, 20, 21)  # rounds


@pytest.mark.usefixtures("streaming")
def test_same_bytes_on_worker_processes_that_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of("squared_hinge", n_classes=3)
    options: dict[str, Any] = {"solver": "dcd", "loss": "squared_hinge", "C": 0.1, "tol": 1e-2, "memory": "64MiB"}
    options |= {"shards": 3, "rounds_per_pass": 8}
    here = folder_bytes(fit_store(rows, FitConfig.of(scheduler="serial", **options)), tmp_path / "m")
    whole, killed = ShardedGroup.round, []

    def deadly(self: ShardedGroup, *told: Any) -> None:
        if self.rounds in KILLED_BEFORE and self.rounds not in killed:
            killed.append(self.rounds)
            client = self._mapper._client
            pids = client.run(os.getpid)
            os.kill(pids[sorted(pids)[0]], signal.SIGKILL)
        whole(self, *told)

    monkeypatch.setattr(ShardedGroup, "round", deadly)
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
@each_of(shards=[4, 16], workers=[(1, 4), (2,)])
def test_same_bytes_for_any_number_of_workers(shards: int, workers: tuple[int, ...], tmp_path: Path) -> None:
    """Sparse rows, whose features are in several buckets."""
    rows = words(2000, 300)
    options: dict[str, Any] = {"solver": "dcd", "loss": "hinge", "tol": 1e-3, "memory": "64MiB", "max_passes": 3}
    options |= {"shards": shards, "rounds_per_pass": 6}
    found = []
    for how in [
        {"scheduler": "serial"},
        {"threads": 3},
        *({"scheduler": "processes", "workers": n} for n in workers),
    ]:
        found.append(folder_bytes(fit_store(rows, FitConfig.of(**options, **how)), tmp_path / "m"))
    assert all(other == found[0] for other in found)
