"""Kernel values of rows of ones are counted: to the bit what products of floats give."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from bigsvm.compiled.kernel.values.support import support_of
from bigsvm.compiled.shared.rows import CSR
from bigsvm.problem.kernel import Kernel
from bigsvm.solvers.kernel.values.gram import Gram
from bigsvm.store.blocks import readonly_view
from bigsvm.testing.problems import as_csr
from tests.products import WHOLE

KERNELS = [Kernel(), Kernel("rbf", 0.02), Kernel("rbf", 30.0), Kernel("poly", 0.1, 3, 0.5), Kernel("sigmoid", 0.1)]
N, N_SUPPORT, D = 150, 37, 300  # three tiles, the last one not full
FEW, MANY = 14, 290  # ones of a row: a byte counts to 255


def ones(density: str, dtype: type) -> np.ndarray:
    """Rows of ones; `density` says how many: the last row of all has as many as a byte counts to, or one more."""
    rng = np.random.default_rng(3)
    each = FEW if density == "few" else MANY
    X = np.zeros((N, D), dtype)
    for row in X:
        row[rng.choice(D, rng.integers(1, each), replace=False)] = 1
    if density in ("255", "256"):
        X[:] = 0
        X[:, : int(density)] = 1
    return X


def sparse(X: np.ndarray) -> CSR:
    found: CSR = readonly_view(as_csr(X))
    return found


def all_of(gram: Gram, X: CSR, of: np.ndarray, coef: np.ndarray) -> list[np.ndarray]:
    """What a Gram makes of X's first N rows: values, sums of two models, and sums over pairs of rows `of`."""
    support, sums, paired = support_of(X, of, gram.dtype), np.zeros((2, N)), np.zeros(N + 1)
    gram.add(X, np.arange(N), support, coef, sums)
    gram.add_pairs(X, of, support, coef[:, 0].copy(), paired, of)
    return [gram.values(X, np.arange(N), support), sums, paired]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: f"{kernel.name}{kernel.gamma:g}")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_counts_have_the_bits_of_products(kernel: Kernel, dtype: type) -> None:
    """Of rows stored in any type, with few ones and with more than a byte counts.

    A kernel of gamma = 30 wants the differences of most pairs, which a tile of floats has.  Rows stored as bytes are
    seen with one type of values: what looks for ones does not know that type, and each pair takes 4 s to compile.
    """
    gram, of = Gram(kernel, D + 1, dtype, 1), np.arange(N_SUPPORT)
    coef = np.random.default_rng(5).standard_normal((N_SUPPORT, 2))
    stored_as = [np.float32, np.float64] + [np.uint8] * (dtype is np.float64 or WHOLE)
    for density, stored in itertools.product(["few", "many", "255", "256"], stored_as):
        X = np.hstack([ones(density, stored), np.zeros((N, 1), stored)])
        # One support vector more, of a feature that no row has and without a weight: with it no product is counted.
        more = np.vstack([X, np.zeros((1, D + 1), stored)])
        more[N, D] = 2
        values, *sums = all_of(gram, sparse(more), np.append(of, N), np.vstack([coef, np.zeros((1, 2))]))
        found = all_of(gram, sparse(X), of, coef)
        assert np.array_equal(found[0], values[:-1])
        assert np.array_equal(found[1], sums[0])
        assert np.array_equal(found[2][:N], np.where(np.arange(N) < N_SUPPORT, sums[1][:N], 0.0))
        K = kernel.matrix(X[of].astype(float), X.astype(float))
        assert found[0] == pytest.approx(K, rel=1e-4 if dtype == np.float32 else 1e-12, abs=1e-30)


@pytest.mark.parametrize("which", [0, 70, 149])
@pytest.mark.parametrize("number", [0, 2, -1, 0.5, 1e9])
def test_a_row_of_other_numbers_is_no_row_of_ones(which: int, number: float) -> None:
    """In any tile, as a support vector and not; an explicit zero is no one.

    Rows with NaN are refused where they are read, so these loops are compiled as if there were none.
    """
    X = ones("few", np.float64)
    place = int(np.flatnonzero(X[which])[0])
    stored = as_csr(X)
    stored.data[stored.indptr[which] + list(stored.indices[stored.indptr[which] :]).index(place)] = number
    S = scipy.sparse.csr_array((stored.data, stored.indices, stored.indptr), (N, D))
    gram = Gram(Kernel("poly", 0.1, 2, 0.5), D, np.float64, 1)
    for of in (np.arange(10), np.array([which])):
        K = (0.1 * (S[of] @ S.T).toarray() + 0.5) ** 2
        for _ in range(2):  # the tile is left as it was
            found: Any = gram.values(
                readonly_view(stored), np.arange(N), support_of(readonly_view(stored), of, np.float64)
            )
            assert found == pytest.approx(K, rel=1e-12)
