"""Few features and many rows: shards that all know the answer must not take each other's steps back for ever."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.solvers.dcd.shards.shard_momentum import MomentumSchedule, ShareMomentum
from bigsvm.store.formats.array_rows import ArrayRows
from tests.products import on_request, pairs_of
from tests.shards.test_sharded_fits import CLASSES, TARGETS

MOST = (3.0, 3.0)  # times the passes of one shard, and beside them
# Shards of 125 rows of 10 features know nearly the same: there the squared hinge takes 28 and 29 passes in place of 4.
ALIKE, MOST_ALIKE = ("squared_hinge", 16, 10), (7.0, 3.0)


def rows_of(loss: str, n_features: int, weights: bool, n: int = 2000) -> ArrayRows:
    rng = np.random.default_rng(n_features)
    X = rng.normal(size=(n, n_features))
    if n_features > 50:
        X[rng.random(X.shape) > 10.0 / n_features] = 0.0
    score = X @ rng.normal(size=n_features) + 0.5 * np.sqrt(np.square(X).sum(axis=1)) * rng.normal(size=n)
    weight = rng.uniform(0.0, 2.0, n) if weights else None
    if loss in TARGETS:
        return ArrayRows(X, score + 1.0, task="regression", sample_weight=weight)
    return ArrayRows(sparse.csr_array(X), np.where(score > 0.3, 1, -1), sample_weight=weight)


@pytest.mark.usefixtures("streaming_hundreds")
@pairs_of(
    loss=CLASSES + TARGETS,
    shards=[2, *on_request(4), 16],
    n_features=[10, 400],
    bias=["augmented", "none"],
    weights=[False, True],
)
def test_shards_need_a_bounded_multiple_of_the_passes_of_one(
    loss: str, shards: int, n_features: int, bias: str, weights: bool
) -> None:
    rows = rows_of(loss, n_features, weights)
    options: dict[str, Any] = {"solver": "dcd", "loss": loss, "bias": bias, "tol": 1e-2}
    options["C"] = 1.0 if loss in CLASSES else 0.1
    alone = bigsvm.fit(rows, **options)
    times, beside = MOST_ALIKE if (loss, shards, n_features) == ALIKE else MOST
    most = times * alone.figures["passes"] + beside
    apart = bigsvm.fit(rows, shards=shards, max_passes=most, **options)
    assert apart.status == "converged"


def test_what_shards_do_apart_moves_no_weight() -> None:
    """Each remembers its change and what all were given: the directions add up to nothing, without the bias."""
    rng = np.random.default_rng(1)
    shape, theta = (7, 2), np.array([0.5, 1.0])
    changes, before = rng.normal(size=(4, *shape)), rng.normal(size=shape)
    after = before + theta * changes.sum(axis=0)
    found = []
    for change in changes:
        share = ShareMomentum()
        assert not share.apart(before, 4, np.zeros(2, bool)).any()
        share.remember(change, before)
        share.settle(theta)
        found.append(share.apart(after, 4, np.zeros(2, bool)))
        assert not share.apart(after, 4, np.array([False, True]))[:, 1].any()
        assert not found[-1][-1].any()
    np.testing.assert_allclose(np.sum(found, axis=0), 0.0, atol=1e-14)
    np.testing.assert_allclose(found[0][:-1], (theta * (changes[0] - changes.mean(axis=0)))[:-1])


def test_momentum_grows_while_rounds_agree_with_it() -> None:
    schedule = MomentumSchedule(3)
    assert not schedule.beta.any()
    for _ in range(6):
        schedule.see(np.array([1.0, 1.0, 0.0]), np.array([1.0, 0.2, 1.0]))
    assert schedule.beta.tolist() == [6 / 16, 0.0, 0.0]
    schedule.see(np.array([-1.0, 1.0, 1.0]), np.ones(3))
    assert schedule.rounds.tolist() == [3.0, 1.0, 1.0]
    schedule.forget(np.array([True, False, False]))
    assert schedule.rounds.tolist() == [0.0, 1.0, 1.0]
