"""The Hessian that `newton` keeps between two steps."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from bigsvm.solvers.base import DataShape
from bigsvm.solvers.primal.kept_hessian import kept_needs
from bigsvm.solvers.primal.newton import Newton
from bigsvm.store.state.state_files import dump, load, read_tree, write_tree
from tests.solvers.stepping import Bench, ElsewhereMapper

CASES: dict[str, dict[str, Any]] = {
    "two classes": {},
    "three classes": {"n_classes": 3},
    "several C": {"costs": [0.1, 10.0, 1e4]},
    "free bias": {"bias": "free", "n_classes": 3},
    "no bias": {"bias": "none"},
    "weights": {"weighted": True, "n_classes": 3},
    "scales": {"scales": np.array([1e-3, 1.0, 1e3, 1.0, 30.0, 0.1])},
    "large C": {"C": 1e6},
    "regression": {"loss": "squared_epsilon_insensitive", "bias": "augmented"},
}
STEPS = 9
SHAPE = DataShape(n_samples=150, n_features=6, nnz=900, n_models=3)


def made(case: str, layout: str, folder: Path, block_rows: int | None = None, **lent: Any) -> Bench:
    """The solver on 150 rows of six features, in memory or in blocks that stream."""
    asked = dict(CASES[case])
    rng = np.random.default_rng(3)
    X = (rng.standard_normal((150, 6)) + 0.3) * asked.pop("scales", 1.0)
    n_classes = asked.pop("n_classes", 2)
    scores = X @ (rng.standard_normal((6, n_classes)) / np.abs(X).max(axis=0)[:, None])
    scores += 0.3 * rng.standard_normal(scores.shape)
    y = scores[:, 0] if "loss" in asked else np.argmax(scores, axis=1)
    weight = rng.uniform(0.0, 5.0, 150) * (np.arange(150) % 7 > 0) if asked.pop("weighted", False) else None
    costs = asked.pop("costs", None)
    rows = X if layout == "dense" else sparse.csr_matrix(X)
    task = "regression" if "loss" in asked else "classification"
    return Bench(Newton(), rows, y, folder, block_rows, asked, task=task, costs=costs, sample_weight=weight, **lent)


def hessian(bench: Bench, m: int, X: np.ndarray) -> np.ndarray:
    """The Hessian of the losses of a model at the present slacks, from all rows."""
    problem, rows = bench.problem, bench.state.rows
    Z = np.column_stack([X, np.full(len(X), problem.constant_feature)])
    C = rows.cost.values[:, 0] * problem.C[m]
    return np.asarray((Z * problem.loss.curvature(rows.s.values[:, m], C)[:, None]).T @ Z)


@pytest.mark.parametrize("block_rows", [None, 40])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("case", CASES)
def test_the_hessian_that_is_kept_is_that_of_all_rows(
    case: str, layout: str, block_rows: int | None, tmp_path: Path
) -> None:
    bench = made(case, layout, tmp_path, block_rows)
    X = bench.ctx.data.read(bench.ctx.data.refs(150)[0]).X
    X = X if layout == "dense" else sparse.csr_matrix((X.data, X.indices, X.indptr), shape=(150, 6)).toarray()
    kept, changed = bench.state.extra, 0
    for _ in range(STEPS):
        changed += int(np.count_nonzero(kept.most.any(axis=1)))
        bench.step()
        for m in range(bench.problem.n_models):
            H = hessian(bench, m, X.astype(float))
            rounding = 1e-13 * np.sqrt(np.outer(kept.most[m], kept.most[m]))
            assert np.all(np.abs(np.triu(kept.matrices[m] - H)) <= np.triu(rounding))
    assert changed > 0  # else nothing was kept


@pytest.mark.parametrize("block_rows", [None, 40])
@pytest.mark.parametrize("case", ["two classes", "three classes", "several C", "regression"])
def test_a_look_that_is_left_anywhere_goes_on_to_the_same_bits(
    case: str, block_rows: int | None, tmp_path: Path
) -> None:
    lent: dict[str, Any] = {} if block_rows is None else {"spilled": [need.what for need in kept_needs(SHAPE)]}
    whole, left = made(case, "dense", tmp_path, block_rows), made(case, "dense", tmp_path, block_rows, **lent)
    for _ in range(STEPS):
        whole.step()
    steps = number = 0
    while steps < STEPS:
        number += 1
        asked = iter([False] * (number % 9) + [True] * 10_000)
        left.ctx.control.stopping = lambda asked=asked: next(asked)
        if number > 100:
            left.ctx.control.stopping = lambda: False
        steps += not left.solver.step(left.problem, left.state, left.ctx).paused
        folder = tmp_path / f"state{number}"
        folder.mkdir()
        write_tree(folder, dump(left.state))
        left.solver.finish(left.state)
        left = made(case, "dense", tmp_path, block_rows, **lent)
        load(left.state, read_tree(folder))
    assert number > STEPS
    assert np.array_equal(left.state.w, whole.state.w)
    assert np.array_equal(left.state.extra.H.values, whole.state.extra.H.values)


@pytest.mark.parametrize("case", ["two classes", "three classes", "free bias"])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_tasks_elsewhere_give_the_same_bits(case: str, layout: str, tmp_path: Path) -> None:
    here, there = made(case, layout, tmp_path), made(case, layout, tmp_path, mapper=ElsewhereMapper())
    for _ in range(STEPS):
        here.step()
        there.step()
    assert np.array_equal(here.state.w, there.state.w)
    assert np.array_equal(here.state.extra.H.values, there.state.extra.H.values)


def test_a_hessian_of_which_little_is_left_is_summed_up_anew(tmp_path: Path) -> None:
    """Large rows that leave would leave their rounding, as large as what the others add."""
    bench = made("three classes", "dense", tmp_path)
    for _ in range(STEPS):
        bench.step()
    kept = bench.state.extra
    kept.decide(bench.problem, bench.state.rows)
    assert kept.H.values.any(axis=1).all()
    kept.most[1, 2] = 2e3 * kept.matrices[1, 2, 2]
    kept.decide(bench.problem, bench.state.rows)
    assert kept.H.values.any(axis=1).tolist() == [True, False, True]
    assert bench.state.rows.inside.values.any(axis=0).tolist() == [True, False, True]


def test_the_rule_of_the_paper_is_about_the_steps_of_all_models(tmp_path: Path) -> None:
    bench = made("several C", "dense", tmp_path, tol=0.2)
    for _ in range(40):
        bench.step()
        if bench.state.extra.rested:
            break
    solver = dataclasses.replace(bench.solver, eps1=2.0 * bench.state.step_norm)
    assert solver.rule(bench.state) is None  # some did not move
    solver.step(bench.problem, bench.state, bench.ctx)
    solver = dataclasses.replace(bench.solver, eps1=2.0 * bench.state.step_norm)
    solver.direction(bench.state, bench.state.extra.matrices)
    assert not bench.state.extra.rests.any()  # so that the next step tells
