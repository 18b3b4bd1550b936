"""The test for sorted rows and the numbering of features by frequency."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from bigsvm.store import working_order as module
from bigsvm.store.blocks import BlockRef
from bigsvm.store.formats.opener import open_store
from bigsvm.store.resident import ResidentRows
from bigsvm.store.working_order import frequency_order, inverse_order, rank_test_z, sample_runs, working_order
from bigsvm.testing.contracts import dense


def problem(layout: str, n: int, seed: int, n_classes: int = 2) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % n_classes)
    if layout == "dense":
        return rng.standard_cauchy((n, 5)).astype(np.float32), y
    return sparse.random_array((n, 200), density=0.02, rng=rng, format="csr", dtype=np.float32), y


@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("n", [60, 500, 3000, 40_000])
@pytest.mark.parametrize("seed", range(3))
def test_sorted_by_label_is_seen_and_shuffled_is_not(layout: str, n: int, seed: int) -> None:
    X, y = problem(layout, n, seed, n_classes=2 + seed % 2)
    assert not working_order(open_store((X, y))).shuffle
    order = np.argsort(y, kind="stable")
    found = working_order(open_store((X[order], y[order])))
    assert found.shuffle
    assert found.what.startswith("class")


@pytest.mark.parametrize("seed", range(3))
def test_sorted_by_a_feature_or_by_length_is_seen(seed: int) -> None:
    X, y = problem("dense", 20_000, seed)
    order = np.argsort(X[:, 3])
    assert working_order(open_store((X[order], y[order]))).shuffle
    X, y = problem("csr", 20_000, seed)
    order = np.argsort(np.diff(X.indptr), kind="stable")
    assert working_order(open_store((X[order], y[order]))).shuffle


def test_sorted_targets_and_many_classes_are_seen() -> None:
    X, _ = problem("dense", 5000, 1)
    y = np.random.default_rng(2).standard_normal(5000)
    assert not working_order(open_store((X, y), task="regression")).shuffle
    assert working_order(open_store((X, np.sort(y)), task="regression")).shuffle
    codes = np.arange(5000) % 40
    assert not working_order(open_store((X, np.random.default_rng(3).permutation(codes)))).shuffle
    assert working_order(open_store((X, np.sort(codes)))).shuffle


def test_a_rare_value_in_one_place_proves_nothing() -> None:
    runs = np.repeat(np.arange(32), 512)
    values = np.zeros(len(runs))
    assert rank_test_z(values, runs) == -np.inf
    values[100:103] = 1.0  # three alike in one run: one in a thousand shuffles has that
    assert rank_test_z(values, runs) < 5
    values[100:300] = 1.0
    assert rank_test_z(values, runs) > 20


def test_z_is_that_of_a_standard_normal() -> None:
    runs = np.repeat(np.arange(32), 64)
    rng = np.random.default_rng(5)
    z = np.array([rank_test_z(rng.random(len(runs)), runs) for _ in range(400)])
    assert abs(z.mean()) < 0.2
    assert 0.85 < z.std() < 1.15


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 511, 16_384, 16_385, 10**9])
def test_the_sample_is_inside_the_rows_and_spans_them(n: int) -> None:
    runs = sample_runs(n)
    assert (runs[0][0], runs[-1][1]) == (0, n)
    assert all(a < b for a, b in runs)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(runs))
    assert sum(b - a for a, b in runs) == min(n, 32 * 512)


def test_the_piece_size_changes_nothing() -> None:
    X, y = problem("csr", 3000, 4)
    store = open_store((X, y))
    assert working_order(store, 7) == working_order(store, 512)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float64"])
def test_any_number_type(dtype: str) -> None:
    X = np.random.default_rng(1).integers(0, 100, (2000, 3)).astype(dtype)
    y = np.arange(2000) % 2
    assert not working_order(open_store((X, y))).shuffle
    assert working_order(open_store((X, np.sort(y)))).shuffle


def test_features_are_numbered_by_frequency(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY_FEATURES", 10)
    rng = np.random.default_rng(7)
    chance = rng.permutation(np.linspace(0, 0.9, 30))
    X = sparse.csr_array((rng.random((900, 30)) < chance).astype(np.float32))
    y = np.arange(900) % 2
    store = open_store((X, y))
    order = frequency_order(store)
    assert order is not None
    assert order.dtype == store.index_dtype
    np.testing.assert_array_equal(order, working_order(store).feature_order)
    counts = np.bincount(X.indices, minlength=30)
    np.testing.assert_array_equal(order, np.lexsort((np.arange(30), -counts)))
    np.testing.assert_array_equal(inverse_order(order)[order], np.arange(30))

    rows = ResidentRows(store, 100)
    assert rows.feature_order is not None
    np.testing.assert_array_equal(rows.feature_order, order)
    np.testing.assert_array_equal(dense(rows.load().X, 30), X.toarray()[:, order])
    np.testing.assert_array_equal(dense(rows.read(BlockRef(5, 9, 0)).X, 30), X.toarray()[5:9][:, order])


def test_few_features_and_dense_rows_keep_their_numbers() -> None:
    for layout in ("csr", "dense"):
        store = open_store(problem(layout, 100, 1))
        assert frequency_order(store) is None
        assert working_order(store).feature_order is None
        assert ResidentRows(store, 10).feature_order is None
