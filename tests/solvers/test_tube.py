"""The interior-point method that takes over a regression from `dcd`, whatever the scales of the columns are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.budget import MemoryBudget
from bigsvm.config import FitConfig
from bigsvm.errors import BigSVMError
from bigsvm.solvers.context import RunControl
from bigsvm.solvers.dcd import dual_cd
from bigsvm.solvers.dcd.dual_cd import DualCD
from bigsvm.solvers.dcd.dual_cd_state import DualCDState
from bigsvm.solvers.weights import columns
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.state.state_files import dump, load, read_tree, write_tree
from bigsvm.tasks import PassLeft
from bigsvm.testing.reference import dual_value, primal_value
from tests.products import each_of
from tests.run.test_checkpoint import comes_to_the_same
from tests.solvers.stepping import Bench
from tests.solvers.test_linear_regression import best, objective_of, rows

AT_ONCE = {"interior_after": 1, "max_sweeps_per_step": 1}
LOSS = "epsilon_insensitive"
TAKES_OVER = "an interior-point method takes over"


def as_they_come() -> tuple[np.ndarray, np.ndarray]:
    """Columns that differ in scale by 10,000, as in a table, and targets that need all of them."""
    X, y, _ = rows()
    return (np.abs(X) + 1.0) * 10.0 ** np.array([4, 0, 2, 1, 3, 0]), y


@each_of(
    layout=["dense", "csr"], bias=["augmented", "none"], C=[0.01, 1.0], epsilon=[0.0, 0.3], weighted=[False, True],
    threads=[1, 2],
)  # fmt: skip
def test_it_is_the_optimum_of_scikit_learn(
    layout: str, bias: str, C: float, epsilon: float, weighted: bool, threads: int
) -> None:
    X, y, weight = rows()
    store = ArrayRows(sparse.csr_array(X) if layout == "csr" else X, y, weight if weighted else None, task="regression")
    result = bigsvm.fit(
        store, solver="dcd", loss=LOSS, bias=bias, C=C, epsilon=epsilon, tol=1e-8, threads=threads,
        solver_options=AT_ONCE,
    )  # fmt: skip
    assert TAKES_OVER in result.warnings[-1]
    assert result.status == "converged"
    assert result.figures["objective"] == pytest.approx(best(LOSS, bias, C, epsilon, weighted), rel=1e-6)
    ours = objective_of(result.model, LOSS, bias, C, epsilon, weighted)
    assert ours == pytest.approx(result.figures["objective"], rel=1e-9)
    assert result.alpha[0].values[:, 0][(weight == 0) & weighted].any() == 0


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_columns_of_different_scales_are_no_hindrance(C: float, dtype: type, tmp_path: Path) -> None:
    X, y = as_they_come()
    X = X.astype(dtype)
    sweeps = {"interior_after": -1}
    stalled = bigsvm.fit((X, y), loss=LOSS, C=C, tol=1e-5, solver_options=sweeps, solver="dcd", max_passes=3000)
    assert stalled.status == "stopped"
    result = bigsvm.fit((X, y), loss=LOSS, C=C, tol=1e-5)
    assert result.status == "converged"
    assert result.figures["solver"] == "dcd"
    assert result.figures["epochs"] < 1000
    w, alpha = np.append(result.model.coef[0], result.model.intercept[0]), result.alpha[0].values[:, 0]
    cost = np.full(len(y), C)
    primal = primal_value(X.astype(float), y, cost, LOSS, w, 1.0, 0.1)
    assert np.all(np.abs(alpha) <= C)
    assert primal - dual_value(X.astype(float), y, cost, LOSS, alpha, 1.0, 0.1) <= 1.001e-5 * primal
    result.save_model(tmp_path / "m")
    assert bigsvm.certify(tmp_path / "m", X, y)["relative_gap"] <= 1e-5


def test_nothing_is_said_of_scales_that_do_no_harm() -> None:
    X, y, _ = rows()
    X = X * np.array([60.0, 1, 1, 1, 1, 1])  # too little for columns to be called badly scaled
    said = " ".join(bigsvm.fit((X, y), loss=LOSS).warnings)
    assert "dual coordinate descent" not in said
    assert "dual coordinate descent" in " ".join(bigsvm.fit((X, y), loss="squared_" + LOSS, solver="dcd").warnings)


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_paths_and_searches_are_solved_model_by_model(layout: str) -> None:
    X, y = as_they_come()
    given: Any = (sparse.csr_array(X) if layout == "csr" else X, y)
    costs = [1e-2, 1.0, 1e2]
    alone = [bigsvm.fit(given, loss=LOSS, C=C, tol=1e-6).figures["objective"] for C in costs]
    together = bigsvm.fit_path(given, costs, loss=LOSS, tol=1e-6)
    assert [result.status for result in together] == ["converged"] * 3
    np.testing.assert_allclose([result.figures["objective"] for result in together], alone, rtol=1e-5)
    found = bigsvm.tune(given, Cs=costs, folds=3, loss=LOSS, tol=1e-4)
    assert found.status == "converged"


def test_without_room_for_it_sweeps_go_on(tmp_path: Path) -> None:
    X, y = as_they_come()
    options = {"loss": LOSS, "C": 1.0, "bias": "augmented"}
    for limit, taken in ((1 << 20, True), (1 << 14, False)):
        bench = Bench(
            DualCD(**AT_ONCE), X, y, tmp_path, options=options, task="regression", budget=MemoryBudget(limit), tol=1e-3
        )  # fmt: skip
        info = bench.solver.step(bench.problem, bench.state, bench.ctx)
        assert (TAKES_OVER if taken else "--memory 1MiB has room for a faster method") in info.message
        assert bench.state.solved
        info = bench.solver.step(bench.problem, bench.state, bench.ctx)
        assert not info.message


def test_a_resumed_fit_takes_over_at_the_same_place(tmp_path: Path) -> None:
    X, y = as_they_come()
    made = DualCD(interior_after=3, max_sweeps_per_step=1)

    def bench() -> Bench:
        return Bench(made, X, y, tmp_path, options={"loss": LOSS, "C": 1.0}, task="regression", tol=1e-3)

    whole, halves = bench(), bench()
    for _ in range(2):
        halves.solver.step(halves.problem, halves.state, halves.ctx)
    resumed = bench()
    load(resumed.state, dump(halves.state))
    for one, steps in ((whole, 4), (resumed, 2)):
        for _ in range(steps):
            one.solver.step(one.problem, one.state, one.ctx)
        assert one.state.solved
    ours, theirs = (one.state.groups[0] for one in (whole, resumed))
    np.testing.assert_array_equal(ours.w, theirs.w)
    np.testing.assert_array_equal(ours.alpha.values, theirs.alpha.values)


class AskedTo:
    """Says that the run is to stop when it has been asked so many times."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("times", [0, 40, 600])
