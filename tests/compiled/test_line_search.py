"""The exact line search: against sorting, at kinks, on graded and degenerate breakpoints, in any number of pieces."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigsvm.compiled.shared.losses import HINGE, SQUARED_HINGE
from bigsvm.solvers.primal import line_search
from bigsvm.solvers.primal.line_search import Step, exact_step


def phi(t: float, s: np.ndarray, p: np.ndarray, cost: np.ndarray, code: int, linear: float, quadratic: float) -> float:
    slack = np.maximum(s - t * p, 0.0)
    return linear * t + 0.5 * quadratic * t * t + float(np.sum(cost * (slack if code == HINGE else slack**2)))


def by_sorting(
    s: np.ndarray, p: np.ndarray, cost: np.ndarray, code: int, linear: float, quadratic: float
) -> tuple[float, bool]:
    """The textbook search in exact arithmetic: all breakpoints sorted, slopes by running sums."""
    slope, curvature = Fraction(linear), Fraction(quadratic)
    breakpoints = []
    for si, pi, ci in zip(map(Fraction, s), map(Fraction, p), map(Fraction, cost), strict=True):
        da, db = (ci * abs(pi), Fraction(0)) if code == HINGE else (2 * ci * abs(pi * si), -2 * ci * pi * pi)
        if si < 0 and code != HINGE:
            da, db = -da, -db
        if si > 0 or (si == 0 and pi < 0):
            slope -= ci * pi if code == HINGE else 2 * ci * pi * si
            curvature += 0 if code == HINGE else 2 * ci * pi * pi
        if si * pi > 0:
            breakpoints.append((si / pi, da, db))
    if slope >= 0:
        return 0.0, False
    for t, da, db in sorted(breakpoints):
        if slope + curvature * t >= 0:
            return float(-slope / curvature), False
        slope, curvature = slope + da, curvature + db
        if slope + curvature * t >= 0:
            return float(t), True
    return float(-slope / curvature), False


def search(
    s: np.ndarray, p: np.ndarray, cost: np.ndarray, code: int, linear: float, quadratic: float, piece: int = 7
) -> Step:
    def pieces() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        for start in range(0, len(s), piece):
            yield s[start : start + piece], p[start : start + piece], cost[start : start + piece]

    return exact_step(pieces, 1.0, code, linear, quadratic)


@pytest.mark.parametrize("code", [HINGE, SQUARED_HINGE])
@given(seed=st.integers(0, 10_000), n=st.integers(1, 40), sorted_at_most=st.sampled_from([1, 3, 1000]))
def test_selection_finds_what_sorting_finds(code: int, seed: int, n: int, sorted_at_most: int) -> None:
    rng = np.random.default_rng(seed)
    s = rng.standard_normal(n) * 10.0 ** rng.integers(-6, 6, n)
    p = rng.standard_normal(n) * 10.0 ** rng.integers(-6, 6, n)
    s[rng.random(n) < 0.1] = 0.0
    p[rng.random(n) < 0.1] = 0.0
    cost = rng.uniform(0, 2, n) * (rng.random(n) < 0.9)
    quadratic = 10.0 ** rng.integers(-3, 4)
    linear = rng.standard_normal() * quadratic - 1.0
    before, line_search._SORTED = line_search._SORTED, sorted_at_most
    try:
        found = search(s, p, cost, code, linear, quadratic)
    finally:
        line_search._SORTED = before
    t, on_kink = by_sorting(s, p, cost, code, linear, quadratic)
    if on_kink and code == HINGE:
        assert found.length == pytest.approx(t, rel=1e-15)
    else:
        assert found.length == pytest.approx(t, rel=1e-9)
    here = phi(found.length, s, p, cost, code, linear, quadratic)
    size = abs(here) + phi(0.0, s, p, cost, code, linear, quadratic)
    for factor in (0.0, 0.9, 0.999, 1.001, 1.1):
        assert here <= phi(found.length * factor, s, p, cost, code, linear, quadratic) + 1e-12 * size


@pytest.mark.parametrize("code", [HINGE, SQUARED_HINGE])
def test_all_breakpoints_equal_or_differing_in_the_last_bits_only(code: int) -> None:
    for spread in (0.0, 2.0**-52, 2.0**-40):
        p = np.linspace(1.0, 2.0, 50)
        s = p * (1.0 + spread * np.arange(50))
        before, line_search._SORTED = line_search._SORTED, 1
        try:
            found = search(s, p, np.ones(50), code, 0.0, 1e-3)
        finally:
            line_search._SORTED = before
        assert found.length == pytest.approx(by_sorting(s, p, np.ones(50), code, 0.0, 1e-3)[0], rel=1e-12)


def test_a_step_ends_exactly_on_a_kink_and_no_step_is_taken_uphill() -> None:
    s, p, cost = np.array([1.0, 3.0]), np.array([1.0, 1.0]), np.ones(2)
    assert search(s, p, cost, HINGE, 0.0, 1.0) == Step(1.0, True)  # the slope jumps from -1 to 0 there
    assert search(s, p, cost, HINGE, 5.0, 1.0) == Step(0.0, False)
    assert search(s, -p, cost, HINGE, 0.0, 1.0) == Step(0.0, False)


def test_without_curvature_the_step_is_a_weighted_median() -> None:
    s = np.array([5.0, -1.0, 2.0, 4.0, 3.0])
    found = search(s, np.array([1.0, -1.0, 1.0, 1.0, 1.0]), np.ones(5), HINGE, 0.0, 0.0)
    # four rows lose 1 each from 0 on; the second one gains from t = 1 on
    assert found.on_kink
    assert found.length == 4.0


def test_a_step_is_no_longer_than_allowed() -> None:
    s, p, cost = np.array([1.0, 3.0]), np.array([1.0, 1.0]), np.ones(2)

    def pieces() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        yield s, p, cost

    assert exact_step(pieces, 1.0, HINGE, 0.0, 1e-6, longest=0.5) == Step(0.5, False)


def test_squared_hinge_agrees_with_newton_to_1e_13() -> None:
    rng = np.random.default_rng(5)
    s, p, cost = rng.standard_normal(400), rng.standard_normal(400), rng.uniform(0.5, 2, 400)
    found = search(s, p, cost, SQUARED_HINGE, -80.0, 0.3, piece=400).length
    t = 1.0
    for _ in range(100):
        active = s - t * p > 0
        slope = -80.0 + 0.3 * t - 2 * np.sum((cost * p * (s - t * p))[active])
        t -= slope / (0.3 + 2 * np.sum((cost * p * p)[active]))
    assert found == pytest.approx(t, rel=1e-13)
