"""Shuffling all rows of a store, by a hash of their numbers, in bounded memory.

The hash depends only on the row number and the shape of the data, so the order does not depend on memory, chunks,
codec, dtype or seed.  Rows are read once, in the store's order, and written to a spool file ("bucket") for each value
of the top bits of the hash.  Then the buckets are read one after another, sorted by the whole hash, and cut into
blocks.  A bucket that does not fit the memory is first divided by further bits.

The spool files shrink as the blocks made from them grow, so both together take about the bytes of one copy and one
bucket.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigsvm.compiled.shared.rows import CSR
from bigsvm.compiled.shared.shuffle import (
    bucket_order,
    find_records,
    gather_records,
    pack_rows,
    record_indptr,
    row_hashes,
    shape_key,
    unpack_rows,
)
from bigsvm.files.atomic import temporary_name
from bigsvm.files.space import cannot_write
from bigsvm.store.blocks import Block, BlockRef, RowBlocks, frozen, row_bytes, tile
from bigsvm.store.copy.stage_index import damaged
from bigsvm.units import MIB

_MOST_BITS = 8  # of one division, because each bucket is an open file
_HASH_BITS = 64
_LEAST_ROOM = 2 * MIB
_LARGEST_PIECE, _LARGEST_BUCKET = 16 * MIB, 64 * MIB  # larger pieces and buckets are not faster
_ROW_EXTRA = 40  # upper bound of the bytes of a record besides X, y and weight


class Sizes(NamedTuple):
    """How the memory is divided."""

    piece_rows: int  # pieces being used, read, renumbered and packed; with copies, up to eight at a time
    bucket_bytes: (
        int  # a bucket being read, its positions and hashes, and the block made from it: about three times this
    )

    @classmethod
    def of(cls, store: RowBlocks, memory: int) -> Sizes:
        """Choose the sizes.  memory : bytes to use in total, including the store's chunks"""
        chunks = store.chunk_nbytes
        room = max(memory - chunks * 5 // 2, _LEAST_ROOM)
        piece = min(room // 8, _LARGEST_PIECE)
        rows = max(int(piece // (row_bytes(store) + _ROW_EXTRA)), 1)
        return cls(min(rows, store.n_samples), min(room // 3, _LARGEST_BUCKET))


def shuffled_blocks(
    store: RowBlocks,
    folder: Path,
    prepare: Callable[[Block], Block],
    block_rows: int,
    memory: int,
    scattered: Callable[[int], None],
) -> Generator[tuple[Block, np.ndarray], None, None]:
    """Blocks of `block_rows` rows in shuffled order, each with the row numbers in `store` (int64).

    prepare : called with each piece of the store, in order; adds norms and working feature numbers
    memory : bytes to use
    scattered : called with the number of rows that have been written to buckets so far

    Raises
    ------
    OutputError : the spool files do not fit in `folder`.  DataError : rows cannot be read.
    """
    sizes = Sizes.of(store, memory)
    with ExitStack() as stack:
        shuffle = _Shuffle(store, folder, sizes, stack)
        spools = shuffle.scatter(prepare, scattered)
        yield from shuffle.blocks(spools, block_rows)


class _Spool:
    """The records of one bucket, in a file without a visible name."""

    def __init__(self, folder: Path, level: int, bucket: int) -> None:
        self.path = temporary_name(folder / f"spool-{level}-{bucket:03d}")
        self.rows = self.words = 0
        self._file = open(self.path, "xb")  # noqa: SIM115  closed by `close` or `remove`

    def append(self, records: np.ndarray, rows: int) -> None:
        self._file.write(records.data)
        self.rows += rows
        self.words += len(records)

    def close(self) -> None:
        self._file.close()

    def remove(self) -> None:
        try:
            self._file.close()
        except OSError:  # the disk is full, but the buffered records are not needed any more
            pass
        self.path.unlink(missing_ok=True)


class _Shuffle:
    """A shuffle in progress.  Spool files that are left are removed when `stack` is closed."""

    def __init__(self, store: RowBlocks, folder: Path, sizes: Sizes, stack: ExitStack) -> None:
        self.store, self.folder, self.sizes, self.stack = store, folder, sizes, stack
        self.key = np.uint64(shape_key(store.n_samples, store.n_features))
        self.index_size = store.index_dtype.itemsize if store.layout == "csr" else 0
        self.value_size = store.dtype.itemsize
        self.head = 5 if store.has_weights else 4
        self.y_dtype = np.dtype(np.int8)
        self._packed = np.empty(0, np.int64)
        self._nbytes = int((row_bytes(store) + _ROW_EXTRA) * store.n_samples)

    def scatter(self, prepare: Callable[[Block], Block], scattered: Callable[[int], None]) -> list[_Spool]:
        """Read the store once, and write its rows to spool files by the top bits of their hashes."""
        bits = min(max((self._nbytes // self.sizes.bucket_bytes).bit_length(), 0), _MOST_BITS)
        spools = self._new_spools(0, bits)
        pieces = [BlockRef(a, b, 0) for a, b in tile(self.store.n_samples, self.sizes.piece_rows)]
        release = self.store.release
        with ThreadPoolExecutor(1, "bigsvm-shuffle") as reader:
            coming = reader.submit(self.store.read, pieces[0])
            for number, ref in enumerate(pieces):
                piece = coming.result()
                if number + 1 < len(pieces):
                    coming = reader.submit(self.store.read, pieces[number + 1])
                self._scatter_piece(prepare(piece), spools, bits)
                release(ref)
                scattered(ref.stop)
        self._closed(spools)
        return spools

    def blocks(self, spools: Sequence[_Spool], block_rows: int) -> Iterator[tuple[Block, np.ndarray]]:
        """The rows of the spool files in the order of their hashes, in blocks."""
        start, left, n_left = 0, np.empty(0, np.int64), 0
        for spool in self._leaves(spools, 0):
            # Rows left over from the last bucket come first: their hashes are smaller than all in this bucket.
            words = self._load(spool, left)
            positions, hashes = self._find(words, n_left + spool.rows)
            if len(positions) != n_left + spool.rows:
                raise damaged(spool.path, "a spool file of the shuffle is truncated")
            spool.remove()
            positions = positions[np.argsort(hashes)]
            whole = len(positions) - len(positions) % block_rows
            for a in range(0, whole, block_rows):
                yield self._block(words, positions[a : a + block_rows], start)
                start += block_rows
            left, n_left = self._gather(words, positions[whole:]), len(positions) - whole
            del words, positions, hashes  # free them before the next bucket is loaded
        if n_left:
            positions, _ = self._find(left, n_left)
            yield self._block(left, positions, start)

    def _leaves(self, spools: Sequence[_Spool], used: int) -> Iterator[_Spool]:
        """Spool files that fit in memory, after dividing those that do not; `used` top bits are equal within each."""
        used += (len(spools) - 1).bit_length()
        for spool in spools:
            times = spool.words * 8 / self.sizes.bucket_bytes
            # Buckets differ a little by chance, and dividing one for that would cost more than it saves.
            if times < 1.25 or spool.rows < 2 or used + _MOST_BITS > _HASH_BITS:
                yield spool
            else:
                bits = min(max(int(times).bit_length(), 1), _MOST_BITS)
                yield from self._leaves(self._divide(spool, used, bits), used)

    def _new_spools(self, level: int, bits: int) -> list[_Spool]:
        spools = []
        for bucket in range(1 << bits):
            try:
                spools.append(_Spool(self.folder, level, bucket))
            except OSError as error:
                raise cannot_write(self.folder, error, self._nbytes) from error
            self.stack.callback(spools[-1].remove)
        return spools

    def _closed(self, spools: Sequence[_Spool]) -> None:
        try:
            for spool in spools:
                spool.close()
        except OSError as error:
            raise cannot_write(self.folder, error, self._nbytes) from error

    def _scatter_piece(self, piece: Block, spools: Sequence[_Spool], bits: int) -> None:
        n = piece.n_rows
        hashes = np.empty(n, np.uint64)
        row_hashes(piece.start, self.key, hashes)
        edges, order = np.empty(len(spools) + 1, np.int64), np.empty(n, np.int64)
        bucket_order(hashes, _HASH_BITS - bits, bits, edges, order)
        if isinstance(piece.X, CSR):
            indptr, indices, values = piece.X.indptr.astype(np.int64, copy=False), piece.X.indices, piece.X.data
        else:
            width = piece.X.shape[1]
            indptr, indices, values = np.arange(n + 1) * width, np.empty(0, np.int32), piece.X
        self.y_dtype = piece.y.dtype
        weight = np.empty(0, np.int64)
        if self.head == 5:
            weight = _float_bits(np.ones(n) if piece.sample_weight is None else piece.sample_weight)
        y = _float_bits(piece.y) if self.y_dtype.kind == "f" else piece.y.astype(np.int64)
        assert piece.sqnorm is not None
        out = self._packing_room(n * (self.head + 1) + (len(indices) * self.index_size + values.nbytes) // 8)
        parts = np.empty_like(edges)
        pack_rows(
            order, edges, piece.start, frozen(indptr), _bytes(indices), _bytes(values), self.index_size,
            self.value_size, frozen(y), frozen(_float_bits(piece.sqnorm)), frozen(weight), out, parts,
        )  # fmt: skip
        self._append(spools, out, parts, edges)

    def _divide(self, spool: _Spool, used: int, bits: int) -> list[_Spool]:
        """Divide the rows of a spool file into 2**bits spool files, and remove it."""
        spools = self._new_spools(used, bits)
        size = max(self.sizes.bucket_bytes // 8, 1)
        with open(spool.path, "rb") as file:
            left = np.empty(0, np.int64)
            while True:
                more = np.fromfile(file, np.int64, size)
                if not len(more):
                    break
                words = np.concatenate((left, more))
                positions, hashes = self._find(words, len(words) // self.head)
                edges, order = np.empty(len(spools) + 1, np.int64), np.empty(len(positions), np.int64)
                bucket_order(hashes, _HASH_BITS - used - bits, bits, edges, order)
                out, parts = self._packing_room(len(words)), np.empty_like(edges)
                gather_records(words, positions, order, edges, self.head, self._entry_bytes, out, parts)
                self._append(spools, out, parts, edges)
                left = words[parts[-1] :].copy()
        if len(left):
            raise damaged(spool.path, "a spool file of the shuffle is truncated")
        self._closed(spools)
        spool.remove()
        return spools

    @property
    def _entry_bytes(self) -> int:
        return self.index_size + self.value_size

    def _packing_room(self, words: int) -> np.ndarray:
        if len(self._packed) < words:
            self._packed = np.empty(words, np.int64)
        return self._packed

    def _append(self, spools: Sequence[_Spool], out: np.ndarray, parts: np.ndarray, edges: np.ndarray) -> None:
        try:
            for b, spool in enumerate(spools):
                spool.append(out[parts[b] : parts[b + 1]], int(edges[b + 1] - edges[b]))
        except OSError as error:
            raise cannot_write(self.folder, error, self._nbytes) from error

    def _load(self, spool: _Spool, left: np.ndarray) -> np.ndarray:
        """`left` followed by the words of a spool file, whose pages need not stay in the page cache."""
        self._packed = np.empty(0, np.int64)  # free it: not needed until the next division, if ever
        words = np.empty(len(left) + spool.words, np.int64)
        words[: len(left)] = left
        with open(spool.path, "rb") as file:
            got = file.readinto(words[len(left) :].data.cast("B"))
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return words[: len(left) + got // 8]

    def _find(self, words: np.ndarray, at_most: int) -> tuple[np.ndarray, np.ndarray]:
        positions, hashes = np.empty(at_most, np.int64), np.empty(at_most, np.uint64)
        count, _ = find_records(words, self.head, self._entry_bytes, self.key, positions, hashes)
        return positions[:count], hashes[:count]

    def _gather(self, words: np.ndarray, positions: np.ndarray) -> np.ndarray:
        indptr = np.empty(len(positions) + 1, np.int64)
        record_indptr(words, positions, indptr)
        out = np.empty(len(positions) * (self.head + 1) + int(indptr[-1]) * self._entry_bytes // 8, np.int64)
        edges, parts = np.array([0, len(positions)]), np.empty(2, np.int64)
        gather_records(words, positions, np.arange(len(positions)), edges, self.head, self._entry_bytes, out, parts)
        return out[: parts[-1]]

    def _block(self, words: np.ndarray, positions: np.ndarray, start: int) -> tuple[Block, np.ndarray]:
        n = len(positions)
        indptr, rows, y, sqnorm = (np.empty(size, np.int64) for size in (n + 1, n, n, n))
        weight = np.empty(n if self.head == 5 else 0, np.int64)
        record_indptr(words, positions, indptr)
        nnz = int(indptr[-1])
        indices = np.empty(nnz if self.index_size else 0, self.store.index_dtype)
        values = np.empty(nnz, self.store.dtype)
        unpack_rows(
            words, positions, self.index_size, self.value_size, indptr, indices.view(np.uint8),
            values.view(np.uint8), rows, y, sqnorm, weight,
        )  # fmt: skip
        X: Any = CSR(values, indices, indptr) if self.index_size else values.reshape(n, self.store.n_features)
        labels = y.view(np.float64) if self.y_dtype.kind == "f" else y
        block = Block(
            start,
            start + n,
            X,
            labels.astype(self.y_dtype, copy=False),
            weight.view(np.float64) if self.head == 5 else None,
            sqnorm.view(np.float64),
        )
        return block, rows


def _float_bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, np.float64).view(np.int64)


def _bytes(array: np.ndarray) -> np.ndarray:
    """The bytes of an array, read-only, so that the packing loop is compiled for one type of array."""
    return frozen(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
