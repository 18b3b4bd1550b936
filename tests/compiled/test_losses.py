"""The compiled losses against the readable ones; gap terms are Fenchel-Young differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigsvm.compiled.shared.compile import inner_loop
from bigsvm.compiled.shared.losses import gap_term, loss_value
from bigsvm.problem.loss import LOSSES, Loss


@inner_loop
def loss_values(code, s, C, out):
    """out[i] = C[i] loss(s[i])."""
    for i in range(s.shape[0]):
        out[i] = loss_value(code, s[i], C[i])


@inner_loop
def gap_terms(code, s, alpha, C, out):
    """out[i] = C[i] loss(s[i]) + conjugate(alpha[i]) - alpha[i] s[i]."""
    for i in range(s.shape[0]):
        out[i] = gap_term(code, s[i], alpha[i], C[i])


slack = st.floats(-1e3, 1e3)
cost = st.floats(1e-3, 1e3)


MARGIN = [loss() for loss in LOSSES.values() if not loss.regression]


@pytest.mark.parametrize("loss", MARGIN, ids=lambda loss: loss.name)
@given(s=slack, C=cost, share=st.floats(0, 1))
def test_compiled_loss_and_gap_agree_with_the_readable_loss(loss: Loss, s: float, C: float, share: float) -> None:
    alpha = share * C if np.isfinite(loss.upper_factor) else share * 4 * C * 1e3
    out, gap = np.empty(1), np.empty(1)
    loss_values(loss.code, np.array([s]), np.array([C]), out)
    gap_terms(loss.code, np.array([s]), np.array([alpha]), np.array([C]), gap)
    assert out[0] == pytest.approx(C * loss.value(np.array(s)), rel=1e-14)
    plain = C * loss.value(np.array(s)) + loss.conjugate(np.array(alpha), C) - alpha * s
    scale = abs(out[0]) + abs(alpha * s) + alpha**2 / C
    assert gap[0] >= 0
    assert gap[0] == pytest.approx(plain, abs=1e-12 * scale + 1e-300)


@pytest.mark.parametrize("loss", MARGIN, ids=lambda loss: loss.name)
def test_gap_term_vanishes_where_alpha_is_the_derivative(loss: Loss) -> None:
    s = np.array([-2.0, 0.5, 3.0])
    C = np.array([0.7, 0.7, 0.7])
    alpha = loss.alpha(s, C)
    gap = np.empty(3)
    gap_terms(loss.code, s, alpha, C, gap)
    np.testing.assert_allclose(gap, 0.0, atol=1e-15)


@pytest.mark.parametrize("loss", MARGIN, ids=lambda loss: loss.name)
def test_conjugate_is_the_supremum(loss: Loss) -> None:
    C, grid = 0.8, np.linspace(-50, 50, 400_001)
    for alpha in (0.0, 0.3, 0.8):
        sup = np.max(alpha * grid - C * loss.value(grid))
        assert sup == pytest.approx(loss.conjugate(np.array(alpha), C), abs=1e-6)


@pytest.mark.parametrize("loss", MARGIN, ids=lambda loss: loss.name)
def test_box_and_diagonal_are_those_of_the_conjugate(loss: Loss) -> None:
    """What solvers of the dual know of a loss: alpha <= upper_factor C, and diag_factor / C beside the Gram matrix."""
    C = 0.8
    alpha = np.linspace(0.0, min(loss.upper_factor, 3.0) * C, 11)
    np.testing.assert_allclose(loss.conjugate(alpha, C), 0.5 * loss.diag_factor / C * alpha**2, rtol=1e-14)
    beyond = np.array([1.001 * C])
    assert np.isinf(loss.conjugate(beyond, C)[0]) == np.isfinite(loss.upper_factor)


@pytest.mark.parametrize("loss", [loss() for loss in LOSSES.values()], ids=lambda loss: loss.name)
def test_alpha_and_curvature_are_the_derivatives_of_the_loss(loss: Loss) -> None:
    s, C, step = np.linspace(-2.0, 2.0, 40), np.linspace(0.5, 1.5, 40), 1e-4
    assert np.all(np.abs(np.abs(s) - loss.epsilon) > 2 * step), "no kink is near"
    slope = C * (loss.value(s + step) - loss.value(s - step)) / (2 * step)
    np.testing.assert_allclose(loss.alpha(s, C), slope, atol=1e-9)
    bend = (loss.alpha(s + step, C) - loss.alpha(s - step, C)) / (2 * step)
    np.testing.assert_allclose(loss.curvature(s, C), bend, atol=1e-9)
    assert loss.smooth == bool(loss.curvature(s, C).any())
