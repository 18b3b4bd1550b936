"""Who comes into the row buffer and who leaves: flags, thresholds, nobody twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigsvm.compiled.linear.active_row_buffer import Slots, admit, evict
from bigsvm.compiled.linear.dual_cd import BlockRows
from bigsvm.compiled.shared.packed import PackedDense
from bigsvm.testing.problems import random_problem

FEATURES = 3


def empty(capacity: int, rows: int) -> tuple[PackedDense, Slots, np.ndarray]:
    """Room for `capacity` rows, what their slots know, and the flags of all rows."""
    A = PackedDense(np.zeros((capacity, FEATURES), np.int16), np.zeros(capacity, np.float32))
    number, real = (np.zeros(capacity, kind) for kind in (np.int64, np.float32))
    slots = Slots(number, np.zeros(capacity, np.int32), np.empty(0), real, real.copy())
    return A, slots, np.ones(rows, np.uint8)


@given(
    seed=st.integers(0, 10_000),
    capacity=st.integers(1, 40),
    thresholds=st.lists(st.floats(0, 1), min_size=1, max_size=6),
)
def test_flags_are_zero_exactly_for_the_rows_inside_and_nobody_is_there_twice(
    seed: int, capacity: int, thresholds: list[float]
) -> None:
    rng = np.random.default_rng(seed)
    n_rows = 60
    A, slots, streams = empty(capacity, n_rows)
    X, y = random_problem(n_rows, FEATURES, seed=seed)
    X.flags.writeable = False
    used = 0
    for threshold in thresholds:
        # As in a pass: a group of rows that stream arrives, is visited, and is offered to the row buffer.
        waiting = rng.permutation(np.flatnonzero(streams))[:25]
        score = rng.random(len(waiting)).astype(np.float32)
        order, codes = rng.permutation(len(waiting)), (y[waiting] > 0).astype(np.int32)
        block = np.ascontiguousarray(X[waiting])
        block.flags.writeable = False
        before, begin = used, 0
        used, seen = admit(
            A, slots, used, BlockRows(block, codes, np.empty(0), np.ones(len(waiting)), waiting), order, len(order),
            score, threshold, begin, streams,
        )  # fmt: skip
        assert np.all(slots.score[before:used] > np.float32(threshold))
        offered = order[:seen][score[order[:seen]] > threshold]
        np.testing.assert_array_equal(slots.row[before:used], waiting[offered])  # who was above it is in, in order
        if seen < len(order):
            assert used == capacity
            assert score[order[seen]] > threshold
        _consistent(slots, used, streams)
        limit = float(np.quantile(slots.score[:used], 0.3)) if used else 0.0
        rows = slots.row[:used][slots.score[:used] > limit]
        used = evict(A, slots, used, limit, streams)
        np.testing.assert_array_equal(slots.row[:used], rows)
        _consistent(slots, used, streams)


def _consistent(slots: Slots, used: int, streams: np.ndarray) -> None:
    inside = slots.row[:used]
    assert len(set(inside.tolist())) == used
    np.testing.assert_array_equal(np.sort(inside), np.flatnonzero(streams == 0))


@pytest.mark.parametrize("score", [np.nan, 0.0, -np.inf])
def test_who_does_not_violate_stays_out_and_leaves_first(score: float) -> None:
    A, slots, streams = empty(2, 2)
    X = np.ones((2, FEATURES))
    X.flags.writeable = False
    scores, at = np.array([score, 1.0], np.float32), np.arange(2)
    rows = BlockRows(X, np.zeros(2, np.int32), np.empty(0), np.ones(2), at)
    used, _ = admit(A, slots, 0, rows, at, 2, scores, 0.0, 0, streams)
    assert slots.row[:used].tolist() == [1]
    slots.score[0] = score  # a later sweep found it so
    assert evict(A, slots, used, 0.0, streams) == 0
    assert streams.tolist() == [1, 1]
