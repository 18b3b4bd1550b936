"""The row buffer keeps to its bytes, its sweeps lower the dual objective, and its input alone decides what it does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import typeof
from scipy import sparse

from bigsvm.compiled.linear.dual_cd import BlockRows
from bigsvm.compiled.shared.rows import sqnorms
from bigsvm.config import FitConfig
from bigsvm.problem.problem import Problem, make_problem, zero_weights
from bigsvm.solvers.dcd import active_row_buffer
from bigsvm.solvers.dcd.active_row_buffer import (
    ActiveRowBuffer,
    SweepPart,
    make_row_buffer,
    parts_due,
    whole_row_buffer,
)
from bigsvm.store.blocks import readonly_view
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.problems import random_problem
from bigsvm.testing.reference import dual_value

N, FEATURES = 400, 30


def store_of(layout: str, weights: bool, density: float = 0.3) -> ArrayRows:
    X, y = random_problem(N, FEATURES, density, seed=3, noise=0.2)
    rows: Any = sparse.csr_array(X) if layout == "csr" else X
    return ArrayRows(rows, y, np.random.default_rng(4).uniform(0.5, 2.0, N) if weights else None)


def arrays_of(row_buffer: ActiveRowBuffer) -> list[np.ndarray]:
    """Every array of its own; two views of one memory count once."""
    rows = row_buffer.rows if isinstance(row_buffer.rows, tuple) else (row_buffer.rows,)
    own = {array.__array_interface__["data"][0]: array for array in (*rows, *row_buffer.slots) if len(array)}
    return list(own.values())


@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("nbytes", [5_000, 20_001, 1_000_000])
def test_it_keeps_to_its_bytes(packed: bool, layout: str, weights: bool, nbytes: int) -> None:
    row_buffer = make_row_buffer(nbytes, store_of(layout, weights), packed)
    assert 0.8 * nbytes <= sum(array.nbytes for array in arrays_of(row_buffer)) <= nbytes


def offer(row_buffer: ActiveRowBuffer, store: ArrayRows, score: np.ndarray, streams: np.ndarray) -> None:
    """Bring all rows of the store that stream, in order."""
    block = store.read(store.refs(N)[0])
    X, norms = readonly_view(block.X), np.empty(N)
    sqnorms(X, norms)
    weight = np.empty(0) if block.sample_weight is None else block.sample_weight
    waiting = np.flatnonzero(streams)
    rows = BlockRows(X, block.y.astype(np.int32), weight, norms, np.arange(N))
    row_buffer.admit(rows, waiting, score, streams)


def dual_of(problem: Problem, store: ArrayRows, alpha: np.ndarray) -> float:
    block = store.read(store.refs(N)[0])
    X = block.X if isinstance(block.X, np.ndarray) else sparse.csr_array(tuple(block.X), shape=(N, FEATURES)).toarray()
    weight = np.ones(N) if block.sample_weight is None else block.sample_weight
    y = np.where(block.y == 1, 1.0, -1.0)
    return dual_value(X, y, problem.C[0] * weight, problem.loss.name, alpha[:, 0], problem.constant_feature)


@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("bias", ["augmented", "none"])
@pytest.mark.parametrize("wide", [np.float32, np.float64])
def test_every_sweep_raises_the_dual_value_up_to_packing(
    packed: bool, layout: str, loss: str, bias: str, wide: type
) -> None:
    store = store_of(layout, weights=True)
    problem = make_problem(FitConfig.of(loss=loss, bias=bias, C=0.5), store)
    outcome = []
    for _ in range(2):  # and twice the same bits
        row_buffer, streams = make_row_buffer(whole_row_buffer(store, packed) * 2, store, packed), np.ones(N, np.uint8)
        offer(row_buffer, store, np.ones(N, np.float32), streams)
        assert row_buffer.n == N
        assert not streams.any()
        alpha, w, values = np.zeros((N, 1)), zero_weights(FEATURES, 1, wide), [0.0]
        for number in range(12):
            row_buffer.sweep(problem, alpha, w, row_buffer.order((7, 0), SweepPart(number)))
            values.append(dual_of(problem, store, alpha))
        assert np.all(np.diff(values) >= (-1e-4 if packed else -1e-6 if wide is np.float32 else -1e-12) * values[-1])
        assert values[-1] > values[1] > 0
        outcome.append((alpha.tobytes(), w.tobytes(), row_buffer.slots.score[:N].tobytes()))
    assert outcome[0] == outcome[1]


@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("packed", [True, False])
def test_a_small_one_holds_the_rows_that_violate_most(packed: bool, layout: str) -> None:
    store = store_of(layout, weights=False)
    score = np.random.default_rng(5).permutation(N).astype(np.float32) + 1
    row_buffer, streams = make_row_buffer(whole_row_buffer(store, packed) // 4, store, packed), np.ones(N, np.uint8)
    offer(row_buffer, store, score, streams)
    inside = row_buffer.slots.row[: row_buffer.n]
    assert row_buffer.full
    assert 0.1 * N < row_buffer.n < 0.4 * N
    assert len(set(inside.tolist())) == row_buffer.n
    np.testing.assert_array_equal(np.sort(inside), np.flatnonzero(streams == 0))
    np.testing.assert_array_equal(row_buffer.slots.score[: row_buffer.n], score[inside])
    # Rows were let go by their score only: whoever is out was worth no more than the least of a row buffer once full.
    assert score[inside].mean() > np.quantile(score, 0.6)


@pytest.mark.parametrize("packed", [True, False])
def test_a_row_larger_than_the_row_buffer_streams_on(packed: bool) -> None:
    X = sparse.csr_array(np.ones((N, FEATURES)))
    store = ArrayRows(X, np.where(np.arange(N) % 2, 1.0, -1.0))
    row_buffer, streams = make_row_buffer(100, store, packed), np.ones(N, np.uint8)
    offer(row_buffer, store, np.ones(N, np.float32), streams)
    assert row_buffer.n == 0
    assert streams.all()


@pytest.mark.parametrize("part", [SweepPart(0), SweepPart(3, 0, 3, 3)])
@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_rows_that_stay_are_visited_by_the_loop_that_visits_those_that_arrive(
    layout: str, part: SweepPart, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays that may be written would be other types, and the largest loop of all would be compiled twice."""
    visited: list[Any] = []
    monkeypatch.setattr(active_row_buffer, "dual_cd_visit", lambda rows, *_: visited.append(rows))
    store = store_of(layout, weights=True)
    row_buffer = make_row_buffer(1_000_000, store, packed=False)
    offer(row_buffer, store, np.ones(N, np.float32), np.ones(N, np.uint8))
    assert row_buffer.n == N
    problem = make_problem(FitConfig.of(loss="hinge"), store)
    row_buffer.sweep(problem, np.zeros((N, 1)), zero_weights(FEATURES, 1), row_buffer.order((0, 0), part))
    block = store.read(store.refs(N)[0])
    arriving = (readonly_view(block.X), block.y.astype(np.int32), block.sample_weight.copy(), np.empty(N), np.arange(N))
    assert [typeof(array) for array in visited[0]] == [typeof(array) for array in arriving]


@pytest.mark.parametrize("turns", [1, 3, 18, 372])
@pytest.mark.parametrize("sweeps", [0, 1, 7, 20, 60])
def test_what_is_due_in_the_turns_of_a_pass_is_so_many_sweeps(turns: int, sweeps: int) -> None:
    """One after another, none left out and none twice; each turn has its share, to the least part there is."""
    due = [list(parts_due(turn, turns, sweeps)) for turn in range(turns)]
    assert [sum(part.stop - part.first for part in parts) for parts in due] == [sweeps] * turns
    end = (0, 0)
    for part in (part for parts in due for part in parts):
        assert (part.number, part.first, part.of) == (*end, turns)
        end = (part.number + 1, 0) if part.ends else (part.number, part.stop)
    assert end == (sweeps, 0)
