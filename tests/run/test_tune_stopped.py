"""A search that a signal or a limit stops: no signal is lost, and the same command goes on to the same numbers."""

from __future__ import annotations

import dataclasses
import functools
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import DataError, Interrupted, OutputError
from bigsvm.events import CertificateMade, EpochEnd, Event
from bigsvm.files.locks import alone
from bigsvm.files.sealed_json import read_sealed, write_sealed
from bigsvm.run.proof.linear_prover import LinearProver
from bigsvm.run.tune.folds import Folds
from bigsvm.run.tune.search import Asked, tune_store
from bigsvm.solvers.dcd.momentum import Momentum
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.problems import random_problem
from tests.run.searches import CS, K, candidate


def at_the_last_proof(event: Event) -> None:
    """Stop the fit when nothing is left to do but to make its model."""
    if isinstance(event, CertificateMade) and event.relative_gap <= 1e-3:
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("fit", [bigsvm.fit, functools.partial(bigsvm.fit_path, Cs=[1.0, 2.0])])
def test_a_signal_during_the_last_step_of_a_fit_is_not_lost(fit: Any) -> None:
    """A program that fits again and again would go on with the next fit."""
    rows = random_problem(80, 3, seed=3)
    with pytest.raises(Interrupted, match="SIGTERM") as stopped:
        fit(rows, loss="hinge", emit=at_the_last_proof)
    assert stopped.value.by == "SIGTERM"


@pytest.mark.parametrize("kept", [False, True])
def test_a_signal_during_the_last_step_of_a_fit_ends_a_search_and_the_fit_is_kept(kept: bool, tmp_path: Path) -> None:
    store, config = ArrayRows(*random_problem(80, 3, seed=3)), FitConfig.of(kernel="rbf", memory="64MiB")
    asked, run = Asked([candidate(C) for C in CS], Folds(2, "rows"), "accuracy"), tmp_path / "run"
    with pytest.raises(Interrupted, match="SIGTERM"):
        tune_store(store, config, asked, at_the_last_proof, run if kept else None)
    if kept:
        assert len(list((run / "fits").iterdir())) == 1
        tune_store(store, config, asked, run=run)


@pytest.mark.parametrize("killed_at", [1, 4])
def test_a_search_that_was_stopped_goes_on_to_the_same_numbers(streaming: None, tmp_path: Path, killed_at: int) -> None:
    X, y = random_problem(300, 5, seed=13, noise=0.2)
    store = ArrayRows(X, y)
    config = FitConfig.of(solver="dcd", loss="hinge", tol=1e-4, memory="64MiB")
    asked = Asked([candidate(C) for C in CS], Folds(K, "rows"), "accuracy", refit=True)
    straight = tune_store(store, config, asked, run=tmp_path / "straight")
    steps: list[Event] = []

    def kill(event: Event) -> None:
        if isinstance(event, EpochEnd):
            steps.append(event)
            if len(steps) == killed_at:
                signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted, match="the same command goes on"):
        tune_store(store, config, asked, kill, tmp_path / "run")
    again = tune_store(store, config, asked, run=tmp_path / "run")
    ours, theirs = again.document(), straight.document()
    for document in (ours, theirs):
        for name in ("seconds", "memory"):
            document.pop(name)
    assert ours == theirs
    assert again.refit is not None
    assert straight.refit is not None
    np.testing.assert_array_equal(again.refit.model.coef, straight.refit.model.coef)
    epochs: list[Event] = []
    done = tune_store(store, config, dataclasses.replace(asked, refit=False), epochs.append, tmp_path / "run")
    assert [row.scores for row in done.rows] == [row.scores for row in straight.rows]
    assert not any(isinstance(event, EpochEnd) for event in epochs)
    with pytest.raises(DataError, match="holds another search"):
        tune_store(store, dataclasses.replace(config, tol=1e-2), asked, run=tmp_path / "run")


