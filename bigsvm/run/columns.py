"""Column copies in the scratch folder: found, made and shared as the working copies of rows are (`staging`)."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import xxhash

from bigsvm.errors import DataError, MissingInput
from bigsvm.events import Emit
from bigsvm.run.staging import copies_folder, lock_copy, make_room, work
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.columns import StagedColumns
from bigsvm.store.columns_write import COLUMNS_VERSION, copy_bytes, stage_columns
from bigsvm.store.files import cannot_write
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
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    with open(folder.with_suffix(".lock"), "a+") as lock:
        copy: StagedColumns | None = None

        def is_whole() -> bool:
            nonlocal copy
            copy = _complete(folder)
            return copy is not None

        if not lock_copy(lock, is_whole, emit):
            folder.mkdir(parents=True, exist_ok=True)
            copy = _make(data, folder, memory, scratch_limit, emit)
            fcntl.flock(lock, fcntl.LOCK_SH)
        assert copy is not None
        try:
            os.utime(folder)  # recently used
            yield copy
        finally:
            copy.close()


def _make(data: RowBlocks, folder: Path, memory: int, scratch_limit: int | None, emit: Emit) -> StagedColumns:
    make_room(folder, copy_bytes(data), scratch_limit)
    with work("transposing", data.n_samples, emit) as advanced:
        stage_columns(data, folder, memory, advanced)
    return StagedColumns(folder)


def _complete(folder: Path) -> StagedColumns | None:
    """The copy if it is there, with small files that can be trusted and large ones of the right size."""
    try:
        return StagedColumns(folder)
    except (MissingInput, DataError):
        return None


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
