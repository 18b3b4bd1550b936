"""Where alpha is on disk, the row buffer holds that of its rows in memory, and nothing comes out otherwise."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.budget import MemoryBudget
from bigsvm.config import FitConfig
from bigsvm.run.fit import plan as planning
from bigsvm.run.fit.fit import fit_store
from bigsvm.solvers.dcd import active_row_buffer
from bigsvm.solvers.dcd.active_row_buffer import ActiveRowBuffer
from bigsvm.store.state import held_rows
from bigsvm.store.state.held_rows import HeldRows, held_bytes
from bigsvm.store.state.vectors import RowVector
from tests.products import each_of
from tests.run.test_checkpoint import classes, comes_to_the_same, same_folder


@pytest.mark.parametrize("n_rows", [1, 5, 1000])
@pytest.mark.parametrize("widths", [(1,), (3, 1)])
@pytest.mark.parametrize("windows", [1, 16, 5000])
@pytest.mark.parametrize("together", [3, 1 << 16])
def test_values_come_and_go(
    n_rows: int, widths: tuple[int, ...], windows: int, together: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_rows, "_WINDOWS", windows)
    monkeypatch.setattr(held_rows, "_TOGETHER", together)
    rng = np.random.default_rng(n_rows)
    vectors = [
        RowVector("alpha", n_rows, width, np.float64, MemoryBudget(1 << 20), tmp_path, on_disk=True) for width in widths
    ]
    wanted = [rng.random(each.values.shape) for each in vectors]
    for vector, values in zip(vectors, wanted, strict=True):
        vector.values[:] = values
    rows = rng.permutation(n_rows)[: max(n_rows // 3, 1)]
    held, half = HeldRows(vectors, len(rows)), len(rows) // 2
    held.take(rows[:half])
    held.take(rows[half:], half)
    for values, each in zip(held.values, wanted, strict=True):
        np.testing.assert_array_equal(values, each[rows])
        values += 1.0
    for each in wanted:
        each[rows] += 1.0
    stays = rng.random(len(rows)) < 0.6
    before = [vector.values.copy() for vector in vectors]
    held.put(rows, ~stays)
    for vector, values, old in zip(vectors, wanted, before, strict=True):
        np.testing.assert_array_equal(vector.values[rows[~stays]], values[rows[~stays]])
        np.testing.assert_array_equal(vector.values[rows[stays]], old[rows[stays]])
    held.close_gaps(stays)
    held.put(rows[stays])
    for vector, values in zip(vectors, wanted, strict=True):
        np.testing.assert_array_equal(vector.values, values)
        vector.close()


def on_disk(monkeypatch: pytest.MonkeyPatch, every: bool) -> None:
    """Alpha goes to disk whatever the plan says, and the row buffer keeps its number of slots."""
    found = planning._spilled

    def spilled(*args: Any) -> tuple[list[str], int]:
        names, taken = found(*args)
        return ["alpha", *(name for name in names if name != "alpha")] if every else [], taken

    monkeypatch.setattr(planning, "_spilled", spilled)
    monkeypatch.setattr(active_row_buffer, "held_bytes", lambda width: 0)
    monkeypatch.setattr(active_row_buffer, "_CACHED_BYTES", 0)


@each_of(
    n_classes__options=[
        (2, {}),
        (2, {"bias": "none", "loss": "squared_hinge", "C": 30.0}),
        (3, {"class_weight": {"0": 2.0}}),
        (10, {"loss": "squared_hinge"}),
        (20, {}),
        (3, {"multi_class": "crammer-singer"}),
    ],
    tol=[1e-6, 1e-3],
)
@pytest.mark.usefixtures("streaming")
def test_a_fit_is_the_same_wherever_alpha_is(
    n_classes: int, options: dict[str, Any], tol: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bigsvm.open_store(classes(n_classes))
    settings: dict[str, Any] = {"solver": "dcd", "loss": "hinge", "tol": tol, "memory": "64MiB", "max_passes": 30}
    config = FitConfig.of(**{**settings, **options})
    held: list[int] = []
    holding = ActiveRowBuffer.holding

    def counted(self: ActiveRowBuffer, alpha: Any) -> Any:
        held.append(self.n)
        return holding(self, alpha)

    monkeypatch.setattr(ActiveRowBuffer, "holding", counted)
    for name, every in (("memory", False), ("disk", True)):
        with pytest.MonkeyPatch.context() as patch:
            on_disk(patch, every)
            fit_store(store, config).save_model(tmp_path / name)
        assert bool(held) == every
    assert max(held) > 10
    assert same_folder(tmp_path / "memory", tmp_path / "disk")


@pytest.mark.parametrize("n_classes", [2, 10])
@pytest.mark.usefixtures("streaming")
def test_an_interrupted_fit_is_the_same_too(n_classes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk(monkeypatch, True)
    config = FitConfig.of(solver="dcd", loss="hinge", tol=1e-5, memory="64MiB", max_passes=40)
    comes_to_the_same(bigsvm.open_store(classes(n_classes)), config, tmp_path, 15)


@pytest.mark.parametrize("n_classes", [2, 10])
@pytest.mark.usefixtures("streaming")
def test_a_warm_start_is_the_same_too(n_classes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = bigsvm.open_store(classes(n_classes))
    options: dict[str, Any] = {"solver": "dcd", "loss": "hinge", "memory": "64MiB", "max_passes": 30}
    fit_store(store, FitConfig.of(C=0.1, tol=1e-2, **options)).save_model(tmp_path / "earlier")
    config = FitConfig.of(C=0.2, tol=1e-4, warm_start=str(tmp_path / "earlier"), **options)
    for name, every in (("memory", False), ("disk", True)):
        with pytest.MonkeyPatch.context() as patch:
            on_disk(patch, every)
            fit_store(store, config).save_model(tmp_path / name)
    assert same_folder(tmp_path / "memory", tmp_path / "disk")


@pytest.mark.parametrize("width", [1, 4])
def test_held_values_are_within_the_bytes_that_are_counted(width: int, tmp_path: Path) -> None:
    n_rows, n_slots = 1_000_000, 400_000
    vector = RowVector("alpha", n_rows, width, np.float64, MemoryBudget(1 << 30), tmp_path)
    rng = np.random.default_rng(0)
    rows, stays = rng.permutation(n_rows)[:n_slots], rng.random(n_slots) < 0.9
    tracemalloc.start()
    try:
        held = HeldRows([vector], n_slots)
        held.take(rows)
        held.put(rows, ~stays)
        held.close_gaps(stays)
        held.put(rows[:1000])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    piece = held_rows._TOGETHER * 8 * width
    assert n_slots * 8 * width < peak < n_slots * held_bytes(width) + 2 * piece


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.usefixtures("streaming")
def test_a_search_is_the_same_too(n_classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fold of a row is found by the number of the row, not of its slot."""
    options: dict[str, Any] = {"solver": "dcd", "loss": "hinge", "tol": 1e-4, "memory": "64MiB", "max_passes": 60}
    found = []
    for every in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            on_disk(patch, every)
            found.append(bigsvm.tune(classes(n_classes), Cs=[0.1, 10.0], folds=3, **options))
    assert found[0].rows == found[1].rows


def test_work_space_is_small_wherever_the_rows_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_rows, "_TOGETHER", 1000)
    n_rows, n_slots = 4_000_000, 200_000
    vector = RowVector("alpha", n_rows, 1, np.float64, MemoryBudget(1 << 30), tmp_path, on_disk=True)
    held = HeldRows([vector], n_slots)
    rows = np.random.default_rng(0).permutation(n_slots)  # all of them in the first sixteenth of the vector
    tracemalloc.start()
    held.take(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    vector.close()
    assert peak < 6 * n_slots
