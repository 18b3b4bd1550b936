"""What a pass on shards moves between processes: w and its change, once for each worker and round."""

from __future__ import annotations

import numpy as np
import pytest

from bigsvm.run.execute.dask_shards import Placement
from bigsvm.run.execute.traffic import Count, Made, Traffic, nbytes_of, sum_of
from bigsvm.tasks import FAN_IN, ShardSum, added, note, noting


def vectors_that_come(shards: int, workers: int) -> float:
    """Vectors that come to a worker in a round, of w and of the tree, on average."""
    where = Placement().of(shards, [f"worker {k:03d}" for k in range(workers)])
    came = len(set(where))
    while len(where) > 1:
        fours = [where[first : first + FAN_IN] for first in range(0, len(where), FAN_IN)]
        came += sum(len(four) - max(map(four.count, four)) for four in fours)
        where = [max(four, key=four.count) for four in fours]
    return came / workers


@pytest.mark.parametrize("shards", [2, 4, 8, 16, 64, 256])
def test_the_tree_moves_a_third_more_than_w_and_a_change_for_each_worker(shards: int) -> None:
    """Where workers are a power of two, as shards are; at the borders of unequal parts fours are split once more."""
    for workers in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        assert vectors_that_come(shards, workers) <= 1.4 * 2
    for workers in (3, 5, 12, 24, 48, 100, 200):
        assert vectors_that_come(shards, workers) <= 2.4 * 2


def test_shards_that_are_added_up_together_are_on_one_worker() -> None:
    where = Placement().of(16, list("abcd"))
    assert where == ["a"] * 4 + ["b"] * 4 + ["c"] * 4 + ["d"] * 4


def test_traffic_is_counted_by_worker_and_pass() -> None:
    vector = np.ones(10, np.float32)
    parts = tuple(
        Made(ShardSum((k,), (vector,)), at, 48, {at: Count(100, 0.5)}) for k, at in enumerate(("a", "b", "a"))
    )
    total = sum_of(added, parts, "a")
    assert total.nbytes == nbytes_of(total.found) == 3 * 8 + 40
    assert total.counts == {"a": Count(200 + 48, 1.0), "b": Count(100, 0.5)}
    traffic = Traffic()
    traffic.round(total.nbytes, total.counts, 1.75)
    before = traffic.copy()
    traffic.round(total.nbytes, {"a": Count(7, 2.0, 1, 3)}, 2.5)
    told = traffic.since(before).document()
    assert (told["rounds"], told["workers"], told["worker_bytes"], told["gathered_bytes"]) == (1, 1, 7, 64)
    assert (told["work_s"], told["sum_s"], told["shards_made"], told["rounds_replayed"]) == (2.0, 0.5, 1, 3)
    assert traffic.document()["sum_s"] == 1.25
    assert traffic.document()["worker_bytes_sum"] == 248 + 100 + 7


def test_notes_of_tasks_are_of_the_block_that_asked() -> None:
    note("replayed")  # nobody asks
    with noting() as notes:
        note("made_anew")
        note("replayed", 2)
    note("replayed")
    assert notes == {"made_anew": 1, "replayed": 2}
