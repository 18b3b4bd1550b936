"""Sweeps of `dcd` that would take longer than an interior-point method on all rows leave them to it, by counters."""

from __future__ import annotations

import itertools
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.budget import MemoryBudget
from bigsvm.config import FitConfig
from bigsvm.errors import BigSVMError
from bigsvm.solvers.auto import preferences
from bigsvm.solvers.base import DataShape
from bigsvm.solvers.context import RunControl
from bigsvm.solvers.dcd import foresight, interior
from bigsvm.solvers.dcd.dual_cd import DualCD
from bigsvm.solvers.pace import Pace
from bigsvm.solvers.tube.squared_path import SquaredPath
from bigsvm.store.formats.array_rows import ArrayRows
from tests.products import each_of
from tests.run.test_checkpoint import comes_to_the_same
from tests.solvers.newton_ws_problems import subproblem, unscaled
from tests.solvers.stepping import Bench

AT_ONCE = {"takeover_after": 1, "max_sweeps_per_step": 1}
TAKES_OVER = "an interior-point method takes over"
DENSE, TEXT = (5000, 1100, 5000 * 1100), (11_314, 130_107, 1_787_565)


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four features and more are many, so that auto takes dcd alone, as for rows of more than 1000."""
    monkeypatch.setattr("bigsvm.solvers.auto._NARROW", 3)


@each_of(
    loss=["hinge", "squared_hinge"], bias=["augmented", "none"], layout=["dense", "csr"], n_classes=[2, 3],
    weighted=[False, True], C=[1e-3, 10.0], tol=[1e-3, 1e-7],
)  # fmt: skip
def test_what_it_solves_is_proved(
    loss: str, bias: str, layout: str, n_classes: int, weighted: bool, C: float, tol: float
) -> None:
    """Also where rows have weight 0, and with the same bytes on one thread and on two."""
    X, y = unscaled()
    y = y if n_classes == 2 else y + (X[:, 2] > 50.0)
    weight = np.arange(len(y)) % 3 * 0.7 if weighted else None
    rows: Any = X if layout == "dense" else sparse.csr_array(X.astype(np.float32))
    given: dict[str, Any] = {"loss": loss, "bias": bias, "C": C, "tol": tol, "solver": "dcd", "solver_options": AT_ONCE}
    one, two = (bigsvm.fit(ArrayRows(rows, y, weight), threads=threads, **given) for threads in (1, 2))
    assert one.status == "converged"
    assert one.figures["epochs"] < 2.0
    assert TAKES_OVER in one.warnings[-1]
    np.testing.assert_array_equal(one.model.coef, two.model.coef)
    np.testing.assert_array_equal(one.model.intercept, two.model.intercept)


@pytest.mark.usefixtures("wide")
@each_of(loss=["hinge", "squared_hinge"], bias=["augmented", "none"], n_classes=[2, 3])
def test_auto_leaves_sweeps_that_would_take_longer(loss: str, bias: str, n_classes: int) -> None:
    """Columns that differ a hundredfold; the columns scaled and a small C leave every byte as it is."""
    X, y = unscaled()
    y = y if n_classes == 2 else y + (X[:, 2] > 50.0)
    given: dict[str, Any] = {"loss": loss, "bias": bias}
    result = bigsvm.fit((X, y), C=0.5, tol=1e-6, **given)  # not so large that auto would take newton-cg
    assert (result.model.about["plan"]["solver"], result.status) == ("dcd", "converged")
    assert TAKES_OVER in result.warnings[-1]
    assert result.figures["epochs"] < 400
    X /= np.abs(X).max(axis=0)
    easy, alone = (bigsvm.fit((X, y), C=0.1, solver=solver, **given) for solver in ("auto", "dcd"))
    assert easy.model.about["plan"]["solver"] == "dcd"
    assert not any("takes over" in text for text in easy.warnings)
    np.testing.assert_array_equal(easy.model.coef, alone.model.coef)


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_a_wide_regression_is_left_by_the_same_rule(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("auto", "tube.tube", "dcd.foresight"):
        monkeypatch.setattr(f"bigsvm.solvers.{module}.NARROW", 3)
    X, _ = unscaled()
    y = X @ (1.0 / np.array([1.0, 10.0, 100.0, 30.0, 3.0]))
    given: Any = (X if layout == "dense" else sparse.csr_array(X), y)
    result = bigsvm.fit(given, loss="epsilon_insensitive", tol=1e-6)
    assert (result.model.about["plan"]["solver"], result.status) == ("dcd", "converged")
    assert TAKES_OVER in result.warnings[-1]
    assert result.figures["epochs"] < 400


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "epsilon_insensitive"])
def test_auto_asks_for_it_where_its_work_is_less_than_that_of_a_hopeless_fit(loss: str) -> None:
    """Not for text; not on disk; and not in a search, whose models have limits of their own."""

    def options(sizes: tuple[int, int, int], in_memory: bool = True, **changes: Any) -> dict[str, Any]:
        n, d, nnz = sizes
        shape = DataShape(
            n, d, nnz, 1, smooth_loss=loss == "squared_hinge", regression=loss == "epsilon_insensitive", **changes
        )
        found = preferences(FitConfig.of(loss=loss, bias="augmented"), shape, in_memory)[-1]
        assert found.name == "dcd"
        return dict(found.options)

    assert options(DENSE) == {"takeover_after": 0}
    assert options((6000, 5000, 30_000_000)) == {"takeover_after": 0}
    for no in (options(TEXT), options((6000, 20_000, 120_000_000)), options(DENSE, False), options(DENSE, folded=True)):
        assert no == {}


def test_a_forecast_counts_only_after_a_part_of_the_work_that_it_may_waste() -> None:
    """And work that is done counts without one."""
    ctx: Any = SimpleNamespace(data=SimpleNamespace(n_samples=100), tol=1e-3)

    def leaves(epochs: float, gap: float, asked: int = 0) -> bool:
        state: Any = SimpleNamespace(
            groups=[SimpleNamespace(swept=100 * epochs)], enough=1600.0, hopeless=False, pace=Pace.of(1)
        )
        state.pace.see(0.0, np.ones(1))
        foresight.foresee(state, ctx, gap, asked)
        return bool(state.hopeless)

    assert not leaves(99, 1.0)  # nothing is foreseen yet
    assert leaves(100, 1.0)  # the gap does not fall
    assert not leaves(100, 0.1)  # 200 epochs more
    assert not leaves(1600, 0.002)  # 179 epochs more
    assert leaves(1601, 0.002)
    assert leaves(1600, 0.5)  # 14,348 epochs more
    assert leaves(5, 0.1, 5)
    assert not leaves(4, 1.0, 5)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_without_room_sweeps_go_on_and_the_memory_is_named(loss: str, tmp_path: Path) -> None:
    for limit, taken in ((1 << 20, True), (1 << 14, False)):
        given: dict[str, Any] = {"options": {"loss": loss, "C": 1.0}, "tol": 1e-3, "budget": MemoryBudget(limit)}
        bench = Bench(DualCD(**AT_ONCE), *unscaled(), tmp_path, **given)
        info = bench.step()
        assert (TAKES_OVER if taken else "--memory 1MiB has room for a faster method") in info.message
        assert not bench.step().message


def test_what_is_reserved_is_enough(tmp_path: Path) -> None:
    """By tracemalloc, of the rows of a wide problem: nothing is asked for before the method takes over."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((400, 300)), np.arange(400) % 2
    for loss in ("hinge", "squared_hinge"):
        given: dict[str, Any] = {"options": {"loss": loss}, "tol": 1e-3, "budget": MemoryBudget(1 << 24)}
        bench = Bench(DualCD(**AT_ONCE), X, y, tmp_path, **given)
        asked: list[int] = []
        reserve = bench.ctx.budget.reserve
        bench.ctx.budget.reserve = lambda what, nbytes, reserve=reserve, asked=asked: (  # type: ignore[method-assign]
            asked.append(nbytes), reserve(what, nbytes)
        )[1]  # fmt: skip
        bench.step()
        again = Bench(DualCD(**AT_ONCE), X, y, tmp_path, **given)
        tracemalloc.start()
        again.step()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= sum(asked) + (1 << 18)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_a_solution_that_is_no_better_is_not_taken(loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = len(unscaled()[0]), unscaled()[0].shape[1] + 1
    worse = np.ones(sizes[1]), np.ones(sizes[0]), 1e9
    monkeypatch.setattr(interior, "solve_classes", lambda *_: worse)
    swept, handed = (
        Bench(DualCD(max_sweeps_per_step=1, takeover_after=k), *unscaled(), tmp_path, options={"loss": loss}, tol=1e-3)
        for k in (-1, 1)
    )
    swept.step()
    handed.step()
    ours, theirs = (one.state.groups[0] for one in (handed, swept))
    np.testing.assert_array_equal(ours.alpha.values, theirs.alpha.values)
    np.testing.assert_array_equal(ours.w, theirs.w)


def test_a_hopeless_fit_is_taken_over_before_it_ends(tmp_path: Path) -> None:
    bench = Bench(DualCD(takeover_after=10_000), *unscaled(), tmp_path, options={"loss": "hinge"}, tol=1e-6)
    bench.step()
    assert bench.solver.change(bench.state)
    info = bench.step()
    assert info.ask_certificate
    assert bench.solver.change(bench.state) == ""
    alone = Bench(DualCD(), *unscaled(), tmp_path, options={"loss": "hinge"}, tol=1e-6)
    alone.step()
    assert alone.solver.change(alone.state) == ""  # dcd as asked goes on alone


@pytest.mark.usefixtures("wide")
def test_interrupted_anywhere_it_comes_to_the_same_bytes(tmp_path: Path) -> None:
    X, y = unscaled()
    store = bigsvm.open_store((X, y + (X[:, 2] > 50.0)))
    comes_to_the_same(store, FitConfig.of(loss="squared_hinge", C=0.5, tol=1e-6), tmp_path, 25)


def test_when_the_time_is_over_the_point_of_the_sweeps_stays(tmp_path: Path) -> None:
    given: dict[str, Any] = {"options": {"loss": "squared_hinge"}, "tol": 1e-6}
    looks = itertools.count()
    control = RunControl(expired=lambda: next(looks) > 0)  # not when asked whether to begin
    swept, left = (
        Bench(DualCD(max_sweeps_per_step=1, takeover_after=k), *unscaled(), tmp_path, control=c, **given)
        for k, c in ((-1, RunControl()), (1, control))
    )
    swept.step()
    assert not left.step().message
    np.testing.assert_array_equal(left.state.groups[0].alpha.values, swept.state.groups[0].alpha.values)


def test_a_number_of_epochs_below_never_is_refused() -> None:
    with pytest.raises(BigSVMError, match="takeover_after must be"):
        bigsvm.fit(unscaled(), loss="hinge", solver="dcd", solver_options={"takeover_after": -2})


@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize("n", [40, 300])
@pytest.mark.parametrize("C", [1e-4, 1.0, 1e4])
def test_the_squared_hinge_takes_few_iterations_whatever_the_scales_and_C_are(C: float, n: int, scale: float) -> None:
    """Of classes that overlap, and of classes that can be separated."""
    d = 6 if n > 100 else 60
    given = subproblem(max(n, 101), d, lean=np.zeros(d + 1))
    given.C[:] = C
    given.parts[:] = [part * np.where(np.arange(d) % 3 == 0, scale, 1.0) for part in given.parts]  # type: ignore[operator]
    path = SquaredPath(given)
    taken = 0
    while path.gap > 1e-6 * path.primal:
        path.advance()
        taken += 1
        assert taken <= 20