def test_a_signal_during_the_method_stops_it_and_the_resumed_fit_is_the_same(
    layout: str, times: int, tmp_path: Path
) -> None:
    X, y = as_they_come()
    rows: Any = sparse.csr_array(X) if layout == "csr" else X
    given: dict[str, Any] = {"options": {"loss": LOSS}, "costs": [0.1, 1.0, 10.0], "task": "regression", "tol": 1e-6}

    def bench(control: RunControl) -> Bench:
        return Bench(DualCD(interior_after=3, max_sweeps_per_step=3), rows, y, tmp_path, control=control, **given)

    whole, stopped = bench(RunControl()), bench(RunControl(stopping=AskedTo(times)))
    there = whole.solver.step(whole.problem, whole.state, whole.ctx)
    left = stopped.solver.step(stopped.problem, stopped.state, stopped.ctx)
    assert left.paused
    assert stopped.state.finished == {0: 0, 40: 0, 600: 2}[times]
    resumed = bench(RunControl())
    (tmp_path / "saved").mkdir()
    write_tree(tmp_path / "saved", dump(stopped.state))
    load(resumed.state, read_tree(tmp_path / "saved"))
    here = resumed.solver.step(resumed.problem, resumed.state, resumed.ctx)
    assert here == there
    assert TAKES_OVER in here.message
    np.testing.assert_array_equal(resumed.state.groups[0].w, whole.state.groups[0].w)
    np.testing.assert_array_equal(resumed.state.groups[0].alpha.values, whole.state.groups[0].alpha.values)
    assert (resumed.state.sweep, resumed.state.estimates) == (whole.state.sweep, whole.state.estimates)


