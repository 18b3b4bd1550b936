"""Columns of any rows, written in bounded memory: the external transpose.

Sparse rows are read twice.  The first pass counts the entries of each column, so that every entry's place in the
copy is known.  The second throws (column, row, value) records into spools, one for each range of columns
(`column_spools`); then range after range is read, put in order in memory and appended to the copy.  A range that
does not fit is divided further; a single column is in the order of its rows already and is only copied.

Dense rows are read once, turned in groups, and each column's part of a group is written to its place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.compiled.shared.columns import as_bits, count_columns, number_entries, place_entries, turn
from bigsvm.files.atomic import file_digest, remove, sync_directory
from bigsvm.files.sealed_json import write_sealed
from bigsvm.store.blocks import Block, BlockRef, RowBlocks, frozen, readonly_view, row_bytes, tile
from bigsvm.store.columns.column_addresses import COLUMN_BYTES, column_runs, row_dtype
from bigsvm.store.columns.column_blocks import DIGESTS, DOCUMENT, INDPTR, ROWS, STRIPES, VALUES
from bigsvm.store.columns.column_spools import Entries, Spool, Spools
from bigsvm.store.columns.stripes import StripedFile, StripeDigests, written_file
from bigsvm.store.copy.permutation import save_order
from bigsvm.store.copy.stage import StagedRows
from bigsvm.store.copy.stage_index import damaged
from bigsvm.units import KIB, MIB

COLUMNS_VERSION = 2
_STRIPE_BYTES = 256 * KIB
_LARGEST_BUCKET, _LARGEST_PIECE = 64 * MIB, 8 * MIB  # beyond, nothing becomes faster
_READ_BYTES = MIB  # of a finished file, to take its digests

_Part = Callable[[int, int], None]


def stage_columns(
    data: RowBlocks, folder: Path, made_of: dict[str, Any], memory: int, advanced: Callable[[int], None]
) -> None:
    """Make the copy that `StagedColumns(folder)` reads, in place of whatever is in `folder`, which exists.

    data : rows; their working order and working features are those of the columns
    made_of : what the copy will be held against when it is opened, as JSON
    memory : bytes to hold.  Beside them: 9 to 17 bytes for each feature of sparse data, 40 for each 256 KiB of
        the copy, and where `data` is not a working copy what it holds to read (a working copy's blocks are
        mapped, and let go).  Below about 8 MiB some buffers no longer shrink
    advanced : told how far the work is, in rows out of n_samples; may raise to stop it

    Raises
    ------
    OutputError : the folder is full or cannot be written.  DataError : rows cannot be read.
    """
    for old in [folder / DOCUMENT, *folder.iterdir()]:  # the document first: what is left is no copy any more
        remove(old)
    document: dict[str, Any] = {
        "uri": data.uri,
        "layout": data.layout,
        "n_samples": data.n_samples,
        "n_features": data.n_features,
        "dtype": data.dtype.name,
        "made_of": made_of,
    }
    names = [STRIPES, DIGESTS]
    if data.layout == "csr":
        indptr = _counted(data, memory, _part(0, 3, data.n_samples, advanced))
        entry_bytes = row_dtype(data.n_samples).itemsize + data.dtype.itemsize
        stripes = column_runs(indptr, entry_bytes, 0, _STRIPE_BYTES)
        digests = _write_sparse(data, indptr, stripes, folder, memory, advanced)
        save_order(folder / INDPTR, indptr)
        names.append(INDPTR)
    else:
        widest = data.n_samples * data.dtype.itemsize
        columns = max(_STRIPE_BYTES // widest, 1)
        stripes = np.append(np.arange(0, data.n_features, columns), data.n_features)
        digests = _write_dense(data, stripes, folder, memory, advanced)
    save_order(folder / STRIPES, stripes)
    save_order(folder / DIGESTS, digests)
    document["digests"] = {name: file_digest(folder / name) for name in names}
    write_sealed(folder / DOCUMENT, document)


def copy_bytes(data: RowBlocks) -> int:
    """About the most that `stage_columns` has on disk at one time: spools and what is made of them, or the copy."""
    if data.layout == "dense":
        nbytes = data.n_samples * data.n_features * data.dtype.itemsize
        return nbytes + nbytes // 4096 + MIB
    entry = row_dtype(data.n_samples).itemsize + data.dtype.itemsize
    nnz = data.nnz
    if nnz is None:
        nnz = int(data.n_samples * row_bytes(data)) // (data.dtype.itemsize + data.index_dtype.itemsize)
    spools = nnz * (entry + data.index_dtype.itemsize)
    # A spool goes away when its columns are in the copy, or in the spools that it was divided into.
    twice = max(_LARGEST_BUCKET, spools // 4, data.n_samples * entry)
    return spools + min(nnz * entry, twice) + COLUMN_BYTES * (data.n_features + 1) + spools // 1024 + MIB


def _part(number: int, parts: int, n: int, advanced: Callable[[int], None]) -> _Part:
    """Tell of the work done in one of several equal parts, in n-ths of all."""
    return lambda done, total: advanced((number * n + done * n // total) // parts)


def _pieces(data: RowBlocks, room: int) -> Iterator[BlockRef]:
    """Rows to read at a time, of about `room` bytes: of a working copy whole blocks, since it verifies whole ones."""
    if not isinstance(data, StagedRows):
        rows = min(max(int(room // row_bytes(data)), 1), data.n_samples)
        yield from data.refs(rows)
        return
    start = stop = held = 0
    for ref in data.refs(data.meta.block_rows):
        if held and held + ref.nbytes > room:
            yield BlockRef(start, stop, held)
            start, held = stop, 0
        stop, held = ref.stop, held + ref.nbytes
    yield BlockRef(start, stop, held)


def _matrices(data: RowBlocks, room: int) -> Iterator[tuple[BlockRef, Any]]:
    """X of one piece after another, the next one being read meanwhile; pages of the one before are let go."""
    release = data.release
    pieces = _pieces(data, room)
    with ThreadPoolExecutor(1, "bigsvm-columns") as reader:

        def begin() -> tuple[BlockRef, Future[Block]] | None:
            ref = next(pieces, None)
            return None if ref is None else (ref, reader.submit(data.read, ref))

        coming = begin()
        while coming is not None:
            ref, X = coming[0], readonly_view(coming[1].result().X)
            coming = begin()
            yield ref, X
            del X
            release(ref)


def _counted(data: RowBlocks, memory: int, told: _Part) -> np.ndarray:
    """First pass: where each column begins in the copy; int64, shape (n_features + 1,)."""
    indptr = np.zeros(data.n_features + 1, np.int64)
    for ref, X in _matrices(data, _piece_bytes(memory)):
        count_columns(X.indices, indptr)
        told(ref.stop, data.n_samples)
    return np.cumsum(indptr, out=indptr)


def _piece_bytes(memory: int) -> int:
    # Used, joined of blocks, row numbers of its entries; and the next one, that is being read.
    return min(memory // 12, _LARGEST_PIECE)


def _entries(data: RowBlocks, memory: int, told: _Part) -> Iterator[Entries]:
    """Second pass: all entries in the order of rows."""
    for ref, X in _matrices(data, _piece_bytes(memory)):
        rows = np.empty(len(X.indices), row_dtype(data.n_samples))
        number_entries(X.indptr, ref.start, rows)
        yield X.indices, frozen(rows), as_bits(X.data)
        told(ref.stop, data.n_samples)


def _write_sparse(
    data: RowBlocks, indptr: np.ndarray, stripes: np.ndarray, folder: Path, memory: int, advanced: Callable[[int], None]
) -> np.ndarray:
    """Write rows and values in the order of columns; digests of both, uint8 (2, stripes, 16)."""
    rows_dtype = row_dtype(data.n_samples)
    entry_bytes = rows_dtype.itemsize + data.dtype.itemsize
    largest = min(memory // 2, _LARGEST_BUCKET)
    bits = np.dtype(f"u{data.dtype.itemsize}")
    spools = Spools(folder, (data.index_dtype, rows_dtype, bits), memory // 3)
    told = _part(2, 3, data.n_samples, advanced)

    def leaves(entries: Iterator[Entries], start: int, stop: int) -> Iterator[Spool]:
        """Spools in the order of columns, dividing those that do not fit."""
        limit = spools.limit(int(indptr[stop] - indptr[start]) * entry_bytes, largest)
        for spool in spools.split(entries, start + column_runs(indptr[start : stop + 1], entry_bytes, 0, limit)):
            if spool.stop - spool.start == 1 or spool.entries * entry_bytes <= largest:
                yield spool
            else:
                yield from leaves(spool.drain(), spool.start, spool.stop)

    with (
        StripedFile(folder / ROWS, indptr[stripes] * rows_dtype.itemsize) as rows_file,
        StripedFile(folder / VALUES, indptr[stripes] * data.dtype.itemsize) as values_file,
        spools,
    ):
        for spool in leaves(_entries(data, memory, _part(1, 3, data.n_samples, advanced)), 0, data.n_features):
            for rows, values in _in_order(spool, indptr, rows_dtype, bits):
                rows_file.append(rows)
                values_file.append(values)
            told(spool.stop, data.n_features)
        return np.stack([rows_file.finish(), values_file.finish()])


def _in_order(
    spool: Spool, indptr: np.ndarray, rows_dtype: np.dtype, bits: np.dtype
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows and values of a spool's columns, one column after another."""
    if spool.stop - spool.start == 1:  # however large: its records are in the order of rows
        for _, rows, values in spool.drain():
            yield rows, values
        return
    ends = indptr[spool.start + 1 : spool.stop + 1] - indptr[spool.start]
    place = indptr[spool.start : spool.stop] - indptr[spool.start]
    rows, values = np.empty(spool.entries, rows_dtype), np.empty(spool.entries, bits)
    for columns, some_rows, some_values in spool.drain():
        if not place_entries(columns, some_rows, some_values, spool.start, place, rows, values):
            raise damaged(spool.path, "a spool of the columns holds others")
    if not np.array_equal(place, ends):
        raise damaged(spool.path, "rows changed between the two passes over them")
    yield rows, values


