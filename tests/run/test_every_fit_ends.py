"""Every fit ends: hopeless ones `stalled`, by counters alone."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import bigsvm
from bigsvm.config import LOSSES, FitConfig
from bigsvm.errors import DataError
from bigsvm.run.fit import loop as looping
from bigsvm.run.fit import sizes
from bigsvm.run.fit.fit import fit_store
from bigsvm.run.proof import kernel_prover
from bigsvm.solvers.context import Context
from bigsvm.solvers.pace import IN_MEMORY, Limits, Pace, kernel_limits
from bigsvm.solvers.registry import SOLVERS
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.state.vectors import RowVector
from bigsvm.testing.problems import random_problem
from tests.classifiers import CLASSIFIERS
from tests.run.counted_fits import Rows, fit, noisy, opposite, unscaled
from tests.run.test_checkpoint import comes_to_the_same


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        (opposite(1000, 31.6), {"solver": "dcd"}),
        (opposite(1000, 31.6), {"loss": "hinge", "solver": "dcd", "solver_options": {"momentum": "off"}}),
        (unscaled(300), {"loss": "hinge", "solver": "dcd"}),
        (unscaled(), {"kernel": "poly"}),
        (unscaled(60), {"solver": "smo", "kernel": "linear"}),
        (unscaled(60), {"solver": "smo", "kernel": "linear", "working_set": 2}),
        (noisy(), {"solver": "smo", "kernel": "rbf", "stop": "paper", "tol": 1e-18}),
        (noisy(), {"solver": "smo", "kernel": "rbf", "stop": "paper", "tol": 1e-18, "working_set": 2}),
    ],
)
def test_a_hopeless_fit_is_stalled_with_a_hint(rows: Rows, options: dict[str, Any]) -> None:
    result = fit(rows, **options)
    assert result.status == "stalled"
    assert result.exit_code() == 4
    assert "scale the features" in result.figures["hint"]
    assert ("--memory" in result.figures["hint"]) == (not result.model.about["plan"]["resident"])
    assert "--max-passes" in result.figures["hint"]
    assert "rule" not in result.figures


@pytest.mark.parametrize("tol", [1e-3, 1e-18])
@pytest.mark.parametrize("name", [name for name in CLASSIFIERS if "free" not in SOLVERS[name].biases[:1]])
def test_every_linear_solver_ends(name: str, tol: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, options = unscaled() if tol == 1e-3 else noisy(), {}
    if name == "pegasos":  # its gap falls like 1 / t: the limit itself ends it
        options = {"solver_options": {"batch": "0"}}
        monkeypatch.setattr(looping, "IN_MEMORY", IN_MEMORY._replace(most=2000))
    result = fit(rows, solver=name, loss=SOLVERS[name].losses[0], tol=tol, **options)
    assert result.status == ("converged" if result.figures["relative_gap"] <= tol else "stalled")


@pytest.mark.parametrize("name", [name for name in SOLVERS if SOLVERS[name].biases[0] == "free"])
def test_every_kernel_solver_ends(name: str) -> None:
    result = fit(noisy(60), solver=name, kernel="rbf", tol=1e-18)
    assert result.status == "stalled"
    # Neither symmetric nor of a sign: nothing converges but by chance.
    K = np.random.default_rng(3).standard_normal((60, 60))
    y = np.arange(60) % 2
    try:
        result = fit((K, y), solver=name, kernel="precomputed")
    except DataError:
        return  # refused
    assert result.status != "stopped"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of overflow, which is what these values are for
@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("C", [1.0, 1e3])
def test_values_whose_squares_are_beyond_float64_end_a_fit_or_are_refused(name: str, C: float) -> None:
    random = np.random.default_rng(0)
    X = random.standard_normal((40, 5))
    y = X[:, 0] > 0
    y[3] = not y[3]
    for scale in (1e18, 1e77, 1e150, 1e154, 1e160, 1e200, 1e-160):
        options: dict[str, Any] = {"loss": SOLVERS[name].losses[0], "C": C, "max_passes": 60, "tol": 0.5}
        try:
            result = fit((X * scale, y), solver=name, **options)
        except DataError:
            continue  # refused
        reached = result.figures["relative_gap"] <= 0.5
        assert result.status in (("converged",) if reached else ("stalled", "stopped")), scale


@pytest.mark.parametrize(
    "options", [{}, {"working_set": 2}, *({"wss": rule} for rule in ("1", "keerthi2", "wr", "wr+3"))]
)
@pytest.mark.parametrize("name", [name for name in SOLVERS if SOLVERS[name].biases[0] == "free"])
def test_kernel_values_beyond_float32_end_a_fit_or_are_refused(name: str, options: dict[str, Any]) -> None:
    """Then objectives are no numbers, and nothing is claimed."""
    if options and name != "smo":
        pytest.skip("options of smo")
    rng = np.random.default_rng(5)
    X = (rng.standard_normal((40, 1)) * rng.standard_normal(3) * 3e25).astype(np.float32)
    try:
        result = fit((X, np.arange(40) % 2), solver=name, kernel="linear", tol=1e-5, **options)
    except DataError:
        return
    assert result.status == "stalled"
    assert result.figures["relative_gap"] > 1e-5


@pytest.mark.parametrize("name", [name for name in SOLVERS if SOLVERS[name].biases[0] == "free"])
def test_kernel_solvers_are_stopped_with_rows_in_work_and_their_vectors_on_disk(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A map that something looks into cannot be closed."""
    make = RowVector.__init__
    monkeypatch.setattr(RowVector, "__init__", lambda *given, **named: make(*given, **{**named, "on_disk": True}))
    result = fit(noisy(60), solver=name, kernel="rbf", tol=1e-18, max_passes=1)
    assert result.status in ("stopped", "stalled")
    assert result.exit_code() == 4


