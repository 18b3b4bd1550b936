"""Passes over a working set, against what NumPy says of the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from bigsvm.compiled.shared.vectors.steps import first_of, gains_of, largest, least, move_all

SIZES = (16, 64, 208)


@njit
def extremes(values: Any) -> Any:
    return least(values), largest(values), first_of(values, least(values)), first_of(values, largest(values))


@njit
def place(values: Any, number: Any) -> Any:
    return first_of(values, number)


@njit
def gains(row: Any, diag: Any, curvature: float, b_up: float, down: Any, gain: Any) -> Any:
    return gains_of(row, diag, curvature, b_up, 1e-12, down, gain)


@njit
def moved(step: float, row_i: Any, row_j: Any, f: Any, up: Any, down: Any) -> Any:
    return move_all(step, row_i, row_j, f, up, down)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_least_and_the_largest_come_with_their_lowest_place(n: int, dtype: type) -> None:
    rng = np.random.default_rng(n)
    for values in (rng.standard_normal(n), rng.integers(-2, 3, n), np.where(rng.random(n) < 0.9, np.inf, 1.0)):
        found = extremes(values.astype(dtype))
        assert found == (values.astype(dtype).min(), values.astype(dtype).max(), values.argmin(), values.argmax())
    for at in range(n):  # wherever it lies
        values = np.zeros(n, dtype)
        values[at:] = 1
        assert place(values, dtype(1)) == at
    assert place(np.zeros(n, dtype), dtype(1)) == n
    assert extremes(np.full(n, np.inf, dtype))[:3] == (np.inf, np.inf, 0)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gains_are_those_of_the_formula_in_float32(n: int, dtype: type) -> None:
    rng = np.random.default_rng(n)
    row, diag, down = rng.uniform(-1, 1, n).astype(dtype), rng.uniform(0.5, 2, n), rng.standard_normal(n)
    down[::5] = -np.inf  # rows that may not fall
    row[3], diag[3] = 1.0, 1.0  # an equal row: no curvature
    gain = np.empty(n, np.float32)
    best = gains(row, diag, 1.0, -0.2, down, gain)
    b = (down + 0.2).astype(np.float32)
    a = np.maximum((1.0 + diag - 2.0 * row.astype(np.float64)).astype(np.float32), np.float32(1e-12))
    with np.errstate(over="ignore", invalid="ignore"):
        expected = np.where(b > 0, b * b / a, np.float32(-1))
    np.testing.assert_array_equal(gain, expected)
    assert best == expected.max()
    assert gains(row, diag, 1.0, 9.0, down, gain) == -1.0  # nothing may fall from so high


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_move_is_the_same_for_f_and_for_both_ends(n: int, dtype: type) -> None:
    rng = np.random.default_rng(n)
    row_i, row_j = rng.standard_normal((2, n)).astype(dtype)
    f = rng.standard_normal(n)
    up, down = np.where(rng.random(n) < 0.3, np.inf, f), np.where(rng.random(n) < 0.3, -np.inf, f)
    by = 0.37 * (row_i.astype(np.float64) - row_j.astype(np.float64))
    expected = f + by, up + by, down + by
    found = moved(0.37, row_i, row_j, f, up, down)
    for array, one in zip((f, up, down), expected, strict=True):
        np.testing.assert_array_equal(array, one)
    assert found == (expected[1].min(), expected[2].max())
