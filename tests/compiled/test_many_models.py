"""Rows against many models: each model's bits are those that it has alone, however models lie side by side."""

from __future__ import annotations

from itertools import repeat
from typing import Any

import numpy as np
import pytest

from bigsvm.compiled.shared.compile import inner_loop
from bigsvm.compiled.shared.many import few, many_axpys, many_dots, row_entry, row_scale, row_span
from bigsvm.compiled.shared.packed import PackedCSR, PackedDense, pack_row
from bigsvm.compiled.shared.rows import CSR
from bigsvm.store.blocks import readonly_view
from tests.products import on_request

N, FEATURES = 6, 65_600  # features on both sides of 2^16
KINDS = ["dense", "packed dense", "csr", "packed"]
WIDTHS = [2, 3, 4, 7, 8, 10, 16, 17, 20, 26, 33]


@inner_loop
def dots(X, i, W, out):
    many_dots(X, i, W, out)


@inner_loop
def axpys(steps, X, i, W):
    many_axpys(steps, X, i, W)


@inner_loop
def entries(X, i, features, values):
    """Features and unscaled values of row i, as loops see them; how many, and the scale."""
    a, b = row_span(X, i)
    for k in range(a, b):
        features[k - a], values[k - a] = row_entry(X, i, k)
    return b - a, row_scale(X, i)


def seen(X: Any, i: int) -> tuple[list[int], list[float], float]:
    """Of row i: features, unscaled values, scale."""
    features, values = np.empty(30, np.int64), np.empty(30)
    n, scale = entries(X, i, features, values)
    return features[:n].tolist(), values[:n].tolist(), scale


def dot_alone(row: Any, w: np.ndarray) -> float:
    features, values, scale = row
    total = 0.0
    for j, x in zip(features, values, strict=True):
        total += x * float(w[j])
    return total * scale


def axpy_alone(step: float, row: Any, w: np.ndarray) -> None:
    features, values, scale = row
    for j, x in zip(features, values, strict=True):
        w[j] = float(w[j]) + step * (x * scale)


@inner_loop
def pack(A, X):
    for i in range(N):
        pack_row(A, i, X, i)


@inner_loop
def is_few(live):
    return few(live)


def rows(kind: str) -> tuple[Any, int]:
    """Rows of every form that loops take, the first of them empty, and how many features they have."""
    rng = np.random.default_rng(3)
    if kind in ("dense", "packed dense"):
        X = rng.standard_normal((N, 21)).astype(np.float32)
        X[0] = 0.0
        if kind == "dense":
            return readonly_view(X), 21
        dense = PackedDense(np.zeros((N, 21), np.int16), np.zeros(N, np.float32))
        pack(dense, readonly_view(X))
        return dense, 21
    lengths = np.array([0, 1, 5, 30, 2, 17])
    indices = [np.sort(rng.choice(FEATURES, n, replace=False)) for n in lengths]
    data = rng.standard_normal(lengths.sum()).astype(np.float32)
    found = CSR(data, np.concatenate(indices).astype(np.int32), np.append(0, np.cumsum(lengths)).astype(np.int64))
    if kind == "csr":
        return readonly_view(found), FEATURES
    pool = np.zeros(500, np.uint16)
    hot, scale = np.zeros(N, np.int32), np.zeros(N, np.float32)
    packed = PackedCSR(pool, pool.view(np.int16), np.zeros(N + 1, np.int64), hot, scale)
    pack(packed, readonly_view(found))
    return packed, FEATURES


@pytest.mark.parametrize(
    ("kind", "dtype", "layout"),
    [
        *zip(KINDS, 2 * (np.float64, np.float32), repeat("lines"), strict=False),
        *on_request(*zip(KINDS, 2 * (np.float32, np.float64), repeat("lines"), strict=False)),
        # Not in C order: the loop of two and of three models takes all, which `lines` has of every kind and type.
        *zip(KINDS, 2 * (np.float32, np.float64), repeat("apart"), strict=False),
    ],
)
def test_models_side_by_side_have_the_bits_of_each_alone(kind: str, dtype: type, layout: str) -> None:
    X, d = rows(kind)
    rng = np.random.default_rng(4)
    for n_models in WIDTHS:
        W = rng.standard_normal((d + 1, 2 * n_models)).astype(dtype)[:, ::2]
        if layout == "lines":
            W = np.ascontiguousarray(W)
        for i in range(N):
            out = np.full(n_models + 1, np.nan)
            dots(X, i, W, out[:n_models])
            row = seen(X, i)
            alone = [dot_alone(row, W[:, m]) for m in range(n_models)]
            np.testing.assert_array_equal(out[:n_models], alone)
            assert np.isnan(out[n_models])  # nothing is written beyond
            moving = min((0, 1, 2, 3, n_models, 5)[i], n_models)
            steps = np.zeros(n_models)
            steps[rng.choice(n_models, moving, replace=False)] = rng.standard_normal(moving)
            expected = W.copy()
            for m in range(n_models):
                axpy_alone(float(steps[m]), row, expected[:, m])
            axpys(steps, X, i, W)
            np.testing.assert_array_equal(W, expected)


@pytest.mark.parametrize(("live", "expected"), [(0, True), (0b10110, True), (0b1111, False), (1 << 63, True)])
def test_up_to_three_models_are_few(live: int, expected: bool) -> None:
    assert is_few(np.uint64(live)) == expected
