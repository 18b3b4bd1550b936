"""The memory of a search: parts that run one after another, in a process that loads code meanwhile, and calibration."""

from __future__ import annotations

import gc
import mmap
import weakref
from pathlib import Path
from typing import Any

import pytest

from bigsvm.budget import MemoryBudget
from bigsvm.config import FitConfig
from bigsvm.events import Warned
from bigsvm.run.apply.calibrate import held_bytes, held_share
from bigsvm.run.tune import held_out, search
from bigsvm.run.tune.folds import Folds
from bigsvm.run.tune.grid import Candidate
from bigsvm.run.tune.memory import Part, together
from bigsvm.run.tune.search import Asked, tune_store
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.problems import random_problem
from bigsvm.units import MIB


def part(base: int, peak: int, loaded: int = 0, here: bool = True) -> Part:
    memory = {"budget_bytes": 16, "base_bytes": base, "peak_anon_bytes": peak, "peak_rss_bytes": 2 * peak}
    return Part(memory, loaded, here)


def used(memory: dict[str, int]) -> int:
    return memory["peak_anon_bytes"] - memory["base_bytes"]


def test_code_that_a_later_part_loads_is_part_of_the_base() -> None:
    whole = together([part(100, 106, 50), part(110, 115, 8)])
    assert whole == {"budget_bytes": 16, "base_bytes": 108, "peak_anon_bytes": 115, "peak_rss_bytes": 230}
    assert used(together([part(100, 112, 50), part(108, 110, 8)])) == 12


def test_what_earlier_parts_keep_is_memory_of_the_search() -> None:
    assert used(together([part(100, 106), part(104, 109)])) == 9
    assert used(together([part(100, 106), part(104, 109, 1), part(107, 112, 2)])) == 9


def test_a_part_of_another_process_counts_by_itself() -> None:
    """The fits of a search that was interrupted have the base of their own process."""
    assert used(together([part(300, 311, 40, here=False), part(100, 106, 50), part(108, 112, 8)])) == 11
    assert used(together([part(300, 311, 40, here=False), part(200, 205, 50, here=False)])) == 11
    earlier = Part.of(part(300, 311).memory, here=False)  # of a version that did not count what was loaded
    assert (earlier.loaded_bytes, used(together([earlier]))) == (0, 11)


@pytest.mark.usefixtures("freed_is_returned")
def test_fits_and_scoring_of_a_search_say_what_was_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading for scoring is over before its base is measured.

    What stands for loaded libraries is mapped anew: the C library may have as much from a test before.
    """
    X, y = random_problem(120, 4, seed=30, noise=0.2)
    seen: list[Part] = []
    kept: list[mmap.mmap] = []

    def spy(parts: Any) -> dict[str, int]:
        seen.extend(parts)
        return together(parts)

    def loading(*given: Any) -> None:
        if not kept:
            kept.append(mmap.mmap(-1, 24 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            kept[0][::4096] = b"1" * (24 * MIB // 4096)  # a page is there once it is written to

    monkeypatch.setattr(search, "together", spy)
    monkeypatch.setattr(held_out, "precompile_scoring_of", loading)
    config = FitConfig.of(loss="squared_hinge", memory="64MiB")
    grid = [Candidate(C, None, None) for C in (0.1, 100.0)]
    found = tune_store(ArrayRows(X, y), config, Asked(grid, Folds(2, "rows"), "accuracy"))
    assert found.figures["form"] == "shared, the hard ones by fold"
    assert len(seen) == 4
    assert seen[-1].loaded_bytes >= 20 * MIB
    assert used(found.figures["memory"]) < 20 * MIB


@pytest.mark.parametrize(("limit", "scores"), [(64, 32), (20, 4)])
def test_scores_of_held_out_rows_leave_room_for_scoring(limit: int, scores: int) -> None:
    X, y = random_problem(60, 4, seed=31, n_classes=3)
    model = tune_store(
        ArrayRows(X, y), FitConfig.of(), Asked([Candidate(1.0, None, None)], Folds(2, "rows"), "accuracy", refit=True)
    ).refit.model  # type: ignore[union-attr]
    said: list[Any] = []
    n = 10_000_000
    share = held_share(1.0, n, model, MemoryBudget(limit * MIB), 12 * MIB, said.append)
    assert held_bytes(share, n, model) == pytest.approx(scores * MIB, rel=1e-3)
    assert [type(event) for event in said] == [Warned]
    assert held_share(0.5, 1000, model, MemoryBudget(limit * MIB), 12 * MIB, said.append) == 0.5


@pytest.mark.parametrize("calibrate", [None, "sigmoid"])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("kept", [False, True])
def test_a_refit_has_no_model_of_the_search_beside_it(
    kept: bool, kernel: str, calibrate: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a calibration the chosen models stayed until it had been made, and no plan counted them."""
    X, y = random_problem(90, 4, seed=3, noise=0.2)
    models: list[Any] = []
    train, refit = search.train, search._refit

    def trained(*arguments: Any) -> Any:
        found = train(*arguments)
        models.extend(weakref.ref(cell.model) for cell in found.cells)
        return found

    def alone(*arguments: Any) -> Any:
        gc.collect()
        assert models
        assert [model for model in models if model() is not None] == []
        models.clear()
        return refit(*arguments)

    monkeypatch.setattr(search, "train", trained)
    monkeypatch.setattr(search, "_refit", alone)
    options: dict[str, Any] = {"kernel": kernel, "calibrate": calibrate, "run": tmp_path / "run" if kept else None}
    found = search.tune((X, y), Cs=[0.1, 1.0], folds=2, refit=True, memory="64MiB", tol=1e-2, **options)
    assert models == []
    assert found.refit is not None
    assert ("calibration" in found.refit.model.about) == (calibrate is not None)
