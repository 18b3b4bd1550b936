"""What shards hold between rounds is what the plan counts: of the rows of a round, of kept rows, and on a worker."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.run.fit.plan import make_plan
from bigsvm.run.workers import worker_memory
from bigsvm.solvers.dcd.shards import moved_alpha, shard_state
from bigsvm.solvers.dcd.shards.moved_alpha import moved_bytes
from bigsvm.solvers.dcd.shards.round_messages import Round
from bigsvm.solvers.dcd.shards.shard_rows import ShardRows
from bigsvm.solvers.dcd.shards.shard_state import ShardState
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.problems import random_problem
from tests.products import pairs_of

N = 600
LOSSES = ("hinge", "squared_hinge", "epsilon_insensitive", "squared_epsilon_insensitive")
BUFFERS: dict[str, dict[str, Any]] = {"kept": {}, "off": {"bias": "none", "solver_options": {"row_buffer": "off"}}}


def rows_of(loss: str, n_classes: int, weights: bool) -> ArrayRows:
    X, y = random_problem(N, 3, seed=8, noise=0.3, n_classes=n_classes)
    weight = np.linspace(0.5, 2.0, N) if weights else None
    if "epsilon" in loss:
        return ArrayRows(X.astype(np.float32), X @ np.arange(3.0), task="regression", sample_weight=weight)
    return ArrayRows(X.astype(np.float32), y, sample_weight=weight)


def held_by(state: ShardState) -> tuple[int, int]:
    """(bytes of the rows that stream, of kept rows) that a shard remembers of its last round."""
    sizes = [0, 0]
    for part in state._moved:
        sizes[part.kept] += sum(array.nbytes for array in part if isinstance(array, np.ndarray))
    return sizes[0], sizes[1]


@pytest.mark.usefixtures("streaming")
@pairs_of(
    loss=LOSSES, n_classes=[2, 4], weights=[False, True], shards=[2, 5], rounds=[1, 4, 16], buffer=BUFFERS,
    at_once=[64, moved_alpha._PIECE],
)  # fmt: skip
def test_rounds_hold_what_is_counted(
    loss: str, n_classes: int, weights: bool, shards: int, rounds: int, buffer: str, at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(moved_alpha, "_PIECE", at_once)
    held: dict[int, tuple[int, int]] = {}
    most, slots = [0, 0], 0
    work, plain = ShardState.work, shard_state.make_row_buffer

    def seen(state: ShardState, rows: ShardRows, told: Round, W: np.ndarray) -> Any:
        found = work(state, rows, told, W)
        if rows.data.n_samples == N:  # not a small fit that compiles
            held[rows.number] = held_by(state)
        for k in range(2):
            most[k] = max(most[k], sum(sizes[k] for sizes in held.values()))
        return found

    def made(nbytes: int, data: Any, packed: bool) -> Any:
        nonlocal slots
        slots += nbytes if data.n_samples == N else 0
        return plain(nbytes, data, packed)

    monkeypatch.setattr(ShardState, "work", seen)
    monkeypatch.setattr(shard_state, "make_row_buffer", made)
    rows = rows_of(loss, n_classes, weights)
    options: dict[str, Any] = {
        "solver": "dcd", "loss": loss, "shards": shards, "rounds_per_pass": rounds, "C": 0.1, "max_passes": 4,
        "memory": "64MiB", **BUFFERS[buffer],
    }  # fmt: skip
    bigsvm.fit(rows, **options, threads=1)
    plan = make_plan(rows, FitConfig.of(**options))
    counted = next(need.nbytes for need in plan.needs if need.what == "steps of a round")
    a_row = moved_bytes(plan.shape.n_models, weights, "epsilon" in loss, N)
    assert plan.shape.rounds == plan.rounds_per_pass == rounds
    assert 0 < most[0] <= counted + shards * a_row  # a round of each shard may have a row more
    assert slots + most[1] <= plan.row_buffer_bytes
    assert bool(most[1]) == (buffer == "kept")


@pytest.mark.usefixtures("streaming")
@pairs_of(loss=LOSSES, n_classes=[2, 4], buffer=BUFFERS)
def test_a_worker_holds_what_is_counted_of_each_row(loss: str, n_classes: int, buffer: str) -> None:
    """Alpha of a shard, the alpha that a deferred certificate proves, and that before a leap."""
    rows = rows_of(loss, n_classes, False)
    config = FitConfig.of(solver="dcd", loss=loss, shards=2, memory="64MiB", **BUFFERS[buffer])
    plan = make_plan(rows, config)
    problem, leaps = plan.problem, buffer == "off" and "epsilon" not in loss
    of_shard = ShardRows(rows, problem, 0, 2, N // 2, range(1), 1, 0, 0, False, 0, leaps)
    state = of_shard.new_state()
    state.lend(problem, np.zeros((4, problem.n_models)).squeeze(), state.alpha.copy())
    arrays = [state.alpha, state.streams, state.proved, state.before]
    nbytes = sum(array.nbytes for array in arrays if array is not None)
    each = worker_memory.row_and_model_bytes(plan)
    assert nbytes <= N // 2 * problem.n_models * each
    assert (state.before is not None) == leaps
