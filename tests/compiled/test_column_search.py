"""The search along a column: exact, by the Newton search of the Rosenbrock paper, and by one Newton step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bigsvm.compiled.linear.primal_cd import EXACT, GLOBAL_NEWTON, NEWTON_STEP, SearchRows, column_total, search
from bigsvm.compiled.shared.losses import SQUARED_HINGE
from bigsvm.solvers.primal.line_search import exact_step
from bigsvm.store.blocks import readonly_view
from bigsvm.testing.problems import as_csr


def column_problem(seed: int) -> dict[str, Any]:
    """One column and its rows: ties, rows without weight, rows on their hyperplane, scales apart."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 400))
    x = rng.standard_normal(n) * 10.0 ** rng.uniform(-3, 3)
    x[rng.random(n) < 0.3] = 0.0
    s = rng.standard_normal((n, 1)) * 10.0 ** rng.uniform(-2, 2)
    s[rng.random(n) < 0.1] = 0.0
    repeated = rng.random(n) < 0.2
    x[repeated], s[repeated] = x[0], s[0]
    cost = rng.choice([0.0, 0.5, 1.0, 3.0], n)
    codes = rng.integers(0, 2, n).astype(np.int32)
    return {"x": x, "s": s, "cost": cost, "codes": codes, "C": 10.0 ** rng.uniform(-4, 3), "linear": rng.normal()}


def slope(p: dict[str, Any], t: float) -> tuple[float, float]:
    """phi'(t), and the size of the terms that it is a sum of."""
    signed = np.where(p["codes"] == 1, p["x"], -p["x"])
    terms = 2.0 * p["C"] * p["cost"] * signed * np.maximum(p["s"][:, 0] - t * signed, 0.0)
    return p["linear"] + t - terms.sum(), abs(p["linear"]) + abs(t) + np.abs(terms).sum()


def along(p: dict[str, Any], X: Any, rule: int, eps2: float = 1e-12) -> tuple[float, np.ndarray]:
    s = p["s"].copy()
    positive = np.array([1], np.int32)
    rows = SearchRows(s, p["codes"], positive, p["cost"], np.array([p["C"]]), 0.0)
    t = search(readonly_view(X), 0, 0, rows, p["linear"], 1.0, rule, eps2)
    return t, s


@pytest.mark.parametrize("seed", range(60))
def test_search_finds_where_the_slope_changes_its_sign(seed: int) -> None:
    p = column_problem(seed)
    dense = p["x"][None, :]
    t, s = along(p, dense, EXACT)
    value, size = slope(p, t)
    assert abs(value) <= 1e-13 * size
    reach = 1e-6 * max(abs(t), 1e-9)
    assert slope(p, t - reach)[0] <= 1e-13 * size
    assert slope(p, t + reach)[0] >= -1e-13 * size
    signed = np.where(p["codes"] == 1, p["x"], -p["x"])
    np.testing.assert_array_equal(s[:, 0], p["s"][:, 0] - t * signed)

    by_csr, _ = along(p, as_csr(dense), EXACT)
    assert by_csr == pytest.approx(t, rel=1e-12, abs=1e-300)
    way = -1.0 if slope(p, 0.0)[0] > 0 else 1.0
    selected = exact_step(
        lambda: iter([(p["s"][:, 0], way * signed, p["cost"])]), p["C"], SQUARED_HINGE, way * p["linear"], 1.0
    )  # fmt: skip
    assert way * selected.length == pytest.approx(t, rel=1e-11, abs=1e-15 * size)


@pytest.mark.parametrize("seed", range(20))
def test_the_papers_newton_ends_within_its_tolerance(seed: int) -> None:
    p = column_problem(seed)
    exact, _ = along(p, p["x"][None, :], EXACT)
    for eps2 in (1.0, 1e-3):
        t, _ = along(p, p["x"][None, :], GLOBAL_NEWTON, eps2)
        value, size = slope(p, t)
        assert abs(value) < eps2 + 1e-13 * size
        assert abs(t - exact) < eps2 + 1e-13 * size  # phi'' >= 1


def value_of(p: dict[str, Any], t: float) -> float:
    signed = np.where(p["codes"] == 1, p["x"], -p["x"])
    losses = p["C"] * p["cost"] * np.maximum(p["s"][:, 0] - t * signed, 0.0) ** 2
    return float(p["linear"] * t + 0.5 * t * t + losses.sum())


