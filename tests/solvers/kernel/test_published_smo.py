"""simplified-smo, simplified-smo-km and platt-smo: the oracles of heart_scale, optima of another program, corners."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from bigsvm.compiled.kernel import platt as platt_steps
from bigsvm.problem.kernel import Kernel, rbf_of_sigma
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.literature.platt import PlattSMO
from bigsvm.solvers.kernel.literature.simplified import SimplifiedSMO, SimplifiedSMOWithKM
from bigsvm.testing.problems import random_problem
from tests.solvers.kernel.checks import imbalance, kkt_violations, outside_box
from tests.solvers.kernel.published_smo import TIGHT, Run, heart, name_of, optimum, short_calls

__all__ = ["heart", "short_calls"]


def test_the_literal_rule_stalls_on_heart_scale_as_measured(heart: Any) -> None:
    run = Run(SimplifiedSMO(second="max"), *heart)
    progress = run.whole()
    assert run.steps == 58
    assert run.accuracy == pytest.approx(0.774, abs=5e-4)
    assert run.dual == pytest.approx(31.556, abs=1e-3)
    assert progress.final
    assert not progress.done
    assert progress.violation > 1.0
    assert run.work.epoch == 2


@pytest.mark.parametrize("solver", [SimplifiedSMO(), SimplifiedSMOWithKM(), PlattSMO()], ids=name_of)
def test_heart_scale_linear_comes_to_the_optimum_with_the_papers_settings(heart: Any, solver: Any) -> None:
    run = Run(solver, *heart)
    run.whole()
    # One of 270 rows lies on the hyperplane to within rounding, which differs between processors.
    assert run.accuracy == pytest.approx(0.8481, abs=1.01 / 270)
    assert run.dual == pytest.approx(92.473375, rel=1e-5)
    assert 0.0 <= run.primal - run.dual < 0.02  # Platt's eps of takeStep leaves 0.013 as measured elsewhere


@pytest.mark.parametrize("solver", TIGHT, ids=name_of)
def test_heart_scale_linear_to_seven_digits(heart: Any, solver: Any) -> None:
    run = Run(solver, *heart, eps=1e-6)
    assert run.whole().done
    assert run.dual == pytest.approx(92.473375, abs=1e-6)
    assert run.primal == pytest.approx(92.473375, abs=1e-5)


def test_one_random_partner_gets_further_than_the_largest(heart: Any) -> None:
    run = Run(SimplifiedSMO(second="random"), *heart)
    run.whole()
    assert run.dual > 91.0
    assert run.primal < 95.0
    assert run.accuracy > 0.84


@pytest.mark.parametrize("solver", TIGHT, ids=name_of)
def test_heart_scale_of_the_narrow_gauss_kernel_has_its_closed_form(real_data: ModuleType, solver: Any) -> None:
    X, y = real_data.load("heart_scale")
    K = rbf_of_sigma(0.01).matrix(X, X)
    run = Run(solver, K, y, eps=1e-8)
    assert run.whole().done
    alpha = y * run.qp.beta
    np.testing.assert_allclose(alpha[y > 0], 1.0, atol=1e-7)
    np.testing.assert_allclose(alpha[y < 0], 0.8, atol=1e-7)
    assert (int((y > 0).sum()), int((y < 0).sum())) == (120, 150)
    assert run.work.b == pytest.approx(-0.2, abs=1e-7)
    assert run.dual == pytest.approx(132.0, abs=1e-7)
    assert run.primal == pytest.approx(132.0, abs=1e-5)
    assert run.accuracy == 1.0


@pytest.mark.parametrize(("a1", "a2"), [(0.4, 2.0), (1.0, 0.3), (0.0, 2.0), (1.0, 0.0)])
def test_the_bias_after_a_step_leaves_no_error_of_a_row_inside_its_box(a1: float, a2: float) -> None:
    """Boxes of 1 and 2; of two rows at their bounds the errors lie opposite."""
    b, errors, moved = 0.7, np.array([0.5, -1.1]), np.array([0.2, -0.2])
    K = np.array([[1.0, 0.3], [0.3, 2.0]])
    after = platt_steps._bias(b, *errors, *moved, K[0, 0], K[1, 1], K[0, 1], a1, a2, 1.0, 2.0)
    e1, e2 = (errors + K @ moved + after - b).tolist()
    inside = [0.0 < a1 < 1.0, 0.0 < a2 < 2.0]
    left = e1 if inside[0] else e2 if inside[1] else e1 + e2
    assert left == pytest.approx(0.0, abs=1e-12)
    assert abs(e1 - e2) > 0.1


def test_rows_violate_where_they_can_move_to_be_better() -> None:
    """Of a row whose y E is below 0 alpha should rise, of one above it fall; in a box of 1."""
    alphas = (0.0, 0.5, 1.0)
    for y in (1.0, -1.0):
        assert [platt_steps._violates(y, a, 1.0, -0.2 * y, 0.1) for a in alphas] == [True, True, False]
        assert [platt_steps._violates(y, a, 1.0, 0.2 * y, 0.1) for a in alphas] == [False, True, True]
        assert not any(platt_steps._violates(y, a, 1.0, 0.05 * y, 0.1) for a in alphas)


@pytest.mark.parametrize("solver", TIGHT, ids=name_of)
@pytest.mark.parametrize("C", [0.05, 1.0, 30.0])
def test_agrees_with_another_program(solver: Any, C: float, short_calls: None) -> None:
    X, y = random_problem(30, 3, seed=8, noise=0.2)
    K = Kernel("rbf", 0.4).matrix(X, X)
    costs = C * np.where(y > 0, 1.0, 0.5)  # classes of two weights
    run = Run(solver, K, y, costs, eps=1e-7)
    progress = run.whole()
    assert progress.done
    assert progress.violation <= 2e-7
    assert not kkt_violations(run.qp, run.work.b, 1e-7).any()
    assert run.dual == pytest.approx(optimum(K, y, costs), rel=1e-6)
    assert run.primal == pytest.approx(run.dual, rel=1e-5)


@pytest.mark.parametrize("solver", TIGHT, ids=name_of)
@pytest.mark.parametrize(
    ("X", "y"),
    [
        ([[1.0], [1.0]], [1, -1]),
        ([[1.0], [-1.0]], [1, -1]),
        ([[0.0], [0.0], [0.0]], [1, -1, 1]),
        ([[2.0], [2.0], [2.0], [2.0], [1.0]], [1, -1, 1, -1, -1]),
        ([[1e-8], [-1e-8], [3.0], [0.0]], [1, -1, 1, -1]),
        ([[1e4], [-2e4], [1e4], [3e4]], [1, -1, -1, 1]),
    ],
    ids=["same row", "two rows", "zero rows", "duplicates", "tiny and zero", "large"],
)
def test_corners_come_to_the_optimum_or_say_that_they_do_not(solver: Any, X: Any, y: Any) -> None:
    X, y = np.array(X), np.array(y, np.float64)
    K = Kernel("linear").matrix(X, X)
    run = Run(solver, K, y, eps=1e-6)
    progress = run.whole()
    best = optimum(K, y, 1.0)
    assert run.dual <= best + 1e-6 * max(1.0, best)
    if isinstance(solver, PlattSMO):  # goes along lines of curvature 0, to an end
        assert progress.done
        assert run.dual == pytest.approx(best, rel=1e-5)
    else:  # Wang 2016 leaves out pairs of eta <= 0: then they say so
        blocked = run.primal - run.dual > 1e-5 * max(1.0, run.primal)
        assert progress.done != blocked
        assert progress.violation == run.qp.violation()


@pytest.mark.parametrize("solver", [SimplifiedSMO(), SimplifiedSMOWithKM(), PlattSMO()], ids=name_of)
@pytest.mark.parametrize("y", [[], [1], [1, 1, 1], [-1, -1]])
def test_where_nothing_can_move_it_ends_at_once(solver: Any, y: list[int]) -> None:
    K = np.eye(len(y))
    run = Run(solver, K, np.array(y, np.float64))
    assert run.call().done
    assert run.steps == 0
    assert not run.qp.beta.any()


@pytest.mark.parametrize("make", [SimplifiedSMO, SimplifiedSMOWithKM, PlattSMO])
def test_epochs_are_limited_and_the_seed_decides(make: Any) -> None:
    X, y = random_problem(80, 4, seed=11, noise=0.3)
    K = Kernel("linear").matrix(X, X)
    one = Run(make(maxepoch=1), K, y)
    progress = one.whole()
    assert progress.exhausted  # a limit, and not the rule of Wang 2016
    assert not progress.final
    assert not progress.done
    assert one.steps > 0
    ends = {Run(make(), K, y, seed=seed).whole() for seed in (0, 0, 1)}
    assert len(ends) == 2


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (SimplifiedSMO, {"second": "best"}, "second"),
        (SimplifiedSMO, {"maxepoch": 0}, "maxepoch"),
        (SimplifiedSMO, {"min_step": -1.0}, "min_step"),
        (SimplifiedSMOWithKM, {"kept_rows": -1}, "kept_rows"),
        (PlattSMO, {"eps": 0.0}, "eps"),
        (PlattSMO, {"maxepoch": 0}, "maxepoch"),
    ],
)
def test_options_are_checked(make: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make(**options)


def test_checks_see_what_they_are_for() -> None:
    qp = DualQP(
        np.array([1.0, -1.0, 1.0]), np.array([0.0, -1.0, 0.0]), np.array([1.0, 0.0, 1.0]), 0.0,
        np.array([1.0, -0.5, 0.0]), np.array([0.3, 0.2, -0.4]),
    )  # fmt: skip
    # y E: 0.4 at C, so alpha is too large; -0.3 inside; -0.3 at 0, so alpha is too small
    np.testing.assert_array_equal(kkt_violations(qp, 0.1, 0.01), [True, True, True])
    np.testing.assert_array_equal(kkt_violations(qp, 0.1, 0.35), [True, False, False])
    np.testing.assert_array_equal(kkt_violations(qp, -0.4, 0.01), [False, True, True])
    assert imbalance(qp) == 0.5
    assert outside_box(qp) == 0.0
    qp.beta[:] = [1.25, 0.5, -0.125]
    assert outside_box(qp) == 0.5
