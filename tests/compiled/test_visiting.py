"""Random orders: permutations, functions of their key, uniform, and local where data is large."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigsvm.compiled.shared.rows import CSR
from bigsvm.compiled.shared.visiting import (
    RUN_ROWS,
    WITH_REPLACEMENT,
    fill_order,
    mixed_runs_of,
    part_of_order,
    shuffled,
    visiting_order,
)
from bigsvm.testing.problems import as_csr, random_problem

MIXED_RUNS = 28


@given(
    n=st.integers(0, 300),
    seed=st.integers(0, 2**40),
    epoch=st.integers(0, 2**40),
    start=st.integers(0, 2**40),
)
def test_an_order_is_a_permutation_and_a_function_of_its_key(n: int, seed: int, epoch: int, start: int) -> None:
    order = shuffled(n, seed, epoch, start)
    assert sorted(order) == list(range(n))
    np.testing.assert_array_equal(order, shuffled(n, seed, epoch, start))


def test_orders_of_different_keys_differ_and_are_uniform() -> None:
    assert len({tuple(shuffled(20, s, e, b)) for s in range(5) for e in range(5) for b in range(5)}) == 125
    first = np.bincount([shuffled(10, 0, e, 0)[0] for e in range(20_000)], minlength=10)
    assert abs(first - 2000).max() < 200  # 4.7 standard deviations


@settings(max_examples=25)
@given(n=st.integers(0, 20_000), seed=st.integers(0, 2**30), share=st.floats(0, 1))
def test_the_visiting_order_meets_every_active_row_once_and_stays_local(n: int, seed: int, share: float) -> None:
    active = (np.random.default_rng(seed).random(n) < share).astype(np.uint8)
    order = visiting_order(active, MIXED_RUNS, seed, 5, 0)
    np.testing.assert_array_equal(np.sort(order), np.flatnonzero(active))
    runs = order // RUN_ROWS
    groups = _group_of(runs)
    seen, last = set(), -1
    for mixed in np.split(runs, np.flatnonzero(np.diff([groups[r] for r in runs])) + 1) if n else []:
        assert len(set(mixed)) <= MIXED_RUNS
        assert not seen & set(mixed)
        seen |= set(mixed)
        last = max(last, len(mixed))
    assert last <= RUN_ROWS * MIXED_RUNS


@settings(max_examples=25)
@given(n=st.integers(0, 5000), seed=st.integers(0, 2**30), share=st.floats(0, 1))
def test_without_mixing_runs_are_met_in_random_order_and_read_forward(n: int, seed: int, share: float) -> None:
    active = (np.random.default_rng(seed).random(n) < share).astype(np.uint8)
    order = visiting_order(active, 0, seed, 5, 0)
    np.testing.assert_array_equal(np.sort(order), np.flatnonzero(active))
    inside = np.diff(order // RUN_ROWS) == 0
    assert np.all(np.diff(order)[inside] > 0)
    assert np.count_nonzero(~inside) == max(len(set(order // RUN_ROWS)) - 1, 0)  # each run in one piece


def test_the_order_of_runs_differs_from_pass_to_pass() -> None:
    active = np.ones(50 * RUN_ROWS, np.uint8)
    orders = {tuple(visiting_order(active, 0, 1, epoch, 0)[::RUN_ROWS]) for epoch in range(20)}
    assert len(orders) == 20


def test_draws_with_replacement_are_uniform_independent_and_of_their_key() -> None:
    everybody = np.ones(10_000, np.uint8)
    drawn = visiting_order(everybody, WITH_REPLACEMENT, 1, 2, 3)
    assert len(drawn) == 10_000
    assert 0 <= drawn.min() <= drawn.max() < 10_000
    counts = np.bincount(drawn, minlength=10_000)
    # Poisson: a row is met k times with probability 1 / (e k!)
    np.testing.assert_allclose(np.bincount(counts)[:3] / 10_000, np.exp(-1) / np.array([1, 1, 2]), atol=0.015)
    np.testing.assert_array_equal(drawn, visiting_order(everybody, WITH_REPLACEMENT, 1, 2, 3))
    for key in ((2, 2, 3), (1, 3, 3), (1, 2, 4)):
        assert np.mean(drawn == visiting_order(everybody, WITH_REPLACEMENT, *key)) < 0.01
    few = np.array([visiting_order(np.ones(3, np.uint8), WITH_REPLACEMENT, 1, e, 0) for e in range(9000)])
    assert abs(np.bincount(few.ravel(), minlength=3) - 9000).max() < 400
    pairs = np.bincount(3 * few[:, 0] + few[:, 1], minlength=9)
    assert abs(pairs - 1000).max() < 150


def _group_of(runs: np.ndarray) -> dict[int, int]:
    """Number of the group of each run: runs whose visits overlap are of one group."""
    first, final = {}, {}
    for place, run in enumerate(runs):
        first.setdefault(run, place)
        final[run] = place
    groups, number, end = {}, 0, -1
    for run in sorted(first, key=first.__getitem__):
        if first[run] > end:
            number += 1
        groups[run] = number
        end = max(end, final[run])
    return groups


@pytest.mark.parametrize("with_bias", [True, False])
def test_small_data_is_shuffled_as_a_whole(with_bias: bool) -> None:
    X, _ = random_problem(1000, 10, seed=18)
    for rows in (X, as_csr(X)):
        assert mixed_runs_of(rows, with_bias) * RUN_ROWS >= len(X)
    no_entries = CSR(np.empty(0, np.float32), np.empty(0, np.int32), np.zeros(3, np.int64))
    assert mixed_runs_of(no_entries, with_bias) >= 1


def test_large_data_is_mixed_in_parts_where_a_bias_couples_all_rows() -> None:
    entries = np.broadcast_to(np.float32(1), 100_000_000)
    large = CSR(entries, entries.view(np.int32), np.linspace(0, 100_000_000, 1_000_001).astype(np.int64))
    assert 10 < mixed_runs_of(large, True) < 200
    assert mixed_runs_of(large, False) == 0


def test_the_last_runs_are_mixed_too() -> None:
    """Fewer rows than are mixed at one time are mixed all the same."""
    order = visiting_order(np.ones(100, np.uint8), 28, 3, 0, 0)
    assert sorted(order.tolist()) == list(range(100))
    assert np.count_nonzero(np.diff(order) < 0) > 25


@given(
    n=st.integers(1, 2000), room=st.integers(0, 300), parts=st.integers(1, 40), mixed=st.integers(1, 5),
    number=st.integers(0, 50),
)  # fmt: skip
def test_parts_of_an_order_are_a_whole(n: int, room: int, parts: int, mixed: int, number: int) -> None:
    """Each row once, whatever the number of parts; and neighbours do not stay in one part from sweep to sweep."""
    runs = -(-(n + room) // RUN_ROWS)
    edges = [k * runs // parts for k in range(parts + 1)]
    found = [part_of_order(n, runs, first, stop, mixed, (3, 4), number) for first, stop in pairwise(edges)]
    np.testing.assert_array_equal(np.sort(np.concatenate(found)), np.arange(n))


def test_the_parts_of_two_sweeps_hold_other_rows() -> None:
    first, second = (set(part_of_order(6400, 100, 0, 50, 1, (3, 4), number).tolist()) for number in (0, 1))
    assert 0.25 * 6400 / 2 < len(first & second) < 0.75 * 6400 / 2


@pytest.mark.parametrize("mixed_runs", [0, 2])
@pytest.mark.parametrize("n", [64, 300, 640])
@np.errstate(over="ignore")
def test_runs_that_are_known_to_be_idle_change_no_order(n: int, mixed_runs: int) -> None:
    """Rows leave from sweep to sweep, and the runs without any are not looked at again."""
    rng = np.random.default_rng(n)
    active, n_runs, nobody = np.ones(n, np.uint8), -(-n // RUN_ROWS), np.empty(0, np.int64)
    idle = np.zeros(n_runs, np.uint8)
    for epoch in range(8):
        orders = []
        for known in (idle, idle[:0]):
            order, runs = np.empty(n, np.int64), np.empty(n_runs, np.int64)
            found = fill_order(n, nobody, active, known, order, runs, mixed_runs, 3, epoch, 0)
            orders.append(order[:found].tolist())
        assert orders[0] == orders[1]
        assert sorted(orders[0]) == np.flatnonzero(active).tolist()
        without = [not active[r * RUN_ROWS : (r + 1) * RUN_ROWS].any() for r in range(n_runs)]
        assert idle.tolist() == without
        active[rng.permutation(n)[: n // 3]] = 0
        active[: RUN_ROWS * epoch // 2] = 0