def papers_newton(p: dict[str, Any], eps2: float) -> float:
    """The search of the Rosenbrock paper as printed: from t = 1, for a quarter of what the slope promises."""
    signed, t = np.where(p["codes"] == 1, p["x"], -p["x"]), 1.0
    for _ in range(200):
        violates = p["s"][:, 0] - t * signed > 0.0
        curvature = 1.0 + float((2.0 * p["C"] * p["cost"] * signed * signed)[violates].sum())
        now = slope(p, t)[0]
        if abs(now) < eps2:
            return t
        share = 1.0
        while share > 1e-10:
            promised = 0.25 * share * now * now / curvature
            if value_of(p, t - share * now / curvature) <= value_of(p, t) - promised + 1e-15 * abs(value_of(p, t)):
                break
            share *= 0.5
        t -= share * now / curvature
    return t


def test_the_papers_newton_step_for_step() -> None:
    """Ends are told apart by how far they are from the optimum: a loose eps2 leaves the search where it comes first."""
    for seed in range(60):
        p = column_problem(seed)
        for eps2 in (30.0, 3.0, 0.3):
            t, _ = along(p, p["x"][None, :], GLOBAL_NEWTON, eps2)
            assert t == pytest.approx(papers_newton(p, eps2), rel=1e-9, abs=1e-12), (seed, eps2)


def test_the_papers_newton_asks_for_a_quarter() -> None:
    """Many rows begin to violate on the way: the whole step gains, but less than a quarter of what was promised."""
    n = 40
    p = {
        "x": np.append(np.full(n, -1.0), 1.0), "s": np.append(np.full(n, -1.05), 2.0)[:, None], "C": 1.0,
        "cost": np.append(np.full(n, 1.0), 30.0), "codes": np.ones(n + 1, np.int32), "linear": 0.0,
    }  # fmt: skip
    found, _ = along(p, p["x"][None, :], GLOBAL_NEWTON, 1.0)
    assert found == pytest.approx(papers_newton(p, 1.0), rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_a_newton_step_decreases_the_objective_enough(seed: int) -> None:
    p = column_problem(seed)
    t, s = along(p, p["x"][None, :], NEWTON_STEP)
    C = p["C"] * p["cost"]
    before, after = (float((C * np.maximum(v[:, 0], 0.0) ** 2).sum()) for v in (p["s"], s))
    rise = p["linear"] * t + 0.5 * t * t + after - before
    assert rise <= -0.01 * t * t + 1e-12 * before


def test_a_newton_step_without_decrease_is_halved() -> None:
    """The second row violates as soon as w moves: after the whole step phi is what it was."""
    p: dict[str, Any] = {
        "x": np.ones(2), "s": np.array([[1.0], [-1e-12]]), "cost": np.array([1.0, 1.5]), "C": 1.0, "linear": 0.0,
        "codes": np.array([1, 0], np.int32),
    }  # fmt: skip
    assert along(p, p["x"][None, :], NEWTON_STEP)[0] == pytest.approx(1.0 / 3.0)


def test_a_flat_column_stays_where_it_is() -> None:
    p = column_problem(1)
    X, positive = readonly_view(np.zeros((1, len(p["x"])))), np.array([1], np.int32)
    for rule in (EXACT, GLOBAL_NEWTON, NEWTON_STEP):
        s = p["s"].copy()
        rows = SearchRows(s, p["codes"], positive, p["cost"], np.array([p["C"]]), 0.0)
        t = search(X, 0, 0, rows, 0.0, 0.0, rule, 0.1)
        assert t == 0.0
        np.testing.assert_array_equal(s, p["s"])
        assert search(X, 0, 0, rows, 2.5, 1.0, rule, 1e-9) == -2.5


def test_column_total_is_the_signed_sum() -> None:
    p = column_problem(2)
    alpha = np.abs(p["s"])
    signed = np.where(p["codes"] == 1, p["x"], -p["x"])
    for X in (p["x"][None, :], as_csr(p["x"][None, :])):
        total = column_total(readonly_view(X), 0, 0, alpha, p["codes"], np.array([1], np.int32))
        assert total == pytest.approx((alpha[:, 0] * signed).sum(), rel=1e-12)
