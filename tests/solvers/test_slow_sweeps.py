"""Sweeps of dcd over rows in memory that take long: momentum and w in float64 begin, and nothing else changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.events import Warned
from bigsvm.model.linear_model import LinearModel
from bigsvm.problem.problem import Problem
from bigsvm.run.fit.fit import fit_store
from bigsvm.solvers.dcd import slow_sweeps
from bigsvm.solvers.dcd.dual_cd import DualCD
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.reference import dual_value, primal_value
from bigsvm.units import MIB
from tests.products import each_of, pairs_of
from tests.run.test_checkpoint import comes_to_the_same, same_folder
from tests.solvers.test_momentum import hard


def config(**options: Any) -> FitConfig:
    return FitConfig.of(**{"solver": "dcd", "loss": "hinge", "solver_options": {"max_sweeps_per_step": 8}, **options})


def separable(n_classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Fewer rows than features, with norms of 1 to 300: any labels can be separated, and large C costs nothing."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((60, 100)) * np.exp(rng.uniform(0.0, 3.0, (60, 1)))
    return X, np.arange(60) % n_classes


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_sweeps, "_EPOCHS", 3)


@pytest.fixture
def began(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What began in fits of the test; small fits, which compile, end before."""
    found: set[str] = set()
    for name in ("_begin_momentum", "_widen"):
        plain = getattr(slow_sweeps, name)

        def note(*given: Any, name: str = name, plain: Any = plain) -> None:
            found.add(name)
            plain(*given)

        monkeypatch.setattr(slow_sweeps, name, note)
    return found


