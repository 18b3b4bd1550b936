"""Kernel values of rows of whole numbers times a step: products of pairs are exact, whatever holds the rows."""

from __future__ import annotations

import itertools
from typing import Any

import numba
import numpy as np
import pytest

from bigsvm.compiled.kernel.values import step as step_module
from bigsvm.compiled.kernel.values import whole
from bigsvm.compiled.kernel.values.step import Steps, steps_of, steps_of_bytes
from bigsvm.compiled.kernel.values.support import whole_support_of
from bigsvm.compiled.kernel.values.tile import LANES
from bigsvm.compiled.shared.rows import CSR
from bigsvm.problem.kernel import Kernel
from bigsvm.solvers.kernel.values.gram import Gram
from bigsvm.store.blocks import readonly_view
from bigsvm.testing.problems import as_csr

KERNELS = [Kernel(), Kernel("rbf", 0.003), Kernel("poly", 0.1, 3, 0.5), Kernel("sigmoid", 0.01)]
N, N_SUPPORT, D = 150, 37, 141  # three tiles, the last one not full; parts of pairs, and a feature alone
STORED, STEP = {"csr": "float64", "dense": "int8"}, {"csr": 1 / 255, "dense": 1.0}  # few types: each is compiled


def numbers(seed: int = 0, largest: int = 127) -> np.ndarray:
    """Whole numbers, int64, (N, D), two thirds of them zeros, a row of zeros among them."""
    rng = np.random.default_rng(seed)
    K = rng.integers(-largest, largest + 1, (N, D)) * (rng.random((N, D)) < 0.35)
    K[5] = 0
    return K


def rows_of(K: np.ndarray, layout: str, stored: str = "") -> Any:
    """K times the step of the layout."""
    X = (K / 255 if layout == "csr" else K).astype(stored or STORED[layout])
    return readonly_view(as_csr(X) if layout == "csr" else X)


def gram_of(kernel: Kernel, dtype: type, step: float, threads: int = 1) -> Gram:
    return Gram(kernel, D, dtype, threads, Steps(step))


def all_of(gram: Gram, X: Any, of: np.ndarray, coef: np.ndarray) -> list[np.ndarray]:
    """What a Gram makes of X's rows: values, sums of two models, and sums over pairs of rows `of`."""
    n = len(X.indptr) - 1 if isinstance(X, CSR) else len(X)
    support, sums, paired = gram.support(X, of), np.zeros((2, n)), np.zeros(n)
    assert support.S.data.dtype == np.int32 if isinstance(support.S, CSR) else support.S.dtype == np.int32
    gram.add(X, np.arange(n), support, coef, sums)
    gram.add_pairs(X, of, support, coef[:, 0].copy(), paired, of)
    return [gram.values(X, np.arange(n), support), sums, paired]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_values_are_those_of_the_kernel(kernel: Kernel, dtype: type, layout: str) -> None:
    of, coef = np.arange(3, 3 + N_SUPPORT), np.random.default_rng(5).standard_normal((N_SUPPORT, 2))
    K, unit = numbers(largest=127 if layout == "csr" else 9), 1e-6 if dtype == np.float32 else 1e-14
    plain = K * STEP[layout]
    wanted = kernel.matrix(plain[of], plain)
    values, sums, paired = all_of(gram_of(kernel, dtype, STEP[layout]), rows_of(K, layout), of, coef)
    size = np.maximum(np.abs(wanted), kernel.matrix(np.abs(plain[of]), np.abs(plain)))  # products of both signs cancel
    size = 1.0 if kernel.name in ("rbf", "sigmoid") else size.max()
    assert np.abs(values - wanted).max() <= 4 * unit * size
    assert np.abs(sums - coef.T @ wanted).max() <= 4 * unit * size * np.abs(coef).sum()
    assert np.abs(paired[of] - coef[:, 0] @ wanted[:, of]).max() <= 4 * unit * size * np.abs(coef).sum()


@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_products_and_distances_are_exact(layout: str) -> None:
    """Products have one rounding; distances of rows far from the origin lose nothing, in float32 as well."""
    K, step, of = numbers(), STEP[layout], np.arange(N)
    X = rows_of(K, layout)
    products = gram_of(Kernel(), np.float64, step).values(X, of, whole_support_of(X, of, step))
    assert np.array_equal(products, (K @ K.T) * 2.0 * (0.5 * step * step))
    near = 120 + numbers(largest=2)  # squared norms of 2e6, and distances of tens
    X, squares = rows_of(near, layout), ((near[:, None] - near[None]) ** 2).sum(axis=2)
    for dtype, rel in ((np.float32, 1e-6), (np.float64, 1e-14)):
        values = gram_of(Kernel("rbf", 0.02 / step**2), dtype, step).values(X, of, whole_support_of(X, of, step))
        assert values == pytest.approx(np.exp(-0.02 * squares), rel=rel)


