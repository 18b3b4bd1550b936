"""What a pass on shards moves between processes: w and its change, once for each worker and round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from distributed import Client
from scipy import sparse

import bigsvm
from bigsvm.events import TrafficCounted
from bigsvm.run.execute.dask_shards import Placement
from bigsvm.run.execute.traffic import Count, Made, Traffic, nbytes_of, sum_of
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.tasks import FAN_IN, ShardSum, added, note, noting

D = 30_000
SHARDS, ROUNDS = 4, 8
VECTOR = 4 * (D + 1)  # w and its change are float32
SMALL = 4000 * ROUNDS * SHARDS  # what else a pass may move: a few numbers and names a shard and round


@pytest.mark.cluster
@pytest.mark.usefixtures("streaming")
def test_a_pass_moves_w_and_its_change_and_no_vector_of_rows(cluster: str) -> None:
    rng = np.random.default_rng(5)
    X = sparse.random_array((400, D), density=2e-4, rng=rng, dtype=np.float32, format="csr")
    rows = ArrayRows(X, np.where(rng.normal(size=400) > 0, 1, -1))
    seen: list[Any] = []
    options: dict[str, Any] = {"solver": "dcd", "loss": "hinge", "C": 0.1, "tol": 1e-3, "max_passes": 6}
    with Client(cluster, set_as_default=False) as client:
        before = moved_by(client)
        result = bigsvm.fit(rows, shards=SHARDS, rounds_per_pass=ROUNDS, client=client, emit=seen.append, **options)
        moved = moved_by(client) - before
    passes = [event for event in seen if isinstance(event, TrafficCounted)]
    assert len(passes) >= 3
    for event in passes:
        assert event.rounds in (ROUNDS, ROUNDS + 1)  # the last one saves
        assert event.workers == 2
        assert event.worker_bytes <= 1.4 * ROUNDS * 2 * VECTOR + SMALL
        assert event.worker_bytes_sum >= 2 * ROUNDS * VECTOR  # w came to both of them
        through_client = event.published_bytes + event.gathered_bytes
        assert ROUNDS * 2 * VECTOR <= through_client <= ROUNDS * 2 * VECTOR + SMALL
        assert event.task_bytes <= SMALL
        assert event.rounds_replayed == 0
    # The first pass brings staging along, one that follows a proof alpha of all rows.
    assert sum(event.row_bytes == 0 for event in passes) >= len(passes) - 3
    whole = result.figures["cluster"]
    assert whole["shards_made"] == SHARDS
    # Workers count what they hand to others by themselves: w to one of the two, sums, and those of the client.
    assert 0.9 * moved <= whole["worker_bytes_sum"] - whole["published_bytes"] + whole["gathered_bytes"] <= 1.1 * moved


def moved_by(client: Client) -> int:
    """Bytes that workers have handed to others and to the scheduler, as dask counts them."""
    return sum(client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values())


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
