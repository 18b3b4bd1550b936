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
from bigsvm.solvers.dcd.shard_pass import ShardedGroup
from bigsvm.solvers.dcd.shard_stiffness import N_BUCKETS, FeatureCounts, StiffnessSchedule, by_bucket, of_features
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.problems import as_csr
from tests.run.test_checkpoint import stopped
from tests.shards.test_shard_momentum import rows_of

FEATURES = 7


def words(n: int, n_features: int, seed: int = 0) -> ArrayRows:
    """Rows as texts are: few features in most of them, most features in few, one in twenty labels wrong."""
    rng = np.random.default_rng(seed)
    popular = np.arange(1, n_features + 1) ** -1.1
    draws = rng.choice(n_features, (n, 40), p=popular / popular.sum())
    counts = sparse.coo_array((np.ones(draws.size), (np.repeat(np.arange(n), 40), draws.ravel())), (n, n_features))
    X = sparse.csr_array(counts)
    X.sum_duplicates()
    X.data = 1.0 + np.log(X.data)
    X = X @ sparse.dia_array((np.log(1.0 / -np.expm1(-40.0 * popular / popular.sum()))[None] + 0.1, [0]), (n_features,) * 2)
    X = sparse.csr_array(sparse.dia_array((1.0 / np.sqrt(X.power(2).sum(axis=1))[None], [0]), (n, n)) @ X)
    score = X @ rng.normal(size=n_features)
    noisy = (score - np.median(score)) / score.std() + 0.3 * rng.normal(size=n)
    return ArrayRows(X.astype(np.float32), np.where((noisy > 0) ^ (rng.random(n) < 0.05), 1, -1))


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("seed", [0, 1])
def test_shards_need_few_more_passes_than_one_machine(seed: int) -> None:
    """With one stiffness for all features it was more than twice as many."""
    rows = words(6000, 1500, seed)
    options: dict[str, Any] = {"solver": "dcd", "loss": "hinge", "tol": 1e-3, "max_passes": 40}
    alone, apart = bigsvm.fit(rows, **options), bigsvm.fit(rows, shards=16, rounds_per_pass=64, **options)
    assert (alone.status, apart.status) == ("converged", "converged")
    print(alone.figures["passes"], apart.figures["passes"])
    assert apart.figures["passes"] <= 1.5 * alone.figures["passes"]