def test_a_checkpoint_is_saved_between_two_models(tmp_path: Path) -> None:
    X, y = as_they_come()
    given: dict[str, Any] = {"options": {"loss": LOSS}, "costs": [0.1, 1.0, 10.0], "task": "regression"}
    bench = Bench(DualCD(**AT_ONCE), X, y, tmp_path, control=RunControl(pause=lambda: True), **given)
    for finished in (1, 2, 3):
        assert bench.solver.step(bench.problem, bench.state, bench.ctx).paused == (finished < 3)
        assert bench.state.finished == finished


@pytest.mark.parametrize("asked", [0, 1, 40, 600])
def test_the_time_ends_within_a_solution(asked: int, tmp_path: Path) -> None:
    """Models that are solved stay so, and the others as sweeps have left them."""
    X, y = as_they_come()
    given: dict[str, Any] = {"options": {"loss": LOSS}, "costs": [0.1, 1.0, 10.0], "task": "regression"}

    def bench(after: int, control: RunControl) -> Bench:
        found = Bench(DualCD(interior_after=after, max_sweeps_per_step=3), X, y, tmp_path, control=control, **given)
        info = found.solver.step(found.problem, found.state, found.ctx)
        assert not info.paused
        assert bool(info.message) == (found.state.finished > 0)
        return found

    swept, solved = bench(-1, RunControl()), bench(3, RunControl())
    found = bench(3, RunControl(expired=AskedTo(asked)))
    assert found.state.finished == {0: 0, 1: 0, 40: 0, 600: 1}[asked]
    done = 0
    for ours, before, after in zip(*(one.state.groups for one in (found, swept, solved)), strict=True):
        for m in range(ours.problem.n_models):
            right = after if done < found.state.finished else before
            np.testing.assert_array_equal(columns(ours.w)[:, m], columns(right.w)[:, m])
            np.testing.assert_array_equal(ours.alpha.values[:, m], right.alpha.values[:, m])
            done += 1
    assert done == 3


def test_a_hopeless_fit_is_taken_over_before_it_ends(tmp_path: Path) -> None:
    X, y = as_they_come()
    bench = Bench(
        DualCD(interior_after=10_000), X, y, tmp_path, options={"loss": LOSS, "C": 1.0}, task="regression", tol=1e-3
    )
    bench.solver.step(bench.problem, bench.state, bench.ctx)
    assert bench.solver.change(bench.state)
    info = bench.solver.step(bench.problem, bench.state, bench.ctx)
    assert info.ask_certificate
    assert info.gap_estimate <= 1e-3
    assert bench.solver.change(bench.state) == ""


def test_a_number_of_epochs_below_never_is_refused() -> None:
    X, y, _ = rows()
    with pytest.raises(BigSVMError, match="interior_after must be"):
        bigsvm.fit((X, y), loss=LOSS, solver="dcd", solver_options={"interior_after": -2})


def test_a_solution_that_is_left_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweeps before it are not repeated."""
    left: list[int] = []
    solve = dual_cd.solve

    def watched(state: DualCDState, ctx: Any) -> int:
        try:
            return solve(state, ctx)
        except PassLeft:
            left.append(state.sweep)
            raise

    monkeypatch.setattr(dual_cd, "solve", watched)
    X, y = as_they_come()
    options = {"solver": "dcd", "loss": LOSS, "tol": 1e-3, "solver_options": AT_ONCE}
    comes_to_the_same(ArrayRows(X, y, task="regression"), FitConfig.of(**options), tmp_path, 10)
    assert len(left) > 2
    assert set(left) == {1}
