"""The gap formula: P - D for any point, never negative, weak duality, sums apart from blocks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigsvm.compiled.linear.gap_terms import (
    ALPHA_DIAG,
    BALANCE,
    GAP,
    LINEAR,
    LOSS,
    LOST,
    N_SUMS,
    SIZE,
    SUPPORT,
    certify_rows,
    distances,
)
from bigsvm.compiled.shared.losses import DualBox, DualModels
from bigsvm.problem.loss import LOSSES, Loss, loss_named
from bigsvm.store.blocks import readonly_view
from bigsvm.testing.problems import as_csr, random_problem
from bigsvm.testing.reference import dual_value, primal_value


def models_of(loss: Loss, bias: float, C: float = 1.0) -> DualModels:
    """One model, whose positive class has the code 1."""
    box = DualBox(loss.code, loss.lower_factor, loss.upper_factor, loss.diag_factor, loss.epsilon, bias)
    return DualModels(np.ones(2), np.ones(1, np.int32), np.array([C]), box)


@pytest.mark.parametrize("name", LOSSES)
@given(
    seed=st.integers(0, 10_000), bias=st.sampled_from([0.0, 1.0, 2.5]), C=st.floats(1e-3, 1e2),
    epsilon=st.sampled_from([0.0, 0.1, 3.0]),
)  # fmt: skip
def test_gap_is_primal_minus_dual_for_any_point(name: str, seed: int, bias: float, C: float, epsilon: float) -> None:
    loss = loss_named(name, epsilon)
    rng = np.random.default_rng(seed)
    X, y = random_problem(25, 4, 0.7, seed=seed)
    cost = rng.uniform(0.1, 2.0, 25)
    w = rng.standard_normal(5) * 10.0 ** rng.integers(-3, 2)
    alpha = rng.uniform(0, 1, (25, 1)) * C * cost[:, None]
    alpha[rng.random(25) < 0.3] = 0.0
    labels, width = (y > 0).astype(np.int32), None
    if loss.regression:
        alpha *= rng.choice([-1.0, 1.0], (25, 1))
        labels = y = rng.standard_normal(25) * 10.0 ** rng.integers(-3, 3)
        width = epsilon
    v, sums = np.zeros(5), np.zeros((1, N_SUMS))
    certify_rows(readonly_view(as_csr(X)), labels, cost, models_of(loss, bias, C), alpha, w, v, np.empty(0), sums)
    point = w if bias else w[:-1]
    if not bias:
        w[-1] = 0.0  # takes no part: a solver without bias leaves it at 0
    P = primal_value(X, y, C * cost, name, point, bias, width)
    D = dual_value(X, y, C * cost, name, alpha[:, 0], bias, width)
    gap = sums[0, GAP] + 0.5 * np.sum((w - v) ** 2)
    assert 0.5 * point @ point + sums[0, LOSS] == pytest.approx(P, rel=1e-12)
    assert gap == pytest.approx(P - D, rel=1e-9, abs=1e-9 * abs(P))
    assert gap >= 0
    size, targets = np.abs(alpha[:, 0]), y if loss.regression else np.ones(25)
    assert sums[0, LINEAR] == pytest.approx(targets @ alpha[:, 0] - loss.epsilon * size.sum(), abs=1e-9 * size.sum())
    assert sums[0, SUPPORT] == (alpha != 0).sum()
    assert sums[0, SIZE] == pytest.approx(size.sum())
    signed = alpha[:, 0] * (1.0 if loss.regression else y)
    assert sums[0, BALANCE] + sums[0, LOST] == pytest.approx(math.fsum(signed), rel=1e-15)


@pytest.mark.parametrize("name", LOSSES)
def test_a_row_whose_alpha_is_its_best_has_no_gap(name: str) -> None:
    """Of the squared losses everywhere, of the others off their kinks, and nothing is negative beside them."""
    loss = loss_named(name, 0.3)
    X, w = np.eye(6), np.array([-2.0, -0.9, -0.2, 0.1, 0.8, 2.5, 0.0])
    slacks = -w[:6] if loss.regression else 1.0 - w[:6]
    y = np.zeros(6) if loss.regression else np.ones(6, np.int32)
    for factor, least in ((1.0, 0.0), (0.9, -1e-15)):
        alpha, sums = (factor * loss.alpha(slacks, np.full(6, 0.7)))[:, None], np.zeros((1, N_SUMS))
        models = models_of(loss, 0.0, 0.7)
        certify_rows(readonly_view(X), y, np.ones(6), models, alpha, w, np.zeros(7), np.empty(0), sums)
        assert sums[0, GAP] == pytest.approx(0.0, abs=1e-12) if factor == 1.0 else sums[0, GAP] > least


def test_alpha_outside_its_box_is_clipped_before_use() -> None:
    X, y = random_problem(12, 3, seed=1)
    alpha = np.linspace(-2, 5, 12)[:, None]
    outcome = []
    for point in (alpha, np.clip(alpha, 0, 1)):
        v, sums = np.zeros(4), np.zeros((1, N_SUMS))
        models = models_of(loss_named("hinge"), 1.0)
        certify_rows(
            readonly_view(X), (y > 0).astype(np.int32), np.ones(12), models, point, np.ones(4), v, np.empty(0), sums
        )  # fmt: skip
        outcome.append((v, sums))
    np.testing.assert_array_equal(outcome[0][0], outcome[1][0])
    np.testing.assert_array_equal(outcome[0][1], outcome[1][1])


def test_natural_dual_of_the_squared_hinge_has_gap_half_squared_gradient() -> None:
    X, y = random_problem(40, 6, seed=2)
    w, C = np.random.default_rng(3).standard_normal(7), 0.9
    Z = np.hstack([X, np.ones((40, 1))]) * y[:, None]
    slack = np.maximum(1 - Z @ w, 0)
    alpha = (2 * C * slack)[:, None]
    v, sums = np.zeros(7), np.zeros((1, N_SUMS))
    models = models_of(loss_named("squared_hinge"), 1.0, C)
    certify_rows(readonly_view(X), (y > 0).astype(np.int32), np.ones(40), models, alpha, w, v, np.empty(0), sums)
    gradient = w - 2 * C * Z.T @ slack
    assert sums[0, GAP] + 0.5 * np.sum((w - v) ** 2) == pytest.approx(0.5 * gradient @ gradient, rel=1e-12)


@pytest.mark.parametrize("name", ["hinge", "squared_hinge"])
def test_multiples_of_w_are_weighed_as_they_are(name: str) -> None:
    loss, rng = loss_named(name), np.random.default_rng(5)
    X, y = random_problem(200, 4, seed=6)
    cost, w = rng.uniform(0.5, 2.0, 200), rng.standard_normal(5)
    alpha = rng.uniform(0, 1, (200, 1)) * cost[:, None]
    scales, v = np.array([0.5, 1.0, 1.75]), np.zeros(5)
    sums = np.zeros((1, N_SUMS + 6))
    certify_rows(readonly_view(X), (y > 0).astype(np.int32), cost, models_of(loss, 1.0), alpha, w, v, scales, sums)
    dual = dual_value(X, y, cost, name, alpha[:, 0])
    for k, t in enumerate(scales):
        norms = np.zeros((1, 3))
        distances(w, np.array([t]), v, norms, 0)
        primal = primal_value(X, y, cost, name, t * w)
        assert 0.5 * norms[0, 0] + sums[0, N_SUMS + 2 * k + 1] == pytest.approx(primal, rel=1e-12)
        assert sums[0, N_SUMS + 2 * k] + 0.5 * norms[0, 1] == pytest.approx(primal - dual, rel=1e-10)
        assert norms[0, 2] == np.abs(w - v).max()
    squares = 0.0 if name == "hinge" else float(np.sum(alpha[:, 0] ** 2 / (4.0 * cost)))
    assert sums[0, ALPHA_DIAG] == pytest.approx(squares, rel=1e-12)
