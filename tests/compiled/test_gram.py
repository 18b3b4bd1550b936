"""Kernel values in tiles, against the readable truth; exp against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from bigsvm.compiled.kernel.values import tile as tiles
from bigsvm.compiled.kernel.values.expo import exp_of
from bigsvm.compiled.kernel.values.gram import (
    RBF,
    KernelFunction,
    add_kernel_rows,
    add_stored_rows,
    write_kernel_rows,
)
from bigsvm.compiled.kernel.values.layout import TileWorkspace
from bigsvm.compiled.kernel.values.support import move_rows_down, support_of, unit_rows
from bigsvm.compiled.kernel.values.tile import GROUP, LANES
from bigsvm.compiled.shared.rows import CSR
from bigsvm.problem.kernel import Kernel, poly_of_bracket, rbf_of_sigma, rbf_of_width
from bigsvm.solvers.kernel.values.gram import PAIRED, Gram
from bigsvm.store.blocks import readonly_view  # as fits have rows: other kinds of arrays are compiled for anew
from bigsvm.testing.problems import as_csr, random_problem
from tests.products import each_of

KERNELS = [
    Kernel(),
    Kernel("rbf", 0.3),
    Kernel("poly", 0.2, 3, 0.5),
    Kernel("poly", 0.5, 1),
    Kernel("poly", 0.2, 5, 0.5),
    Kernel("sigmoid", 0.2, coef0=-0.1),
]
N, D = 150, 7


@njit
def exp_all(x, out):
    for i in range(len(x)):
        out[i] = exp_of(x[i])


def rows_of(layout: str, dtype: type = np.float64) -> tuple[object, np.ndarray]:
    X = random_problem(N, D, 0.6, seed=3)[0].astype(dtype)
    return readonly_view(X if layout == "dense" else as_csr(X)), X.astype(np.float64)


@pytest.mark.parametrize(("dtype", "lowest", "error"), [(np.float32, -87.0, 1.5e-7), (np.float64, -708.0, 4e-16)])
def test_exp_is_as_good_as_its_type(dtype: type, lowest: float, error: float) -> None:
    x = np.concatenate([np.linspace(lowest, 0, 400_001), np.linspace(-1, 0, 200_001)]).astype(dtype)
    found = np.empty_like(x)
    exp_all(x, found)
    truth = np.exp(x.astype(np.longdouble))
    assert float(np.max(np.abs(found - truth) / truth)) < error
    assert found[-1] == 1.0
    far = np.array([-1e6, -np.finfo(dtype).max], dtype)
    exp_all(far, found[:2])
    assert np.all((found[:2] >= 0) & (found[:2] < 1e-37))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: f"{kernel.name}{kernel.degree}")
@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 2e-5), (np.float64, 1e-13)])
def test_values_and_sums_are_those_of_the_definition(kernel: Kernel, layout: str, dtype: type, error: float) -> None:
    X, dense = rows_of(layout)
    rng = np.random.default_rng(1)
    rows, of = rng.permutation(N)[:131], rng.permutation(N)[:37]
    coef = rng.standard_normal((37, 2))
    K = kernel.matrix(dense[of], dense[rows])
    gram = Gram(kernel, D, dtype, 1)
    support = support_of(X, of, dtype)
    assert gram.values(X, rows, support) == pytest.approx(K, abs=error * max(1.0, np.abs(K).max()))
    out = rng.standard_normal((2, 131))
    expected = out + coef.T @ K
    gram.add(X, rows, support, coef, out)
    assert out == pytest.approx(expected, abs=40 * error * max(1.0, np.abs(K).max()))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: f"{kernel.name}{kernel.degree}")
@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("n", [1, 65, 333])
@pytest.mark.parametrize("at_once", [2 * LANES, PAIRED])
def test_sums_over_pairs_are_those_of_the_matrix(
    kernel: Kernel, layout: str, n: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With any number of rows in hand, on one thread and on three to the bit."""
    monkeypatch.setattr("bigsvm.solvers.kernel.values.gram._WORTH_A_THREAD", 1)
    X, dense = rows_of(layout)
    rng = np.random.default_rng(8)
    rows, into, coef = rng.integers(0, N, n), rng.permutation(400)[:n], rng.standard_normal(n)
    began = rng.standard_normal(400)
    found = []
    for threads in (1, 3):
        gram, out = Gram(kernel, D, np.float64, threads), began.copy()
        # What an earlier call has left in a tile is not to count: it may be infinite.
        gram._workspace(X, 2).tile[:] = 0.0 if layout == "csr" else 1e300
        for first in range(0, n, at_once):
            support = support_of(X, rows[first : first + at_once], np.float64)
            gram.add_pairs(X, rows[first:], support, coef[first:], out, into[first:])
        gram.close()
        found.append(out)
    assert np.array_equal(*found)
    K = kernel.matrix(dense[rows], dense[rows])
    began[into] += K @ coef
    assert found[0] == pytest.approx(began, abs=1e-12 * n * max(1.0, np.abs(K).max()))