def _write_dense(
    data: RowBlocks, stripes: np.ndarray, folder: Path, memory: int, advanced: Callable[[int], None]
) -> np.ndarray:
    """Write the values column after column; their digests, uint8 (1, stripes, 16)."""
    n, d, size, path = data.n_samples, data.n_features, data.dtype.itemsize, folder / VALUES
    nbytes, told = n * d * size, _part(0, 2, n, advanced)
    room = memory // 5  # of a piece: used, joined of blocks, turned; and the next one, that is being read
    rows_at_once = max(room // (d * size), 1)
    with written_file(path, nbytes) as handle:
        os.posix_fallocate(handle, 0, nbytes)  # a full disk says so now
        for ref, X in _matrices(data, room):
            for a, b in tile(len(X), rows_at_once):
                turned = np.empty((d, b - a), data.dtype)
                turn(as_bits(X[a:b]), as_bits(turned))
                for j in range(d):
                    _write_at(handle, turned[j], (j * n + ref.start + a) * size)
            told(ref.stop, n)
        os.fsync(handle)
    sync_directory(folder)
    told = _part(1, 2, n, advanced)
    digests = StripeDigests(stripes * (n * size))
    with open(path, "rb", buffering=0) as file:
        done = 0
        while piece := file.read(_READ_BYTES):
            digests.update(piece)
            os.posix_fadvise(file.fileno(), done, len(piece), os.POSIX_FADV_DONTNEED)
            done += len(piece)
            told(done, nbytes)
    if done != nbytes:
        raise damaged(path, "it was cut off while it was made")
    return digests.finish()[np.newaxis]


def _write_at(handle: int, array: np.ndarray, offset: int) -> None:
    left = array.view(np.uint8).data
    while left:
        written = os.pwrite(handle, left, offset)
        offset, left = offset + written, left[written:]
