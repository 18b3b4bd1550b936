"""simplified-smo, simplified-smo-km and platt-smo: kept rows, where calls end, saved states, and warm starts."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from bigsvm.budget import MemoryBudget
from bigsvm.problem.kernel import Kernel
from bigsvm.solvers.kernel.literature import platt, simplified
from bigsvm.solvers.kernel.literature.platt import PlattSMO
from bigsvm.solvers.kernel.literature.simplified import SimplifiedSMO, SimplifiedSMOWithKM
from bigsvm.solvers.kernel.values.kept_rows import KeptRows
from bigsvm.store.state.state_files import dump, load, read_tree, write_tree
from bigsvm.testing.problems import random_problem
from tests.solvers.kernel.published_smo import TIGHT, Run, name_of, short_calls

__all__ = ["short_calls"]


@pytest.mark.parametrize("second", ["max", "max-then-random", "random"])
@pytest.mark.parametrize("kept_rows", [0, 1, 17])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kept_rows_change_no_bit(second: str, kept_rows: int, dtype: Any, short_calls: None) -> None:
    X, y = random_problem(60, 4, seed=3, noise=0.2)
    K = Kernel("rbf", 0.5).matrix(X, X).astype(dtype)
    plain = Run(SimplifiedSMO(second=second), K, y, 2.0)
    kept = Run(SimplifiedSMOWithKM(second=second, kept_rows=kept_rows), K, y, 2.0)
    while True:
        progress = plain.call()
        assert kept.call() == progress
        np.testing.assert_array_equal(plain.qp.beta, kept.qp.beta)
        np.testing.assert_array_equal(plain.qp.f, kept.qp.f)
        assert plain.work.b == kept.work.b
        if progress.done or progress.final:
            break
    assert plain.steps > 10
    assert kept.rows.counts.computed < plain.rows.counts.computed
    if kept_rows == 0:
        assert kept.rows.counts.computed == 60


@pytest.mark.parametrize("solver", [SimplifiedSMOWithKM()], ids=name_of)
def test_as_many_rows_are_kept_as_there_is_memory_for(solver: Any) -> None:
    X, y = random_problem(40, 3, seed=4, noise=0.2)
    K = Kernel("rbf", 0.5).matrix(X, X)
    computed, found = [], []
    for room in (0, 5, 1000):
        run = Run(solver, K, y)
        run.solver.finish_model(run.work)
        run.ctx.budget = budget = MemoryBudget(2 * room * 40 * 8)
        run.work = run.solver.start_model(run.qp, run.rows, run.ctx)
        assert isinstance(run.work.kept, KeptRows)
        assert budget.report() == [("kept kernel rows", min(room, 40) * 40 * 8)]
        run.whole()
        computed.append(run.rows.counts.computed)
        found.append(run.qp.beta)
        run.solver.finish_model(run.work)
        assert run.work.kept is None
        assert budget.report() == []
    assert computed[0] > computed[1] > computed[2]
    assert computed[2] <= 40
    assert run.rows.counts.ram_hits > computed[2]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize("solver", [SimplifiedSMO(), SimplifiedSMOWithKM(), PlattSMO()], ids=name_of)
def test_where_calls_end_is_of_no_consequence(solver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = random_problem(80, 4, seed=5, noise=0.2)
    K = Kernel("rbf", 0.3).matrix(X, X)
    long = Run(solver, K, y)
    long.whole()
    monkeypatch.setattr(simplified, "_VALUES", 1)
    monkeypatch.setattr(platt, "_VALUES", 1)
    short = Run(solver, K, y)
    short.whole()
    assert short.calls > long.calls + 10
    np.testing.assert_array_equal(long.qp.beta, short.qp.beta)
    np.testing.assert_array_equal(long.qp.f, short.qp.f)
    assert (long.work.b, long.steps) == (short.work.b, short.steps)


@pytest.mark.parametrize("solver", [SimplifiedSMO(), SimplifiedSMOWithKM(kept_rows=9), PlattSMO()], ids=name_of)
def test_a_saved_state_goes_on_to_the_same_bits(solver: Any, tmp_path: Any, short_calls: None) -> None:
    X, y = random_problem(80, 4, seed=6, noise=0.2)
    K = Kernel("rbf", 0.3).matrix(X, X)
    first, second = Run(solver, K, y, seed=7), Run(solver, K, y, seed=7)
    while first.calls < 5 or getattr(first.work, "sweep", 1) == 0:  # what its random numbers are keyed by counts
        progress = first.call()
        assert not progress.done
        assert not progress.final
    write_tree(tmp_path, {"work": dump(first.work), "beta": first.qp.beta, "f": first.qp.f})
    tree = read_tree(tmp_path)
    assert "kept" not in json.dumps(list(tree["work"]))
    load(second.work, tree["work"])
    second.qp.beta[:], second.qp.f[:] = tree["beta"], tree["f"]
    assert second.whole() == first.whole()
    np.testing.assert_array_equal(first.qp.beta, second.qp.beta)
    np.testing.assert_array_equal(first.qp.f, second.qp.f)
    assert first.work.b == second.work.b


@pytest.mark.parametrize("solver", TIGHT, ids=name_of)
def test_a_smaller_eps_goes_on_from_there(solver: Any) -> None:
    X, y = random_problem(50, 3, seed=9, noise=0.2)
    K = Kernel("rbf", 0.4).matrix(X, X)
    run = Run(solver, K, y, eps=1e-1)
    assert run.whole().done
    loose, steps = run.primal - run.dual, run.steps
    again = run.call()
    assert (again.iterations, again.done) == (0, True)
    run.qp.eps = 2e-6
    assert run.whole().done
    assert run.steps > steps
    assert run.primal - run.dual < 1e-3 * loose


@pytest.mark.parametrize("solver", TIGHT, ids=name_of)
def test_a_warm_start_needs_fewer_steps(solver: Any) -> None:
    X, y = random_problem(80, 4, seed=10, noise=0.2)
    K = Kernel("rbf", 0.4).matrix(X, X)
    cold = Run(solver, K, y, eps=1e-4)
    cold.whole()
    warm = Run(solver, K, y, eps=1e-4)
    warm.qp.beta[:], warm.qp.f[:] = cold.qp.beta, cold.qp.f
    warm.work = solver.start_model(warm.qp, warm.rows, warm.ctx)
    assert warm.whole().done
    assert warm.steps < 0.2 * cold.steps
