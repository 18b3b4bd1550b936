"""newton-cg: what it reads, that it can be left anywhere, and when `auto` takes it.  Its optimum: test_every_solver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import UsageError
from bigsvm.solvers.auto import preferences
from bigsvm.solvers.base import DataShape
from bigsvm.solvers.primal.conjugate_gradients import ConjugateGradients
from bigsvm.solvers.primal.newton_cg import NewtonCG
from bigsvm.solvers.weights import regularised
from bigsvm.store.state.state_files import dump, load, read_tree, write_tree
from bigsvm.testing.problems import random_problem
from tests.solvers.stepping import Bench, ElsewhereMapper


@pytest.mark.parametrize("bias", ["augmented", "none", "free"])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_it_ends_where_newton_does(bias: str, n_classes: int) -> None:
    X, y = random_problem(300, 12, seed=4, n_classes=n_classes)
    for C in (0.01, 1.0, 1000.0):
        ours, exact = (
            bigsvm.fit((X, y), solver=solver, C=C, bias=bias, tol=1e-10).figures for solver in ("newton-cg", "newton")
        )
        assert ours["objective"] == pytest.approx(exact["objective"], rel=1e-9)


def test_a_step_reads_the_rows_once_for_each_product_and_once_for_the_look(tmp_path: Path) -> None:
    X, y = random_problem(60, 8, seed=6)
    bench = Bench(NewtonCG(), X, y, tmp_path, 10)
    bench.step()  # the first look
    once = bench.ctx.bytes_read
    for _ in range(3):
        before, system = bench.ctx.bytes_read, bench.state.extra
        info = bench.step()
        products = round(info.visits / 60) - 1
        assert products >= 0  # the look before may have brought the only one
        assert bench.ctx.bytes_read - before == (products + 1) * once
        assert system is bench.state.extra


def uneven_problem(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose features are tied together, so that the diagonal says little of the Hessian."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, d)) * 10.0 ** -np.linspace(0.0, 2.0, d) @ rng.normal(size=(d, d))
    return X, X @ rng.normal(size=d) + rng.normal(size=n) > 0


def test_what_earlier_systems_found_saves_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the guess and without earlier directions the same systems take many more."""
    X, y = uneven_problem(2000, 40)
    asked: dict[str, Any] = {"solver": "newton-cg", "loss": "squared_hinge", "C": 1.0, "tol": 1e-6}
    found = bigsvm.fit((X, y), **asked)
    monkeypatch.setattr(ConjugateGradients, "guess", lambda *_: None)
    plain = bigsvm.fit((X, y), **asked)
    assert found.figures["objective"] == pytest.approx(plain.figures["objective"], rel=2e-6)
    assert found.figures["epochs"] < 0.8 * plain.figures["epochs"]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("bias", ["augmented", "free"])
def test_a_look_brings_the_product_that_a_reading_of_its_own_would(n_classes: int, bias: str, tmp_path: Path) -> None:
    X, y = random_problem(60, 8, seed=6, n_classes=n_classes)
    bench = Bench(NewtonCG(), X, y, tmp_path, 10, {"C": 10.0, "bias": bias})
    bench.objectives(3)
    system = bench.state.extra
    assert np.all(system.first_bend > 0.0)
    alone = bench.solver._product(bench.problem, bench.state, bench.ctx, system.first)
    alone += regularised(bench.problem, system.first)
    np.testing.assert_allclose(system.first_product, alone, rtol=1e-12, atol=1e-12 * np.abs(alone).max())


