"""The mean of w over the last rounds of a pass: what shards prove, and what becomes the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import DataError
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.fit import fit_store
from bigsvm.solvers.dcd.shards.sharded_pass import ShardedGroup
from tests.run.test_checkpoint import stopped
from tests.shards.test_shard_momentum import rows_of


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize(("rounds", "averaged"), [(8, 2), (3, 1), (1, 1)])
def test_the_model_is_the_mean_of_the_last_quarter_of_the_rounds(
    rounds: int, averaged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[tuple[list[np.ndarray], np.ndarray]] = []
    left: list[np.ndarray] = []
    one = ShardedGroup.round

    def watched(self: ShardedGroup, sweep: int, part: int, parts: int, *given: Any) -> None:
        one(self, sweep, part, parts, *given)
        left.append(self.models.w.copy())
        if part == parts - 1:
            passes.append((left[-parts:], self.proved.copy()))

    monkeypatch.setattr(ShardedGroup, "round", watched)
    rows = rows_of("hinge", 10, weights=False, n=300)
    options: dict[str, Any] = {"solver": "dcd", "loss": "hinge", "bias": "none", "C": 0.1, "tol": 1e-3}
    found = bigsvm.fit(rows, shards=2, rounds_per_pass=rounds, scheduler="serial", **options)
    assert found.status == "converged"
    passes = [(ws, mean) for ws, mean in passes if len(mean) == 11]  # not those that compile
    for ws, mean in passes:
        np.testing.assert_allclose(mean, np.mean(ws[-averaged:], axis=0), rtol=1e-5, atol=1e-7)
    coef = found.model.coef.ravel()
    along = [float(coef @ mean[:-1]) / np.linalg.norm(coef) / np.linalg.norm(mean[:-1]) for _, mean in passes]
    assert max(along) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.usefixtures("streaming")
def test_a_proof_of_its_own_in_mid_pass_is_not_taken_for_the_one_that_rides(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where time is up: w becomes that of alpha as it is, and the point where the pass began is kept."""
    looked: list[bool] = []
    one = ShardedGroup.round

    def watched(self: ShardedGroup, sweep: int, part: int, parts: int, *given: Any) -> None:
        one(self, sweep, part, parts, *given)
        if self.stood is None or part == parts - 1:
            return
        w, rebuilt = self.models.w.copy(), self.models.w.astype(np.float64) + 1.0
        self.learn(rebuilt, False)
        looked.append(np.allclose(self.models.w[:-1], rebuilt[:-1]) and self.stood is not None)
        self.models.w[...] = w

    monkeypatch.setattr(ShardedGroup, "round", watched)
    rows = rows_of("hinge", 10, weights=False, n=300)
    options: dict[str, Any] = {"solver": "dcd", "loss": "hinge", "bias": "none", "C": 0.1, "tol": 1e-3}
    assert bigsvm.fit(rows, shards=2, rounds_per_pass=4, scheduler="serial", **options).status == "converged"
    assert looked
    assert all(looked)


@pytest.mark.usefixtures("streaming")
def test_a_checkpoint_without_a_mean_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of("hinge", 10, weights=False, n=300)
    config = FitConfig.of(solver="dcd", loss="hinge", tol=1e-3, shards=2, scheduler="serial")
    saves, dumped = Checkpoints(tmp_path / "c", {}, 1e9), ShardedGroup.dump
    with monkeypatch.context() as patch:
        patch.setattr(ShardedGroup, "dump", lambda group: {k: v for k, v in dumped(group).items() if k != "mean"})
        assert "SIGTERM" in stopped(rows, config, saves, 20)
    with pytest.raises(DataError, match="of an earlier version, whose shards kept no mean of w"):
        fit_store(rows, config, checkpoints=saves, resume=True)
