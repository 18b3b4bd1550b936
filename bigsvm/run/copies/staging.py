"""Working copies of rows in the scratch folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from bigsvm.events import Emit
from bigsvm.files.atomic import file_digest
from bigsvm.files.sealed_json import write_sealed
from bigsvm.store.blocks import RowBlocks, tile
from bigsvm.store.copy.copy_folder import copies_folder, kept_copy, make_room, work
from bigsvm.store.copy.permutation import order_digest, save_order
from bigsvm.store.copy.stage import StagedMeta, StagedRows
from bigsvm.store.copy.stage_index import LAYOUT_VERSION, is_complete, segment_blocks
from bigsvm.store.copy.stage_write import (
    FEATURE_ORDER,
    FEATURE_RANK,
    ROW_ORDER,
    WORKING_ROW,
    SegmentShare,
    stage_segment,
    stage_shuffled,
)
from bigsvm.store.delegated import chunks_below
from bigsvm.store.identity import digest_of
from bigsvm.store.survey import Survey
from bigsvm.store.working_order import WorkingOrder, inverse_order, working_order
from bigsvm.tasks import Mapper, over_shares
from bigsvm.units import MIB


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
    DataError : the store is no longer what was copied.
    """
    made_of = _made_of(store, block_rows)
    folder = copies_folder(scratch) / f"rows-{digest_of(made_of)}"
    chunks, all_are_read = chunks_below(store), False

    def make() -> None:
        nonlocal all_are_read
        order = working_order(store, piece_rows)
        store.forget()  # what this thread read the sample with: other threads copy, and the plan counts one reader
        make_room(folder, _copy_bytes(store, order, data_bytes, memory), scratch_limit)
        all_are_read = not any(folder.glob("segment-*"))  # else a killed run has left some segments
        with chunks.all_read() if chunks is not None and all_are_read else nullcontext():
            _make(store, folder, made_of, order, block_rows, piece_rows, mapper, emit, workers, memory)

    with kept_copy(folder, lambda: is_complete(folder, made_of), make, emit):
        if chunks is not None and not all_are_read:
            chunks.check()
        copy = StagedRows(folder)
        try:
            yield copy
        finally:
            copy.close()


def _made_of(store: RowBlocks, block_rows: int) -> dict[str, Any]:
    """What a copy is made of, in full: its name is the digest, and the copy is held against it when it is opened.

    Whether rows are shuffled and how features are numbered follows from the content and the version.
    """
    return {
        "identity": store.identity.document(),
        "row_order": order_digest(store.row_order),
        "feature_order": order_digest(store.feature_order),
        "block_rows": block_rows,
        "version": LAYOUT_VERSION,
        "layout": store.layout,
        "dtype": store.dtype.name,
        "index_dtype": store.index_dtype.name,
        "n_samples": store.n_samples,
        "n_features": store.n_features,
        "segment_blocks": segment_blocks(-(-store.n_samples // block_rows)),
    }


def _copy_bytes(store: RowBlocks, order: WorkingOrder, data_bytes: int, memory: int) -> int:
    """About the most that the copy takes while it is made: norms, orders, and a bucket of the shuffle."""
    n = store.n_samples
    features = 0 if order.feature_order is None else 2 * order.feature_order.nbytes
    # A bucket takes no more than a third of the memory; what a row has in it beside its data, orders take later.
    return data_bytes + 8 * n + features + (24 * n + min(memory // 3, data_bytes) if order.shuffle else 0)


def _make(
    store: RowBlocks,
    folder: Path,
    made_of: dict[str, Any],
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
            store, folder, digest_of(made_of), block_rows, per_segment * block_rows, renumbered, memory - held, emit
        )
    else:
        segments, survey = _copy(
            store, folder, digest_of(made_of), block_rows, per_segment * block_rows, renumbered, piece_rows, mapper,
            emit, workers,
        )  # fmt: skip
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
        identity=store.identity.document(),
        block_rows=block_rows,
        segment_blocks=per_segment,
        shuffled=order.shuffle,
        sorted_z=order.z,
        sorted_by=order.what,
    )
    document = {
        "made_of": made_of,
        "meta": meta.__dict__,
        "survey": survey.document(),
        "orders": {name: file_digest(folder / name) for name in orders},
        "segments": [{"nbytes": found["nbytes"], "index_digest": found["index_digest"]} for found in segments],
    }
    write_sealed(folder / "staged.json", document)


def _copy(
    store: RowBlocks,
    folder: Path,
    copy: str,
    block_rows: int,
    segment_rows: int,
    renumbered: bool,
    piece_rows: int,
    mapper: Mapper,
    emit: Emit,
    workers: int | None,
) -> tuple[list[dict[str, Any]], Survey]:
    """Write all segments with the rows in the store's order, each a task; their summaries and survey."""

    def share(piece: tuple[int, tuple[int, int]]) -> SegmentShare:
        number, (start, stop) = piece
        return SegmentShare(store, str(folder), copy, number, start, stop, block_rows, piece_rows, renumbered)

    segments_of_rows = enumerate(tile(store.n_samples, segment_rows))
    survey, segments = Survey(), []
    with work("staging", store.n_samples, emit) as advanced:
        for _, found in over_shares(mapper, stage_segment, segments_of_rows, share, workers):
            survey.merge(Survey.of(found["survey"]))
            segments.append(found)
            advanced(found["stop"])
    return segments, survey


def _shuffle(
    store: RowBlocks,
    folder: Path,
    copy: str,
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

        return stage_shuffled(store, folder, copy, block_rows, segment_rows, renumbered, memory, scattered, advanced)
