"""rbf values of rows whose norms and products cancel, against differences taken in long double."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest
from numba import jit
from scipy import sparse

from bigsvm.compiled.kernel.values.expo import SINGLE
from bigsvm.compiled.kernel.values.gram import (
    KernelFunction,
    add_kernel_pairs,
    add_kernel_rows,
    write_kernel_rows,
)
from bigsvm.compiled.kernel.values.layout import TileWorkspace
from bigsvm.compiled.kernel.values.support import support_of
from bigsvm.compiled.kernel.values.tile import LANES
from bigsvm.compiled.shared.rows import CSR
from bigsvm.model.kernel_scores import KernelSums
from bigsvm.problem.kernel import Kernel
from bigsvm.solvers.kernel.values.gram import Gram
from bigsvm.store.blocks import Matrix, readonly_view

N, D = 130, 7
CASES = {
    "1e2": (1e2, 1.0, 0.5),
    "1e4": (1e4, 1.0, 0.5),
    "1e6": (1e6, 1.0, 0.5),
    "1e9": (1e9, 1.0, 0.5),
    "seconds": (1.7e9, 100.0, 5e-5),
}


def rows_of(case: str, dtype: Any) -> tuple[np.ndarray, float]:
    rng = np.random.default_rng(8)
    if case == "clusters":  # no one centre is near to both
        X = rng.standard_normal((N, D)) + np.where(rng.random((N, 1)) < 0.5, 1e8, -3e7)
        return X.astype(dtype), 0.5
    if case == "an outlier":
        X = rng.standard_normal((N, D))
        X[3] = 1e12
        return X.astype(dtype), 0.5
    if case == "a far column":
        X = rng.standard_normal((N, D))
        X[:, 2] += 1e9
        return X.astype(dtype), 0.5
    far, spread, gamma = CASES[case]
    X = far + spread * rng.standard_normal((N, D))
    X[rng.random(X.shape) < 0.2] = 0.0
    return X.astype(dtype), gamma


def given(X: np.ndarray, layout: str) -> Matrix:
    if layout == "dense":
        return readonly_view(X)
    found = sparse.csr_array(X)
    return readonly_view(CSR(found.data, found.indices, found.indptr.astype(np.int64)))


def truth(X: np.ndarray, gamma: float) -> np.ndarray:
    wide = X.astype(np.longdouble)
    return np.exp(-np.longdouble(gamma) * ((wide[:, None] - wide[None]) ** 2).sum(axis=-1))


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", [*CASES, "clusters", "an outlier", "a far column"])
def test_values_and_scores_keep_their_digits(case: str, dtype: Any, layout: str) -> None:
    X, gamma = rows_of(case, dtype)
    true, M = truth(X, gamma), given(X, layout)
    for kind, error in ((np.float64, 4e-12), (np.float32, 1e-3)):
        if kind == np.float32 and dtype == np.float64:
            continue  # rounding the rows comes first
        values = Gram(Kernel("rbf", gamma), D, kind, 1).values(M, np.arange(N), support_of(M, np.arange(N), kind))
        assert float(np.abs(values - true).max()) < error
        far = 2.0 * gamma * (X.astype(np.float64) ** 2).sum(axis=1) > 5000.0
        assert np.all(
            np.diag(values)[far] == 1.0
        )  # of differences; near the origin norms and products may be an ulp apart
    coef = np.random.default_rng(1).standard_normal((40, 1))
    for side in ("dense", "csr"):  # as models keep their support vectors
        sums = KernelSums(M, D, Kernel("rbf", gamma), 1)
        sums.add(given(X[:40], side), coef)
        assert float(np.abs(sums.sums[:, 0] - (true[:40].T @ coef)[:, 0]).max()) < 1e-10


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_a_value_is_the_same_whatever_rows_are_beside_it(layout: str) -> None:
    near, gamma = rows_of("1e2", np.float64)
    far, _ = rows_of("1e6", np.float64)
    X = np.concatenate([near[:40], far[:40]])
    gram = Gram(Kernel("rbf", gamma), D, np.float64, 1)
    M, alone = given(X, layout), given(X[:40], layout)
    mixed = gram.values(M, np.arange(80), support_of(M, np.arange(20), np.float64))
    assert np.array_equal(
        mixed[:, :40], gram.values(alone, np.arange(40), support_of(alone, np.arange(20), np.float64))
    )
    # What sparse rows leave in a tile would show in the next one.
    assert np.array_equal(mixed, gram.values(M, np.arange(80), support_of(M, np.arange(20), np.float64)))


def test_the_readable_kernel_keeps_its_digits_too() -> None:
    X, gamma = rows_of("seconds", np.float64)
    assert float(np.abs(Kernel("rbf", gamma).matrix(X, X) - truth(X, gamma)).max()) < 1e-13


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("far_side", ["support", "rows", "both"])
def test_a_far_row_among_others_changes_no_bit_of_theirs(far_side: str, dtype: Any, layout: str) -> None:
    # Tiles without far rows take a loop that does not look for them; a far row sends all of its tile through the other.
    near = np.random.default_rng(5).standard_normal((N, D)).astype(dtype)
    far_rows, of, rows, rbf = near.copy(), np.arange(10, 47), np.arange(N), Kernel("rbf", 0.5)
    far_rows[[20, 77]] = 1e3 + near[[20, 77]]  # 20 is one of S as well
    if far_side != "both":
        of, rows = (of, np.delete(rows, [20, 77])) if far_side == "support" else (np.delete(of, 10), rows)
    others, coef = np.ix_(~np.isin(of, [20, 77]), ~np.isin(rows, [20, 77])), np.ones((len(of), 1))
    coef[of == 20] = 0.0
    found = []
    for X in (near, far_rows):
        M, sums = given(X, layout), np.zeros((1, len(rows)))
        gram, support = Gram(rbf, D, dtype, 1), support_of(M, of, dtype)
        gram.add(M, rows, support, coef, sums)
        found.append((gram.values(M, rows, support)[others], sums[0, others[1][0]]))
    (values, sums_of_near), (values_beside_far, sums_beside_far) = found
    np.testing.assert_array_equal(values, values_beside_far)
    np.testing.assert_array_equal(sums_of_near, sums_beside_far)
    assert float(np.abs(values - truth(near, 0.5)[np.ix_(of, rows)][others]).max()) < 1e-5


@pytest.mark.parametrize("loop", [add_kernel_rows, add_kernel_pairs, write_kernel_rows], ids=lambda loop: loop.__name__)
def test_rows_that_cannot_cancel_are_one_loop_without_calls(loop: Any) -> None:
    # A call for each row, with all arguments of the loop, made every value cost half as much again.
    X, n = given(np.ones((LANES, D), np.float32), "csr"), LANES
    args = {
        "X": X, "rows": np.arange(n), "after": 0, "support": support_of(X, np.arange(n), np.float32), "at": 0,
        "coef": np.ones(n) if loop is add_kernel_pairs else np.ones((n, 1)), "coef_of_rows": np.ones(n),
        "kernel": KernelFunction(*Kernel("rbf", 0.5).parameters), "into": np.arange(n), "sums_of_support": np.zeros(n),
        "workspace": TileWorkspace.zeros(D, np.float32, 2),
        "out": {
            add_kernel_rows: np.zeros((1, n)), add_kernel_pairs: np.zeros(n),
            write_kernel_rows: np.zeros((n, n), np.float32),
        }[loop],
    }  # fmt: skip
    plain: Any = jit(**loop.targetoptions)(loop.py_func)  # what is cached cannot be inspected
    plain(*(args[name] for name in inspect.signature(loop.py_func).parameters))
    (code,) = plain.inspect_llvm().values()
    (body,) = re.findall(rf"^define [^\n]*{loop.__name__}[^\n]*\{{\n(.*?)^\}}", code, re.MULTILINE | re.DOTALL)[:1]
    steps = len(SINGLE.polynomial) + 3  # of exp, on all lanes at once
    assert len(re.findall(rf"call[^\n]*@llvm\.fma\.v{LANES}f32", body)) >= steps
