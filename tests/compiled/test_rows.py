"""Row access against NumPy, and dense against CSR bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from bigsvm.compiled.shared.compile import inner_loop
from bigsvm.compiled.shared.rows import CSR, decision, n_rows_of, row_axpy, row_dot, row_sqnorm, sqnorms, take_rows
from bigsvm.store.blocks import readonly_view
from bigsvm.testing.problems import as_csr, full_csr, random_problem


@inner_loop
def _dot(X, i, w):
    return row_dot(X, i, w)


@inner_loop
def _axpy(a, X, i, w):
    row_axpy(a, X, i, w)


@pytest.mark.parametrize("n_features", [1, 2, 3, 4, 5, 7, 8, 33])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_match_numpy_and_dense_equals_csr_bit_for_bit(n_features: int, dtype: type) -> None:
    X = random_problem(20, n_features, seed=1)[0].astype(dtype)
    w = np.random.default_rng(2).standard_normal(n_features)
    for i in range(20):
        dense = _dot(readonly_view(X), i, w)
        np.testing.assert_allclose(dense, X[i].astype(np.float64) @ w, rtol=1e-12, atol=1e-12)
        for index_dtype in (np.int32, np.int64):
            stored = full_csr(X, index_dtype)
            assert _dot(readonly_view(stored), i, w) == dense
            a, b = w.copy(), w.copy()
            _axpy(0.3, readonly_view(X), i, a)
            _axpy(0.3, readonly_view(stored), i, b)
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_whole_numbers_side_by_side_give_the_bits_of_one_after_another(dtype: type) -> None:
    """Small values as they are stored, large ones as packed rows have them; weights of float32."""
    rng = np.random.default_rng(3)
    limits = np.iinfo(dtype)
    for n_features in (1, 6, 13):
        X = rng.integers(limits.min, limits.max, (4, n_features), dtype, endpoint=True)
        w = rng.standard_normal(n_features).astype(np.float32)
        for i in range(4):
            assert _dot(X, i, w) == row_dot(X, i, w)


@pytest.mark.parametrize("density", [0.0, 0.2, 1.0])
def test_sqnorms_and_decision(density: float) -> None:
    X = random_problem(31, 9, density, seed=4)[0]
    W = np.random.default_rng(5).standard_normal((9, 3))
    for matrix in (X, as_csr(X)):
        norms, scores = np.empty(31), np.empty((31, 3))
        sqnorms(readonly_view(matrix), norms)
        decision(readonly_view(matrix), W, scores)
        np.testing.assert_allclose(norms, np.sum(X * X, axis=1), rtol=1e-13)
        np.testing.assert_allclose(scores, X @ W, rtol=1e-11, atol=1e-12)


def test_python_and_compiled_calls_agree() -> None:
    X = random_problem(6, 5, 0.5, seed=7)[0]
    w = np.arange(5.0)
    for matrix in (X, as_csr(X)):
        assert row_dot(matrix, 3, w) == _dot(readonly_view(matrix), 3, w)
        assert row_sqnorm(matrix, 3) == pytest.approx(X[3] @ X[3])
        assert n_rows_of(matrix) == 6


def test_take_rows_is_a_view_with_a_rebased_indptr() -> None:
    X = random_problem(10, 4, 0.5, seed=8)[0]
    csr = as_csr(X)
    part = take_rows(csr, 3, 7)
    assert isinstance(part, CSR)
    assert part.indptr[0] == 0
    assert np.shares_memory(part.data, csr.data)
    norms = np.empty(4)
    sqnorms(readonly_view(part), norms)
    np.testing.assert_allclose(norms, np.sum(X[3:7] ** 2, axis=1))


def test_kernels_cannot_write_to_the_data() -> None:
    X = np.ones((2, 2))
    frozen = readonly_view(X)
    assert isinstance(frozen, np.ndarray)
    with pytest.raises(ValueError, match="read-only"):
        frozen[0, 0] = 2.0
    assert X.flags.writeable
