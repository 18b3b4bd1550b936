"""Cached rows are the rows: to the bit, whatever is kept, on disk, lost or never asked for."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigsvm.solvers.kernel.values.cached_rows import CachedRows
from bigsvm.solvers.kernel.values.kernel_rows import KernelRows
from bigsvm.store.state.row_cache import RowCache
from bigsvm.testing.matrix_rows import MatrixRows
from tests.solvers.kernel.programmes import blobs, classification, regression, solve

N = 30


class Watched(MatrixRows):
    """Counts the calls that would be scans of the data."""

    def __init__(self, K: np.ndarray) -> None:
        super().__init__(K)
        self.scans = 0

    def fetch(self, idx: np.ndarray) -> np.ndarray:
        self.scans += 1
        return super().fetch(idx)


def rows_of(
    memory: int, disk: int, folder: Path | None, at_once: int = 4, one_scan: bool = True, dtype: type = np.float32
) -> tuple[CachedRows, Watched, RowCache]:
    K = blobs(N, 1)[0].astype(dtype)
    inner = Watched(K)
    cache = RowCache(N, dtype, memory * K[0].nbytes, disk * K[0].nbytes, folder)
    return CachedRows(inner, cache, at_once, one_scan), inner, cache


def test_the_protocol_is_met(tmp_path: Path) -> None:
    rows: KernelRows
    rows, inner, _ = rows_of(3, 3, tmp_path)
    assert (rows.n, rows.dtype) == (N, np.float32)
    np.testing.assert_array_equal(rows.diag, inner.diag)
    a, b = np.array([3, 1]), np.array([7, 8, 9])
    np.testing.assert_array_equal(rows.block(a, b), inner.block(a, b))


@pytest.mark.parametrize("keep_sums", [False, True])
def test_a_sum_over_no_rows_changes_and_computes_nothing(tmp_path: Path, keep_sums: bool) -> None:
    rows, inner, _ = rows_of(3, 3, tmp_path)
    rows._keep_sums = keep_sums
    f = np.arange(N, dtype=float)
    rows.update(f, np.empty(0, np.int64), np.empty(0))
    np.testing.assert_array_equal(f, np.arange(N))
    assert inner.scans == 0


def test_what_is_missing_comes_in_one_call_and_is_kept(tmp_path: Path) -> None:
    rows, inner, _ = rows_of(4, 3, tmp_path)
    first = rows.fetch(np.array([5, 2]))
    again = rows.fetch(np.array([2, 9, 5, 4]))
    np.testing.assert_array_equal(first, again[[2, 0]])
    assert inner.scans == 2
    rows.fetch(np.arange(3))
    assert inner.scans == 3
    counts = rows.counts
    assert (counts.computed, counts.ram_hits, counts.disk_hits) == (6, 2, 1)
    with pytest.raises(ValueError, match="read-only"):
        again[0, 0] = 1.0


@given(
    st.lists(st.lists(st.integers(0, N - 1), min_size=1, max_size=9, unique=True), min_size=1, max_size=8),
    st.sampled_from([(3, 0), (3, 4), (6, 20)]),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from([np.float32, np.float64]),
)
def test_every_call_gives_the_bits_of_the_matrix(
    tmp_path_factory: pytest.TempPathFactory, calls: list[list[int]], room: tuple[int, int], at_once: int,
    one_scan: bool, dtype: type,
) -> None:  # fmt: skip
    rows, inner, cache = rows_of(*room, tmp_path_factory.getbasetemp() / "slots", at_once, one_scan, dtype)
    plain = MatrixRows(inner._K)
    f, expected = np.linspace(-1.0, 1.0, N), np.linspace(-1.0, 1.0, N)
    for number, call in enumerate(calls):
        idx = np.array(call)
        change = np.random.default_rng([3, number]).standard_normal(len(idx))
        assert rows.fetch(idx[:3]).tobytes() == plain.fetch(idx[:3]).tobytes()
        held, scans = cache.stats()[-4:], inner.scans
        rows.update(f, idx, change)
        plain.update(expected, idx, change)
        assert f.tobytes() == expected.tobytes()
        assert cache.stats()[-4:] == held, "a sum keeps nothing"
        assert inner.scans - scans <= (1 if one_scan else -(-len(idx) // at_once))
    cache.close()


def test_a_sum_computes_only_what_is_missing(tmp_path: Path) -> None:
    rows, inner, _ = rows_of(4, 9, tmp_path, at_once=2, one_scan=False)
    rows.fetch(np.arange(6))
    before = rows.counts.computed
    rows.update(np.zeros(N), np.arange(12), np.ones(12))
    assert rows.counts.computed - before == 6
    assert inner.scans == 1 + 3
    assert rows.counts.ram_hits + rows.counts.disk_hits == 6


def test_a_disk_that_fails_costs_calls_and_no_value(tmp_path: Path) -> None:
    rows, inner, cache = rows_of(3, 9, tmp_path)
    rows.fetch(np.arange(10))
    disk = cache._disk
    assert disk is not None
    os.pwrite(disk._handle, bytes(os.fstat(disk._handle).st_size), 0)
    f, expected = np.zeros(N), np.zeros(N)
    rows.update(f, np.arange(10), np.arange(10.0))
    MatrixRows(inner._K).update(expected, np.arange(10), np.arange(10.0))
    assert f.tobytes() == expected.tobytes()
    assert cache.stats().spill_failures == 8


@pytest.mark.parametrize("wss", ["1", "3", "wr+3", "keerthi2"])
@pytest.mark.parametrize("memory", [3, 20])
def test_a_solution_is_the_same_to_the_bit(tmp_path: Path, wss: str, memory: int) -> None:
    K, y, t = blobs(120, 2)
    K = K.astype(np.float32)
    for qp, other in (
        (classification(y, 10.0), classification(y, 10.0)),
        (regression(t, 10.0, 0.05), regression(t, 10.0, 0.05)),
    ):
        plain = MatrixRows(K)
        solve(qp, plain, wss, shrinking=True)
        rows = CachedRows(MatrixRows(K), RowCache(120, np.float32, memory * K[0].nbytes, 40 * K[0].nbytes, tmp_path))
        solve(other, rows, wss, shrinking=True)
        assert qp.beta.tobytes() == other.beta.tobytes()
        assert qp.f.tobytes() == other.f.tobytes()
        assert rows.counts.computed < plain.counts.computed
        hits = rows.counts.ram_hits + rows.counts.disk_hits
        assert rows.counts.computed + hits == plain.counts.computed


def test_a_row_used_once_makes_no_cache_of_use() -> None:
    K, y, _ = blobs(120, 3)
    rows = CachedRows(MatrixRows(K), RowCache(120, np.float64, 100 * K[0].nbytes))
    run = solve(classification(y, 10.0), rows, "wr")
    assert rows.counts.computed == 2 * run.iterations
    assert rows.counts.ram_hits == 0


def test_a_cache_of_other_rows_is_refused() -> None:
    K = blobs(N, 1)[0]
    for cache in (RowCache(N, np.float32, 10_000), RowCache(N - 1, np.float64, 10_000)):
        with pytest.raises(ValueError, match="a cache of"):
            CachedRows(MatrixRows(K), cache)
