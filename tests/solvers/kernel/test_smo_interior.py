"""The hand-over of a linear regression from `smo` to the interior-point method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import BigSVMError
from bigsvm.solvers.kernel.smo.smo import Smo
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.store.state.state_files import dump, load, read_tree, write_tree
from tests.products import each_of
from tests.run.test_checkpoint import comes_to_the_same
from tests.solvers.stepping import Bench
from tests.solvers.test_interior_point import bounds
from tests.solvers.test_linear_regression import rows
from tests.solvers.test_tube import LOSS, TAKES_OVER, AskedTo, as_they_come

AT_ONCE = {"interior_after": 1}
OPTIONS = {"loss": LOSS, "bias": "free", "kernel": "linear"}


@each_of(C=[1e-2, 1.0, 1e2], layout=["dense", "csr"], weighted=[False, True], tol=[1e-3, 1e-6])
def test_it_is_proved_on_columns_of_different_scales(C: float, layout: str, weighted: bool, tol: float) -> None:
    X, y = as_they_come()
    weight = rows()[2] if weighted else None
    store = ArrayRows(sparse.csr_array(X) if layout == "csr" else X, y, weight, task="regression")
    result = bigsvm.fit(store, solver="smo", C=C, tol=tol, **OPTIONS)
    assert TAKES_OVER in result.warnings[-1]
    assert result.status == "converged"
    primal, dual = bounds(X, y, C * (np.ones(len(y)) if weight is None else weight), "free", result)
    assert primal - dual <= 1.01 * tol * primal


def test_steps_alone_do_not_arrive() -> None:
    result = bigsvm.fit(as_they_come(), solver="smo", C=1.0, solver_options={"interior_after": -1}, **OPTIONS)
    assert result.status == "stalled"
    with pytest.raises(BigSVMError, match="interior_after must be"):
        bigsvm.fit(as_they_come(), solver="smo", solver_options={"interior_after": -2}, **OPTIONS)


def test_an_interrupted_fit_comes_to_the_same_bytes(tmp_path: Path) -> None:
    X, y = as_they_come()
    config = FitConfig.of(solver="smo", C=1.0, solver_options=AT_ONCE, **OPTIONS)
    comes_to_the_same(ArrayRows(X, y, task="regression"), config, tmp_path, 40)


def bench(folder: Path, **given: Any) -> Bench:
    X, y = as_they_come()
    solver = Smo(**AT_ONCE, asked=FitConfig.of(solver="smo", **OPTIONS))
    return Bench(solver, X, y, folder, options=OPTIONS, task="regression", tol=1e-4, **given)


@pytest.mark.parametrize(("times", "solved"), [(0, False), (100, False), (400, True)])
def test_models_that_are_solved_stay_solved(times: int, solved: bool, tmp_path: Path) -> None:
    costs = [0.1, 1.0, 10.0]
    whole, stopped = bench(tmp_path, costs=costs), bench(tmp_path, costs=costs)
    while not whole.step().ask_certificate:
        pass
    while not stopped.state.slow:
        stopped.step()
    stopped.ctx.control.stopping = AskedTo(times)
    assert stopped.solver.step(stopped.problem, stopped.state, stopped.ctx).paused
    assert stopped.state.done.any() == solved
    resumed = bench(tmp_path, costs=costs)
    (tmp_path / "saved").mkdir()
    write_tree(tmp_path / "saved", dump(stopped.state))
    tree = read_tree(tmp_path / "saved")
    resumed.solver.before_load(resumed.state, tree, resumed.ctx)
    load(resumed.state, tree)
    info = resumed.step()
    assert TAKES_OVER in info.message
    np.testing.assert_array_equal(resumed.state.alpha.values, whole.state.alpha.values)
    assert resumed.state.gap.tolist() == whole.state.gap.tolist()


def test_without_room_steps_go_on(tmp_path: Path) -> None:
    one = bench(tmp_path)
    while not one.state.slow:
        one.step()
    one.ctx.budget.reserve("all of it", one.ctx.budget.free - (1 << 12))
    assert "has room for a faster method" in one.step().message
    assert one.state.solved
    assert not one.step().message