@pytest.mark.parametrize("weighted", [False, True])
def test_a_search_in_memory_leaps_and_proves_again_only_what_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weighted: bool
) -> None:
    X, y = random_problem(400, 30, seed=13, noise=0.2)
    weights = np.random.default_rng(0).integers(0, 3, len(y)) / 2.0 if weighted else None
    store = ArrayRows(X, y, weights)
    config = FitConfig.of(
        solver="dcd", loss="hinge", tol=1e-6, memory="64MiB", solver_options={"max_sweeps_per_step": 16}
    )
    asked = Asked([candidate(C) for C in np.logspace(-3, -0.5, 8)], Folds(K, "rows"), "accuracy")
    far: list[bool] = []
    proved: list[int] = []
    leap, tasks = Momentum.leap, LinearProver._tasks

    def leaping(self: Momentum, *arrays: Any) -> None:
        leap(self, *arrays)
        far.append(bool(self.theta.any()))

    def proving(self: LinearProver, point: Any) -> Any:
        proved.append(point.problem.n_models)
        return tasks(self, point)

    monkeypatch.setattr(Momentum, "leap", leaping)
    monkeypatch.setattr(LinearProver, "_tasks", proving)
    events: list[Event] = []
    straight = tune_store(store, config, asked, events.append, tmp_path / "straight")
    steps = sum(isinstance(event, EpochEnd) for event in events)
    proofs = sum(isinstance(event, CertificateMade) for event in events)
    assert straight.status == "converged"
    assert any(far)
    assert proofs > 2
    assert len(proved) < 3 * proofs  # there are three groups

    def kill(event: Event) -> None:
        events.append(event)
        if isinstance(event, EpochEnd) and sum(isinstance(one, EpochEnd) for one in events) == steps - 1:
            signal.raise_signal(signal.SIGTERM)

    events.clear()
    with pytest.raises(Interrupted, match="the same command goes on"):
        tune_store(store, config, asked, kill, tmp_path / "run")
    again = tune_store(store, config, asked, run=tmp_path / "run")
    for one, other in zip(again.rows, straight.rows, strict=True):
        assert (one.gaps, one.objectives, one.scores) == (other.gaps, other.objectives, other.scores)


def test_limits_leave_each_candidate_its_own_status(streaming: None) -> None:
    X, y = random_problem(300, 20, seed=16, noise=0.4)
    found = bigsvm.tune((X, y), Cs=[1e-4, 1e3], folds=2, solver="dcd", loss="hinge", tol=1e-4, max_passes=8)
    assert [row.status for row in found.rows] == ["converged", "stopped"]
    assert max(found.rows[0].gaps) <= 1e-4 < max(found.rows[1].gaps)
    assert (found.exit_code(), found.exit_code(True)) == (4, 0)


@pytest.mark.parametrize("recorded", [False, True])
def test_a_fit_that_an_earlier_version_made_of_other_cells_is_made_again(recorded: bool, tmp_path: Path) -> None:
    X, y = random_problem(200, 4, seed=20, noise=0.3)
    options: dict[str, Any] = {"Cs": [100.0, 0.1], "folds": 2, "threads": 1, "run": tmp_path / "search"}
    found = bigsvm.tune((X, y), **options)
    kept = tmp_path / "search" / "fits" / "fold-0-0"
    figures = read_sealed(kept / "fit.json")
    assert figures["cells"] == [[1, 0]]
    if recorded:  # as many models, but of others
        figures["cells"] = [[0, 0]]
    else:
        figures["n_models"] = 2
        del figures["cells"]
        shutil.copytree(kept / "000", kept / "001")
    write_sealed(kept / "fit.json", figures)
    again = bigsvm.tune((X, y), **options)
    assert [row.document() for row in again.rows] == [row.document() for row in found.rows]
    assert read_sealed(kept / "fit.json")["cells"] == [[1, 0]]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_search_that_is_going_on_is_left_alone(tmp_path: Path, overwrite: bool) -> None:
    """Python took no lock: `overwrite=True` would have deleted the fits of a search that was running."""
    search = functools.partial(bigsvm.tune, random_problem(80, 3, seed=3), folds=2, run=tmp_path / "s")
    search(Cs=[1.0])
    before = sorted(tmp_path.rglob("*"))
    with alone(tmp_path / "s" / "lock", "the run"), pytest.raises(OutputError, match="in use"):
        search(Cs=[2.0], overwrite=overwrite)
    assert sorted(tmp_path.rglob("*")) == before
