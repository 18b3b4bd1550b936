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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import xxhash

from bigsvm.errors import PlanRefused
from bigsvm.events import Emit, WorkAdvanced, WorkEnded, WorkStarted
from bigsvm.solvers.base import Mapper
from bigsvm.store.blocks import RowBlocks, tile
from bigsvm.store.files import cannot_write, file_digest
from bigsvm.store.locks import holder, sign, take
from bigsvm.store.permutation import save_order
from bigsvm.store.sealed_json import write_sealed
from bigsvm.store.stage import StagedMeta, StagedRows
from bigsvm.store.stage_index import LAYOUT_VERSION, is_complete, segment_blocks
from bigsvm.store.stage_write import (
    FEATURE_ORDER,
    FEATURE_RANK,
    ROW_ORDER,
    WORKING_ROW,
    SegmentShare,
    stage_segment,
    stage_shuffled,
)
from bigsvm.store.survey import Survey
from bigsvm.store.working_order import WorkingOrder, inverse_order, working_order
from bigsvm.units import MIB, show_bytes

_LOOK_S = 0.1
_TELL = 200  # events of progress in one piece of work


def copies_folder(scratch: Path) -> Path:
    """Where the working copies of a scratch folder are."""
    return scratch / "bigsvm"


def copies_in(folder: Path) -> list[Path]:
    """The working copies of rows and of columns in such a folder."""
    return sorted(path for kind in ("rows", "columns") for path in folder.glob(f"{kind}-*") if path.is_dir())


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
    memory: int = 64 * MIB,
) -> Iterator[StagedRows]:
    """The working copy of `store`, made now unless it is there; kept from deletion inside the block.

    Rows that a sample shows to be sorted are shuffled on the way, features of wide sparse data renumbered
    by frequency (`working_order`).

    piece_rows : rows read from the store at a time by each worker, a multiple of block_rows
    workers : segments copied at one time; None: as many as the mapper likes
    memory : bytes to hold while rows are shuffled, the store's chunks included

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
    with open(folder.with_suffix(".lock"), "a+") as lock:
        if not lock_copy(lock, lambda: is_complete(folder), emit):
            folder.mkdir(parents=True, exist_ok=True)
            order = working_order(store, piece_rows)
            make_room(folder, _copy_bytes(store, order, data_bytes, memory), scratch_limit)
            _make(store, folder, order, block_rows, piece_rows, mapper, emit, workers, memory)
            fcntl.flock(lock, fcntl.LOCK_SH)
        os.utime(folder)  # recently used
        copy = StagedRows(folder)
        try:
            yield copy
        finally:
            copy.close()


def lock_copy(lock: IO[str], is_whole: Callable[[], bool], emit: Emit) -> bool:
    """Take the lock of a copy: shared where the copy is whole (True), else alone, for making it (False).

    While somebody else makes it, events say who.
    """
    began, told, rounds = time.monotonic(), "", 0
    # Never a wait for being alone: who has made the copy uses it for hours, and we could use it with them.
    while not (found := take(lock, fcntl.LOCK_SH) and is_whole()):
        # A shared lock does not become exclusive in one step: let go, then look again.
        fcntl.flock(lock, fcntl.LOCK_UN)
        if rounds > 0:  # without any lock, so that of several who wait one gets it
            if not told:
                told = f"waiting for {holder(lock)}, which makes the working copy"
                emit(WorkStarted(told, 0, ""))
            emit(WorkAdvanced(told, 0))
            time.sleep(_LOOK_S)
        rounds += 1
        if take(lock, fcntl.LOCK_EX):
            found = is_whole()
            if found:
                fcntl.flock(lock, fcntl.LOCK_SH)
            else:
                sign(lock)
            break
    if told:
        emit(WorkEnded(told, time.monotonic() - began))
    return found


def _key(store: RowBlocks, block_rows: int) -> str:
    # Whether rows are shuffled and how features are numbered follows from the content and the version.
    described = [
        store.fingerprint, getattr(store, "selection", ""), block_rows, LAYOUT_VERSION, store.dtype.name,
        store.index_dtype.name, segment_blocks(-(-store.n_samples // block_rows)),
    ]  # fmt: skip
    return xxhash.xxh3_128_hexdigest(json.dumps(described).encode())


def _copy_bytes(store: RowBlocks, order: WorkingOrder, data_bytes: int, memory: int) -> int:
    """About the most that the copy takes while it is made: norms, orders, and a bucket of the shuffle."""
    n = store.n_samples
    features = 0 if order.feature_order is None else 2 * order.feature_order.nbytes
    # A bucket takes no more than a third of the memory; what a row has in it beside its data, orders take later.
    return data_bytes + 8 * n + features + (24 * n + min(memory // 3, data_bytes) if order.shuffle else 0)


def _make(
    store: RowBlocks,
    folder: Path,
    order: WorkingOrder,
    block_rows: int,
    piece_rows: int,
    mapper: Mapper,
    emit: Emit,
    workers: int | None,
    memory: int,
) -> None:
    for litter in folder.glob(".*.tmp-*"):  # we hold the lock: whoever wrote these is gone
        litter.unlink()
    per_segment = segment_blocks(-(-store.n_samples // block_rows))
    orders = []
    renumbered = order.feature_order is not None
    if order.feature_order is not None:
        save_order(folder / FEATURE_RANK, inverse_order(order.feature_order))
        before = store.feature_order
        save_order(folder / FEATURE_ORDER, order.feature_order if before is None else before[order.feature_order])
        orders += [FEATURE_RANK, FEATURE_ORDER]
    elif store.feature_order is not None:
        save_order(folder / FEATURE_ORDER, store.feature_order)
        orders += [FEATURE_ORDER]
    if order.shuffle:
        for whole in folder.glob("segment-*"):  # of a killed run: they would take the room of the spools
            whole.unlink()
        held = 0 if order.feature_order is None else order.feature_order.nbytes
        order = replace(order, feature_order=None)  # on disk now, and mapped from there
        segments, survey = _shuffle(
            store, folder, block_rows, per_segment * block_rows, renumbered, memory - held, emit
        )
    else:
        segments, survey = _copy(
            store, folder, block_rows, per_segment * block_rows, renumbered, piece_rows, mapper, emit, workers
        )
        if store.row_order is not None:
            save_order(folder / ROW_ORDER, store.row_order)
            save_order(folder / WORKING_ROW, inverse_order(store.row_order))
    if order.shuffle or store.row_order is not None:
        orders += [ROW_ORDER, WORKING_ROW]
    meta = StagedMeta(
        uri=store.uri,
        layout=store.layout,
        n_samples=store.n_samples,
        n_features=store.n_features,
        nnz=survey.nnz,
        dtype=store.dtype.name,
        index_dtype=store.index_dtype.name,
        y_dtype=segments[0]["y_dtype"],
        has_weights=store.has_weights,
        classes=None if store.classes is None else store.classes.tolist(),
        fingerprint=store.fingerprint,
        block_rows=block_rows,
        segment_blocks=per_segment,
        shuffled=order.shuffle,
        sorted_z=order.z,
        sorted_by=order.what,
    )
    document = {
        "meta": meta.__dict__,
        "survey": survey.document(),
        "orders": {name: file_digest(folder / name) for name in orders},
        "segments": [{"nbytes": found["nbytes"], "index_digest": found["index_digest"]} for found in segments],
    }
    write_sealed(folder / "staged.json", document)


def _copy(
    store: RowBlocks,
    folder: Path,
    block_rows: int,
    segment_rows: int,
    renumbered: bool,
    piece_rows: int,
    mapper: Mapper,
    emit: Emit,
    workers: int | None,
) -> tuple[list[dict[str, Any]], Survey]:
    """Write all segments with the rows in the store's order, each a task; their summaries and survey."""
    shares = (
        SegmentShare(store, str(folder), number, start, stop, block_rows, piece_rows, renumbered)
        for number, (start, stop) in enumerate(tile(store.n_samples, segment_rows))
    )
    survey, segments = Survey(), []
    with work("staging", store.n_samples, emit) as advanced:
        for found in mapper.map(stage_segment, shares, workers):
            survey.merge(Survey.of(found["survey"]))
            segments.append(found)
            advanced(found["stop"])
    return segments, survey


