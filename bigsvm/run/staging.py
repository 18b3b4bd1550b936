"""Working copies in the scratch folder: found, made, shared and evicted.

A copy is made under an exclusive lock and used under a shared one (flock: a dead holder never blocks), so
two fits of one store make it once and nobody deletes it under a reader.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import xxhash

from bigsvm.errors import PlanRefused
from bigsvm.events import Emit, WorkAdvanced, WorkEnded, WorkStarted
from bigsvm.solvers.base import Mapper
from bigsvm.store.blocks import RowBlocks, tile
from bigsvm.store.files import cannot_write, write_bytes
from bigsvm.store.stage import (
    BLOCKS_PER_SEGMENT,
    LAYOUT_VERSION,
    SegmentShare,
    StagedMeta,
    StagedRows,
    is_complete,
    stage_segment,
)
from bigsvm.store.survey import Survey
from bigsvm.units import MIB, show_bytes


def copies_folder(scratch: Path) -> Path:
    """Where the working copies of a scratch folder are."""
    return scratch / "bigsvm"


@contextmanager
def staged(
    store: RowBlocks,
    scratch: Path,
    block_rows: int,
    piece_rows: int,
    data_bytes: int,
    scratch_limit: int | None,
    mapper: Mapper,
    emit: Emit,
    workers: int | None = None,
) -> Iterator[StagedRows]:
    """The working copy of `store`, made now unless it is there; kept from deletion inside the block.

    workers : segments copied at one time; None: as many as the mapper likes

    Raises
    ------
    PlanRefused : it does not fit the scratch limit or the disk.
    OutputError : the scratch folder cannot be written.
    """
    folder = copies_folder(scratch) / f"rows-{_key(store, block_rows)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    with open(folder.with_suffix(".lock"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        if not is_complete(folder):
            # A shared lock does not become exclusive in one step: let go, wait for the others, look again.
            fcntl.flock(lock, fcntl.LOCK_UN)
            fcntl.flock(lock, fcntl.LOCK_EX)
            folder.mkdir(parents=True, exist_ok=True)
            if not is_complete(folder):
                _make_room(folder, data_bytes, scratch_limit)
                _make(store, folder, block_rows, piece_rows, mapper, emit, workers)
            fcntl.flock(lock, fcntl.LOCK_SH)
        os.utime(folder)  # recently used
        copy = StagedRows(folder)
        try:
            yield copy
        finally:
            copy.close()


def _key(store: RowBlocks, block_rows: int) -> str:
    described = [
        store.fingerprint, getattr(store, "selection", ""), block_rows, BLOCKS_PER_SEGMENT, LAYOUT_VERSION,
        store.dtype.name, store.index_dtype.name,
    ]  # fmt: skip
    return xxhash.xxh3_128_hexdigest(json.dumps(described).encode())


def _make(
    store: RowBlocks,
    folder: Path,
    block_rows: int,
    piece_rows: int,
    mapper: Mapper,
    emit: Emit,
    workers: int | None,
) -> None:
    for litter in folder.glob(".*.tmp-*"):  # we hold the lock: whoever wrote these is gone
        litter.unlink()
    rows = list(tile(store.n_samples, block_rows * BLOCKS_PER_SEGMENT))
    shares = [
        SegmentShare(store, str(folder), number, start, stop, block_rows, piece_rows)
        for number, (start, stop) in enumerate(rows)
    ]
    began = time.monotonic()
    emit(WorkStarted("staging", store.n_samples, "rows"))
    survey, indices = Survey(), []
    for index in mapper.map(stage_segment, shares, workers):
        survey.merge(Survey.of(index["survey"]))
        indices.append(index)
        emit(WorkAdvanced("staging", index["stop"]))
    emit(WorkEnded("staging", time.monotonic() - began))
    meta = StagedMeta(
        uri=store.uri,
        layout=store.layout,
        n_samples=store.n_samples,
        n_features=store.n_features,
        nnz=survey.nnz,
        dtype=store.dtype.name,
        index_dtype=store.index_dtype.name,
        y_dtype=indices[0]["y_dtype"],
        has_weights=store.has_weights,
        classes=None if store.classes is None else store.classes.tolist(),
        fingerprint=store.fingerprint,
        block_rows=block_rows,
    )
    segments = [f"segment-{number:05d}.json" for number in range(len(rows))]
    document = {"meta": meta.__dict__, "survey": survey.document(), "segments": segments}
    write_bytes(folder / "staged.json", json.dumps(document).encode())


def _make_room(folder: Path, needed: int, scratch_limit: int | None) -> None:
    """Delete the least recently used copies that nobody reads until `needed` bytes fit."""
    have = tree_bytes(folder)
    others = sorted(
        (p for p in folder.parent.glob("rows-*") if p.is_dir() and p != folder),
        key=lambda p: p.stat().st_mtime,
    )
    held = {path: tree_bytes(path) for path in others}

    def short() -> int:
        free = shutil.disk_usage(folder).free + have - needed
        if scratch_limit is not None:
            free = min(free, scratch_limit - sum(held.values()) - needed)
        return -free

    for path in others:
        if short() <= 0:
            return
        if remove_copy(path):
            del held[path]
    if short() > 0:
        limit = sum(held.values()) + needed
        raise PlanRefused(
            f"the working copy needs {show_bytes(needed)} ({needed} bytes), {show_bytes(max(needed - short(), 0))} "
            f"are to be had",
            str(folder.parent),
            f"free space there, say --scratch DIR, --scratch-limit {-(-limit // MIB)}MiB or --stage none",
        )


def remove_copy(folder: Path) -> bool:
    """Delete a working copy unless a run uses it; True when it is gone."""
    lock_path = folder.with_suffix(".lock")
    with open(lock_path, "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        (folder / "staged.json").unlink(missing_ok=True)  # first: what is left is no copy any more
        shutil.rmtree(folder, ignore_errors=True)
    return True


def tree_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # deleted while we looked
            continue
    return total
