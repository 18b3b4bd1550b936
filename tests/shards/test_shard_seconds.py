"""Seconds of a pass on shards: the formula, and prices that are fitted to passes (scripts/cluster/prices.py)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bigsvm.solvers.shard_seconds import (
    NOMINAL,
    Prices,
    ShardedPass,
    pass_seconds,
    passes_factor,
    sum_tasks,
    tree,
    units,
)
from bigsvm.tasks import ShardSum, TreeSum

SCRIPTS = Path(__file__).parents[2] / "scripts"
sys.path[:0] = [str(SCRIPTS), str(SCRIPTS / "benchmarks")]

from cluster.passes import Measured  # noqa: E402
from cluster.prices import fitted, foretold, loss_seconds, with_losses  # noqa: E402

PRICES = Prices(2e-9, 3e-3, 4e-9, 2e-2, 1e-3, 1e-9, 5e-3, 6e-9, 7e-3, 8e-9)
WORKS = [
    ShardedPass(4e7, 1e5, 1.6e5, 8, 16),
    ShardedPass(1e7, 4e4, 1.6e5, 8, 16),
    ShardedPass(1e7, 4e4, 1.6e5, 8, 64),
    ShardedPass(1e7, 4e4, 1.6e5, 16, 32),
    ShardedPass(1e7, 4e4, 3.2e6, 8, 16),
]


def synthetic(work: ShardedPass, workers: int) -> Measured:
    """A pass that takes what the prices say."""
    one = pass_seconds(work, workers, PRICES)
    return Measured(work, workers, one.parts + one.saves, one.sums, one.caller)


def test_prices_of_one_worker_foretell_synthetic_passes_of_others_exactly() -> None:
    prices = fitted([synthetic(work, 1) for work in WORKS], PRICES.save_byte)
    assert prices == pytest.approx(PRICES, rel=1e-6)
    for workers in (2, 4, 16):
        for work in WORKS:
            assert foretold(synthetic(work, workers), prices).whole == pytest.approx(
                pass_seconds(work, workers, PRICES).whole, rel=1e-6
            )


@pytest.mark.parametrize("prices", [NOMINAL, PRICES])
def test_more_workers_are_never_slower_by_parts_alone(prices: Prices) -> None:
    for work in (*WORKS, ShardedPass(1e13, 2e10, 4e8, 256, 256)):
        seconds = [pass_seconds(work, workers, prices).parts for workers in (1, 2, 3, 4, 7, 16, 100, 256, 1000)]
        assert seconds == sorted(seconds, reverse=True)
        assert pass_seconds(work, work.shards, prices) == pass_seconds(work, 1000, prices)  # others have no shard


def test_losses_never_make_a_fit_faster_and_may_keep_it_from_ending() -> None:
    work = ShardedPass(1e12, 2e9, 4e6, 64, 256)
    for workers in (1, 2, 64, 1000):
        cost = loss_seconds(work, workers, NOMINAL)
        between = [1e9, 1e6, 1e5, 1e4, cost * min(workers, 64) / 2]
        seconds = [with_losses(3600.0, work, workers, NOMINAL, between_s) for between_s in between]
        assert 3600.0 < seconds[0] < 3601.0
        assert seconds == sorted(seconds)
        assert seconds[-1] == float("inf")


@pytest.mark.parametrize("shards", [1, 2, 3, 4, 5, 16, 17, 64, 100, 256])
def test_additions_are_those_of_the_tree(shards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of one is none."""
    made = []
    monkeypatch.setattr("bigsvm.tasks.added", lambda *parts: made.append(len(parts)) or parts[0])
    total = TreeSum()
    for _ in range(shards):
        total.take(ShardSum((0,)))
    total.total()
    assert sum_tasks(shards) == sum(parts > 1 for parts in made)


def test_a_tree_has_a_level_for_each_factor_of_four() -> None:
    assert [tree(workers) for workers in (1, 2, 4, 5, 16, 64)] == [(0, 0), (1, 1), (1, 3), (2, 4), (2, 6), (3, 9)]
    assert set(units(WORKS[0], 4)) == {"parts", "sums", "caller", "saves"}
    assert {name for part in units(WORKS[0], 4).values() for name in part} == set(Prices._fields)
    assert passes_factor(4, 16) == 1.25
