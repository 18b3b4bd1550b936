"""The working copy: raw row blocks in the scratch folder, mapped and read again at the speed of the disk.

    <scratch>/bigsvm/rows-<key>/
        segment-00000.bin      up to 1024 blocks back to back; a block's arrays follow one another, each at a
                               multiple of 64 bytes:  CSR: indptr int64, indices, data, y, weight
                                                      dense: X, y, weight
        segment-00000.json     its index: for each block offset, bytes, entries, xxh3-128; and its survey
        staged.json            written last: the copy is complete

A segment is one task: any worker may write it, a killed run keeps the ones that are complete.  The key is a
digest of the store's fingerprint and of everything that decides the layout, so fits share a copy and a
changed store never meets an old one.  Rows and features may be permuted on the way (`row_order`,
`feature_order`); the plain layout keeps the store's order.
"""

from __future__ import annotations

import json
import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash

from bigsvm.errors import DataError, MissingInput
from bigsvm.kernels.rows import CSR
from bigsvm.store.blocks import Block, BlockRef, RowBlocks, make_refs, tile
from bigsvm.store.files import cannot_write, temporary_name, write_bytes
from bigsvm.store.join import join_blocks
from bigsvm.store.survey import Survey

LAYOUT_VERSION = 1
BLOCKS_PER_SEGMENT = 1024
_ALIGN = 64


class SegmentShare(NamedTuple):
    """What a worker needs to write one segment."""

    data: RowBlocks
    folder: str
    number: int
    start: int
    stop: int
    block_rows: int
    piece_rows: int  # rows read from the store at a time, a multiple of block_rows


def stage_segment(share: SegmentShare) -> dict[str, Any]:
    """Task: write one segment and its index unless both are there; returns the index.

    Raises
    ------
    OutputError : the scratch folder is full or cannot be written.
    """
    folder = Path(share.folder)
    path, index_path = folder / f"segment-{share.number:05d}.bin", folder / f"segment-{share.number:05d}.json"
    found = _complete_index(path, index_path)
    if found is not None:
        return found
    blocks, survey, offset = [], Survey(), 0
    temporary = temporary_name(path)
    try:
        with open(temporary, "xb") as file:
            for piece_start, piece_stop in _pieces(share.start, share.stop, share.piece_rows):
                piece = share.data.read(BlockRef(piece_start, piece_stop, 0))
                survey.add(piece, share.data.classes)
                for start in range(piece_start, piece_stop, share.block_rows):
                    block = _part(piece, start, min(start + share.block_rows, piece_stop))
                    digest = xxhash.xxh3_128()
                    nbytes = 0
                    for array in _arrays(block):
                        raw = np.ascontiguousarray(array).view(np.uint8).reshape(-1).data
                        padding = bytes(-len(raw) % _ALIGN)
                        for part in (raw, padding):
                            file.write(part)
                            digest.update(part)
                        nbytes += len(raw) + len(padding)
                    nnz = len(block.X.data) if isinstance(block.X, CSR) else block.X.size
                    blocks.append([offset, nbytes, nnz, digest.hexdigest()])
                    offset += nbytes
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise cannot_write(path, error, int((share.stop - share.start) * _mean_bytes(share.data))) from error
    finally:
        temporary.unlink(missing_ok=True)
    index = {
        "number": share.number,
        "start": share.start,
        "stop": share.stop,
        "nbytes": offset,
        "y_dtype": piece.y.dtype.name,
        "blocks": blocks,
        "survey": survey.document(),
    }
    write_bytes(index_path, json.dumps(index).encode())
    return index


def _mean_bytes(data: RowBlocks) -> float:
    return make_refs(data, data.n_samples)[0].nbytes / data.n_samples


def _pieces(start: int, stop: int, rows: int) -> Sequence[tuple[int, int]]:
    return [(start + a, start + b) for a, b in tile(stop - start, rows)]


