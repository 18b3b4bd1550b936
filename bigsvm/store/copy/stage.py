"""Reading the working copy: blocks of raw rows in the scratch folder, at the speed of the disk.

    <scratch>/bigsvm/rows-<key>/
        segment-00000.bin      1024 or more consecutive blocks; the arrays of a block follow one another, each at a
                               multiple of 64 bytes:  CSR: indptr int64, indices, data, y, weight, sqnorm
                                                      dense: X, y, weight, sqnorm
                               indices, data and X in fewer bytes where they can be (`block_coding.py`)
        segment-00000.idx      for each block offset, bytes, entries, table, xxh3-128 (`stage_index.BLOCK_ENTRY`)
        segment-00000.json     written when the two are complete; its survey
        row_order.npy          store row of each working row, and working_row.npy, its inverse; absent where
                               the rows are in the store's order
        feature_order.npy      store feature of each working feature, and feature_rank.npy, its inverse
        staged.json            written last: the copy is complete

A segment in the store's order is written by one task, on any worker; a killed run keeps the segments that are complete.
The key is a digest of the identity of the rows and of everything that decides the layout (`made_of` in staged.json,
which is compared when the copy is opened).  So fits share a copy, and never get other rows.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError, MissingInput
from bigsvm.files.plain_arrays import load_array
from bigsvm.files.sealed_json import read_sealed
from bigsvm.store.addresses import LazyRefs
from bigsvm.store.blocks import Block, BlockGroup, BlockRef, StoreBase, row_bytes
from bigsvm.store.copy.block_coding import Take, number_bits, taken_numbers, taken_values
from bigsvm.store.copy.group_buffers import GroupBuffers
from bigsvm.store.copy.open_copies import OpenCopies, close_files
from bigsvm.store.copy.stage_index import BlockEntry, damaged, damaged_block, give_up, open_index, padded, segment_files
from bigsvm.store.copy.stage_scatter import Extent, read_extents
from bigsvm.store.copy.stage_write import FEATURE_ORDER, ROW_ORDER, WORKING_ROW
from bigsvm.store.identity import Identity
from bigsvm.store.join import join_blocks, part
from bigsvm.store.labels import listed_classes
from bigsvm.store.survey import Survey


@dataclass(frozen=True)
class StagedMeta:
    """The contents of staged.json, about the copy as a whole."""

    uri: str
    layout: str
    n_samples: int
    n_features: int
    nnz: int
    dtype: str
    index_dtype: str
    y_dtype: str
    has_weights: bool
    classes: list[Any] | None
    identity: dict[str, Any]
    block_rows: int
    segment_blocks: int
    shuffled: bool
    sorted_z: float
    """Evidence of the test for sorted rows (`working_order`), and the number of the row that gave it."""
    sorted_by: str


class StagedRows(StoreBase):
    """A finished working copy as RowBlocks: memory-mapped, or read into buffers; verified at every read.

    Raises
    ------
    MissingInput : there is no finished copy.  DataError : it has changed since it was made (names the file).
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        try:
            document = read_sealed(self.folder / "staged.json")
        except OSError as error:
            raise MissingInput("no finished working copy here", str(folder)) from error
        except ValueError as error:
            raise damaged(self.folder / "staged.json", str(error)) from error
        self.meta = meta = StagedMeta(**document["meta"])
        self.survey = Survey.of(document["survey"])
        self.uri = meta.uri
        self.layout: Any = meta.layout
        self.n_samples, self.n_features, self.nnz = meta.n_samples, meta.n_features, meta.nnz
        self.dtype, self.index_dtype = np.dtype(meta.dtype), np.dtype(meta.index_dtype)
        self._number_bits = number_bits(meta.n_features, self.index_dtype)
        self.has_weights = meta.has_weights
        self.classes = None if meta.classes is None else listed_classes(meta.classes)
        self.identity = Identity.of_document(meta.identity)
        self.fingerprint = self.identity.store
        self.content_fingerprint: str | None = self.survey.content_fingerprint
        self.row_order = self._order(ROW_ORDER, document["orders"])
        self.working_row = self._order(WORKING_ROW, document["orders"])
        self.feature_order = self._order(FEATURE_ORDER, document["orders"])
        self._segments: list[dict[str, Any]] = document["segments"]
        self._indices: dict[int, np.ndarray] = {}
        self._maps: dict[int, mmap.mmap] = {}
        self._files: dict[int, int] = {}
        self._opening = threading.RLock()
        weakref.finalize(self, close_files, self._files)

    def close(self) -> None:
        """Release maps and files; blocks that were read stay usable."""
        with self._opening:
            close_files(self._files)
            self._maps, self._indices = {}, {}

    def refs(self, block_rows: int) -> Sequence[BlockRef]:
        """Addresses, made on demand; multiples of `meta.block_rows` know their bytes on disk."""
        whole = self.disk_bytes if block_rows % self.meta.block_rows == 0 else None
        return LazyRefs(self.n_samples, block_rows, row_bytes(self), whole)

    def read(self, ref: BlockRef) -> Block:
        """Rows at any address: for one whole block views of the map, if it is not coded; else copies."""
        parts = [self._block(number) for number in self._numbers(ref)]
        whole = parts[0]
        if len(parts) > 1:
            norms = [block.sqnorm for block in parts if block.sqnorm is not None]
            whole = replace(join_blocks(parts), sqnorm=np.concatenate(norms))
        if (whole.start, whole.stop) == (ref.start, ref.stop):
            return whole
        return part(whole, ref.start, ref.stop)

    def group_buffers(self, n_blocks: int) -> GroupBuffers:
        """Buffers for groups of about `n_blocks` whole blocks, with room for a tenth more entries than the mean."""
        rows = min(n_blocks * self.meta.block_rows, self.n_samples)
        entries = -(-rows * self.nnz // self.n_samples)
        if self.layout == "csr":
            entries += entries // 10
        y_dtype = np.dtype(self.meta.y_dtype)
        return GroupBuffers(
            self.layout, self.n_features, self.dtype, self.index_dtype, y_dtype, self.has_weights, rows, entries,
            n_blocks,
        )  # fmt: skip

    def read_group(self, group: BlockGroup, buffers: GroupBuffers, pool: ThreadPoolExecutor | None = None) -> Block:
        """Read whole blocks from the disk directly into `buffers`; the result is a block of views of them.

        group : each ref covers one or several whole blocks of the copy
        pool : its threads read the refs in parallel; it must not be the pool that runs this call

        Safe from several threads, if each has its own buffers.

        Raises
        ------
        DataError : a block is damaged or truncated (names block and file).
        ValueError : a ref does not cover whole blocks.
        """
        runs = [self._whole(ref) for ref in group.refs]
        found = [[self._entry(number) for number in run] for run in runs]
        numbers = [number for run in runs for number in run]
        rows = np.array([self._rows(number) for number in numbers])
        entries = np.array([entry.entries for run in found for entry in run])
        buffers.reserve(int(rows.sum()), int(entries.sum()), len(numbers))
        first_row, first_entry = (np.cumsum(rows) - rows).tolist(), (np.cumsum(entries) - entries).tolist()
        extents: list[Extent] = []
        k = 0
        for run, entries_of_run in zip(runs, found, strict=True):
            for number, entry in zip(run, entries_of_run, strict=True):
                if number == run[0] or extents[-1].segment != entry.segment:
                    path = segment_files(self.folder, entry.segment).blocks
                    extents.append(Extent(self._file(entry.segment), path, entry.segment, entry.offset, []))
                places = buffers.places(entry, self._rows(number), first_row[k], first_entry[k], k)
                extents[-1].add(number, entry, places)
                k += 1
        try:
            read_extents(extents, pool)
        except DataError as error:
            self._given_up(error)
            raise
        return buffers.block(group.start, rows, entries)

    def _given_up(self, error: DataError) -> DataError:
        """The error for a damaged block; marks the copy so that the block is made again."""
        return give_up(error)

    def will_need(self, ref: BlockRef) -> None:
        """Ask the kernel to load these rows into the page cache, without waiting.

        Small blocks at random places are very slow if each page fault waits for the disk.  Requested together, before
        they are touched, many of them are read at the same time.
        """
        self._advise(ref, os.POSIX_FADV_WILLNEED)

    def release(self, ref: BlockRef) -> None:
        """Drop the pages of these rows from memory and page cache, because streamed data must not accumulate there."""
        for segment, start, length in self._pages(ref):
            if segment in self._maps:
                self._maps[segment].madvise(mmap.MADV_DONTNEED, start, length)
        self._advise(ref, os.POSIX_FADV_DONTNEED)

    def _advise(self, ref: BlockRef, advice: int) -> None:
        for segment, start, length in self._pages(ref):
            os.posix_fadvise(self._file(segment), start, length, advice)

    def _pages(self, ref: BlockRef) -> Iterator[tuple[int, int, int]]:
        """(segment, offset, bytes) of the whole pages that hold the blocks of these rows; adjacent runs are joined."""
        run: tuple[int, int, int] | None = None
        for number in self._numbers(ref):
            segment, offset, nbytes, *_ = self._entry(number)
            start = offset - offset % mmap.PAGESIZE
            if run is not None and run[0] == segment:
                run = (segment, run[1], offset + nbytes - run[1])
                continue
            if run is not None:
                yield run
            run = (segment, start, offset + nbytes - start)
        if run is not None:
            yield run

    def disk_bytes(self, start: int, stop: int) -> int:
        """Bytes on disk of the blocks that hold rows [start, stop)."""
        return sum(self._entry(number).nbytes for number in self._numbers(BlockRef(start, stop, 0)))

    def _numbers(self, ref: BlockRef) -> range:
        """The numbers of the blocks that hold rows of `ref`."""
        return range(ref.start // self.meta.block_rows, -(-ref.stop // self.meta.block_rows))

    def _whole(self, ref: BlockRef) -> range:
        rows = self.meta.block_rows
        if ref.start % rows or (ref.stop % rows and ref.stop != self.n_samples) or not ref.start < ref.stop:
            raise ValueError(f"rows {ref.start} to {ref.stop} are not whole blocks of {rows} rows")
        return self._numbers(ref)

    def _rows(self, number: int) -> int:
        return min(self.meta.block_rows, self.n_samples - number * self.meta.block_rows)

    def _entry(self, number: int) -> BlockEntry:
        """The index entry of a block."""
        segment, inside = divmod(number, self.meta.segment_blocks)
        index = self._indices.get(segment)
        if index is None:
            with self._opening:
                index = open_index(self.folder, segment, self._segments[segment]["index_digest"])
                self._indices[segment] = index
        return BlockEntry(segment, *index[inside].tolist())

    def _file(self, segment: int) -> int:
        """The file of a segment, which stays open."""
        with self._opening:
            if segment not in self._files:
                path = segment_files(self.folder, segment).blocks
                try:
                    self._files[segment] = os.open(path, os.O_RDONLY)
                    # Extents are read in random order, so read-ahead by the kernel would be wasted.
                    os.posix_fadvise(self._files[segment], 0, 0, os.POSIX_FADV_RANDOM)
                except OSError as error:
                    raise damaged(path, str(error)) from error
            return self._files[segment]

    def _map(self, segment: int) -> mmap.mmap:
        with self._opening:
            if segment not in self._maps:
                try:
                    self._maps[segment] = mmap.mmap(self._file(segment), 0, prot=mmap.PROT_READ)
                except (OSError, ValueError) as error:
                    raise damaged(segment_files(self.folder, segment).blocks, str(error)) from error
            return self._maps[segment]

    def _order(self, name: str, orders: dict[str, str]) -> np.ndarray | None:
        """An order of the copy as a map; None if the copy has none."""
        if name not in orders:
            return None
        try:
            return load_array(self.folder / name)
        except (OSError, ValueError) as error:
            raise damaged(self.folder / name, str(error)) from error

    def _block(self, number: int) -> Block:
        segment, offset, nbytes, nnz, table, digest = self._entry(number)
        view = memoryview(self._map(segment))[offset : offset + nbytes]
        if len(view) != nbytes or xxhash.xxh3_128_digest(view) != digest:
            raise self._given_up(damaged_block(segment_files(self.folder, segment).blocks, number))
        n = self._rows(number)
        take = _taker(view)
        X: Any
        if self.layout == "csr":
            indptr = take(np.dtype(np.int64), n + 1)
            indices = taken_numbers(take, self.index_dtype, nnz, self._number_bits)
            X = CSR(taken_values(take, self.dtype, nnz, table), indices, indptr)
        else:
            X = taken_values(take, self.dtype, n * self.n_features, table).reshape(n, self.n_features)
        y = take(np.dtype(self.meta.y_dtype), n)
        weight = take(np.dtype(np.float64), n) if self.has_weights else None
        start = number * self.meta.block_rows
        return Block(start, start + n, X, y, weight, take(np.dtype(np.float64), n))

    def __reduce__(self) -> tuple[Any, ...]:
        return _staged, (str(self.folder), self.identity)


def _taker(view: memoryview) -> Take:
    """A function that takes arrays one after another from the bytes of a block."""
    position = 0

    def take(dtype: np.dtype, count: int) -> np.ndarray:
        nonlocal position
        array = np.frombuffer(view, dtype, count, position)
        position += padded(array.nbytes)
        return array

    return take


_open: OpenCopies[StagedRows] = OpenCopies()


def _staged(folder: str, identity: Identity) -> StagedRows:
    """The single reader of this process for a copy, whose maps tasks share.  Raises DataError for another copy."""

    def open_copy() -> StagedRows:
        copy = StagedRows(Path(folder))
        identity.check(copy.identity, "the working copy", folder, "bigsvm cache clear")
        return copy

    return _open.reader(Path(folder) / "staged.json", (folder, identity), open_copy)