def test_the_limit_that_the_user_sets_takes_the_place_of_the_others() -> None:
    rows, options = opposite(1000, 31.6), {"solver": "dcd", "solver_options": {"momentum": "off"}}
    longer = fit(rows, max_passes=5000, **options)
    assert longer.status == "stopped"
    assert 4900 < longer.figures["epochs"] <= 5000
    assert fit(rows, **options).figures["epochs"] < 0.02 * IN_MEMORY.most


@pytest.mark.parametrize("options", [{}, {"working_set": 2}, {"wss": "wr+3"}, {"wss": "keerthi2"}])
@pytest.mark.parametrize("name", [name for name in SOLVERS if SOLVERS[name].biases[0] == "free"])
def test_max_passes_stops_kernel_solvers_in_memory(name: str, options: dict[str, Any]) -> None:
    if options and name != "smo":
        pytest.skip("options of smo")
    X, y = unscaled()
    result = fit((X, y), solver=name, kernel="linear", max_passes=3, **options)
    assert result.status == ("stalled" if name.startswith("simplified") else "stopped")  # which ends of its own
    assert result.figures["kernel_values"] <= 8 * len(X) ** 2  # those of the proof are not among them


@pytest.mark.parametrize("max_passes", [5, 50])
@pytest.mark.parametrize("name", [name for name in SOLVERS if SOLVERS[name].biases[0] == "free"])
def test_rows_that_are_held_end_a_fit_that_streams(name: str, max_passes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work on rows that were read once takes no pass of the disk, so --max-passes alone would not end it."""
    monkeypatch.setattr(sizes.Sizes, "resident_from", lambda *_: 1 << 50)
    rows, options = unscaled(60), {"working_set": 10} if name == "smo" else {}
    result = fit(rows, solver=name, kernel="linear", max_passes=max_passes, memory="16MiB", **options)
    assert result.status in ("stalled", "stopped")
    # The inner step in work, and the proof; and the diagonal at each beginning, which no limit counts.
    assert result.figures["passes"] <= max_passes + 8
    n = len(rows[0])
    assert result.figures["kernel_values"] <= 1.5 * kernel_limits(n).most * n**2


def test_a_fit_that_falls_is_left_alone_and_one_that_does_not_is_hopeless() -> None:
    limits, pace = Limits(most=1000.0, patience=100.0), Pace.of(2)
    for count in range(1, 400):
        pace.see(float(count), np.array([np.exp(-count / 200), 0.5 if count > 20 else np.nan]))
        expected = [False, count >= 100]
        assert pace.hopeless(np.array([1e-3, 1e-3]), limits).tolist() == expected
    assert pace.hopeless(np.array([1e-3, 0.5]), limits).tolist() == [False, False]
    slow = Pace.of(1)
    for count in range(1, 400):
        slow.see(float(count), np.array([np.exp(-count / 2000)]))
    assert slow.hopeless(np.array([1e-3]), limits).tolist() == [True]


def test_limits_are_far_beyond_what_fits_take() -> None:
    assert kernel_limits(500).most == 2000.0
    assert kernel_limits(10).most * 10**2 == 2.5e6
    assert kernel_limits(10**6).most == 2000.0


def test_a_stalled_run_that_was_interrupted_ends_at_the_same_bytes(tmp_path: Path) -> None:
    store = bigsvm.open_store(opposite(1000, 31.6))
    comes_to_the_same(store, FitConfig.of(memory="64MiB"), tmp_path, 25)


@pytest.mark.parametrize(("options", "every"), [({}, 401), ({"working_set": 2}, 131)])
def test_a_stalled_kernel_run_that_was_interrupted_ends_at_the_same_bytes(
    options: dict[str, Any], every: int, tmp_path: Path
) -> None:
    """A dozen interruptions."""
    store = bigsvm.open_store(unscaled(40))
    comes_to_the_same(store, FitConfig.of(kernel="poly", memory="64MiB", **options), tmp_path, every)


# Several classes with the hinge loss and a free bias.


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("what", ["noise", "apart", "few of one", "wide", "unscaled"])
def test_auto_converges_with_several_classes_the_hinge_loss_and_a_free_bias(what: str, C: float) -> None:
    rng = np.random.default_rng(5)
    y: Any = rng.integers(0, 4, 500)
    X: Any = rng.standard_normal((500, 6))
    if what == "apart":
        X = X + 3.0 * rng.standard_normal((4, 6))[y]
    elif what == "few of one":  # the optimum of one model has w = 0, and all rows of the others on their hyperplane
        X = rng.integers(1, 6, (500, 4)).astype(float)
        torque = X[:, 0] * X[:, 1] - X[:, 2] * X[:, 3]
        y = np.sign(torque)
    elif what == "wide":
        X = sp.random(500, 3000, 0.01, "csr", random_state=1)
    elif what == "unscaled":
        X, y = unscaled(300, 3)
    result = fit((X, y), loss="hinge", bias="free", C=C)
    assert result.status == "converged"


@pytest.mark.parametrize("name", [name for name in SOLVERS if SOLVERS[name].biases[0] == "free"])
def test_a_fit_whose_proofs_say_other_than_its_solver_ends(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the paper's own algorithm left the model, near enough as its scores said."""
    computed, proofs = kernel_prover.scores_of, 0

    def other_scores(programmes: Any, *rest: Any) -> Any:
        nonlocal proofs
        proofs += 1
        assert proofs < 100, "this fit does not end"
        found, qp = computed(programmes, *rest), programmes[0].qp
        qp.f += np.where(np.arange(qp.n) % 2 == proofs % 2, 30.0, -30.0) * (1.0 + 1e-6 * proofs)
        return found

    monkeypatch.setattr(kernel_prover, "scores_of", other_scores)
    result = fit(noisy(60), solver=name, kernel="rbf", C=1.0, tol=1e-2)
    assert result.status == "stalled"


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("loss", LOSSES)
def test_rows_that_weigh_nothing_are_refused(
    loss: str, kernel: str, streams: bool, request: pytest.FixtureRequest
) -> None:
    if streams:
        request.getfixturevalue("streaming")
    if kernel == "rbf" and loss in ("squared_hinge", "squared_epsilon_insensitive", "crammer_singer"):
        pytest.skip("no such fit")
    X, y = random_problem(80, 3, seed=1)
    regression = FitConfig.of(loss=loss).regression
    store = ArrayRows(X, X[:, 0] if regression else y, np.zeros(80), task="regression" if regression else "auto")
    with pytest.raises(DataError, match=r"takes? part: every (other )?row has weight 0"):
        fit_store(store, FitConfig.of(loss=loss, kernel=kernel))


@pytest.mark.usefixtures("few_objects")
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_nothing_of_a_fit_outlives_it(name: str) -> None:
    """A loop of fits would grow until Python looks for cycles, which it does by objects, not by bytes."""
    options: dict[str, Any] = {"solver": name, "loss": SOLVERS[name].losses[0], "tol": 0.1, "max_passes": 20}
    rows = noisy()[0], np.arange(100) % 3
    fit(rows, **options)
    gc.collect()
    gc.disable()
    try:
        fit(rows, **options)
        alive = [kind for kind in map(type, gc.get_objects()) if kind in (looping.Loop, Context, ArrayRows)]
    finally:
        gc.enable()
    assert not alive
