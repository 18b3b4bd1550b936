"""Column copies in the scratch folder: found, made and shared as the working copies of rows are (`copies`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from bigsvm.errors import DataError, MissingInput
from bigsvm.events import Emit
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.columns.column_blocks import StagedColumns
from bigsvm.store.columns.column_writer import COLUMNS_VERSION, copy_bytes, stage_columns
from bigsvm.store.copy.copy_folder import copies_folder, kept_copy, make_room, work
from bigsvm.store.copy.permutation import order_digest
from bigsvm.store.delegated import chunks_below
from bigsvm.store.identity import digest_of


@contextmanager
def staged_columns(
    data: RowBlocks, scratch: Path, memory: int, scratch_limit: int | None, emit: Emit
) -> Iterator[StagedColumns]:
    """The columns of `data`, copied now unless they are there; kept from deletion inside the block.

    data : rows in the order that the columns' row numbers shall mean, usually the working copy
    memory : bytes to hold while they are copied (`stage_columns` says what besides)

    Raises
    ------
    PlanRefused : the copy does not fit the scratch limit or the disk.
    OutputError : the scratch folder cannot be written.
    DataError : the store is no longer what was copied.
    """
    made_of = _made_of(data)
    folder = copies_folder(scratch) / f"columns-{digest_of(made_of)}"
    found: list[StagedColumns] = []
    chunks, all_are_read = chunks_below(data), False

    def is_whole() -> bool:
        found[:] = _complete(folder, made_of)
        return bool(found)

    def make() -> None:
        nonlocal all_are_read
        make_room(folder, copy_bytes(data), scratch_limit)
        all_are_read = True
        with (
            nullcontext() if chunks is None else chunks.all_read(),
            work("transposing", data.n_samples, emit) as advanced,
        ):
            stage_columns(data, folder, made_of, memory, advanced)
        found[:] = [StagedColumns(folder)]

    with kept_copy(folder, is_whole, make, emit):
        if chunks is not None and not all_are_read:
            chunks.check()
        try:
            yield found[0]
        finally:
            found[0].close()


def _complete(folder: Path, made_of: dict[str, Any]) -> list[StagedColumns]:
    """The copy of just that if it is there, with files that can be trusted or have the right size; else nothing."""
    try:
        copy = StagedColumns(folder)
    except (MissingInput, DataError):
        return []
    if copy.made_of == made_of:
        return [copy]
    copy.close()  # of other rows, moved here by a restore or by hand
    return []


def _made_of(data: RowBlocks) -> dict[str, Any]:
    """What a copy is made of, in full: its name is the digest, and the copy is held against it when it is opened."""
    return {
        "identity": data.identity.document(),
        "row_order": order_digest(data.row_order),
        "feature_order": order_digest(data.feature_order),
        "layout": data.layout,
        "n_samples": data.n_samples,
        "n_features": data.n_features,
        "dtype": data.dtype.name,
        "index_dtype": data.index_dtype.name,
        "version": COLUMNS_VERSION,
    }
