"""Linear regression: every solver, loss and bias is proved, and at the optimum that scikit-learn and SciPy find."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.svm import SVR, LinearSVR

import bigsvm
from bigsvm.compiled.linear.dual_cd import EXACT, BlockRows, Limits, dual_cd_sweeps
from bigsvm.compiled.shared.visiting import VisitingOrder
from bigsvm.config import FitConfig
from bigsvm.errors import DataError, Unsupported
from bigsvm.problem.loss import LOSSES, loss_named
from bigsvm.problem.problem import Problem
from bigsvm.run.fit.fit import fit_store
from bigsvm.run.proof.certify import certify_model
from bigsvm.solvers.registry import SOLVERS
from bigsvm.store.blocks import readonly_view
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.problems import as_csr
from bigsvm.testing.reference import dual_value, primal_value, with_bias
from tests.products import each_of
from tests.solvers.stepping import Bench

CASES = [
    (name, loss, bias)
    for name, solver in SOLVERS.items()
    for loss in solver.losses
    for bias in solver.biases
    if loss in LOSSES and LOSSES[loss].regression and solver.proof == "linear"
]
N, D = 150, 6


@functools.cache
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X, targets and weights of rows; a few columns are 0 in most rows."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((N, D)) * (rng.random((N, D)) < 0.7)
    y = X @ rng.standard_normal(D) + 1.5 + 0.4 * rng.standard_normal(N)
    return X, y, rng.integers(0, 4, N).astype(float)


@functools.cache
def best(loss: str, bias: str, C: float, epsilon: float, weighted: bool) -> float:
    """The least P: of LinearSVR where it knows the bias, else of SVR (LIBSVM) or of SciPy, from the definition."""
    X, y, weight = rows()
    cost = C * (weight if weighted else np.ones(N))
    if bias == "free" and loss == "epsilon_insensitive":
        svr = SVR(kernel="linear", C=1.0, epsilon=epsilon, tol=1e-9)
        kept = cost > 0
        svr.fit(X[kept], y[kept], sample_weight=cost[kept])
        w = np.append(svr.coef_[0], svr.intercept_)
        return primal_value(X, y, cost, loss, w, 1.0, epsilon) - 0.5 * float(w[-1] ** 2)
    if bias == "free":  # P of a squared loss is smooth

        def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
            r = y - X @ w[:-1] - w[-1]
            over = np.copysign(np.maximum(np.abs(r) - epsilon, 0.0), r)
            slope = np.append(w[:-1] - 2.0 * X.T @ (cost * over), -2.0 * np.sum(cost * over))
            return 0.5 * float(w[:-1] @ w[:-1]) + float(np.sum(cost * over**2)), slope

        options = {"maxiter": 20_000, "ftol": 1e-16, "gtol": 1e-11}
        return float(minimize(objective, np.zeros(D + 1), jac=True, method="L-BFGS-B", options=options).fun)
    found = LinearSVR(
        loss=loss, C=C, epsilon=epsilon, fit_intercept=bias == "augmented", tol=1e-10, max_iter=1_000_000, dual=True
    ).fit(X, y, sample_weight=weight if weighted else None)
    w = np.append(found.coef_, found.intercept_) if bias == "augmented" else found.coef_
    return primal_value(X, y, cost, loss, w, 1.0 if bias == "augmented" else 0.0, epsilon)


def objective_of(model: Any, loss: str, bias: str, C: float, epsilon: float, weighted: bool) -> float:
    """P of a written model, from its definition."""
    X, y, weight = rows()
    w = model.coef[0] if bias == "none" else np.append(model.coef[0], model.intercept[0])
    found = primal_value(
        X, y, C * (weight if weighted else np.ones(N)), loss, w, 0.0 if bias == "none" else 1.0, epsilon
    )
    return found - (0.5 * float(w[-1] ** 2) if bias == "free" else 0.0)


@each_of(name__loss__bias=CASES, layout=["dense", "csr"], C=[0.01, 1.0], epsilon=[0.0, 0.3], weighted=[False, True])
def test_it_is_proved_and_the_optimum_of_scikit_learn(
    name: str, loss: str, bias: str, layout: str, C: float, epsilon: float, weighted: bool
) -> None:
    X, y, weight = rows()
    store = ArrayRows(sparse.csr_array(X) if layout == "csr" else X, y, weight if weighted else None, task="regression")
    result = bigsvm.fit(store, solver=name, loss=loss, bias=bias, C=C, epsilon=epsilon, tol=1e-8, threads=1)
    least = best(loss, bias, C, epsilon, weighted)
    assert result.status == "converged"
    assert result.figures["certificate"] == "proved"
    assert result.figures["relative_gap"] <= 1e-8
    assert result.figures["objective"] == pytest.approx(least, rel=1e-6)
    assert result.figures["dual_objective"] <= least * (1 + 1e-6)
    ours = objective_of(result.model, loss, bias, C, epsilon, weighted)
    assert ours == pytest.approx(result.figures["objective"], rel=1e-9)


@each_of(name__loss__bias=CASES, layout=["dense", "csr"], weighted=[False, True])
def test_streamed_rows_have_the_same_optimum(
    tmp_path: Path, name: str, loss: str, bias: str, layout: str, weighted: bool, streaming: None
) -> None:
    X, y, weight = rows()
    store = ArrayRows(sparse.csr_array(X) if layout == "csr" else X, y, weight if weighted else None, task="regression")
    config = FitConfig.of(solver=name, loss=loss, bias=bias, C=0.1, epsilon=0.3, tol=1e-4, max_passes=3000)
    result = fit_store(store, config)
    assert not result.model.about["plan"]["resident"]
    assert result.status == "converged"
    assert result.figures["objective"] == pytest.approx(best(loss, bias, 0.1, 0.3, weighted), rel=1.1e-4)
    result.save_model(tmp_path / "m.model")
    again = certify_model(tmp_path / "m.model", store, FitConfig())
    assert again["bound"] == "alpha"
    assert again["objective"] == pytest.approx(result.figures["objective"], rel=1e-9)
    assert again["relative_gap"] == pytest.approx(result.figures["relative_gap"], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss in SOLVERS["dcd"].losses and LOSSES[loss].regression])
def test_shards_and_rows_drawn_at_random_reach_it_too(loss: str, streaming: None) -> None:
    X, y, _ = rows()
    for options in ({"shards": 3}, {"solver_options": {"order": "random"}}):
        result = bigsvm.fit(
            ArrayRows(X, y, task="regression"), solver="dcd", loss=loss, C=0.1, epsilon=0.3, tol=1e-3, **options
        )
        assert result.status == "converged"
        assert result.figures["objective"] == pytest.approx(best(loss, "augmented", 0.1, 0.3, False), rel=1.1e-3)


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if LOSSES[loss].regression])
@pytest.mark.parametrize("bias", [0.0, 2.0])
def test_one_sweep_is_textbook_dual_coordinate_descent(loss: str, bias: float) -> None:
    """Ho and Lin's step, against each row's own minimum from a fine search; alpha stays in its box."""
    X, y, _ = rows()
    named, C, alpha, w = loss_named(loss, 0.3), 0.05, np.zeros((N, 1)), np.zeros(D + 1)
    problem = Problem(
        named, np.array([C]), np.ones(1), "augmented" if bias else "none", bias or 1.0, np.empty(0),
        np.zeros(1, np.int32), np.full(1, -1, np.int32),
    )  # fmt: skip
    block = BlockRows(readonly_view(as_csr(X)), y, np.empty(0), (X * X).sum(axis=1), np.empty(0, np.int64))
    open_ends = np.array([[np.inf], [-np.inf]])
    before = 0.0
    for sweep in range(6):
        dual_cd_sweeps(
            block, problem.dual_models, alpha, w, np.ones(N, np.uint8), EXACT, open_ends.copy(),
            VisitingOrder(1, 0, sweep, 0), Limits(1, False, 0.0, 0.0, np.zeros(1)), np.empty((1, 4)),
        )  # fmt: skip
        now = dual_value(X, y, np.full(N, C), loss, alpha[:, 0], bias, 0.3)
        assert now > before
        before = now
    assert np.all(np.abs(alpha) <= named.upper_factor * C)
    np.testing.assert_allclose((with_bias(X, bias).T @ alpha[:, 0]), w if bias else w[:-1], atol=1e-12)
    last = X[-1:], y[-1:], (X[-1:] ** 2).sum(axis=1)
    alone = BlockRows(readonly_view(as_csr(last[0])), last[1], np.empty(0), last[2], np.empty(0, np.int64))
    dual_cd_sweeps(
        alone, problem.dual_models, alpha[-1:], w, np.ones(1, np.uint8), EXACT, open_ends.copy(),
        VisitingOrder(1, 0, 0, 0), Limits(1, False, 0.0, 0.0, np.zeros(1)), np.empty((1, 4)),
    )  # fmt: skip
    at_best = dual_value(X, y, np.full(N, C), loss, alpha[:, 0], bias, 0.3)
    for change in np.linspace(-0.02, 0.02, 41):
        other = alpha[:, 0].copy()
        other[-1] = np.clip(other[-1] + change, -named.upper_factor * C, named.upper_factor * C)
        assert dual_value(X, y, np.full(N, C), loss, other, bias, 0.3) <= at_best + 1e-12


@pytest.mark.parametrize("name", ["newton", "newton-cg", "pcd"])
def test_the_dual_value_that_is_known_is_not_above_that_of_alpha(name: str, tmp_path: Path) -> None:
    X, y, _ = rows()
    loss, C, bias = "squared_epsilon_insensitive", 0.05, SOLVERS[name].biases[0]
    options = {"C": C, "loss": loss, "bias": bias, "epsilon": 0.3}
    bench = Bench(SOLVERS[name](), X, y, tmp_path, options=options, task="regression")
    for _ in range(4):
        bench.step()
        known = bench.state.dual.value(bench.problem)[0]
        alpha = bench.state.rows.alpha.values[:, 0]
        value = dual_value(X, y, np.full(N, C), loss, alpha, 0.0 if bias == "none" else 1.0, 0.3)
        assert 0.8 * value < known <= value * (1 + 1e-9)


def test_a_row_of_nothing_but_zeros_has_all_of_its_box() -> None:
    X, y = np.zeros((3, 2)), np.array([5.0, -5.0, 0.05])
    for solver, loss in itertools.product(
        ["dcd"], [loss for loss in LOSSES if loss in SOLVERS["dcd"].losses and LOSSES[loss].regression]
    ):
        result = bigsvm.fit(ArrayRows(X, y, task="regression"), solver=solver, loss=loss, bias="none", epsilon=0.1)
        assert result.status == "converged"
        least = 2 * 4.9 if loss == "epsilon_insensitive" else 2 * 4.9**2
        assert result.figures["objective"] == pytest.approx(least)
        assert result.figures["duality_gap"] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("name", ["dcd", "pcd", "newton"])
def test_a_path_of_costs_is_each_cost_alone(name: str) -> None:
    X, y, _ = rows()
    store = ArrayRows(X, y, task="regression")
    loss = "squared_epsilon_insensitive"
    for C, result in zip(
        (0.01, 1.0), bigsvm.fit_path(store, Cs=[0.01, 1.0], solver=name, loss=loss, tol=1e-7), strict=True
    ):
        assert result.figures["objective"] == pytest.approx(best(loss, "augmented", C, 0.1, False), rel=1e-6)


@pytest.mark.parametrize(
    ("loss", "bias", "expected"),
    [
        ("epsilon_insensitive", "augmented", "dcd"), ("epsilon_insensitive", "none", "dcd"),
        ("epsilon_insensitive", "free", "interior-point"), ("squared_epsilon_insensitive", "augmented", "newton"),
        ("squared_epsilon_insensitive", "free", "newton"),
    ],
)  # fmt: skip
def test_auto_has_a_solver_for_every_loss_and_bias(loss: str, bias: str, expected: str) -> None:
    X, y, _ = rows()
    result = bigsvm.fit(ArrayRows(X, y, task="regression"), loss=loss, bias=bias, C=0.1, epsilon=0.3)
    assert result.model.about["plan"]["solver"] == expected
    assert result.status == "converged"


@pytest.mark.parametrize("solver", ["dcd", "auto"])
def test_momentum_is_refused_for_targets(solver: str) -> None:
    X, y, _ = rows()
    with pytest.raises(Unsupported, match="no momentum for a regression"):
        bigsvm.fit(
            ArrayRows(X, y, task="regression"), solver=solver, loss="epsilon_insensitive",
            solver_options={"momentum": "on"},
        )  # fmt: skip


@each_of(name__loss__bias=CASES, layout=["dense", "csr"], epsilon=[0.0, 0.1], target=[0.0, 3.0, -0.7, 1e6])
def test_a_constant_target_has_a_proved_optimum(
    name: str, loss: str, bias: str, layout: str, epsilon: float, target: float
) -> None:
    """With a free bias the optimum is 0, and searches that end within rounding of it have no small relative gap."""
    X, _, _ = rows()
    y, weight = np.full(N, target), np.ones(N)
    y[3], weight[3] = 50.0, 0.0  # takes no part
    store = ArrayRows(sparse.csr_array(X) if layout == "csr" else X, y, weight, task="regression")
    result = bigsvm.fit(store, solver=name, loss=loss, bias=bias, epsilon=epsilon)
    assert result.status == "converged"
    if bias == "free":
        assert result.figures["objective"] == result.figures["dual_objective"] == 0.0
        assert not result.model.coef.any()
        assert abs(result.model.intercept[0] - target) <= epsilon


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("unit", [1e-13, 1e-6, 1e6])
def test_the_unit_of_targets_changes_nothing_of_a_squared_loss(layout: str, unit: float) -> None:
    """P is a multiple of itself, so that no size of a gradient may be too small for a step."""
    X, y, _ = rows()
    for name, loss, bias in CASES:
        if not LOSSES[loss].smooth:
            continue
        store = ArrayRows(sparse.csr_array(X) if layout == "csr" else X, unit * y, task="regression")
        result = bigsvm.fit(store, solver=name, loss=loss, bias=bias, C=0.1, epsilon=0.3 * unit)
        assert result.status == "converged", (name, bias)
        least = best(loss, bias, 0.1, 0.3, False) * unit * unit
        assert result.figures["objective"] == pytest.approx(least, rel=1.1e-3)


@pytest.mark.parametrize(
    ("kernel", "remedy"),
    [("linear", '"epsilon_insensitive" or "squared_epsilon_insensitive"'), ("rbf", '"epsilon_insensitive" for')],
)
def test_targets_given_to_a_loss_of_classes_name_the_losses_that_would_do(kernel: str, remedy: str) -> None:
    X, y, _ = rows()
    with pytest.raises(DataError, match="needs class labels") as refused:
        bigsvm.fit(ArrayRows(X, y, task="regression"), kernel=kernel)
    assert refused.value.hint is not None
    assert f"loss={remedy}" in refused.value.hint
