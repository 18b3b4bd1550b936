"""Resident rows, per-row vectors and read-ahead."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from bigsvm.budget import MemoryBudget
from bigsvm.errors import DataError
from bigsvm.kernels.rows import CSR
from bigsvm.store.blocks import Block, BlockGroup, BlockRef, in_groups
from bigsvm.store.opener import open_store
from bigsvm.store.read_ahead import ReadAhead
from bigsvm.store.resident import ResidentRows
from bigsvm.store.vectors import RowVector
from bigsvm.testing.problems import random_problem


@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("piece_rows", [1, 13, 100])
def test_resident_rows_are_read_once(layout: str, piece_rows: int) -> None:
    from scipy import sparse

    X, y = random_problem(50, 4, 0.6, seed=1)
    store = open_store((sparse.csr_array(X) if layout == "csr" else X, y))
    reads: list[BlockRef] = []
    plain = store.read

    def counted(ref: BlockRef) -> Block:
        reads.append(ref)
        return plain(ref)

    store.read = counted  # type: ignore[method-assign]
    rows, seen = ResidentRows(store, piece_rows), []
    whole = rows.load(seen.append)
    assert sum(block.n_rows for block in seen) == 50
    count = len(reads)
    for block_rows in (50, 7):
        for ref in rows.refs(block_rows):
            block = rows.read(ref)
            dense = _dense(block, 4)
            np.testing.assert_array_equal(dense, X[ref.start : ref.stop])
    assert len(reads) == count == -(-50 // piece_rows)
    assert rows.read(rows.refs(50)[0]) is whole


def _dense(block: Block, n_features: int) -> np.ndarray:
    if not isinstance(block.X, CSR):
        return block.X
    out = np.zeros((block.n_rows, n_features))
    for i in range(block.n_rows):
        a, b = block.X.indptr[i], block.X.indptr[i + 1]
        out[i, block.X.indices[a:b]] = block.X.data[a:b]
    return out


def test_vectors_in_memory_and_on_disk_behave_alike(tmp_path: Path) -> None:
    budget = MemoryBudget(1000)
    inside = RowVector("alpha", 50, 2, np.float64, budget, tmp_path, fill=1.5)
    outside = RowVector("alpha", 50, 2, np.float64, budget, tmp_path, fill=1.5)
    assert (inside.disk_bytes, outside.disk_bytes) == (0, 800)
    assert budget.report() == [("alpha", 800)]
    assert list(tmp_path.iterdir()) == []  # the file has no name: nothing stays behind
    ref = BlockRef(10, 20, 0)
    for vector in (inside, outside):
        vector.get(ref)[:, 1] = 7.0
        vector.put(BlockRef(0, 2, 0), np.full((2, 2), 3.0))
        vector.put(ref, vector.get(ref))
    np.testing.assert_array_equal(inside.values, outside.values)
    assert inside.values[15].tolist() == [1.5, 7.0]
    group = BlockGroup((BlockRef(30, 33, 0), BlockRef(4, 5, 0)))
    for vector in (inside, outside):
        rows = vector.get(group)
        assert rows.shape == (4, 2)
        rows[3, 0] = -1.0
        assert vector.values[4, 0] == 1.5  # of several blocks, a copy
        vector.put(group, rows)
        assert vector.values[4, 0] == -1.0
    order = np.random.default_rng(1).permutation(50)
    working = np.arange(50.0)
    inside.values[:, 0] = order[working.astype(int)]  # each working row holds its store row
    pieces = np.concatenate(list(inside.in_store_order(np.argsort(order), rows=7)))
    np.testing.assert_array_equal(pieces[:, 0], np.arange(50.0))
    inside.close()
    outside.close()
    assert budget.report() == []


def test_read_ahead_gives_blocks_in_order_and_errors_at_their_place() -> None:
    X, y = random_problem(40, 3, seed=2)
    store = open_store((X, y))
    refs = store.refs(4)
    order = in_groups(refs, np.random.default_rng(3).permutation(10), 3)
    with ReadAhead(store, order, 3) as source:
        assert source.n_features == 3
        assert pickle.loads(pickle.dumps(source)).n_samples == 40
        for group in order:
            rows = np.concatenate([np.arange(ref.start, ref.stop) for ref in group.refs])
            np.testing.assert_array_equal(source.read_group(group).X, X[rows])
            source.done(group)
    plain = store.read

    def failing(ref: BlockRef) -> Block:
        if ref == order[2].refs[1]:
            raise DataError("bad", "row 3")
        return plain(ref)

    store.read = failing  # type: ignore[method-assign]
    with ReadAhead(store, order, 3) as source:
        source.read_group(order[0])
        source.read_group(order[1])
        with pytest.raises(DataError, match="row 3"):
            source.read_group(order[2])