@pairs_of(
    n_classes__options=[
        (2, {}),
        (2, {"bias": "none", "class_weight": {"0": 2.0, "1": 0.5}}),
        (9, {"class_weight": {"0": 2.0, "1": 0.0}}),
        (3, {"tol": 1e-6}),
    ],
    loss=["hinge", "squared_hinge"],
    weighted=[False, True],
)
@pytest.mark.usefixtures("early")
def test_with_momentum_every_step_ends_within_the_box_and_the_optimum_is_proved(
    n_classes: int, options: dict[str, Any], loss: str, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = hard(200, 120, n_classes=n_classes)
    weights = np.random.default_rng(0).integers(0, 4, len(y)) / 2.0 if weighted else None
    cost = np.ones(len(y)) if weights is None else weights
    for code, factor in options.get("class_weight", {}).items():
        cost = cost * np.where(y == int(code), factor, 1.0)
    plain, ahead = DualCD.step, [0.0]

    def step(self: DualCD, problem: Problem, state: Any, ctx: Any) -> Any:
        before = [(group.moves == 0, group.alpha.values.copy()) for group in state.groups]
        info = plain(self, problem, state, ctx)
        if ctx.data.n_samples != len(y):  # a small fit, which compiles
            return info
        for group, (rested, alpha) in zip(state.groups, before, strict=True):
            upper = problem.loss.upper_factor * cost[:, None] * group.problem.C
            with np.errstate(invalid="ignore"):
                upper = np.where(cost[:, None] > 0.0, upper, 0.0)
            assert np.all(group.alpha.values >= 0.0)
            assert np.all(group.alpha.values <= upper)
            if group.momentum is not None:
                ahead.append(float(group.momentum.theta.max()))
            if len(rested) == alpha.shape[1]:
                assert np.array_equal(group.alpha.values[:, rested], alpha[:, rested])
        return info

    monkeypatch.setattr(DualCD, "step", step)
    options = {"tol": 1e-4, "C": 3.0, **options}
    result = fit_store(ArrayRows(X, y, weights), config(loss=loss, **options))
    assert result.status == "converged"
    assert max(ahead) > 0.1
    plainly = fit_store(
        ArrayRows(X, y, weights), config(loss=loss, **options, solver_options={"momentum": "off"})
    )  # fmt: skip
    for name in ("objective", "dual_objective"):
        assert result.figures[name] == pytest.approx(plainly.figures[name], rel=2.0 * options["tol"])


@each_of(loss=["hinge", "squared_hinge"], n_classes=[2, 3])
@pytest.mark.parametrize("C", [1e2, 1e5])
def test_classes_that_can_be_separated_are_proved_with_any_C(
    loss: str, n_classes: int, C: float, began: set[str]
) -> None:
    X, y = separable(n_classes)
    result = bigsvm.fit((X, y), solver="dcd", loss=loss, C=C, bias="none", tol=1e-4)
    assert result.status == "converged"
    assert "_widen" in began or C < 1e5 or loss == "squared_hinge"
    if n_classes == 2:
        assert isinstance(result.model, LinearModel)
        w, y = result.model.coef[0], np.where(y == 1, 1.0, -1.0)
        alpha = np.asarray(result.alpha[0].values)[:, 0]
        P = primal_value(X, y, np.full(len(y), C), loss, w, 0.0)
        D = dual_value(X, y, np.full(len(y), C), loss, alpha, 0.0)
        # A proof charges its own rounding to D: |w||x| is up to 80, and C multiplies the rounding of margins.
        assert pytest.approx(result.figures["objective"], rel=1e-5) == P
        assert result.figures["dual_objective"] <= D * (1.0 + 1e-9)
        assert P - D <= 1.01e-4 * P


@pytest.mark.parametrize("n_classes", [2, 9])
def test_large_masses_on_the_own_classes_do_not_round_the_others_away(n_classes: int) -> None:
    """Crammer and Singer's loss: a row has the mass C, of which 1e-5 is spent here on other classes than its own."""
    result = bigsvm.fit(separable(n_classes), solver="dcd", multi_class="crammer-singer", C=1e5, bias="none", tol=1e-4)
    assert result.status == "converged"


@each_of(
    n_classes__options=[(2, {}), (9, {"class_weight": {"0": 2.0}}), (2, {"solver": "newton-ws"})],
    rows=["hard", "separable"],
)
@pytest.mark.usefixtures("early")
def test_interrupted_anywhere_and_with_any_threads_it_comes_to_the_same_bytes(
    n_classes: int, options: dict[str, Any], rows: str, tmp_path: Path, began: set[str]
) -> None:
    X, y = hard(200, 120, n_classes=n_classes) if rows == "hard" else separable(n_classes)
    store = ArrayRows(X, y, np.random.default_rng(0).uniform(0.5, 1.5, len(y)))
    own: dict[str, Any] = {"opening": "dcd"} if options.get("solver") else {"max_sweeps_per_step": 8}
    asked = {"C": 10.0 if rows == "hard" else 1e6, "bias": "none", "tol": 1e-4, "memory": "64MiB", **options}
    comes_to_the_same(store, config(**asked, solver_options=own), tmp_path, 2)
    assert began >= ({"_begin_momentum"} if rows == "hard" else {"_begin_momentum", "_widen"})
    for threads in (1, 2):
        fit_store(store, config(**asked, solver_options=own, threads=threads)).save_model(tmp_path / str(threads))
        assert same_folder(tmp_path / "a", tmp_path / str(threads))


@pytest.mark.usefixtures("early")
@pytest.mark.parametrize("momentum", ["auto", "off"])
def test_without_room_a_fit_goes_on_and_names_the_memory_that_has_room(
    momentum: str, began: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bytes: momentum, which begins first if there is more room, takes a part of it."""
    monkeypatch.setattr(slow_sweeps, "_SMALL_THINGS", 100 * MIB)
    monkeypatch.setattr(slow_sweeps, "MIB", 1)

    def fit(nbytes: int) -> tuple[Any, list[str]]:
        told: list[str] = []
        options: dict[str, Any] = {"C": 1e5, "bias": "none", "memory": nbytes, "max_passes": 3000, "tol": 1e-4}
        options["solver_options"] = {"max_sweeps_per_step": 8, "momentum": momentum}
        result = fit_store(
            ArrayRows(*(values[:40] for values in separable())),
            config(**options),
            lambda e: told.append(e.message) if isinstance(e, Warned) else None,
        )
        return result, [message for message in told if message.startswith("dcd: w is rounded")]

    result, told = fit(64 * MIB)
    assert result.status != "converged"
    assert not began
    (message,) = told
    result, told = fit(int(message.split("--memory ")[1].split("MiB")[0]))
    assert result.status == "converged"
    assert "_widen" in began
    assert not told


def test_momentum_off_is_off(early: None, began: set[str]) -> None:
    fit_store(ArrayRows(*hard(200, 120)), config(C=10.0, tol=1e-6, solver_options={"momentum": "off"}))
    assert "_begin_momentum" not in began


def test_candidates_of_a_search_are_proved_with_a_large_C(tmp_path: Path, began: set[str]) -> None:
    """With w in float32 the second one stalled."""
    options = {"solver": "dcd", "loss": "hinge", "bias": "none", "tol": 1e-4, "folds": 2, "memory": "64MiB"}
    found = bigsvm.tune(separable(), Cs=[1e-3, 1e5], run=tmp_path / "search", **options)
    assert [candidate["status"] for candidate in found.document()["candidates"]] == ["converged", "converged"]
    assert "_widen" in began
