"""Sums of outer products and the solution of their system, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from bigsvm.compiled.linear import hessian
from bigsvm.compiled.linear.hessian import (
    add_hessian,
    solve_symmetric,
    times_symmetric,
    triangle_diagonal,
    triangle_size,
)
from bigsvm.store.blocks import readonly_view
from bigsvm.testing.problems import as_csr, random_problem


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (3, 2), (31, 5), (100, 17), (257, 40)])
@pytest.mark.parametrize("bias", [0.0, 1.0, 2.5])
def test_sums_of_outer_products(layout: str, n: int, d: int, bias: float) -> None:
    X, _ = random_problem(n, d, 0.6, seed=n)
    h = np.random.default_rng(n).uniform(0, 2, n)
    h[::3] = 0.0
    H = np.zeros((d + 1, d + 1))
    add_hessian(readonly_view(X if layout == "dense" else as_csr(X)), h, bias, H)
    wide = np.hstack([X, np.full((n, 1), bias)])
    np.testing.assert_allclose(np.triu(H), np.triu(wide.T @ (h[:, None] * wide)), rtol=1e-12, atol=1e-12)
    half = np.zeros(triangle_size(d + 1))
    add_hessian(readonly_view(X if layout == "dense" else as_csr(X)), h, bias, half)
    np.testing.assert_array_equal(half, H[np.triu_indices(d + 1)])
    np.testing.assert_array_equal(half[triangle_diagonal(d + 1)], np.diag(H))


def test_entries_in_any_order_of_features_sum_up_the_same() -> None:
    X, _ = random_problem(20, 13, 0.7, seed=1)
    rows = as_csr(X)
    backwards = rows._replace(data=rows.data.copy(), indices=rows.indices.copy())
    for i in range(20):
        a, b = rows.indptr[i], rows.indptr[i + 1]
        backwards.data[a:b], backwards.indices[a:b] = rows.data[a:b][::-1], rows.indices[a:b][::-1]
    found = []
    for matrix in (rows, backwards):
        H = np.zeros((14, 14))
        add_hessian(readonly_view(matrix), np.ones(20), 1.0, H)
        found.append(H)
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 40, 65])
def test_systems_are_solved(n: int) -> None:
    rng = np.random.default_rng(n)
    A = rng.standard_normal((n, n + 3))
    H = A @ A.T + np.eye(n)
    g, x = rng.standard_normal(n), np.empty(n)
    solve_symmetric(np.triu(H), g, np.empty((n, n)), x)
    np.testing.assert_allclose(x, np.linalg.solve(H, g), rtol=1e-9)
    half, again = H[np.triu_indices(n)], np.empty(n)
    solve_symmetric(half, g, np.empty_like(half), again)
    np.testing.assert_array_equal(again, x)
    np.testing.assert_allclose(times_symmetric(half, x), g, rtol=1e-7)


def test_both_forms_take_the_same_compiled_code() -> None:
    """Sums, factor and solution were compiled for each form, which took a first fit up to 3 s more."""
    rows, x = readonly_view(np.eye(3)), np.empty(4)
    for H, U in ((np.zeros((4, 4)), np.zeros((4, 4))), (np.zeros(10), np.zeros(10))):
        add_hessian(rows, np.ones(3), 1.0, H)
        solve_symmetric(H, np.ones(4), U, x)
    times_symmetric(np.ones(10), np.ones(4))
    for loop in (hessian._factor_symmetric, hessian._solve_factored, hessian._subtract_product):
        assert len(loop.signatures) == 1
    types = [signature[1:] for signature in hessian._add_hessian.signatures]  # of other rows there are others
    assert len(set(types)) == 1


def test_a_matrix_is_never_copied() -> None:
    """Its sums would be lost."""
    with pytest.raises(ValueError, match="contiguous"):
        add_hessian(readonly_view(np.eye(3)), np.ones(3), 1.0, np.zeros((4, 8))[:, ::2])


def test_badly_conditioned_systems_are_solved_to_a_small_residual() -> None:
    rng = np.random.default_rng(3)
    Q, _ = np.linalg.qr(rng.standard_normal((30, 30)))
    H = (Q * 10.0 ** np.linspace(0, 10, 30)) @ Q.T
    H = 0.5 * (H + H.T)
    g, x = rng.standard_normal(30), np.empty(30)
    solve_symmetric(np.triu(H), g, np.empty((30, 30)), x)
    assert np.linalg.norm(H @ x - g) <= 1e-4 * np.linalg.norm(g)


def test_scales_of_columns_do_not_matter() -> None:
    """Columns that differ by 2^40, and H by the square, give the same solution, digit for digit in its own scale."""
    rng = np.random.default_rng(5)
    A = rng.standard_normal((12, 15))
    H, g = A @ A.T + np.eye(12), rng.standard_normal(12)
    x, scaled = np.empty(12), np.empty(12)
    solve_symmetric(np.triu(H), g, np.empty((12, 12)), x)
    by = 2.0 ** np.linspace(0, 40, 12).round()
    solve_symmetric(np.triu(H * np.outer(by, by)), g * by, np.empty((12, 12)), scaled)
    np.testing.assert_allclose(scaled * by, x, rtol=1e-9)


def test_a_flat_direction_gets_0() -> None:
    H = np.diag([2.0, 0.0, 4.0])
    x = np.empty(3)
    solve_symmetric(H, np.array([2.0, 0.0, 4.0]), np.empty((3, 3)), x)
    np.testing.assert_array_equal(x, [1.0, 0.0, 1.0])