def test_sums_of_kept_values_are_float64() -> None:
    rng = np.random.default_rng(4)
    stored, where, coef = (
        rng.standard_normal((30, 50)).astype(np.float32),
        rng.permutation(30)[:20],
        np.arange(20.0) / 7,
    )
    out = rng.standard_normal(50)
    expected = out + coef @ stored[where].astype(np.float64)
    add_stored_rows(stored, where, coef, out)
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("n_models", [1, 2, 3])
def test_sums_over_groups_are_those_of_one_row_after_another(n_models: int, kind: type, layout: str) -> None:
    # Four rows of S are added at a time unless one of them has no coefficient, and those behind the last four are left.
    X, _ = rows_of(layout, np.float32)
    gram, rng = Gram(Kernel("rbf", 0.3), D, kind, 1), np.random.default_rng(6)
    for n_support, without in ((4, 0.0), (50, 0.0), (51, 0.3), (3, 0.0), (48, 0.9)):
        support, coef = support_of(X, np.arange(n_support), kind), rng.standard_normal((n_support, n_models))
        coef[rng.random(coef.shape) < without] = 0.0
        began = rng.standard_normal((n_models, N))
        out, one_by_one = began.copy(), began.copy()
        gram.add(X, np.arange(N), support, coef, out)
        values = gram.values(X, np.arange(N), support)
        for m in range(n_models):
            add_stored_rows(values, np.arange(n_support), np.ascontiguousarray(coef[:, m]), one_by_one[m])
        np.testing.assert_array_equal(out, one_by_one)


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_bits_depend_on_the_two_rows_alone(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigsvm.solvers.kernel.values.gram._WORTH_A_THREAD", 1)
    X, _ = rows_of(layout, np.float32)
    kernel = Kernel("rbf", 0.3)
    many, one = Gram(kernel, D, np.float32, 4), Gram(kernel, D, np.float32, 1)
    X = readonly_view(np.tile(X, (20, 1))) if isinstance(X, np.ndarray) else X
    rows = np.arange(N if layout == "csr" else 20 * N)
    support = support_of(X, np.arange(50), np.float32)
    values = one.values(X, rows, support)
    assert np.array_equal(many.values(X, rows, support), values)
    assert np.array_equal(one.values(X, rows[17:90], support), values[:, 17:90])
    out, again = np.zeros((1, len(rows))), np.zeros((1, len(rows)))
    coef = np.random.default_rng(2).standard_normal((50, 1))
    one.add(X, rows, support, coef, out)
    for start in (0, 20, 40):  # the other side in pieces: the same sums in the same order
        many.add(X, rows, support.part(start, min(start + 20, 50)), coef[start : start + 20], again)
    assert np.array_equal(out, again)
    by_hand = np.zeros(len(rows))
    for row, by in zip(values, coef[:, 0], strict=True):
        by_hand += by * row.astype(np.float64)
    assert out[0] == pytest.approx(by_hand, rel=1e-14, abs=1e-14)
    many.close()


@each_of(dtype=[np.int8, np.uint8, np.float32, np.float64], layout=["dense", "csr"])
def test_rows_of_every_type(layout: str, dtype: type) -> None:
    dense = np.random.default_rng(4).integers(0, 5, (40, 6)).astype(dtype)
    X = readonly_view(dense if layout == "dense" else as_csr(dense))
    kernel = Kernel("rbf", 0.1)
    found = Gram(kernel, 6, np.float64, 1).values(X, np.arange(40), support_of(X, np.arange(9), np.float64))
    assert found == pytest.approx(kernel.matrix(dense[:9].astype(float), dense.astype(float)), abs=1e-13)


def test_a_precomputed_kernel_is_a_linear_one_of_unit_rows() -> None:
    K = readonly_view(np.random.default_rng(5).standard_normal((30, 30)))
    gram = Gram(Kernel("precomputed"), 30, np.float64, 1)
    columns = np.array([3, 17, 4])
    assert np.array_equal(gram.values(K, np.arange(30), unit_rows(columns, np.dtype(np.float64))), K[:, columns].T)


def test_equal_rows_have_the_value_1_and_no_rows_change_nothing() -> None:
    X = readonly_view(np.repeat(np.random.default_rng(6).standard_normal((1, D)) * 1e3, 70, axis=0))
    gram = Gram(Kernel("rbf", 2.0), D, np.float64, 1)
    assert np.all(gram.values(X, np.arange(70), support_of(X, np.arange(5), np.float64)) == 1.0)
    out = np.ones((1, 70))
    gram.add(X, np.arange(70), support_of(X, np.arange(0), np.float64), np.empty((0, 1)), out)
    assert np.all(out == 1.0)


def test_rooms_are_left_as_they_were_found() -> None:
    X, _ = rows_of("csr")
    support, kernel = support_of(X, np.arange(9), np.float32), KernelFunction(RBF, 0.5, 3, 0.0)
    room = TileWorkspace.zeros(D, np.float32, 1)
    add_kernel_rows(X, np.arange(N), support, np.ones((9, 1)), kernel, room, np.zeros((1, N)), 0)
    assert not room.tile.any()
    write_kernel_rows(X, np.arange(N), support, kernel, room, np.empty((9, N), np.float32), 0)
    assert not room.tile.any()


def test_rows_move_down_in_place() -> None:
    X, dense = rows_of("csr")
    assert isinstance(X, CSR)
    moved = CSR(*(array.copy() for array in X))
    stays = np.array([0, 3, 4, 77, 149])
    move_rows_down(*moved, stays)
    end = moved.indptr[5]
    kept = as_csr(dense[stays])
    assert np.array_equal(moved.indptr[:6], kept.indptr)
    assert np.array_equal(moved.data[:end], kept.data)
    assert np.array_equal(moved.indices[:end], kept.indices)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: f"{kernel.name}{kernel.degree}")
