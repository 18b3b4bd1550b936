"""Memory into which blocks of rows are decoded, one after another."""

from __future__ import annotations

import math
import sys
import threading

import numpy as np

from bigsvm.compiled.shared.rows import CSR
from bigsvm.compiled.tables.taken_rows import take_rows
from bigsvm.store.blocks import CompiledCall, frozen
from bigsvm.store.checks import check_csr


class BlockMemory:
    """Memory for the next block: that of the last block, if nothing refers to it any more.

    The C library returns large freed arrays to the system (`return_freed_memory`), and the system must map and clear
    the pages of new ones.  For rows of a table this takes twice as long as writing them.  Each thread keeps one array
    for each name, so a reader never holds more than while its block is in use.
    """

    def __init__(self) -> None:
        self._threads = threading.local()

    def array(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array in C order, not initialised.  name : what the array is for, such as 'data'"""
        kept: dict[str, np.ndarray] = vars(self._threads)
        nbytes = math.prod(shape) * dtype.itemsize
        # Every view of an array holds a reference to it.  The two that remain are that of `kept` and that of this call.
        if name not in kept or sys.getrefcount(kept[name]) > 2 or not nbytes <= kept[name].nbytes <= 2 * nbytes:
            kept.pop(name, None)
            kept[name] = np.empty(nbytes, np.uint8)
        return kept[name][:nbytes].view(dtype).reshape(shape)

    def longer(self, name: str, size: int, dtype: np.dtype) -> np.ndarray:
        """The array that was last returned for this name, enlarged to `size`; the old array must not be used any more.

        It is enlarged in place: the system moves the pages of large arrays, which copies nothing.  The new part is 0.
        """
        kept: dict[str, np.ndarray] = vars(self._threads)
        kept[name].resize(size * dtype.itemsize, refcheck=False)
        return kept[name].view(dtype)

    def forget(self) -> None:
        """Release the memory that is kept."""
        self._threads = threading.local()


class GrowingRows:
    """Joins parts of sparse rows to one matrix: each part is copied to its place at once, and not kept.

    n_rows : rows of all parts together;  n_features, dtype, index_dtype : of the whole matrix
    memory : BlockMemory that provides its arrays;  expected : entries for which there is room at first
    """

    def __init__(
        self,
        n_rows: int,
        n_features: int,
        dtype: np.dtype,
        index_dtype: np.dtype,
        memory: BlockMemory,
        expected: int = 0,
    ) -> None:
        self._data = memory.array("data", (expected,), dtype) if expected else np.empty(0, dtype)
        self._indices = memory.array("indices", (expected,), index_dtype) if expected else np.empty(0, index_dtype)
        self._indptr = np.zeros(n_rows + 1, np.int64)
        self._n_features, self._memory, self._rows = n_features, memory, 0

    def add(self, part: CSR, where: str, first_row: int) -> None:
        """Add the next rows, as they were stored.  Raises DataError naming one that is invalid (`check_csr`)."""
        n = len(part.indptr) - 1
        self.make_room(n, len(part.data))
        row, indptr, data, indices = self.next_rows
        began = int(indptr[row])
        to = data[began : began + len(part.data)], indices[began : began + len(part.data)]
        if not _taken(part, self._n_features, *to):
            # Indices are checked before they are narrowed, because one beyond int32 might wrap around into the range.
            check_csr(part, self._n_features, where, first_row)
            to[0][:], to[1][:] = part.data, part.indices
        indptr[row + 1 : row + n + 1] = part.indptr[1:] + began
        self.took(n)

    @property
    def next_rows(self) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
        """(number n of the next row, indptr, data, indices): the arrays to which the next rows are to be written.

        Their entries go to the places from indptr[n] on, and indptr is to be filled from indptr[n + 1] on.
        """
        return self._rows, self._indptr, self._data, self._indices

    def make_room(self, n_rows: int, n_entries: int) -> None:
        """Make room for `n_entries` entries of the next `n_rows` rows."""
        ended = int(self._indptr[self._rows]) + n_entries
        if ended > len(self._data):
            # Room for all further rows, if they are as long as these.  Pages that are never written take no memory.
            left = (len(self._indptr) - 1 - self._rows) / n_rows
            room = ended - n_entries + int(n_entries * (1.1 * left if left > 1.0 else 1.0))
            self._data, self._indices = self._room("data", room), self._room("indices", room)

    def took(self, n_rows: int) -> None:
        """Record that the next `n_rows` rows were written to `next_rows`."""
        self._rows += n_rows

    def whole(self) -> CSR:
        """The matrix of all rows."""
        n_entries = int(self._indptr[self._rows])
        return CSR(self._data[:n_entries], self._indices[:n_entries], self._indptr)

    def _room(self, name: str, size: int) -> np.ndarray:
        dtype = (self._data if name == "data" else self._indices).dtype
        if self._rows and self._indptr[self._rows]:
            return self._memory.longer(name, size, dtype)
        return self._memory.array(name, (size,), dtype)


def growing_calls(dtype: np.dtype, stored: np.dtype, index_dtype: np.dtype) -> tuple[CompiledCall, ...]:
    """The compiled functions that GrowingRows call.  stored : type of the indices of the parts"""
    part = CSR(np.zeros(1, dtype), np.zeros(1, stored), np.array([0, 1]))

    def take_one() -> None:
        _taken(part, 1, np.empty(1, dtype), np.empty(1, index_dtype))

    return (CompiledCall(("sparse rows", dtype.name, stored.name, index_dtype.name), take_one),)


def _taken(part: CSR, n_features: int, to_data: np.ndarray, to_indices: np.ndarray) -> bool:
    """Copy the entries of a part; False if its rows must be looked at: they are invalid, or indices do not ascend."""
    data, indices, indptr = np.ascontiguousarray(part.data), part.indices, part.indptr
    if data.dtype != to_data.dtype or indptr[0] != 0 or not len(data) == len(indices) == indptr[-1]:
        return False
    # The loop is compiled for two types of indices.
    indices = np.ascontiguousarray(indices, indices.dtype if indices.dtype in (np.int32, np.int64) else np.int64)
    found = np.array([data.ctypes.data, indices.ctypes.data], np.uint64)
    return bool(take_rows(found, frozen(indices[:0]), frozen(indptr), n_features, to_data, to_indices))
