"""Writing a working copy: its blocks and segments, in the store's order or shuffled."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash

from bigsvm.compiled.shared.rows import CSR, sqnorms
from bigsvm.compiled.shared.shuffle import renumber
from bigsvm.files.atomic import sync_directory, temporary_name
from bigsvm.files.plain_arrays import load_array
from bigsvm.files.space import cannot_write
from bigsvm.store.blocks import Block, BlockRef, RowBlocks, frozen, readonly_view, row_bytes, tile
from bigsvm.store.copy.block_coding import coded_matrix, number_bits
from bigsvm.store.copy.permutation import OrderWriter, write_inverse
from bigsvm.store.copy.shuffle import Sizes, shuffled_blocks
from bigsvm.store.copy.stage_index import ALIGN, BLOCK_ENTRY, complete_segment, segment_files, write_index
from bigsvm.store.join import part
from bigsvm.store.survey import Survey

ROW_ORDER, WORKING_ROW = "row_order.npy", "working_row.npy"
FEATURE_ORDER, FEATURE_RANK = "feature_order.npy", "feature_rank.npy"


class SegmentShare(NamedTuple):
    """The input of a task that writes one segment."""

    data: RowBlocks
    folder: str
    copy: str  # digest of what the copy is made of
    number: int
    start: int
    stop: int
    block_rows: int
    piece_rows: int  # rows read from the store at a time, a multiple of block_rows
    renumbered: bool = False  # whether the folder holds the working number of each feature


def stage_segment(share: SegmentShare) -> dict[str, Any]:
    """Task: write a segment and its index, unless both exist; returns its summary.

    Raises
    ------
    OutputError : the scratch folder is full or cannot be written.
    """
    folder = Path(share.folder)
    found = complete_segment(folder, share.copy, share.number)
    if found is not None:
        return found
    rank = feature_rank(folder) if share.renumbered else None
    survey, bits = Survey(), number_bits(share.data.n_features, share.data.index_dtype)
    nbytes = int((share.stop - share.start) * row_bytes(share.data))
    with SegmentWriter(folder, share.copy, share.number, share.start, nbytes, bits) as segment:
        for start, stop in tile(share.stop - share.start, share.piece_rows):
            piece = share.data.read(BlockRef(share.start + start, share.start + stop, 0))
            survey.add(piece, share.data.classes)
            piece = prepared(piece, rank)
            for a, b in tile(piece.n_rows, share.block_rows):
                segment.add(part(piece, piece.start + a, piece.start + b))
            del piece  # free it before the next piece is read
        return segment.finish(survey)


def stage_shuffled(
    store: RowBlocks,
    folder: Path,
    copy: str,
    block_rows: int,
    segment_rows: int,
    renumbered: bool,
    memory: int,
    scattered: Callable[[int], None],
    written: Callable[[int], None],
) -> tuple[list[dict[str, Any]], Survey]:
    """Write all segments with the rows shuffled, and the two files with the order of the rows.

    copy : digest of what the copy is made of
    segment_rows : rows of a segment, a multiple of block_rows
    memory : bytes to use
    scattered, written : called with the number of rows scattered or written so far

    Returns the segments' summaries and the survey of the rows in the store's order.

    Raises
    ------
    OutputError : the scratch folder is full or cannot be written.
    """
    survey, summaries, bits = Survey(), [], number_bits(store.n_features, store.index_dtype)
    rank = feature_rank(folder) if renumbered else None
    nbytes = int(segment_rows * row_bytes(store))

    def prepare(piece: Block) -> Block:
        survey.add(piece, store.classes)
        return prepared(piece, rank)

    with OrderWriter(folder / ROW_ORDER, store.n_samples) as order:
        blocks = shuffled_blocks(store, folder, prepare, block_rows, memory, scattered)
        for number, (start, stop) in enumerate(tile(store.n_samples, segment_rows)):
            with SegmentWriter(folder, copy, number, start, nbytes, bits) as segment:
                for _ in range(start, stop, block_rows):
                    block, rows = next(blocks)
                    segment.add(block)
                    order.append(rows if store.row_order is None else store.row_order[rows])
                    written(block.stop)
                summaries.append(segment.finish(Survey()))
        blocks.close()
        order.finish()
    # The store's chunks are still held, so only this much memory is left.
    room = Sizes.of(store, memory).bucket_bytes
    write_inverse(load_array(folder / ROW_ORDER), folder / WORKING_ROW, room)
    return summaries, survey


def feature_rank(folder: Path) -> np.ndarray:
    """The working number of each store feature, mapped, so that the tasks of a machine share its pages."""
    return np.asarray(load_array(folder / FEATURE_RANK))


def prepared(piece: Block, rank: np.ndarray | None) -> Block:
    """The piece with squared norms and, if a rank is given, working feature numbers."""
    sqnorm = np.empty(piece.n_rows)
    sqnorms(readonly_view(piece.X), sqnorm)
    X = piece.X
    if rank is not None and isinstance(X, CSR):
        indices = np.empty_like(X.indices)
        renumber(frozen(X.indices), frozen(rank), indices)
        X = CSR(X.data, indices, X.indptr)
    return Block(piece.start, piece.stop, X, piece.y, piece.sample_weight, sqnorm)


class SegmentWriter:
    """Writes one segment block by block; the files appear with `finish`.

    copy : digest of what the copy is made of
    nbytes : approximate size, for error messages
    bits : how feature numbers are coded (`block_coding.number_bits`)

    Raises OutputError.
    """

    def __init__(self, folder: Path, copy: str, number: int, start: int, nbytes: int, bits: int) -> None:
        self.folder, self.copy, self.number, self.start, self.stop = folder, copy, number, start, start
        self._bits = bits
        self._path = segment_files(folder, number).blocks
        self._temporary = temporary_name(self._path)
        self._nbytes, self._offset = nbytes, 0
        self._blocks: list[tuple[int, int, int, int, bytes]] = []
        self._y_dtype = np.dtype(np.int8)
        try:
            self._handle = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except OSError as error:
            raise cannot_write(self._path, error, nbytes) from error

    def add(self, block: Block) -> None:
        """Append the next block, whose rows follow those of the last one."""
        digest, pieces, nbytes = xxhash.xxh3_128(), [], 0
        matrix, table = coded_matrix(block.X, self._bits)
        for array in [*matrix, *_of_rows(block)]:
            raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            padding = bytes(-len(raw) % ALIGN)
            for piece in (raw, padding):
                digest.update(piece)
                pieces.append(piece)
                nbytes += len(piece)
        try:
            _write_all(self._handle, pieces)
        except OSError as error:
            raise cannot_write(self._path, error, self._nbytes) from error
        entries = len(block.X.data) if isinstance(block.X, CSR) else block.X.size
        self._blocks.append((self._offset, nbytes, entries, table, digest.digest()))
        self._offset += nbytes
        self._y_dtype, self.stop = block.y.dtype, block.stop

    def finish(self, survey: Survey) -> dict[str, Any]:
        """Flush and rename the segment, then write its index; returns its summary."""
        try:
            os.fsync(self._handle)
            os.replace(self._temporary, self._path)
            sync_directory(self.folder)
        except OSError as error:
            raise cannot_write(self._path, error, self._nbytes) from error
        blocks = np.array(self._blocks, BLOCK_ENTRY)
        return write_index(self.folder, self.copy, self.number, self.start, self.stop, blocks, self._y_dtype, survey)

    def __enter__(self) -> SegmentWriter:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)
        self._temporary.unlink(missing_ok=True)


def _of_rows(block: Block) -> list[np.ndarray]:
    """The arrays of a block with one item for each row, in file order."""
    assert block.sqnorm is not None
    return [array for array in (block.y, block.sample_weight, block.sqnorm) if array is not None]


def _write_all(handle: int, pieces: Sequence[Any]) -> None:
    """Write the pieces one after another; if the disk becomes full, a write may be partial before one fails."""
    written, total = os.writev(handle, pieces), sum(len(piece) for piece in pieces)
    if written < total:
        rest = memoryview(b"".join(pieces))[written:]
        while rest:
            rest = rest[os.write(handle, rest) :]