def _shuffle(
    store: RowBlocks,
    folder: Path,
    block_rows: int,
    segment_rows: int,
    renumbered: bool,
    memory: int,
    emit: Emit,
) -> tuple[list[dict[str, Any]], Survey]:
    """Write all segments with the rows shuffled, in this process; their summaries and survey."""
    with ExitStack() as stack:
        scattered = stack.enter_context(work("shuffling", store.n_samples, emit))
        written: Callable[[int], None] | None = None

        def advanced(rows: int) -> None:
            nonlocal written
            if written is None:
                stack.close()  # the first block is there: all rows have been scattered
                written = stack.enter_context(work("staging", store.n_samples, emit))
            written(rows)

        return stage_shuffled(store, folder, block_rows, segment_rows, renumbered, memory, scattered, advanced)


@contextmanager
def work(what: str, rows: int, emit: Emit) -> Iterator[Callable[[int], None]]:
    """Events of a piece of work on rows; gives the function to tell how many are done."""
    began, told = time.monotonic(), 0

    def advanced(done: int) -> None:
        nonlocal told
        if done - told >= rows / _TELL or done == rows:  # a large copy has millions of blocks
            told = done
            emit(WorkAdvanced(what, done))

    emit(WorkStarted(what, rows, "rows"))
    yield advanced
    emit(WorkEnded(what, time.monotonic() - began))


def make_room(folder: Path, needed: int, scratch_limit: int | None) -> None:
    """Delete the least recently used copies that nobody reads until `needed` bytes fit."""
    have = tree_bytes(folder)
    others = sorted((p for p in copies_in(folder.parent) if p != folder), key=lambda p: p.stat().st_mtime)
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
        if not take(lock, fcntl.LOCK_EX):
            return False
        for document in ("staged.json", "columns.json"):
            (folder / document).unlink(missing_ok=True)  # first: what is left is no copy any more
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
