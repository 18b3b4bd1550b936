"""Groups of models keep one row buffer: which rows are in it follows from all of them, and never from threads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.compiled.linear.dual_cd import BlockRows
from bigsvm.compiled.shared.rows import sqnorms
from bigsvm.errors import DataError
from bigsvm.solvers.dcd.active_row_buffer import ActiveRowBuffer, make_row_buffer
from bigsvm.solvers.dcd.dual_cd import DualCD
from bigsvm.store.blocks import readonly_view
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.problems import random_problem
from tests.products import pairs_of

N = 300


def filled(full: bool) -> ActiveRowBuffer:
    """A row buffer that holds some rows, and has overflowed or not."""
    X, y = random_problem(N, 20, 1.0, seed=5, noise=0.2)
    store = ArrayRows(X, y)
    block = store.read(store.refs(N)[0])
    rows, norms = readonly_view(block.X), np.empty(N)
    sqnorms(rows, norms)
    row_buffer = make_row_buffer(10_000 if full else 1_000_000, store, False)
    given = BlockRows(rows, block.y.astype(np.int32), np.empty(0), norms, np.arange(N))
    row_buffer.admit(given, np.arange(N), np.linspace(1.0, 2.0, N, dtype=np.float32), np.ones(N, np.uint8))
    assert row_buffer.full == full
    return row_buffer


@pytest.mark.parametrize("full", [False, True])
def test_a_row_stays_for_the_group_that_it_violates_most(full: bool) -> None:
    row_buffer = filled(full)
    before = row_buffer.threshold
    scores = np.random.default_rng(1).random((3, row_buffer.n)).astype(np.float32)
    row_buffer.take_scores(scores, np.arange(row_buffer.n))
    row_buffer.end_sweep()
    np.testing.assert_array_equal(row_buffer.slots.score[: row_buffer.n], scores.max(axis=0))
    if not full:
        assert row_buffer.threshold == before
        return
    leave = scores.max(axis=0) <= row_buffer.threshold
    assert 0 < leave.sum() <= np.ceil(row_buffer.n * (1.0 - row_buffer.keep)) + 1


@pairs_of(
    loss=["hinge", "squared_hinge"],
    momentum=["off", "auto"],
    n_models=[8, 20, 70, 130],
    weighted=[False, True],
    row_buffer=["auto", "off"],
)
def test_any_number_of_threads_trains_the_same_models(
    streaming: None, loss: str, momentum: str, n_models: int, weighted: bool, row_buffer: str
) -> None:
    X, y = random_problem(400, 25, 0.5, seed=6, noise=0.3)
    weight = np.random.default_rng(2).uniform(0.5, 2.0, len(y)) if weighted else None
    told = []
    for threads in (1, 3):
        path = bigsvm.fit_path(
            (X, y, weight), np.logspace(-3, -1, n_models).tolist(), loss=loss, solver="dcd", threads=threads, tol=1e-2,
            solver_options={"momentum": momentum, "row_buffer": row_buffer},
        )  # fmt: skip
        assert path[0].status == "converged"
        assert (path[0].model.about["plan"]["row_buffer_bytes"] > 0) == (row_buffer == "auto")
        told.append([(found.model.coef.tobytes(), found.certificate.dual.tobytes()) for found in path])
        for found in path:
            found.close()
    assert told[1] == told[0]


def test_a_checkpoint_that_knows_no_shared_rows_is_refused() -> None:
    ctx: Any = SimpleNamespace(data=SimpleNamespace(uri="rows.zarr"))
    state: Any = None
    with pytest.raises(DataError, match="of an earlier version"):
        DualCD().before_load(state, {"groups": [{"row_buffer": None}]}, ctx)
