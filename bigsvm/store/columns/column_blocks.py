"""Data by columns: blocks of features over all rows, for solvers that change one coefficient at a time.

In memory (`ResidentColumns`), or as a copy in the scratch folder that `columns_write` makes of any rows:

    <scratch>/bigsvm/columns-<key>/
        rows.bin        CSR: working row of each entry, column after column, ascending within each
        values.bin      CSR: value of each entry; dense: all values, column after column
        indptr.npy      CSR: int64, first entry of each column, and the end; mapped
        stripes.npy     int64, first column of each stripe, and the end
        digests.npy     uint8 (files, stripes, 16): xxh3-128 of each stripe's bytes in each of the first two files
        columns.json    written last: the copy is complete

A stripe is a run of columns of about 256 KiB, or a single one that is larger: what is verified at a time.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import xxhash

from bigsvm.compiled.shared.columns import as_bits, count_columns, place_rows, turn
from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError, MissingInput
from bigsvm.files.atomic import file_digest, open_regular
from bigsvm.files.plain_arrays import load_array
from bigsvm.files.sealed_json import read_sealed
from bigsvm.store.blocks import Block, BlockRef, Matrix, frozen, readonly_view
from bigsvm.store.columns.column_addresses import COLUMN_BYTES, Columns
from bigsvm.store.copy.open_copies import OpenCopies, close_files
from bigsvm.store.copy.stage_index import damaged
from bigsvm.store.identity import digest_of

ROWS, VALUES, INDPTR, STRIPES, DIGESTS = "rows.bin", "values.bin", "indptr.npy", "stripes.npy", "digests.npy"
DOCUMENT = "columns.json"


@dataclass(frozen=True)
class ColumnBlock:
    """Columns [start, stop), in the working feature order of the rows they were made of; arrays are read-only.

    X : dense: C-contiguous, shape (stop - start, n_samples).  CSR whose rows are the columns: its `indices`
        are working rows, ascending, int32 (int64 from 2**31 rows on); indptr int64.  Values as in the rows:
        float32, float64, int8 or uint8
    """

    start: int
    stop: int
    X: Matrix

    @property
    def nbytes(self) -> int:
        """Bytes of X; a pointer for each CSR column, so that parts add up to the whole."""
        if isinstance(self.X, CSR):
            return self.X.data.nbytes + self.X.indices.nbytes + COLUMN_BYTES * (self.stop - self.start)
        return self.X.nbytes


@runtime_checkable
class ColumnBlocks(Protocol):
    """Columns of a data set, wherever they lie.

    `refs` tile range(n_features) exactly once, in order, and none is empty; `read` is pure, repeatable and
    safe from several threads.
    """

    @property
    def layout(self) -> Literal["csr", "dense"]: ...

    @property
    def n_samples(self) -> int: ...

    @property
    def n_features(self) -> int: ...

    @property
    def dtype(self) -> np.dtype:
        """float32, float64, int8 or uint8, of the values."""

    @property
    def index_dtype(self) -> np.dtype:
        """int32 or int64, of CSR row numbers (int32 for dense)."""

    @property
    def nbytes(self) -> int:
        """Of all columns; the sum over any tiling."""

    def refs(self, block_bytes: int) -> Sequence[BlockRef]:
        """Addresses of blocks of as many columns as fit `block_bytes`, at least one; axis "cols", nbytes exact."""

    def read(self, ref: BlockRef) -> ColumnBlock:
        """The columns at an address, any there may be.  Raises DataError naming the file and columns that are bad."""

    def release(self, ref: BlockRef) -> None:
        """Let these columns leave the page cache."""


class ResidentColumns(Columns):
    """The columns of rows that are in memory: one more copy of their data, whose blocks are views of it.

    block : all rows, such as `ResidentRows.load()`; not kept
    n_features : a CSR block does not say

    Its pickle is as large as the data.
    """

    def __init__(self, block: Block, n_features: int) -> None:
        X, n = readonly_view(block.X), block.n_rows
        if not isinstance(X, CSR):
            super().__init__(n, n_features, X.dtype, None)
            turned = np.empty((n_features, n), X.dtype)
            turn(as_bits(X), as_bits(turned))
            self._arrays = [turned.reshape(-1)]
            return
        indptr = np.zeros(n_features + 1, np.int64)
        count_columns(X.indices, indptr)
        np.cumsum(indptr, out=indptr)
        super().__init__(n, n_features, X.data.dtype, indptr)
        rows: np.ndarray = np.empty(len(X.data), self.index_dtype)
        values: np.ndarray = np.empty(len(X.data), X.data.dtype)
        place_rows(X.indptr, X.indices, as_bits(X.data), indptr[:-1].copy(), rows, as_bits(values))
        self._arrays = [rows, values]

    def read(self, ref: BlockRef) -> ColumnBlock:
        self.check(ref)
        a, b = self.first(ref.start), self.first(ref.stop)
        return _column_block(self, ref, [array[a:b] for array in self._arrays])

    def release(self, ref: BlockRef) -> None:
        """Nothing: they are all in memory."""


class StagedColumns(Columns):
    """A finished copy, read into buffers that belong to the block; verified at every read.

    A read takes the memory of its block, and for a moment a stripe of which the block needs a part.

    Raises
    ------
    MissingInput : no finished copy is there. DataError : it changed since it was made (names the file).
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        try:
            document = read_sealed(self.folder / DOCUMENT)
        except OSError as error:
            raise MissingInput("no finished copy of columns here", str(folder)) from error
        except ValueError as error:
            raise damaged(self.folder / DOCUMENT, str(error)) from error
        csr = document["layout"] == "csr"
        self._digests_of_files: dict[str, str] = document["digests"]
        indptr = self._load(INDPTR, mapped=True) if csr else None
        super().__init__(document["n_samples"], document["n_features"], np.dtype(document["dtype"]), indptr)
        self.uri: str = document["uri"]
        self.made_of: dict[str, Any] = document["made_of"]
        self._stripes, self._digests = self._load(STRIPES), self._load(DIGESTS)
        self._paths = [self.folder / name for name in ((ROWS, VALUES) if csr else (VALUES,))]
        self._dtypes = [self.index_dtype, self.dtype] if csr else [self.dtype]
        self._handles: list[int] = []
        weakref.finalize(self, close_files, self._handles)
        try:
            self._open_files()
        except DataError:
            self.close()
            raise

    def close(self) -> None:
        """Give the files back; blocks that were read stay usable."""
        close_files(self._handles)

    def read(self, ref: BlockRef) -> ColumnBlock:
        self.check(ref)
        a, b = self.first(ref.start), self.first(ref.stop)
        first = int(np.searchsorted(self._stripes, ref.start, "right")) - 1
        last = int(np.searchsorted(self._stripes, ref.stop, "left"))
        edges = self.first(self._stripes[first : last + 1]).tolist()
        arrays = [np.empty(b - a, dtype) for dtype in self._dtypes]
        self._advise(ref, os.POSIX_FADV_WILLNEED)  # all at one time: the disk is asked for more than the next piece
        for number in range(first, last):
            lo, hi = edges[number - first], edges[number - first + 1]
            whole = a <= lo and hi <= b
            for file, array in enumerate(arrays):
                # A stripe is verified as a whole, also where the block ends within it.
                stripe = array[lo - a : hi - a] if whole else np.empty(hi - lo, array.dtype)
                self._read_stripe(file, number, lo * array.itemsize, stripe)
                if not whole:
                    array[max(lo - a, 0) : hi - a] = stripe[max(a - lo, 0) : b - lo]
        return _column_block(self, ref, arrays)

    def release(self, ref: BlockRef) -> None:
        """Let the pages of these columns leave the page cache: streamed data must not pile up there."""
        self.check(ref)
        self._advise(ref, os.POSIX_FADV_DONTNEED)

    def _advise(self, ref: BlockRef, advice: int) -> None:
        a, b = self.first(ref.start), self.first(ref.stop)
        for handle, dtype in zip(self._handles, self._dtypes, strict=True):
            start = a * dtype.itemsize // _PAGE * _PAGE
            if b > a:  # no bytes would mean all that follow
                os.posix_fadvise(handle, start, b * dtype.itemsize - start, advice)

    def _read_stripe(self, file: int, number: int, offset: int, stripe: np.ndarray) -> None:
        """Fill `stripe` from a file and hold it against its digest."""
        whole = left = stripe.view(np.uint8).data
        while left:
            try:
                got = os.preadv(self._handles[file], [left], offset)
            except OSError as error:
                raise self._bad(file, number, str(error)) from error
            if got == 0:
                raise self._bad(file, number, "the file ends there")
            offset, left = offset + got, left[got:]
        if xxhash.xxh3_128_digest(whole) != self._digests[file, number].tobytes():
            raise self._bad(file, number, "the digest does not match")

    def _bad(self, file: int, number: int, why: str) -> DataError:
        first, last = self._stripes[number], self._stripes[number + 1] - 1
        which = f"column {first}" if first == last else f"columns {first} to {last}"
        return damaged(self._paths[file], f"{which}: {why}")

    def _open_files(self) -> None:
        for path, dtype in zip(self._paths, self._dtypes, strict=True):
            try:
                self._handles.append(open_regular(path))
                found = os.fstat(self._handles[-1]).st_size
            except OSError as error:
                raise damaged(path, str(error)) from error
            expected = self.first(self.n_features) * dtype.itemsize
            if found != expected:
                raise damaged(path, f"{found} bytes and not {expected}, it was cut off")

    def _load(self, name: str, mapped: bool = False) -> np.ndarray:
        path = self.folder / name
        try:
            if file_digest(path) != self._digests_of_files[name]:
                raise damaged(path, "it does not match its digest")
            return np.asarray(load_array(path, mapped))
        except (OSError, ValueError) as error:
            raise damaged(path, str(error)) from error

    def __reduce__(self) -> tuple[Any, ...]:
        return _staged_columns, (str(self.folder), digest_of(self.made_of))


_PAGE = os.sysconf("SC_PAGE_SIZE")
_open: OpenCopies[StagedColumns] = OpenCopies()


def _staged_columns(folder: str, made_of: str) -> StagedColumns:
    """The one reader of this process for a copy: tasks share its files.  Raises DataError where it is another copy."""

    def open_copy() -> StagedColumns:
        copy = StagedColumns(Path(folder))
        if digest_of(copy.made_of) != made_of:
            copy.close()
            raise damaged(copy.folder / DOCUMENT, "it is the copy of other rows")
        return copy

    return _open.reader(Path(folder) / DOCUMENT, (folder, made_of), open_copy)


def _column_block(columns: Columns, ref: BlockRef, arrays: Sequence[np.ndarray]) -> ColumnBlock:
    """arrays : rows (CSR only) and values of the entries at an address"""
    values = frozen(arrays[-1])
    if columns.indptr is None:
        return ColumnBlock(ref.start, ref.stop, values.reshape(ref.stop - ref.start, columns.n_samples))
    indptr = columns.indptr[ref.start : ref.stop + 1] - columns.indptr[ref.start]
    return ColumnBlock(ref.start, ref.stop, CSR(values, frozen(arrays[0]), frozen(indptr)))
