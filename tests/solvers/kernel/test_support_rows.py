"""Rows of support vectors: those of the store, in its order and its features, in memory or not."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from bigsvm.budget import MemoryBudget
from bigsvm.compiled.shared.rows import CSR
from bigsvm.problem.kernel import Kernel
from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.values.data import KernelData
from bigsvm.solvers.kernel.values.support_rows import SupportRoom, gathered_support
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.tasks import SerialMapper

N, D = 90, 7


def in_memory(array: np.ndarray) -> bool:
    """Whether an array is a plain one, not a map of a file."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.base is None


def context(rows: ArrayRows, block_rows: int, budget: int, folder: Path) -> Context:
    """Rows that stream."""
    refs = rows.refs(block_rows)
    return Context(
        data=rows, refs=refs, resident=False, mapper=SerialMapper(), budget=MemoryBudget(budget), seed=0, shards=1,
        threads=1, read_depth=1, group_blocks=1, proof_refs=refs, workdir=folder / "scratch", tol=1e-3,
    )  # fmt: skip


@pytest.mark.parametrize("budget", [0, 700, 1 << 20])
@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("shuffled", [False, True])
def test_rows_are_those_of_the_store_wherever_they_lie(
    tmp_path: Path, budget: int, layout: str, shuffled: bool
) -> None:
    rng = np.random.default_rng(4)
    stored = (rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.6)).astype(np.float32)
    order = rng.permutation(N) if shuffled else np.arange(N)
    features = rng.permutation(D) if shuffled else np.arange(D)
    X = stored if layout == "dense" else sparse.csr_matrix(stored)
    kept = {"row_order": order, "feature_order": features} if shuffled else {}
    rows = ArrayRows(X, np.arange(N) % 2, **kept)
    ctx = context(rows, 8, budget, tmp_path)
    support = np.sort(rng.choice(N, 40, replace=False))
    numbers = order[support]
    rank = np.argsort(np.argsort(numbers))
    found = gathered_support(KernelData(Kernel("rbf", 0.1), ctx), support, rank, rows, SupportRoom(ctx))
    arrays = [*found] if isinstance(found, CSR) else [found]
    dense = (
        sparse.csr_matrix((found.data, found.indices, found.indptr), (40, D)).toarray() if len(arrays) > 1 else found
    )
    assert np.array_equal(dense, stored[np.sort(numbers)])
    if len(arrays) > 1:
        assert all(
            np.all(np.diff(found.indices[a:b]) > 0) for a, b in zip(found.indptr, found.indptr[1:], strict=False)
        )
    assert {in_memory(array) for array in arrays[:2]} == {budget == 1 << 20}
    assert ctx.bytes_read == sum(
        b.nbytes for b in map(rows.read, ctx.refs) if np.any((support >= b.start) & (support < b.stop))
    )
    assert not list(tmp_path.glob("scratch/*"))


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize(("budget", "times"), [(0, 0.2), (1 << 26, 2.2)])
def test_no_more_is_held_than_the_budget_has_room_for(tmp_path: Path, layout: str, budget: int, times: float) -> None:
    """Beside the rows themselves, which are in memory here; of sparse ones the entries are held once more."""
    X = np.random.default_rng(1).normal(size=(4000, 200)).astype(np.float32)
    rows = ArrayRows(X if layout == "dense" else sparse.csr_matrix(X), np.arange(4000) % 2)
    ctx, support = context(rows, 100, budget, tmp_path), np.arange(0, 4000, 2)
    data = KernelData(Kernel("rbf", 0.1), ctx)
    tracemalloc.start()
    found = gathered_support(data, support, np.arange(len(support)), rows, SupportRoom(ctx))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    nbytes = sum(part.nbytes for part in found) if isinstance(found, CSR) else found.nbytes
    assert peak <= times * nbytes
