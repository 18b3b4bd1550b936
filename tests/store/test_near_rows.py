"""Rows that a worker keeps on its own disk: the same as those of the working copy, fetched once and verified."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from bigsvm.errors import DataError, OutputError
from bigsvm.events import silent
from bigsvm.run.copies.staging import staged
from bigsvm.store.addresses import in_groups
from bigsvm.store.blocks import Block
from bigsvm.store.copy import near_rows
from bigsvm.store.copy.near_rows import NearRows
from bigsvm.store.copy.stage import StagedRows
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.tasks import SerialMapper
from bigsvm.testing.problems import random_problem
from bigsvm.units import MIB


@pytest.fixture(params=["csr", "dense"])
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StagedRows]:
    X, y = random_problem(500, 6, seed=3)
    rows: Any = ArrayRows(sparse.csr_array(X) if request.param == "csr" else X, y)
    with staged(rows, tmp_path / "shared", 16, 64, 10**6, None, SerialMapper(), silent, 1, 8 * MIB) as made:
        yield made


def arrived(copy: StagedRows, scratch: Path) -> NearRows:
    """As in a process of its own."""
    near_rows._open.clear()
    found: NearRows = pickle.loads(pickle.dumps(NearRows(copy.folder, str(scratch))))
    return found


def same(one: Block, two: Block) -> bool:
    arrays = [[*(block.X if isinstance(block.X, tuple) else (block.X,)), block.y] for block in (one, two)]
    return all(np.array_equal(a, b) for a, b in zip(*arrays, strict=True))


def test_blocks_and_groups_are_those_of_the_copy(copy: StagedRows, tmp_path: Path) -> None:
    near = arrived(copy, tmp_path / "own")
    assert pickle.loads(pickle.dumps(near)) is near
    for ref in (*copy.refs(16)[5:9], *copy.refs(40)):
        near.will_need(ref)
        assert same(near.read(ref), copy.read(ref))
        near.release(ref)
    (group,) = in_groups(copy.refs(16), np.array([20, 1, 7]), 3)
    assert same(near.read_group(group, near.group_buffers(3)), copy.read_group(group, copy.group_buffers(3)))
    assert not list((tmp_path / "own").iterdir())  # the file has no name
    near.close()


def test_the_shared_copy_is_read_once(copy: StagedRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    near, read = arrived(copy, tmp_path / "own"), []
    whole = os.pread

    def counted(handle: int, nbytes: int, offset: int) -> bytes:
        read.append(nbytes)
        return whole(handle, nbytes, offset)

    monkeypatch.setattr(os, "pread", counted)
    for _ in range(3):
        for ref in copy.refs(16)[3:6]:
            near.read(ref)
    assert read == [copy.disk_bytes(ref.start, ref.stop) for ref in copy.refs(16)[3:6]]


def test_blocks_are_requested_from_the_disk_that_has_them(
    copy: StagedRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    near, (first, second) = arrived(copy, tmp_path / "own"), copy.refs(16)[3:5]
    requested: list[tuple[int, int]] = []

    def requests(handle: int, offset: int, nbytes: int, advice: int) -> None:
        if advice == os.POSIX_FADV_WILLNEED:
            requested.append((os.fstat(handle).st_ino, nbytes))

    near.read(first)
    monkeypatch.setattr(os, "posix_fadvise", requests)
    near.will_need(first)
    near.will_need(second)
    shared, own = (os.fstat(handle).st_ino for handle in (near._shared[0], near._files[0]))
    assert [disk for disk, _ in requested] == [own, shared]
    assert requested[1][1] == copy.disk_bytes(second.start, second.stop)


def test_the_calling_process_reads_the_shared_copy(copy: StagedRows, tmp_path: Path) -> None:
    rows = NearRows(copy.folder, str(tmp_path / "own"))
    assert same(rows.read(copy.refs(16)[2]), copy.read(copy.refs(16)[2]))
    assert not (tmp_path / "own").exists()


def test_damage_is_told_of_the_disk_that_has_it(copy: StagedRows, tmp_path: Path) -> None:
    near, ref = arrived(copy, tmp_path / "own"), copy.refs(16)[4]
    near.read(ref)
    segment, offset, *_ = near._entry(4)
    near.close()
    near = arrived(copy, tmp_path / "own")
    near._fetch((4,))
    os.pwrite(near._file(segment), b"\xff\xff\xff", offset + 8)
    with pytest.raises(DataError, match=r"own: on this worker's own disk: .*block 4"):
        near.read(ref)
    near = arrived(copy, tmp_path / "own")
    path = next(copy.folder.glob("segment-*.bin"))
    with open(path, "r+b") as file:
        file.seek(offset + 8)
        file.write(b"\xff\xff\xff")
    with pytest.raises(DataError, match=path.name):
        near.read(ref)


def test_a_folder_that_cannot_be_written_is_named_each_time(copy: StagedRows, tmp_path: Path) -> None:
    """Tasks are tried again on the same worker; the shared copy stays as it is, and once there is room they go on."""
    (tmp_path / "own").write_text("a file")
    rows, ref = arrived(copy, tmp_path / "own"), copy.refs(16)[0]
    before = {path: path.read_bytes() for path in Path(copy.folder).rglob("*") if path.is_file()}
    for _ in range(3):
        with pytest.raises(OutputError, match="own"):
            rows.read(ref)
    (tmp_path / "own").unlink()
    assert same(rows.read(ref), copy.read(ref))
    assert before == {path: path.read_bytes() for path in Path(copy.folder).rglob("*") if path.is_file()}
