"""newton-ws with then=newton: dcd goes first, and hands over to Newton's method where it would take long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import BigSVMError
from bigsvm.solvers.auto import preferences
from bigsvm.solvers.base import DataShape
from bigsvm.solvers.newton_ws import hand_over, newton_ws
from tests.run.test_checkpoint import comes_to_the_same
from tests.solvers.newton_ws_problems import cloud, unscaled

OPENED: dict[str, Any] = {"solver": "newton-ws", "solver_options": {"opening": "dcd", "then": "newton"}}
TOLD: dict[str, Any] = {"loss": "squared_hinge", "C": 10.0, "tol": 1e-6}


def problem(case: str) -> tuple[np.ndarray, np.ndarray]:
    """Easy rows, classes that overlap, and columns of different scales."""
    if case == "unscaled":
        X, y = unscaled()
        return X, y + (X[:, 2] > 50.0)
    X, y = cloud(400)
    return (X, y) if case == "overlapping" else (X * 0.01, y)


@pytest.mark.usefixtures("no_small_fits")
@pytest.mark.parametrize("case", ["easy", "overlapping", "unscaled"])
@pytest.mark.parametrize("weighted", [False, True])
def test_it_comes_to_the_optimum_whoever_arrives(case: str, weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = problem(case)
    given = (X, y, np.where(np.arange(len(y)) % 5 == 0, 0.0, 2.0)) if weighted else (X, y)
    starts, take_over = [], newton_ws.NewtonWS._take_over

    def watched(self: Any, state: Any, ctx: Any) -> None:
        take_over(self, state, ctx)
        starts.append(state.direction.any())

    monkeypatch.setattr(newton_ws.NewtonWS, "_take_over", watched)
    if case == "easy":
        monkeypatch.setattr(hand_over, "newton_work", lambda *shape: 1e6)
    found, best = bigsvm.fit(given, **OPENED, **TOLD), bigsvm.fit(given, solver="newton", **TOLD)
    assert found.status == best.status == "converged"
    assert found.figures["objective"] == pytest.approx(best.figures["objective"], rel=2e-6)
    assert not found.warnings
    assert starts == {"easy": [], "overlapping": [True], "unscaled": [False]}[case]  # from weights of dcd, or from 0


@pytest.mark.parametrize("case", ["overlapping", "unscaled"])
def test_interrupted_anywhere_it_comes_to_the_same_bytes(case: str, tmp_path: Path) -> None:
    comes_to_the_same(bigsvm.open_store(problem(case)), FitConfig.of(**OPENED, **TOLD), tmp_path, 4)


def test_threads_change_no_byte() -> None:
    X, y = problem("unscaled")
    one, two = (bigsvm.fit((X, y), threads=threads, **OPENED, **TOLD).model for threads in (1, 2))
    np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))


def test_it_starts_from_an_earlier_model(tmp_path: Path) -> None:
    X, y = problem("overlapping")
    first = bigsvm.fit((X, y), solver="newton", **TOLD)
    first.save_model(tmp_path / "m")
    again = bigsvm.fit((X, y), warm_start=str(tmp_path / "m"), **OPENED, **TOLD)
    assert again.status == "converged"
    assert again.figures["objective"] == pytest.approx(first.figures["objective"], rel=2e-6)


def test_auto_takes_it_where_newton_steps_are_dear() -> None:
    def first(n: int, d: int, in_memory: bool = True, models: int = 1, shards: int = 1, **options: Any) -> str:
        shape = DataShape(n, d, n * d, models, shards=shards, entry_bytes=4, n_costs=options.pop("n_costs", 1))
        found = preferences(FitConfig.of(**{"loss": "squared_hinge", **options}), shape, in_memory)[0]
        return "opened" if dict(found.options).get("then") == "newton" else found.name

    assert first(20_000, 300) == first(60_000, 784, models=10, C=100.0) == "opened"
    assert first(20_000, 100) == first(20_000, 300, bias="free") == first(20_000, 300, shards=2) == "newton"
    assert first(20_000, 300, models=3, n_costs=3) == "newton"
    assert first(20_000, 300, in_memory=False, C=0.01) == "newton"


@pytest.mark.parametrize("options", [{"loss": "hinge"}, {"loss": "squared_hinge", "shards": 2}])
def test_it_is_refused_where_there_are_no_newton_steps(options: dict[str, Any]) -> None:
    with pytest.raises(BigSVMError, match="then=newton is for the squared hinge loss, on one shard"):
        bigsvm.fit(cloud(100), solver="newton-ws", solver_options={"then": "newton"}, **options)
    with pytest.raises(BigSVMError, match="then must be sets or newton"):
        bigsvm.fit(cloud(100), solver="newton-ws", solver_options={"then": "dcd"})