@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_value_depends_on_its_two_rows_alone(layout: str, dtype: type) -> None:
    """On no other row, thread, or earlier call, and not on the order of a sparse row's numbers."""
    X, rng, coef = rows_of(numbers(), layout), np.random.default_rng(1), np.ones((N, 2))
    for kernel in KERNELS:
        step = STEP[layout]
        gram = gram_of(kernel, dtype, step)
        first = all_of(gram, X, np.arange(N), coef)
        again, threaded = (
            all_of(gram, X, np.arange(N), coef),
            all_of(gram_of(kernel, dtype, step, 3), X, np.arange(N), coef),
        )
        for a, b, c in zip(first, again, threaded, strict=True):
            assert np.array_equal(a, b)
            assert np.array_equal(a, c)
        some, of = rng.permutation(N)[:70], rng.permutation(N)[:9]
        assert np.array_equal(gram.values(X, some, gram.support(X, of)), first[0][np.ix_(of, some)])
        assert np.array_equal(gram.values(X, some, gram.support(X, np.arange(20)).part(8, 13)), first[0][8:13, some])
        if isinstance(X, CSR):
            data, indices = X.data.copy(), X.indices.copy()
            for start, stop in itertools.pairwise(X.indptr):
                mixed = start + rng.permutation(stop - start)
                data[start:stop], indices[start:stop] = X.data[mixed], X.indices[mixed]
            shuffled = readonly_view(CSR(data, indices, X.indptr))
            assert np.array_equal(gram.values(shuffled, np.arange(N), gram.support(shuffled, of)), first[0][of])