def test_products_are_limited_and_any_number_goes_down(tmp_path: Path) -> None:
    X, y = random_problem(60, 8, seed=6)
    one = Bench(NewtonCG(most_products=1), X, y, tmp_path, options={"C": 100.0})
    values = one.objectives(6)
    assert np.all(np.diff(values) <= 1e-9 * values[:-1])
    assert one.step().visits == 2 * 60
    few = Bench(NewtonCG(), X, y, tmp_path, options={"C": 100.0})
    few.ctx.control.sweeps_left = 3
    few.step()
    assert few.step().visits <= 3 * 60
    few.ctx.control.sweeps_left = 1
    assert few.state.extra.open
    assert few.step().visits == 60  # along the guess alone


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize(("n_classes", "bias"), [(3, "augmented"), (2, "free")])
def test_a_run_that_was_left_anywhere_goes_on_to_the_same_bytes(
    tmp_path: Path, elsewhere: bool, n_classes: int, bias: str
) -> None:
    X, y = random_problem(50, 8, seed=8, n_classes=n_classes)
    solver, steps = NewtonCG(forcing=0.1), 6
    lent: dict[str, Any] = {"mapper": ElsewhereMapper()} if elsewhere else {}
    lent["options"] = {"C": 100.0, "bias": bias}
    straight = Bench(solver, X, y, tmp_path, 10, lent["options"])
    straight.objectives(steps)
    left = Bench(solver, X, y, tmp_path, 10, **lent)
    infos, number = 0, 0
    where = set()  # a system was open, a guess waited for its look
    while infos < steps:
        number += 1
        asked = iter([False] * (number % 7) + [True] * 10_000)
        left.ctx.control.stopping = lambda asked=asked: next(asked)
        left.ctx.control.pause = lambda number=number: number % 3 == 0
        if number > 200:
            left.ctx.control.stopping = lambda: False
        paused = solver.step(left.problem, left.state, left.ctx).paused
        infos += not paused
        where.add((paused, left.state.extra.open, left.state.extra.guessed))
        folder = tmp_path / f"state{number}"
        folder.mkdir()
        write_tree(folder, dump(left.state))
        again = Bench(solver, X, y, tmp_path, 10, **lent)
        load(again.state, read_tree(folder))
        again.ctx.uncharge(left.ctx.bytes_read)
        solver.finish(left.state)
        left = again
    assert {(True, True, False), (True, False, True), (False, True, False)} <= where
    np.testing.assert_array_equal(left.state.w, straight.state.w)
    np.testing.assert_array_equal(left.state.rows.alpha.values, straight.state.rows.alpha.values)
    assert left.state.estimate == straight.state.estimate
    assert left.ctx.bytes_read == straight.ctx.bytes_read


@pytest.mark.parametrize(
    ("loss", "bias", "C", "n", "in_memory", "expected"),
    [
        ("squared_hinge", "augmented", 0.5, 60_000, True, "dcd"),
        ("squared_hinge", "augmented", 1.0, 60_000, True, "newton-cg"),
        ("squared_hinge", "augmented", 10.0, 20_000, True, "dcd"),  # too few rows a feature
        ("squared_hinge", "augmented", 3.0, 60_000, False, "dcd"),
        ("squared_hinge", "augmented", 10.0, 60_000, False, "newton-cg"),
        ("squared_hinge", "free", 0.1, 20_000, False, "newton-cg"),
        ("squared_epsilon_insensitive", "free", 1.0, 60_000, True, "newton-cg"),
        ("hinge", "augmented", 100.0, 60_000, True, "dcd"),
    ],
)
def test_auto_takes_it_where_the_costs_are_hard(
    loss: str, bias: str, C: float, n: int, in_memory: bool, expected: str
) -> None:
    shape = DataShape(n_samples=n, n_features=5000, nnz=40 * n, n_models=1, smooth_loss=loss != "hinge")
    config = FitConfig.of(loss=loss, bias=bias, C=C)
    assert preferences(config, shape, in_memory)[0].name == expected


@pytest.mark.parametrize("options", [{"forcing": 0.0}, {"forcing": 1.0}, {"most_products": 0}])
def test_what_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    X, y = random_problem(20, 3, seed=1)
    with pytest.raises(UsageError, match=next(iter(options))):
        bigsvm.fit((X, y), solver="newton-cg", solver_options=options)
