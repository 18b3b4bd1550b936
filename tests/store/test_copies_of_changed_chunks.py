"""A copy of rows is not used in place of a store whose chunks have changed, whenever and however they did."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from bigsvm.errors import DataError
from bigsvm.events import silent
from bigsvm.run.copies import staging
from bigsvm.run.copies.column_copy import staged_columns
from bigsvm.run.copies.staging import staged
from bigsvm.store.blocks import BlockRef
from bigsvm.store.formats.zarr_rows import ZarrRows
from bigsvm.store.sealing.listed_chunks import ListedChunks
from bigsvm.store.sealing.seal import seal
from bigsvm.store.transforms.scaled_rows import scaled
from bigsvm.store.working_order import working_order
from bigsvm.tasks import SerialMapper
from tests.store import formats

N = 40
X = np.round(np.random.default_rng(0).normal(size=(N, 3)), 2).astype(np.float32)
LABELS = np.arange(N) % 2
WEIGHTS = 1.0 + np.arange(N) % 3
BYTES: dict[str, Any] = {"config": {"write_empty_chunks": True}, "compressors": None}
LAYOUTS: dict[str, Callable[[Path], Path]] = {
    "dense": lambda path: formats.foreign(path, X, LABELS, WEIGHTS, layout="dense", **BYTES),
    "csr": lambda path: formats.foreign(path, X, LABELS, WEIGHTS, shards=(48,), **BYTES),
    "csc": lambda path: formats.anndata(
        path, {"X": sp.csc_matrix(X), "obs/label": LABELS, "obs/weight": WEIGHTS}
    ),
}  # fmt: skip
CHUNKS = {"dense": "X/c/1/0", "csr": "X/data/c/0", "csc": "X/data/c/1"}


def rows_of(path: Path, scratch: Path) -> Any:
    """Nothing but the rows that columns were turned into stands between the store and its reader."""
    return values_of(ZarrRows(path))


def working_copy(path: Path, scratch: Path) -> Any:
    with staged(scaled(ZarrRows(path), "maxabs", None), scratch, 8, 8, 10_000, None, SerialMapper(), silent) as copy:
        return values_of(copy)


def column_copy(path: Path, scratch: Path) -> Any:
    with staged_columns(ZarrRows(path), scratch, 1 << 20, None, silent) as copy:
        return copy.made_of


def values_of(rows: Any) -> Any:
    block = rows.read(BlockRef(0, N, 0))
    X = block.X if isinstance(block.X, np.ndarray) else block.X.data
    return X.tolist(), block.y.tolist(), block.sample_weight.tolist()


COPIES = {"working copy": working_copy, "columns": column_copy, "rows of columns": rows_of}
CASES = [
    (copy, layout, chunk)
    for copy in COPIES
    for layout in LAYOUTS
    for chunk in (CHUNKS[layout], "obs/weight/c/0")
    if copy != "rows of columns" or layout == "csc"
]


def changed(file: Path) -> None:
    """As `rsync --inplace -t` leaves a file: other bytes of the same size, and the former time."""
    status, content = file.stat(), file.read_bytes()
    with open(file, "r+b") as same:
        same.write(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("is_sealed", [True, False], ids=["sealed", "not sealed"])
@pytest.mark.parametrize(("copy", "layout", "chunk"), CASES)
def test_a_changed_chunk_is_refused_by_its_key_or_copied_anew(
    tmp_path: Path, copy: str, layout: str, chunk: str, is_sealed: bool
) -> None:
    """A seal says which chunks were meant; where there is none, what lies there now is meant."""
    path, use = LAYOUTS[layout](tmp_path / "s.zarr"), COPIES[copy]
    if is_sealed:
        seal(path)
    former = use(path, tmp_path)
    assert use(path, tmp_path) == former
    for file in path.rglob("c/*"):
        os.chmod(file, 0o640)  # another status, and the same content
    assert use(path, tmp_path) == former
    changed(path / chunk)
    if is_sealed:
        with pytest.raises(DataError, match=rf"{chunk}: chunk is damaged or was exchanged"):
            use(path, tmp_path)
        return
    try:
        found = use(path, tmp_path)
    except DataError as error:  # a format with checks of its own, in which this byte makes no other rows
        found = str(error.where)
    assert found != former
    assert not isinstance(found, str) or chunk.partition("/c/")[0] in found


def test_segments_that_a_killed_run_left_are_not_taken_for_those_of_a_changed_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = LAYOUTS["dense"](tmp_path / "s.zarr")
    seal(path)
    order = working_order(ZarrRows(path), 8)  # for which a sample of the rows is read: of large stores not this chunk
    monkeypatch.setattr(staging, "working_order", lambda *_: order)
    working_copy(path, tmp_path)
    (whole,) = tmp_path.glob("bigsvm/rows-*/staged.json")
    whole.unlink()
    changed(path / CHUNKS["dense"])
    with pytest.raises(DataError, match="X/c/1/0: chunk is damaged or was exchanged"):
        working_copy(path, tmp_path)


def test_chunks_are_read_once_while_their_files_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = LAYOUTS["dense"](tmp_path / "s.zarr")
    shutil.copytree(path, tmp_path / "same.zarr")
    for file in tmp_path.glob("s*.zarr/**/c/*"):
        os.utime(file, ns=(1, 1))
    monkeypatch.setattr("bigsvm.store.sealing.listed_chunks.changes_are_seen", lambda status, now: True)
    read: list[str] = []
    check = ListedChunks._check
    monkeypatch.setattr(ListedChunks, "_check", lambda self, key: (read.append(key), check(self, key)))
    for _ in range(3):  # those that the copy was made of were held against the manifest then
        working_copy(path, tmp_path)
    assert read == []
    for _ in range(2):
        working_copy(tmp_path / "same.zarr", tmp_path)  # which shares the copy
    assert len(read) == len(set(read)) > 3
