"""What primal solvers make of slacks alone: a dual point, and the best free bias."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bigsvm.config import FitConfig
from bigsvm.problem.loss import loss_named
from bigsvm.problem.problem import make_problem
from bigsvm.solvers.coordinate.coordinate_descent import CoordinateDescent
from bigsvm.solvers.primal.dual_point import mix_dual
from bigsvm.solvers.primal.line_search import exact_step
from bigsvm.solvers.primal.row_state import RowState, total_of
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.problems import random_problem
from tests.solvers.stepping import Bench


@pytest.mark.parametrize("name", ["hinge", "squared_hinge"])
def test_the_natural_dual_point_is_the_derivative_of_the_losses(name: str) -> None:
    loss, rng = loss_named(name), np.random.default_rng(1)
    s, C, step = rng.standard_normal(200), rng.uniform(0.1, 2.0, 200), 1e-6
    s = s[np.abs(s) > 1e-3]
    slope = C[: len(s)] * (loss.value(s + step) - loss.value(s - step)) / (2.0 * step)
    np.testing.assert_allclose(loss.alpha(s, C[: len(s)]), slope, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("shift", [-3.0, 0.0, 3.0])
def test_a_free_bias_goes_to_its_minimiser_on_either_side(shift: float, tmp_path: Path) -> None:
    X, y = random_problem(80, 3, seed=2, noise=0.3)
    bench = Bench(CoordinateDescent(), X, y, tmp_path, options={"bias": "free", "C": 0.7})
    rows, rng = bench.state.rows, np.random.default_rng(3)
    cost = rng.integers(0, 3, 80).astype(float)
    before = 1.0 - y * (rng.standard_normal(80) + shift)
    rows.s.values[:, 0], rows.cost.values[:, 0], rows.y.values[:, 0] = before, cost, y > 0
    (moved,) = rows.settle_bias(bench.problem)
    assert moved * shift < 0.0 or shift == 0.0
    after = rows.s.values[:, 0]
    np.testing.assert_allclose(after, before - moved * y, atol=1e-13)
    pull = cost * y * np.maximum(after, 0.0)
    assert abs(pull.sum()) <= 1e-12 * np.abs(pull).sum()


def test_a_dual_point_of_a_free_bias_is_balanced_where_the_bias_is_not_its_best(tmp_path: Path) -> None:
    """The heavier class is made lighter, and nothing else."""
    X, y = random_problem(80, 3, seed=4, noise=0.3)
    bench = Bench(CoordinateDescent(), X, y, tmp_path, options={"bias": "free", "C": 0.7})
    rows, weights = bench.state.rows, bench.problem.loss
    s = 1.0 - y * (0.1 * np.random.default_rng(5).standard_normal(80) + 0.2)
    rows.s.values[:, 0], rows.cost.values[:, 0], rows.y.values[:, 0] = s, 1.0, y > 0
    natural = weights.alpha(s, np.full(80, 0.7))
    assert natural[y < 0].sum() > 1.05 * natural[y > 0].sum()
    bench.state.primal = np.full(1, 1e6)
    mix_dual(bench.state, weights, np.zeros_like(bench.state.dual.v))
    alpha = rows.alpha.values[:, 0]
    assert alpha.sum() > 0.0
    assert abs(alpha @ y) <= 1e-12 * alpha.sum()
    for sign in (-1.0, 1.0):
        share = alpha[y == sign] / natural[y == sign]
        np.testing.assert_allclose(share, share[0], rtol=1e-12)


@pytest.mark.parametrize("n_parts", [0, 1, 7, 3000])
def test_sums_of_pieces_are_added_however_many_there_are(n_parts: int) -> None:
    parts = np.random.default_rng(0).normal(size=(n_parts, 3, 50))
    total = total_of(iter(parts), (3, 50))
    np.testing.assert_allclose(total, parts.sum(axis=0), rtol=0, atol=1e-11)


def test_few_sums_of_pieces_are_rounded_only_once() -> None:
    parts = [np.array([1e17]), np.array([1.0]), np.array([-1e17])]
    assert total_of(parts, (1,)).tolist() == [1.0]


@pytest.mark.parametrize(("n_models", "n_pieces"), [(1, 2), (60, 8), (300, 2)])
def test_a_line_search_of_one_model_reads_long_pieces_and_takes_the_same_step(n_models: int, n_pieces: int) -> None:
    """Pieces of hundreds of models are short; sums over runs of rows have the same bits, or pieces stay as they are."""
    n, rng = 17_000, np.random.default_rng(4)
    X, y = random_problem(n, 2, seed=4, noise=0.3)
    problem = make_problem(FitConfig(loss="squared_hinge"), ArrayRows(X, y))
    values = [*rng.standard_normal((2, n, n_models)), np.empty((0, n_models)), rng.random((n, 1)), y[:, None] > 0]
    vectors: list[Any] = [SimpleNamespace(values=of_rows) for of_rows in values]
    rows, cost = RowState(*vectors), values[3]
    assert len(list(rows.along(problem, 0)())) == n_pieces
    whole = rows.search_bias(problem, 0, 1.0), rows.search_bias(problem, 0, -1.0)
    short = [
        exact_step(
            lambda way=way: (
                (rows.s.values[piece, 0], way * rows.signs_of(problem, piece, 0), cost[piece, 0])
                for piece in rows.pieces()
            ),
            float(problem.C[0]), problem.loss.one_sided, 0.0, 0.0,
        )
        for way in (1.0, -1.0)
    ]  # fmt: skip
    assert list(whole) == short
    assert any(step.length > 0.0 for step in whole)
