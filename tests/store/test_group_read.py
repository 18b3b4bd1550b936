"""Groups of blocks read straight into buffers: the same as reading and joining, and damage is found."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError
from bigsvm.events import silent
from bigsvm.run.copies.staging import staged
from bigsvm.run.execute.local import SerialMapper
from bigsvm.store.blocks import Block, BlockGroup
from bigsvm.store.copy import stage_index, stage_scatter
from bigsvm.store.copy.stage import StagedRows
from bigsvm.store.formats.opener import open_store
from bigsvm.store.join import join_blocks

N, WIDTH, ROWS = 1000, 9, 7


@pytest.fixture(autouse=True)
def _small_segments_and_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_index, "BLOCKS_PER_SEGMENT", 20)
    monkeypatch.setattr(stage_scatter, "_WORTH_A_THREAD", 0)


@pytest.fixture(params=["csr", "csr weights", "dense", "dense weights", "empty rows"])
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StagedRows]:
    rng = np.random.default_rng(2)
    X: Any = (rng.random((N, WIDTH)) * (rng.random((N, WIDTH)) < rng.random((N, 1)))).astype(np.float32)
    if request.param == "empty rows":
        X[: N // 2] = 0
    if not request.param.startswith("dense"):
        X = sparse.csr_array(X)
    given = (X, rng.integers(0, 2, N), rng.random(N)) if "weights" in request.param else (X, rng.integers(0, 2, N))
    with staged(open_store(given), tmp_path, ROWS, 10 * ROWS, 10**6, None, SerialMapper(), silent) as copy:
        yield copy


def groups(copy: StagedRows) -> list[BlockGroup]:
    one, many, all_rows = copy.refs(ROWS), copy.refs(15 * ROWS), copy.refs(143 * ROWS)
    last = one[len(one) - 1]
    return [
        BlockGroup((one[3],)),
        BlockGroup((one[50], one[2], last, one[20], one[19])),
        BlockGroup((many[4], one[0], many[1])),
        BlockGroup((all_rows[0],)),
    ]


def same(ours: Block, theirs: Block) -> None:
    assert (ours.start, ours.stop) == (theirs.start, theirs.stop)
    pairs = [(ours.y, theirs.y)]
    if theirs.sample_weight is not None:
        assert ours.sample_weight is not None
        pairs.append((ours.sample_weight, theirs.sample_weight))
    else:
        assert ours.sample_weight is None
    if isinstance(theirs.X, CSR):
        pairs += zip(ours.X, theirs.X, strict=True)
    else:
        pairs.append((ours.X, theirs.X))
    for mine, other in pairs:
        assert mine.dtype == other.dtype
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("pieces", [30, 1024])
def test_a_group_is_what_reading_and_joining_gives(
    copy: StagedRows, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_scatter, "_MOST_PIECES", pieces)
    buffers = copy.group_buffers(5)
    with ThreadPoolExecutor(3) as pool:
        for group in groups(copy):
            parts = [copy.read(ref) for ref in group.refs]
            norms = np.concatenate([part.sqnorm for part in parts if part.sqnorm is not None])
            for workers in (None, pool):
                block = copy.read_group(group, buffers, workers)
                same(block, join_blocks(parts))
                np.testing.assert_array_equal(block.sqnorm, norms)
                assert np.may_share_memory(block.y, buffers.y)
            for ref in group.refs:
                copy.release(ref)


def test_buffers_keep_their_size_until_a_group_is_larger(copy: StagedRows) -> None:
    buffers = copy.group_buffers(200)
    before = buffers.nbytes
    for group in groups(copy):
        copy.read_group(group, buffers)
    assert buffers.nbytes == before
    small = copy.group_buffers(1)
    assert small.nbytes < before
    copy.read_group(groups(copy)[-1], small)
    assert small.nbytes > before / 2


def test_threads_with_buffers_of_their_own(copy: StagedRows) -> None:
    expected = [join_blocks([copy.read(ref) for ref in group.refs]) for group in groups(copy)]

    def read(k: int) -> None:
        same(copy.read_group(groups(copy)[k % 4], copy.group_buffers(5)), expected[k % 4])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(read, range(40)))


def test_reading_and_releasing_needs_no_map(copy: StagedRows) -> None:
    group = groups(copy)[2]
    copy.read_group(group, copy.group_buffers(5))
    for ref in group.refs:
        copy.will_need(ref)
        copy.release(ref)
    assert not copy._maps


def test_parts_of_blocks_are_refused(copy: StagedRows) -> None:
    with pytest.raises(ValueError, match="not whole blocks"):
        copy.read_group(BlockGroup((copy.refs(3)[2],)), copy.group_buffers(5))


def test_damage_anywhere_in_a_block_is_found(copy: StagedRows) -> None:
    number = 85
    ref = copy.refs(ROWS)[number]
    segment, offset, nbytes, *_ = copy._entry(number)
    path = copy.folder / f"segment-{segment:05d}.bin"
    content = path.read_bytes()
    buffers, group = copy.group_buffers(5), BlockGroup((copy.refs(ROWS)[3], ref))
    for at in range(offset, offset + nbytes, 9):  # every array and every padding: 9 and 64 have no common factor
        broken = bytearray(content)
        broken[at] ^= 16
        path.write_bytes(broken)
        with pytest.raises(DataError, match=rf"segment-{segment:05d}\.bin: block {number} "):
            copy.read_group(group, buffers)
        with pytest.raises(DataError, match=f"block {number} "):
            copy.read(ref)
    path.write_bytes(content[: offset + nbytes - 1])
    with ThreadPoolExecutor(2) as pool, pytest.raises(DataError, match=f"block {number} .* ends within it"):
        copy.read_group(group, buffers, pool)
    path.write_bytes(content)
    copy.read_group(group, buffers)


def test_a_damaged_index_is_found(copy: StagedRows) -> None:
    path = copy.folder / "segment-00001.idx"
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)
    again = StagedRows(copy.folder)
    with pytest.raises(DataError, match=r"segment-00001\.idx"):
        again.read(again.refs(ROWS)[25])
    again.close()
