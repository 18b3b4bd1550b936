"""Resident rows, per-row vectors and read-ahead."""

from __future__ import annotations

import itertools
import pickle
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.budget import MemoryBudget
from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError
from bigsvm.store.addresses import in_groups
from bigsvm.store.blocks import Block, BlockGroup, BlockRef
from bigsvm.store.formats.opener import open_store
from bigsvm.store.read_ahead import ReadAhead
from bigsvm.store.resident import ResidentRows
from bigsvm.store.state.vectors import RowVector
from bigsvm.testing.problems import random_problem
from bigsvm.units import MIB


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


@pytest.mark.parametrize("width", [1, 3, 256, 257, 1000])
@pytest.mark.parametrize("moved", [False, True])
def test_tiles_cover_a_vector_once_and_stay_small(width: int, moved: bool, tmp_path: Path) -> None:
    n = (1 << 17) + 5 if width == 1 else 1100
    vector = RowVector("alpha", n, width, np.float64, MemoryBudget(MIB << 10), tmp_path)
    vector.values[:] = np.arange(n * width).reshape(n, width)
    order = np.random.default_rng(width).permutation(n) if moved else None
    found = np.full((n, width), -1.0)
    for row, column, values in vector.tiles_in_store_order(order):
        assert values.nbytes <= MIB
        place = found[row : row + values.shape[0], column : column + values.shape[1]]
        assert (place == -1.0).all()
        place[...] = values
    np.testing.assert_array_equal(found, vector.values if order is None else vector.values[order])
    vector.close()


def scattered(n_groups: int = 4) -> tuple[np.ndarray, Any, list[BlockGroup]]:
    """Rows, a store of them, and blocks in random order, three a group."""
    X, y = random_problem(40, 3, seed=2)
    store = open_store((X, y))
    groups = list(in_groups(store.refs(4), np.random.default_rng(3).permutation(10), 3))
    assert len(groups) == n_groups
    return X, store, groups


def rows_in(group: BlockGroup) -> np.ndarray:
    return np.concatenate([np.arange(ref.start, ref.stop) for ref in group.refs])


@pytest.mark.parametrize("depth", [0, 1, 3, 9])
def test_read_ahead_gives_every_group_in_order_and_to_whoever_else_looks(depth: int) -> None:
    X, store, groups = scattered()
    also: list[tuple[BlockGroup, np.ndarray]] = []

    def look(block: Block, group: BlockGroup) -> None:
        also.append((group, np.array(block.X)))

    with ReadAhead(store, groups, depth, also=look) as source:
        seen = [(group, np.array(block.X)) for group, block in source]
    assert [group for group, _ in seen] == [group for group, _ in also] == groups
    for (group, ours), (_, theirs) in zip(seen, also, strict=True):
        np.testing.assert_array_equal(ours, X[rows_in(group)])
        np.testing.assert_array_equal(theirs, ours)


def test_read_ahead_uses_its_buffers_again_and_never_one_that_is_in_use() -> None:
    X, store, groups = scattered()
    made: list[np.ndarray] = []
    ended = threading.Semaphore(0)

    def buffers() -> np.ndarray:
        made.append(np.zeros((12, 3)))
        return made[-1]

    def read_group(group: BlockGroup, buffer: np.ndarray, pool: Any) -> Block:
        rows = rows_in(group)
        buffer[: len(rows)] = X[rows]
        ended.release()
        return Block(group.start, group.start + len(rows), buffer[: len(rows)], np.zeros(len(rows)))

    store.read_group = read_group
    seen = ahead = 0
    with ReadAhead(store, groups * 5, 2, buffers, lambda block, group: None) as source:
        for group, block in source:
            while ahead < min(seen + 3, 20):  # the reader goes on as far as it can
                ended.acquire()
                ahead += 1
            np.testing.assert_array_equal(block.X, X[rows_in(group)])
            seen += 1
    assert seen == 20
    assert len(made) == 3


@pytest.mark.parametrize("who", ["reader", "companion"])
def test_read_ahead_raises_errors_at_their_place_and_leaves_no_threads(
    who: str, started_and_alive: Callable[[], list[str]]
) -> None:
    _, store, groups = scattered()
    plain = store.read

    def failing(ref: BlockRef) -> Block:
        if who == "reader" and ref == groups[2].refs[1]:
            raise DataError("bad", "row 3")
        return plain(ref)

    def look(block: Block, group: BlockGroup) -> None:
        if who == "companion" and group == groups[1]:
            raise DataError("bad", "row 3")

    store.read = failing
    seen: list[BlockGroup] = []
    with pytest.raises(DataError, match="row 3"), ReadAhead(store, groups, 3, also=look) as source:
        seen.extend(group for group, _ in source)
    assert seen == groups[:2]
    assert started_and_alive() == []


@pytest.mark.parametrize("taken", [1, 2, 4])
def test_a_group_is_requested_before_the_one_before_it_is_read_and_all_are_released(taken: int) -> None:
    """Else the disk is idle while a group is decoded; and a pass that is stopped leaves no pages behind."""
    _, store, groups = scattered()
    plain, told = store.read, list[tuple[str, int]]()

    def tell(what: str, ref: BlockRef) -> None:
        told.append((what, ref.start))

    store.read = lambda ref: tell("read", ref) or plain(ref)
    store.will_need = lambda ref: tell("requested", ref)
    store.release = lambda ref: tell("released", ref)
    with ReadAhead(store, groups, 1) as source:
        for _, _ in itertools.islice(source, taken):
            pass
    for number, group in enumerate(groups):
        for ref in group.refs:
            if ("read", ref.start) in told:
                before = groups[max(number - 1, 0)].refs[0].start
                assert told.index(("requested", ref.start)) < told.index(("read", before))
    assert sorted(start for what, start in told if what == "requested") == sorted(
        start for what, start in told if what == "released"
    )
    assert len({start for what, start in told if what == "requested"}) >= min(3 * (taken + 1), 10)


def test_a_copy_of_rows_names_the_place_that_it_was_opened_at(tmp_path: Path) -> None:
    """As a scheduler does, which unpickles a task and pickles it again: the former place may be gone by then."""
    rng = np.random.default_rng(7)
    bigsvm.ingest((rng.standard_normal((50, 4)), rng.integers(0, 2, 50)), tmp_path / "a.zarr")
    shutil.copytree(tmp_path / "a.zarr", tmp_path / "b.zarr")
    for loaded in (False, True):
        first = pickle.loads(pickle.dumps(ResidentRows(open_store(tmp_path / "a.zarr"), 10)))
        if loaded:
            first.load()
        second = pickle.loads(pickle.dumps(ResidentRows(open_store(tmp_path / "b.zarr"), 10)))
        assert first.identity == second.identity
        assert second.uri == second.source.uri == str((tmp_path / "b.zarr").resolve())
        assert first.uri == first.source.uri == str((tmp_path / "a.zarr").resolve())
        again = pickle.loads(pickle.dumps(second))
        assert again.source.uri == second.uri
        if loaded:
            assert second.load() is first.load()  # read once all the same
