"""What preconditions conjugate gradients: the arrowhead of a Hessian is inverted, and saves readings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.solvers.primal.bias_eliminated import BiasEliminated
from bigsvm.solvers.primal.newton_cg import NewtonCG
from bigsvm.solvers.primal.row_pass import row_pass
from bigsvm.solvers.weights import columns, regularised
from bigsvm.testing.problems import random_problem
from tests.solvers.stepping import Bench


@pytest.mark.parametrize("bias", ["augmented", "none", "free"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_hessian_that_is_an_arrowhead_once_the_bias_is_eliminated_is_inverted(
    n_classes: int, bias: str, tmp_path: Path
) -> None:
    X, y = random_problem(30, 5, seed=2, n_classes=n_classes)
    problem = Bench(NewtonCG(), X, y, tmp_path, options={"bias": bias, "bias_scale": 2.0}).problem
    B, models, rng = problem.constant_feature, problem.n_models, np.random.default_rng(1)
    total, means = rng.uniform(1.0, 9.0, models), rng.normal(size=(5, models))
    spread = rng.uniform(0.0, 4.0, (5, models))
    H = np.zeros((models, 6, 6))  # sum_i h_i [x_i, B] [x_i, B]' of rows whose features do not vary together
    last = np.vstack([means * total, np.full(models, B) * total])
    shift = 1.0 if bias == "augmented" else 0.0
    for m in range(models):
        cross, bend = B * last[:5, m], B * B * total[m] + shift
        H[m] = np.block([[np.zeros((5, 5)), cross[:, None]], [cross[None], np.full((1, 1), B * B * total[m])]])
        H[m, :5, :5] = np.diag(spread[:, m]) + (np.outer(cross, cross) / bend if bend else 0.0)
    squeezed = (6,) if models == 1 else (6, models)
    core = BiasEliminated(np.zeros(squeezed), np.zeros(squeezed))
    diagonal = np.stack([np.diag(part) for part in H], axis=1)
    core.take(problem, np.stack([diagonal, last]).reshape(2, *squeezed))
    R = columns(regularised(problem, np.ones(squeezed)))
    r = rng.normal(size=squeezed)
    wanted = [np.linalg.solve(part + np.diag(R[:, m]), columns(r)[:, m]) for m, part in enumerate(H)]
    core.solve(r)
    np.testing.assert_allclose(columns(r), np.stack(wanted, axis=1), rtol=1e-10, atol=1e-12)


def test_where_no_row_has_curvature_a_free_bias_stays_as_it_is(tmp_path: Path) -> None:
    X, y = random_problem(30, 5, seed=2)
    problem = Bench(NewtonCG(), X, y, tmp_path, options={"bias": "free"}).problem
    core = BiasEliminated(np.zeros(6), np.zeros(6))
    core.take(problem, np.zeros((2, 6)))
    r = np.arange(1.0, 7.0)
    core.solve(r)
    np.testing.assert_array_equal(r, np.arange(1.0, 7.0))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_look_sums_up_the_arrowhead(n_classes: int, tmp_path: Path) -> None:
    X, y = random_problem(40, 6, seed=3, n_classes=n_classes)
    bench = Bench(NewtonCG(), X, y, tmp_path, 7, {"C": 2.0, "bias_scale": 0.5})
    state, problem, weights = bench.state, bench.problem, bench.solver.weights(bench.problem)
    shape = state.w.shape
    whole, arrowhead = (
        row_pass(bench.ctx, problem, state.rows, shape, w=state.w, weights=weights, curvature=curvature)[1]
        for curvature in ("matrix", "arrowhead")
    )
    assert whole is not None
    assert arrowhead is not None
    for m, H in enumerate(whole):
        np.testing.assert_allclose(columns(arrowhead[0])[:, m], np.diag(H), rtol=1e-12)
        np.testing.assert_allclose(columns(arrowhead[1])[:, m] * problem.constant_feature, H[:, -1], rtol=1e-12)


def test_it_saves_readings_where_all_features_are_positive(monkeypatch: pytest.MonkeyPatch) -> None:
    """As counts of words are: then the Hessian couples the bias with every feature."""
    rng = np.random.default_rng(0)
    X = rng.poisson(4.0 / np.arange(1.0, 201.0), (2000, 200)).astype(np.float64)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    y = X @ rng.normal(size=200) + 0.1 * rng.normal(size=2000) > 0
    asked: dict[str, Any] = {"solver": "newton-cg", "loss": "squared_hinge", "C": 10.0, "tol": 1e-3}
    found = bigsvm.fit((X, y), **asked)
    take = BiasEliminated.take

    def diagonal_alone(self: BiasEliminated, problem: Any, arrowhead: np.ndarray) -> None:
        take(self, problem, np.stack([arrowhead[0], np.zeros_like(arrowhead[1])]))

    monkeypatch.setattr(BiasEliminated, "take", diagonal_alone)
    plain = bigsvm.fit((X, y), **asked)
    assert found.figures["objective"] == pytest.approx(plain.figures["objective"], rel=2e-3)
    assert found.figures["epochs"] < 0.7 * plain.figures["epochs"]