def _complete_index(path: Path, index_path: Path) -> dict[str, Any] | None:
    """The index of a segment that an earlier run finished, or None."""
    try:
        index = json.loads(index_path.read_bytes())
        return index if path.stat().st_size == index["nbytes"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _part(piece: Block, start: int, stop: int) -> Block:
    a, b = start - piece.start, stop - piece.start
    X: Any
    if isinstance(piece.X, CSR):
        k0, k1 = piece.X.indptr[a], piece.X.indptr[b]
        X = CSR(piece.X.data[k0:k1], piece.X.indices[k0:k1], piece.X.indptr[a : b + 1] - k0)
    else:
        X = piece.X[a:b]
    weight = None if piece.sample_weight is None else piece.sample_weight[a:b]
    return Block(start, stop, X, piece.y[a:b], weight)


def _arrays(block: Block) -> list[np.ndarray]:
    """A block's arrays in file order."""
    if isinstance(block.X, CSR):
        arrays = [block.X.indptr.astype(np.int64, copy=False), block.X.indices, block.X.data]
    else:
        arrays = [block.X]
    arrays.append(block.y)
    if block.sample_weight is not None:
        arrays.append(block.sample_weight)
    return arrays


def is_complete(folder: Path) -> bool:
    """Whether a working copy is there with an index that can be read and segments of the right size."""
    try:
        document = json.loads((folder / "staged.json").read_bytes())
        return all(
            _complete_index(folder / f"{Path(name).stem}.bin", folder / name) is not None
            for name in document["segments"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


@dataclass(frozen=True)
class StagedMeta:
    """What staged.json says of the copy as a whole."""

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
    fingerprint: str
    block_rows: int


class StagedRows:
    """A finished working copy as RowBlocks: blocks are views of a memory map, verified at every read."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        try:
            document = json.loads((self.folder / "staged.json").read_bytes())
        except OSError as error:
            raise MissingInput("no finished working copy here", str(folder)) from error
        self.meta = meta = StagedMeta(**document["meta"])
        self.survey = Survey.of(document["survey"])
        self.uri = meta.uri
        self.layout: Any = meta.layout
        self.n_samples, self.n_features, self.nnz = meta.n_samples, meta.n_features, meta.nnz
        self.dtype, self.index_dtype = np.dtype(meta.dtype), np.dtype(meta.index_dtype)
        self.has_weights = meta.has_weights
        self.classes = None if meta.classes is None else np.array(meta.classes)
        self.fingerprint = meta.fingerprint
        self.content_fingerprint: str | None = self.survey.content_fingerprint
        self.row_order: np.ndarray | None = None
        self.feature_order: np.ndarray | None = None
        self._index = [json.loads((self.folder / name).read_bytes()) for name in document["segments"]]
        self._maps: dict[int, mmap.mmap] = {}
        self._files: dict[int, int] = {}
        self._opening = threading.Lock()

    def close(self) -> None:
        """Give maps and files back; blocks that were read stay usable until they are dropped."""
        for handle in self._files.values():
            os.close(handle)
        self._maps, self._files = {}, {}

    def refs(self, block_rows: int) -> Sequence[BlockRef]:
        """Addresses; only multiples of the copy's own `meta.block_rows` are read without a copy."""
        if block_rows != self.meta.block_rows:
            return make_refs(self, block_rows)
        blocks = [entry for segment in self._index for entry in segment["blocks"]]
        rows = tile(self.n_samples, block_rows)
        return [BlockRef(a, b, entry[1]) for (a, b), entry in zip(rows, blocks, strict=True)]

    def read(self, ref: BlockRef) -> Block:
        rows = self.meta.block_rows
        first, last = ref.start // rows, -(-ref.stop // rows)
        parts = [self._block(number) for number in range(first, last)]
        whole = parts[0] if len(parts) == 1 else join_blocks(parts)
        if (whole.start, whole.stop) == (ref.start, ref.stop):
            return whole
        return _part(whole, ref.start, ref.stop)

    def will_need(self, ref: BlockRef) -> None:
        """Ask the kernel to bring these rows into the page cache, and do not wait for it.

        Small blocks at random places are far slower when each page fault waits for the disk: asked for
        together, before they are touched, many of them are on their way at one time.
        """
        self._advise(ref, os.POSIX_FADV_WILLNEED)

    def release(self, ref: BlockRef) -> None:
        """Let the pages of these rows leave memory and page cache: streamed data must not pile up there."""
        for segment, start, length in self._pages(ref):
            self._map(segment).madvise(mmap.MADV_DONTNEED, start, length)
        self._advise(ref, os.POSIX_FADV_DONTNEED)

    def _advise(self, ref: BlockRef, advice: int) -> None:
        for segment, start, length in self._pages(ref):
            self._map(segment)
            os.posix_fadvise(self._files[segment], start, length, advice)

    def _pages(self, ref: BlockRef) -> Iterator[tuple[int, int, int]]:
        """(segment, offset, bytes) of whole pages that hold the blocks of these rows, runs joined."""
        run: tuple[int, int, int] | None = None
        for number in range(ref.start // self.meta.block_rows, -(-ref.stop // self.meta.block_rows)):
            segment, offset, nbytes, _, _ = self._entry(number)
            start = offset - offset % mmap.PAGESIZE
            if run is not None and run[0] == segment:
                run = (segment, run[1], offset + nbytes - run[1])
                continue
            if run is not None:
                yield run
            run = (segment, start, offset + nbytes - start)
        if run is not None:
            yield run

    def _entry(self, number: int) -> tuple[int, int, int, int, str]:
        """(segment, offset, bytes, entries, digest) of a block."""
        segment, inside = divmod(number, BLOCKS_PER_SEGMENT)
        offset, nbytes, nnz, digest = self._index[segment]["blocks"][inside]
        return segment, offset, nbytes, nnz, digest

    def _map(self, segment: int) -> mmap.mmap:
        with self._opening:
            if segment in self._maps:
                return self._maps[segment]
            path = self.folder / f"segment-{segment:05d}.bin"
            try:
                handle = os.open(path, os.O_RDONLY)  # kept open, for advice on its pages
                self._files[segment] = handle
                self._maps[segment] = mmap.mmap(handle, 0, prot=mmap.PROT_READ)
            except (OSError, ValueError) as error:
                raise DataError(f"the working copy is damaged: {error}", str(path), "bigsvm cache clear") from error
            return self._maps[segment]

    def _block(self, number: int) -> Block:
        segment, offset, nbytes, nnz, digest = self._entry(number)
        view = memoryview(self._map(segment))[offset : offset + nbytes]
        if len(view) != nbytes or xxhash.xxh3_128_hexdigest(view) != digest:
            raise DataError(
                f"block {number} of the working copy is damaged: its digest does not match",
                str(self.folder / f"segment-{segment:05d}.bin"),
                "bigsvm cache clear",
            )
        start = number * self.meta.block_rows
        n = min(self.meta.block_rows, self.n_samples - start)
        take = _taker(view)
        X: Any
        if self.layout == "csr":
            indptr = take(np.dtype(np.int64), n + 1)
            indices = take(self.index_dtype, nnz)
            X = CSR(take(self.dtype, nnz), indices, indptr)
        else:
            X = take(self.dtype, n * self.n_features).reshape(n, self.n_features)
        y = take(np.dtype(self.meta.y_dtype), n)
        weight = take(np.dtype(np.float64), n) if self.has_weights else None
        return Block(start, start + n, X, y, weight)

    def __reduce__(self) -> tuple[Any, ...]:
        return _staged, (str(self.folder), self.fingerprint)


def _taker(view: memoryview) -> Callable[[np.dtype, int], np.ndarray]:
    """Take arrays one after another from a block's bytes."""
    position = 0

    def take(dtype: np.dtype, count: int) -> np.ndarray:
        nonlocal position
        array = np.frombuffer(view, dtype, count, position)
        position += -(-array.nbytes // _ALIGN) * _ALIGN
        return array

    return take


_open: dict[tuple[str, str], StagedRows] = {}


def _staged(folder: str, fingerprint: str) -> StagedRows:
    """The one reader of this process for a copy: tasks share its maps."""
    if (folder, fingerprint) not in _open:
        _open[folder, fingerprint] = StagedRows(Path(folder))
    return _open[folder, fingerprint]
