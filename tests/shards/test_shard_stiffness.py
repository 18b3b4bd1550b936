"""Features that all shards push are held back, and rare ones are not: by what was seen of each bucket of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import DataError
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.fit import fit_store
from bigsvm.solvers.dcd.shards.sharded_pass import ShardedGroup
from bigsvm.solvers.dcd.shards.stiffness import N_BUCKETS, FeatureCounts, StiffnessSchedule, by_bucket, of_features
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.problems import as_csr
from tests.run.test_checkpoint import stopped
from tests.shards.test_shard_momentum import rows_of


def words(n: int, n_features: int, seed: int = 0) -> ArrayRows:
    """Rows as texts are: few features in most of them, most features in few, one in twenty labels wrong."""
    rng = np.random.default_rng(seed)
    popular = np.arange(1, n_features + 1) ** -1.1
    draws = rng.choice(n_features, (n, 40), p=popular / popular.sum())
    counts = sparse.coo_array((np.ones(draws.size), (np.repeat(np.arange(n), 40), draws.ravel())), (n, n_features))
    X = sparse.csr_array(counts)
    X.sum_duplicates()
    X.data = 1.0 + np.log(X.data)
    rare = np.log(1.0 / -np.expm1(-40.0 * popular / popular.sum())) + 0.1
    X = X @ sparse.diags_array(rare)
    X = sparse.csr_array(sparse.diags_array(1.0 / np.sqrt(X.power(2).sum(axis=1))) @ X)
    score = X @ rng.normal(size=n_features)
    noisy = (score - np.median(score)) / score.std() + 0.3 * rng.normal(size=n)
    return ArrayRows(X.astype(np.float32), np.where((noisy > 0) ^ (rng.random(n) < 0.05), 1, -1))


@pytest.mark.usefixtures("streaming_hundreds")
@pytest.mark.parametrize(("n", "shards"), [(6000, 16), (4000, 8)])
def test_shards_need_few_more_passes_than_one_machine(n: int, shards: int) -> None:
    """With one stiffness for all features they needed 10 and 8 where one machine needs 6."""
    rows = words(n, 1500, seed=shards)
    options: dict[str, Any] = {"solver": "dcd", "loss": "hinge", "tol": 1e-3, "max_passes": 20}
    alone, apart = bigsvm.fit(rows, **options), bigsvm.fit(rows, shards=shards, rounds_per_pass=64, **options)
    assert (alone.status, apart.status) == ("converged", "converged")
    assert apart.figures["passes"] <= 1.25 * alone.figures["passes"]


def test_features_are_sorted_by_how_many_rows_have_them() -> None:
    schedule = StiffnessSchedule(4)
    schedule.sort(np.array([100.0, 51.0, 50.0, 25.0, 100.0 / 2**15, 1e-3, 0.0]))
    assert schedule.buckets.tolist() == [0, 0, 1, 2, 15, 15, 15]
    schedule.sort(np.zeros(3))
    assert schedule.buckets.dtype == np.uint8
    assert schedule.buckets.max() < N_BUCKETS


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_dense_and_sparse_rows_count_alike(kind: str) -> None:
    X = np.array([[0.0, 1.0, 2.0], [0.0, -1.0, 0.0]])
    counts = FeatureCounts(3)
    for _ in range(2):
        counts.add(as_csr(X) if kind == "csr" else X)
    assert counts.values.tolist() == [0.0, 4.0, 2.0]


@pytest.mark.parametrize("shape", [(6,), (6, 2)])
def test_norms_are_of_each_bucket(shape: tuple[int, ...]) -> None:
    change, buckets = np.arange(np.prod(shape), dtype=np.float32).reshape(shape), np.array([0, 3, 3, 0, 15], np.uint8)
    squares = np.square(change[:-1]).reshape(5, -1)
    found = by_bucket(change, buckets)
    assert found.shape == (squares.shape[1], N_BUCKETS)
    for bucket in range(N_BUCKETS):
        np.testing.assert_array_equal(found[:, bucket], squares[buckets == bucket].sum(axis=0))
    assert not by_bucket(change, np.empty(0, np.uint8)).any()


def test_stiffness_is_that_of_what_shards_had_in_common() -> None:
    """The largest of all models, within 1 and the number of shards; of what did not move, 1."""
    schedule = StiffnessSchedule(4)
    assert schedule.by_bucket(False).tolist() == [4.0] * N_BUCKETS + [0.0]
    schedule.sort(np.array([8.0, 8.0, 1.0]))
    share = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0], [5.0, 5.0]])  # the last is of the bias
    pushed = np.array([3.0, 0.0])
    both = 2.0 * by_bucket(share, schedule.buckets)
    schedule.see(1.5 * share, np.array([4.5, 0.0]), [both / 2.0] * 2, pushed)
    expected = np.ones(N_BUCKETS + 1)
    expected[[0, 3, -1]] = 1.0 + 2.0 * (1.5**2 / 2.0 - 1.0), 1.25, 2.0
    np.testing.assert_allclose(schedule.by_bucket(True), expected)
    assert schedule.by_bucket(False)[-1] == 0.0
    features = of_features(schedule.by_bucket(True), schedule.buckets, 3)
    assert features.features.tolist() == [1.25, 1.25, 1.25]
    schedule.see(9.0 * share, np.zeros(2), [both / 2.0] * 2, pushed)
    assert schedule.by_bucket(True)[0] == 4.0
    again = StiffnessSchedule(4)
    again.load(schedule.dump())
    assert again.by_bucket(True).tolist() == schedule.by_bucket(True).tolist()
    schedule.forget()
    assert schedule.by_bucket(True).tolist() == [4.0] * (N_BUCKETS + 1)


@pytest.mark.usefixtures("streaming")
def test_a_checkpoint_of_one_stiffness_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of("hinge", 10, weights=False, n=300)
    config = FitConfig.of(solver="dcd", loss="hinge", tol=1e-3, shards=2, scheduler="serial")
    saves, dumped = Checkpoints(tmp_path / "c", {}, 1e9), ShardedGroup.dump
    with monkeypatch.context() as patch:
        patch.setattr(ShardedGroup, "dump", lambda group: {k: v for k, v in dumped(group).items() if k != "stiffness"})
        assert "SIGTERM" in stopped(rows, config, saves, 20)
    with pytest.raises(DataError, match="of an earlier version, whose shards had one stiffness for all features"):
        fit_store(rows, config, checkpoints=saves, resume=True)