def test_numbers_up_to_the_bounds_do_not_overflow() -> None:
    """Rows of opposite signs whose squared norms are just below the bound: the distance takes all of 32 bits."""
    row = np.zeros(D, np.int64)
    row[:2] = [16383, 16384]
    row[2] = int(np.sqrt(whole.MOST - 1 - (row**2).sum()))
    K = np.array([row, -row, np.roll(row, 1), [whole.LARGEST // 2] + [0] * (D - 1)])
    assert (K**2).sum(axis=1).max() < whole.MOST
    squares = ((K[:, None] - K[None]) ** 2).sum(axis=2)
    assert squares.max() > 2**31 - 2**17
    for layout in ("csr", "dense"):
        X, step, of = rows_of(K, layout, "float64" if layout == "csr" else "float32"), STEP[layout], np.arange(4)
        gram = gram_of(Kernel("rbf", 1e-9 / step**2), np.float64, step)
        values = gram.values(X, of, whole_support_of(X, of, step))
        assert values == pytest.approx(np.exp(-1e-9 * squares), rel=1e-14)


@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_processors_without_the_instruction_give_the_same(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    K = numbers()
    X, step = rows_of(K, layout), STEP[layout]
    support, tile, out = whole_support_of(X, np.arange(4), step), np.zeros((D, LANES)), np.zeros((4, LANES))
    monkeypatch.setattr(whole, "_has_avx2", lambda context: False)

    @numba.njit
    def sparse(X, S, sq, tile, out):
        whole.lay_out_whole(X, np.arange(LANES), 0, LANES, step, tile, True)
        for r in range(4):
            whole.pairs_times_tile(S.data, S.indices, S.indptr[r], S.indptr[r + 1], tile, sq[r], 0.5, out[r])

    @numba.njit
    def dense(X, S, sq, tile, out):
        whole.lay_out_whole(X, np.arange(LANES), 0, LANES, step, tile, True)
        sums = np.empty((whole.AHEAD, LANES), np.int32)
        whole.dense_pairs_times_tile(S, 0, 4, tile, sums)
        for r in range(4):
            whole.finish_pairs(sums, r, tile, sq[r], 0.5, out[r])

    (sparse if layout == "csr" else dense)(X, support.S, support.sq, tile, out)
    assert np.array_equal(-2 * out, ((K[:4, None] - K[None, :LANES]) ** 2).sum(axis=2))


WIDE = 64


def matrix(layout: str, stored: str = "float64", k: int = 255) -> Any:
    """Rows of whole numbers up to k that are worth pairs; floats are divided by k."""
    K = np.random.default_rng(2).integers(1, k + 1, (300, WIDE))
    K[0, 0], K[1, 1] = 1, k
    X = K.astype(stored) if np.dtype(stored).kind != "f" else (K / k).astype(stored)
    return readonly_view(as_csr(X) if layout == "csr" else X)


def with_number(layout: str, number: float) -> Any:
    X = matrix(layout)
    values = (X.data if isinstance(X, CSR) else X).copy()
    values.reshape(-1)[values.size // 2] = number
    return readonly_view(X._replace(data=values) if isinstance(X, CSR) else values)


@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_steps_are_found(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert steps_of(matrix(layout)) == Steps()  # too few rows
    monkeypatch.setattr(step_module, "_WORTH_IT", 0)
    for stored in ("uint8", "int16", "int64"):
        assert steps_of(matrix(layout, stored))[:2] == (1.0, True)
    assert steps_of(matrix(layout, "float64"))[:2] == (1 / 255, True)
    found = steps_of(matrix(layout, "float32"))
    assert found[:2] == (np.float32(1 / 255), False)
    X = matrix(layout, "float32")
    squares = (
        np.diff(np.add.accumulate(np.r_[0, X.data.astype(float) ** 2])[X.indptr])
        if layout == "csr"
        else (X.astype(float) ** 2).sum(axis=1)
    )
    assert found.largest_square == pytest.approx(squares.max())
    assert steps_of(with_number(layout, 0.0))[:2] == (1 / 255, True)
    assert steps_of(with_number(layout, -7 / 255))[:2] == (1 / 255, True)
    assert steps_of(with_number(layout, 100.00001 / 255))[:2] == (1 / 255, False)


@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("number", [0.3 / 255, 100.0001 / 255, np.nan, np.inf, -np.inf, 1e-300, 1e300, 40_000 / 255])
def test_one_number_that_is_no_multiple_refutes(layout: str, number: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_module, "_WORTH_IT", 0)
    assert steps_of(with_number(layout, number)) == Steps()


def test_what_pairs_are_not_quicker_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_module, "_WORTH_IT", 0)
    ones = readonly_view(np.ones((300, WIDE)))
    assert steps_of(ones) == Steps()
    assert steps_of(readonly_view(np.zeros((300, WIDE)))) == Steps()
    assert steps_of(readonly_view(as_csr(np.zeros((300, WIDE))))) == Steps()
    assert steps_of(readonly_view(matrix("dense")[:, :20])) == Steps()  # a row's products are not what takes the time
    apart = np.zeros((300, 2 * WIDE))
    apart[:, ::2] = matrix("dense")  # of each pair one feature
    assert steps_of(readonly_view(as_csr(apart))) == Steps()
    assert steps_of(matrix("dense", "int64", 30_000)) == Steps()  # norms beyond 32 bits
    assert steps_of(readonly_view(matrix("dense", "int64", 2000)))[:2] == (1.0, True)


def test_bytes_need_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [np.dtype(name) for name in ("uint8", "int8", "int16", "float32")]
    assert [steps_of_bytes(kind, 40_000, 32)[:2] for kind in kinds] == [(1.0, True)] * 2 + [(0.0, True)] * 2
    assert steps_of_bytes(kinds[0], 40_000, 31) == Steps()
    assert steps_of_bytes(kinds[0], 20_000, 32) == Steps()
    assert steps_of_bytes(kinds[0], 1000, 8300) == Steps()  # norms beyond 32 bits
    assert steps_of_bytes(kinds[1], 1000, 8300).largest_square == 8300 * 128**2
    monkeypatch.setattr(step_module, "_WORTH_IT", 0)
    found, bound = steps_of(matrix("dense", "uint8")), steps_of_bytes(kinds[0], 300, WIDE)
    assert found[:2] == bound[:2]
    assert found.largest_square <= bound.largest_square < whole.MOST


def test_values_in_float64_ask_for_multiples_in_float64() -> None:
    exact, rounded = Steps(0.1, True, 100.0), Steps(0.1, False, 100.0)
    assert [exact.for_values(np.dtype(kind), 1e9) for kind in (np.float32, np.float64)] == [0.1, 0.1]
    assert [rounded.for_values(np.dtype(kind), 0.0) for kind in (np.float32, np.float64)] == [0.1, 0.0]
    # Distances that are small beside the norms would have the rounding of the numbers.
    assert [rounded.for_values(np.dtype(np.float32), gamma) for gamma in (20.0, 21.0)] == [0.1, 0.0]