def test_the_diagonal_is_that_of_the_matrix(kernel: Kernel) -> None:
    X = rows_of("dense")[1]
    np.testing.assert_allclose(kernel.diagonal((X * X).sum(axis=1)), np.diag(kernel.matrix(X, X)), rtol=1e-13)


def test_the_papers_conventions() -> None:
    x, z = np.array([[1.0, 2.0]]), np.array([[-0.5, 0.25]])
    square = float(((x - z) ** 2).sum())
    assert rbf_of_width(3.0).matrix(x, z)[0, 0] == pytest.approx(np.exp(-square / 3.0))
    assert rbf_of_sigma(3.0).matrix(x, z)[0, 0] == pytest.approx(np.exp(-square / 18.0))
    assert poly_of_bracket(0.5, 3).matrix(x, z)[0, 0] == pytest.approx((0.5 * (float(x[0] @ z[0]) + 1.0)) ** 3)


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_do_not_depend_on_the_place_in_a_tile(layout: str, dtype: type) -> None:
    X, _ = rows_of(layout, dtype)
    gram = Gram(Kernel("rbf", 0.3), D, dtype, 1)
    support = support_of(X, np.arange(11), dtype)
    values = gram.values(X, np.arange(N), support)
    for stop in range(1, 70):
        assert np.array_equal(gram.values(X, np.arange(3, 3 + stop), support), values[:, 3 : 3 + stop])
    single = [gram.values(X, np.arange(N), support_of(X, np.array([k]), dtype))[0] for k in range(11)]
    assert np.array_equal(np.stack(single), values)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_do_not_depend_on_a_processors_registers(dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops that run once where all sums have a register, and several times where they have not."""
    rng = np.random.default_rng(4)
    S, tile = rng.standard_normal((GROUP, D)).astype(dtype), rng.standard_normal((D, LANES)).astype(dtype)
    entries = np.arange(D, dtype=np.int32)
    found = []
    for wide in (True, False):
        monkeypatch.setattr(tiles, "_has_wide_registers", lambda context, wide=wide: wide)

        @njit
        def products(S, tile, numbers, n, of_dense, of_sparse):
            tiles.dense_rows_times_tile(S, 0, tile, 0, of_dense)
            for r in range(len(S)):
                tiles.sparse_row_times_tile(S[r], numbers, 0, n, tile, 0, of_sparse[r])

        for n in range(D + 1):  # even and odd numbers of entries, and none
            of_dense, of_sparse = np.empty((2, GROUP, LANES), dtype)
            products(S, tile, entries, n, of_dense, of_sparse)
            np.testing.assert_allclose(of_sparse, S[:, :n] @ tile[:n], rtol=1e-5, atol=1e-5)
            found.append((of_dense, of_sparse))
        np.testing.assert_allclose(of_dense, S @ tile, rtol=1e-5, atol=1e-5)
    for with_wide, with_narrow in zip(found[: D + 1], found[D + 1 :], strict=True):
        assert np.array_equal(with_wide, with_narrow)
