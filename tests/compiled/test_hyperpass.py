"""The loops of HyperPass: shares of rows on their hyperplane, and sums of rows by bins of the search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bigsvm.compiled.linear import hyperpass as shares
from bigsvm.compiled.linear.hyperpass import add_binned, best_shares


@pytest.mark.parametrize("free", [False, True])
def test_shares_are_optimal(free: bool) -> None:
    rng = np.random.default_rng(12)
    for q, d in ((1, 3), (7, 3), (40, 6), (40, 60)):
        Z = rng.standard_normal((q, d))
        Z[-1] = Z[0]
        s, C = 0.1 * rng.standard_normal(q), rng.uniform(0.1, 2.0, q)
        sign = np.where(rng.random(q) < 0.5, 1.0, -1.0)
        r = 3.0 * rng.standard_normal(d)
        a = 0.5 * C
        total = float((sign * a).sum())
        g = s + Z @ r
        level = best_shares(Z @ Z.T, g, a, C, sign, free, np.inf, 0.0, 1e-13, 200)
        assert np.all((a >= 0) & (a <= C))
        np.testing.assert_allclose(g, s + Z @ (r - Z.T @ (a - 0.5 * C)), atol=1e-10)
        h = g - level * sign
        assert np.maximum(-a * h, (C - a) * h).sum() <= 1e-10
        assert level == 0.0 or free
        if free:
            assert float((sign * a).sum()) == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize("free", [False, True])
def test_rounding_is_not_followed_for_ever(free: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows far from the origin: what a Newton step seems to gain is rounding, a million times over."""
    most, solved = [0], [0]
    solve = shares.solve_symmetric

    def counted(*arrays: np.ndarray) -> None:
        solved[0] += 1
        assert solved[0] <= most[0]
        solve(*arrays)

    def together(Q: np.ndarray, *rest: Any) -> None:
        most[0], solved[0] = 64 * (len(Q) + 1), 0
        move_together(Q, *rest)

    move_together = shares._together
    monkeypatch.setattr(shares, "solve_symmetric", counted)
    monkeypatch.setattr(shares, "_together", together)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        q, d = int(rng.integers(5, 9)), 3
        Z = 1e9 + 1e3 * rng.standard_normal((q, d))
        sign = np.where(Z[:, 0] + 500.0 * rng.standard_normal(q) > 1e9, 1.0, -1.0)
        Z *= sign[:, None]
        a, C = np.zeros(q), np.full(q, 1e-3)
        with np.errstate(all="ignore"):  # compiled, none of this is told
            best_shares.py_func(Z @ Z.T, np.ones(q), a, C, sign, free, np.inf, 0.0, 1e-18, 2)
        assert np.all((a >= 0.0) & (a <= C))


def test_rows_that_cross_change_the_sum_of_those_that_violate() -> None:
    """By their bins: what violated leaves it, what did not comes in, each with its sign; others stay."""
    X, rng = np.random.default_rng(23).standard_normal((200, 3)), np.random.default_rng(24)
    s, p, y = rng.standard_normal((200, 1)), rng.standard_normal((200, 1)), np.where(rng.random(200) < 0.5, 1.0, -1.0)
    edges, found = np.array([[0.5, 1.5]]), np.zeros((1, 3, 4))
    cost = rng.uniform(0.5, 2.0, 200)
    codes, one = (y > 0).astype(np.int32), np.ones(1, np.int32)
    add_binned(X, codes, one, cost, np.full(1, 0.7), s, p, 1.0, edges, np.full(1, 0.01), found)
    total = np.zeros(4)
    for b, t in enumerate((0.5, 1.5, 1e9)):
        total += found[0, b]
        near = np.abs(s[:, 0]) <= 0.01
        before, after = s[:, 0] > 0.0, np.where(near, s[:, 0], s[:, 0] - t * p[:, 0]) > 0.0
        change = 0.7 * cost * y * (after.astype(float) - before)
        np.testing.assert_allclose(total, np.column_stack([X, np.ones(200)]).T @ change, atol=1e-9)
