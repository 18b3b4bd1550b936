"""Newton's methods on shards: the passes and the optimum of one shard, and bytes that do not know who computes."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.fit import fit_store
from bigsvm.solvers import shard_tasks
from bigsvm.solvers.primal.shard_state import packed, unpacked
from tests.run.test_checkpoint import comes_to_the_same, stopped
from tests.shards.apart import Apart
from tests.shards.test_sharded_fits import folder_bytes, rows_of

CASES = [
    ("newton", "squared_hinge", "augmented"),
    ("newton", "squared_epsilon_insensitive", "free"),
    ("newton-cg", "squared_hinge", "free"),
    ("newton-cg", "squared_epsilon_insensitive", "none"),
]


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize(("solver", "loss", "bias"), CASES)
def test_as_many_passes_as_with_one_shard(solver: str, loss: str, bias: str, tmp_path: Path) -> None:
    rows = rows_of(loss, n_classes=3, weights=True)
    options: dict[str, Any] = {"solver": solver, "loss": loss, "bias": bias, "C": 0.1, "tol": 1e-6}
    alone = bigsvm.fit(rows, **options)
    apart = bigsvm.fit(rows, shards=5, scheduler="serial", **options)
    assert apart.figures["relative_gap"] < 1e-6
    assert apart.figures["objective"] == pytest.approx(alone.figures["objective"], rel=1e-6)
    assert apart.figures["passes"] == pytest.approx(alone.figures["passes"], abs=0.1)
    assert np.any(apart.model.coef != alone.model.coef)  # sums have another order
    threads = bigsvm.fit(rows, shards=5, threads=3, **options)
    assert folder_bytes(threads, tmp_path / "m") == folder_bytes(apart, tmp_path / "m")


def test_triangles_travel_packed() -> None:
    H = np.triu(np.arange(2 * 49.0).reshape(2, 7, 7))
    assert packed(H).shape == (2, 28)
    np.testing.assert_array_equal(unpacked(packed(H), 7), H)


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize(
    ("solver", "loss", "bias", "n_classes"),
    [*((*case, 2) for case in CASES), ("newton-cg", "squared_hinge", "augmented", 3)],
)
def test_same_bytes_where_half_of_all_is_lost_before_each_task(
    solver: str, loss: str, bias: str, n_classes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a run that began in this process, and was stopped in the midst of a system, goes on there."""
    rows = rows_of(loss, n_classes=n_classes)
    options: dict[str, Any] = {"solver": solver, "loss": loss, "bias": bias, "C": 0.1, "tol": 1e-2, "shards": 3}
    serial, saves = FitConfig.of(scheduler="serial", **options), Checkpoints(tmp_path / "c", {}, 1e9)
    here = folder_bytes(fit_store(rows, serial), tmp_path / "m")
    assert "SIGTERM" in stopped(rows, serial, saves, 12)
    apart = Apart()
    monkeypatch.setattr("bigsvm.run.fit.fit.open_mapper", lambda *_: nullcontext(apart))
    assert folder_bytes(fit_store(rows, serial), tmp_path / "m") == here
    assert folder_bytes(fit_store(rows, serial, checkpoints=saves, resume=True), tmp_path / "m") == here
    assert apart.asked > 30
    assert not shard_tasks._HELD


@pytest.mark.usefixtures("streaming")
def test_a_run_that_is_stopped_again_and_again_ends_with_the_same_bytes(tmp_path: Path) -> None:
    options: dict[str, Any] = {"solver": "newton-cg", "bias": "free", "C": 0.1, "tol": 1e-2, "shards": 4}
    comes_to_the_same(rows_of("squared_hinge"), FitConfig.of(scheduler="serial", **options), tmp_path, every=9)


def test_shards_without_rows_add_nothing() -> None:
    X = np.random.default_rng(0).normal(size=(12, 2))
    asked: dict[str, Any] = {"solver": "newton", "loss": "squared_hinge", "memory": "64MiB"}
    found, wanted = (bigsvm.fit(X, X[:, 0] > 0, shards=shards, **asked) for shards in (20, 1))
    assert found.figures["objective"] == pytest.approx(wanted.figures["objective"], rel=1e-9)
