"""Column copies in the scratch folder: found, made and shared as the working copies of rows are (`copies`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import xxhash

from bigsvm.errors import DataError, MissingInput
from bigsvm.events import Emit
from bigsvm.run.copies import copies_folder, kept_copy, make_room, work
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.columns import StagedColumns
from bigsvm.store.columns_write import COLUMNS_VERSION, copy_bytes, stage_columns
from bigsvm.store.stage import StagedRows


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
    """
    folder = copies_folder(scratch) / f"columns-{_key(data)}"
    found: list[StagedColumns] = []

    def is_whole() -> bool:
        found[:] = _complete(folder)
        return bool(found)

    def make() -> None:
        make_room(folder, copy_bytes(data), scratch_limit)
        with work("transposing", data.n_samples, emit) as advanced:
            stage_columns(data, folder, memory, advanced)
        found[:] = [StagedColumns(folder)]

    with kept_copy(folder, is_whole, make, emit):
        try:
            yield found[0]
        finally:
            found[0].close()


def _complete(folder: Path) -> list[StagedColumns]:
    """The copy if it is there, with small files that can be trusted and large ones of the right size; else nothing."""
    try:
        return [StagedColumns(folder)]
    except (MissingInput, DataError):
        return []


def _key(data: RowBlocks) -> str:
    # The name of a working copy of rows stands for its content, layout and orders.
    orders = [_digest(data.row_order), _digest(data.feature_order)]
    described = [
        data.folder.name if isinstance(data, StagedRows) else "", data.fingerprint, getattr(data, "selection", ""),
        data.layout, data.n_samples, data.n_features, data.dtype.name, data.index_dtype.name, orders, COLUMNS_VERSION,
    ]  # fmt: skip
    return xxhash.xxh3_128_hexdigest(json.dumps(described).encode())


def _digest(order: np.ndarray | None) -> str:
    return "" if order is None else xxhash.xxh3_128_hexdigest(np.ascontiguousarray(order).data)
