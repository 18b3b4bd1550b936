"""Packed rows against the exact ones: products within the stated error, full row buffers, gaps that are closed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from bigsvm.compiled.linear.active_row_buffer import Slots, admit, evict
from bigsvm.compiled.linear.dual_cd import BlockRows
from bigsvm.compiled.shared.compile import inner_loop
from bigsvm.compiled.shared.many import many_axpys, many_dots, some_dots
from bigsvm.compiled.shared.packed import PackedCSR, PackedDense, pack_row
from bigsvm.compiled.shared.rows import CSR, n_rows_of, row_axpy, row_axpys, row_dot, row_dots
from bigsvm.store.blocks import readonly_view
from bigsvm.testing.problems import as_csr
from tests.products import each_of

ERROR = 1.6e-5  # of the row's largest value
LARGEST_FEATURE = 140_000
DIRECTIONS = np.random.default_rng(0).standard_normal((LARGEST_FEATURE, 3))
KINDS = ["csr", "wide", "dense"]
KEPT = [*KINDS, "wide as it is", "dense as it is"]  # rows that are kept without packing


@inner_loop
def pack(A, X, n):
    """Pack rows of X until one finds no room; how many were packed."""
    for i in range(n):
        if not pack_row(A, i, X, i):
            return i
    return n


@inner_loop
def dot(X, i, w):
    return row_dot(X, i, w)


@inner_loop
def axpy(a, X, i, w):
    row_axpy(a, X, i, w)


@inner_loop
def dots(X, i, W, out):
    row_dots(X, i, W, out)


@inner_loop
def dots_of_many(X, i, W, out):
    many_dots(X, i, W, out)


@inner_loop
def dots_of_some(X, i, W, out):
    some_dots(X, i, W, out, ~np.uint64(0))


@njit  # makes arrays where rows are packed, which an inner loop must not
def axpys(a, X, i, W):
    row_axpys(a, X, i, W)


@inner_loop
def axpys_of_many(a, X, i, W):
    many_axpys(a, X, i, W)


def room(kind: str, rows: int, n_features: int, entries: int) -> Any:
    """An empty place for `rows` rows with `entries` numbers of 16 bits (or values, as they are)."""
    if kind == "dense as it is":
        return np.zeros((rows, n_features))
    if kind == "wide as it is":
        return CSR(np.zeros(entries), np.zeros(entries, np.int32), np.zeros(rows + 1, np.int64))
    if kind == "dense":
        return PackedDense(np.zeros((rows, n_features), np.int16), np.zeros(rows, np.float32))
    pool = np.zeros(entries, np.uint16)
    hot, scale = np.zeros(rows, np.int32), np.zeros(rows, np.float32)
    return PackedCSR(pool, pool.view(np.int16), np.zeros(rows + 1, np.int64), hot, scale)


def example(kind: str, n: int, seed: int, dtype: type = np.float64) -> tuple[Any, int]:
    """Rows of very different sizes, some empty or all zeros, and how many features they have."""
    rng = np.random.default_rng(seed)
    size = 10.0 ** rng.integers(-6, 6, (n, 1))
    if not kind.startswith("wide"):
        X = rng.standard_normal((n, 23)) * size * (rng.random((n, 23)) < 0.6)
        X[rng.random(n) < 0.1] = 0.0
        X = X.astype(dtype)
        return (as_csr(X) if kind == "csr" else X), 23
    # Feature numbers on both sides of 2^16, in no order.
    corners = np.array([0, 1, 65534, 65535, 65536, 65537, 131071, 131072, LARGEST_FEATURE - 1])
    lengths = rng.integers(0, 30, n)
    lengths[rng.random(n) < 0.1] = 0
    data, indices = [], []
    for i, length in enumerate(lengths):
        found = np.unique(np.append(rng.integers(0, LARGEST_FEATURE, length), corners[: min(length, 9)]))
        indices.append(rng.permutation(found)[:length])
        data.append(rng.standard_normal(length) * size[i] * (i % 7 != 6))
    indptr = np.append(0, np.cumsum(lengths)).astype(np.int64)
    return CSR(np.concatenate(data).astype(dtype), np.concatenate(indices).astype(np.int32), indptr), LARGEST_FEATURE


def kept_row(A: Any, i: int, buffer: np.ndarray) -> bytes:
    """Row i as it was kept, its features and their values; `buffer` is zero, before and after."""
    axpy(1.0, A, i, buffer)
    found = np.flatnonzero(buffer)
    row = found.tobytes() + buffer[found].tobytes()
    buffer[found] = 0.0
    return row


def exact(X: Any, i: int, n_features: int) -> np.ndarray:
    """Row i as float64."""
    out = np.zeros(n_features)
    if isinstance(X, CSR):
        row = slice(X.indptr[i], X.indptr[i + 1])
        out[X.indices[row]] = X.data[row]
    else:
        out[:] = X[i]
    return out


@each_of(kind=KINDS, dtype=[np.float32, np.float64])
@given(seed=st.integers(0, 10_000))
def test_products_with_packed_rows_are_those_of_the_rows(kind: str, dtype: type, seed: int) -> None:
    X, d = example(kind, 12, seed, dtype)
    A = room(kind, 12, d, 2000)
    assert pack(A, readonly_view(X), 12) == 12
    w, W, factors = DIRECTIONS[:d, 0].copy(), DIRECTIONS[:d], np.array([0.5, 0.0, -2.0])
    moved, several = np.zeros(d), np.zeros((d, 3))
    for i in range(12):
        whole = exact(X, i, d)
        present = np.flatnonzero(whole)
        x, off = whole[present], ERROR * np.abs(whole).max()
        assert abs(dot(A, i, w) - x @ w[present]) <= off * np.abs(w[present]).sum() * (1 + 1e-9)
        out = np.full(3, np.nan)
        for product in (dots, dots_of_many, dots_of_some):
            product(A, i, W, out)
            assert np.all(np.abs(out - x @ W[present]) <= off * np.abs(W[present]).sum(axis=0) * (1 + 1e-9))
        axpy(-3.0, A, i, moved)
        assert np.all(np.abs(moved[present] + 3.0 * x) <= 3.0 * off)
        moved[present] = 0.0
        assert not moved.any()  # nothing else was touched
        for add in (axpys, axpys_of_many):
            add(factors, A, i, several)
            assert np.all(np.abs(several[present] - np.outer(x, factors)) <= off * np.abs(factors))
            several[present] = 0.0
            assert not several.any()


def test_the_largest_value_of_a_row_and_feature_numbers_are_kept_whole() -> None:
    X, d = example("wide", 40, 3)
    A = room("wide", 40, d, 5000)
    assert pack(A, readonly_view(X), 40) == 40
    for i in range(40):
        x, moved = exact(X, i, d), np.zeros(d)
        axpy(1.0, A, i, moved)
        assert set(np.flatnonzero(moved)) <= set(np.flatnonzero(x))
        assert np.abs(moved).max() == pytest.approx(np.abs(x).max(), rel=1e-6)
        if x.any():
            assert np.argmax(np.abs(moved)) == np.argmax(np.abs(x))


@pytest.mark.parametrize("kind", KEPT)
@pytest.mark.parametrize("short_of", ["entries", "rows"])
def test_a_row_that_finds_no_room_leaves_the_others_as_they_were(kind: str, short_of: str) -> None:
    X, d = example(kind, 30, 4)
    whole = room(kind, 30, d, 5000)
    assert pack(whole, readonly_view(X), 30) == 30
    buffer = np.zeros(d)
    rows = [kept_row(whole, i, buffer) for i in range(30)]
    by_rows = short_of == "rows" or kind.startswith("dense")
    for size in (0, 1, 7, 29) if by_rows else (0, 5, 100, 301):
        A = room(kind, size, d, 5000) if by_rows else room(kind, 30, d, size)
        n = pack(A, readonly_view(X), 30)
        assert n < 30
        assert n == size or short_of == "entries"
        assert [kept_row(A, i, buffer) for i in range(n)] == rows[:n]
        if isinstance(whole, PackedCSR) and short_of == "entries":
            assert whole.ptr[n] <= size < whole.ptr[n + 1]  # it was as full as it can be


def slots_for(n: int, weights: bool) -> Slots:
    """What n slots know, empty."""
    return Slots(
        np.zeros(n, np.int64), np.zeros(n, np.int32), np.zeros(n if weights else 0), np.zeros(n, np.float32),
        np.zeros(n, np.float32),
    )  # fmt: skip


def filled(kind: str, n: int, seed: int, weights: bool) -> Any:
    """A buffer of n rows, admitted all, and what was put there: (A, slots, in use, streams, X, features, columns)."""
    X, d = example(kind, n, seed)
    rng = np.random.default_rng(seed)
    at = rng.permutation(2 * n)[:n]
    codes, weight = rng.integers(0, 9, n).astype(np.int32), rng.random(n if weights else 0)
    norms, score = rng.random(n), rng.random(n).astype(np.float32)
    A, slots, streams = room(kind, n, d, 100 * n), slots_for(n, weights), np.ones(2 * n, np.uint8)
    rows = BlockRows(readonly_view(X), codes, weight, norms, at)
    used, seen = admit(A, slots, 0, rows, np.arange(n), n, score, -1.0, 0, streams)
    assert (used, seen) == (n, n)
    return A, slots, n, streams, X, d, (at, codes, weight, norms.astype(np.float32), score)


@each_of(kind=KEPT, weights=[True, False])
@given(seed=st.integers(0, 10_000), share=st.floats(0, 1), n=st.integers(1, 60))
def test_rows_that_stay_keep_their_order_and_all_that_is_known_of_them(
    kind: str, weights: bool, seed: int, share: float, n: int
) -> None:
    A, slots, used, streams, X, d, columns = filled(kind, n, seed, weights)
    buffer = np.zeros(d)
    before = [kept_row(A, i, buffer) for i in range(n)]
    score = columns[-1]
    stays = np.flatnonzero(score > share)
    kept = evict(A, slots, used, share, streams)
    assert kept == len(stays)
    for place, i in enumerate(stays):
        assert kept_row(A, place, buffer) == before[i]
    for ours, theirs in zip(slots, columns, strict=True):
        if len(theirs):
            np.testing.assert_array_equal(ours[:kept], theirs[stays])
    expected = np.ones(2 * n, np.uint8)
    expected[columns[0][stays]] = 0
    np.testing.assert_array_equal(streams, expected)
    # The room that was made is room: a row that was let go comes in behind the ones that stayed.
    if kept < n_rows_of(X):
        assert packed_again(A, kept, readonly_view(X), 0)
        assert kept_row(A, kept, buffer) == before[0]


@inner_loop
def packed_again(A, slot, X, i):
    return pack_row(A, slot, X, i)
