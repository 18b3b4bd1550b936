"""Memory that blocks of rows are decoded to, one after another."""

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
    """Memory for the next block, which is that of the last one where nobody has the last one any more.

    The C library gives large freed arrays back to the system (`return_freed_memory`), and the pages of new ones are
    mapped and cleared: for rows of a table that takes twice as long as to write them.  Each thread keeps one
    array of each name, so that what a reader holds is no more than while its block is in use.
    """

    def __init__(self) -> None:
        self._threads = threading.local()

    def array(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array in C order, not initialised."""
        kept: dict[str, np.ndarray] = vars(self._threads)
        nbytes = math.prod(shape) * dtype.itemsize
        # Every view of an array refers to it: the two here are that of `kept`, and that of the question.
        if name not in kept or sys.getrefcount(kept[name]) > 2 or not nbytes <= kept[name].nbytes <= 2 * nbytes:
            kept.pop(name, None)
            kept[name] = np.empty(nbytes, np.uint8)
        return kept[name][:nbytes].view(dtype).reshape(shape)

    def longer(self, name: str, size: int, dtype: np.dtype) -> np.ndarray:
        """The array given last by that name, with more room: the one before is not to be looked at any more.

        In place: the system moves large arrays by their pages, which copies nothing.  What is new is filled with 0.
        """
        kept: dict[str, np.ndarray] = vars(self._threads)
        kept[name].resize(size * dtype.itemsize, refcheck=False)
        return kept[name].view(dtype)

    def forget(self) -> None:
        """Let go of what is kept."""
        self._threads = threading.local()


class GrowingRows:
    """Sparse rows that come in parts, as one matrix: each part is copied to its place at once, and not kept.

    n_rows : of all parts;  n_features, dtype, index_dtype : of the whole;  memory : that it is put to
    expected : entries that there is room for at first
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
        """The next rows, as they were stored.  Raises DataError naming one that is not sound (`check_csr`)."""
        n = len(part.indptr) - 1
        self.make_room(n, len(part.data))
        row, indptr, data, indices = self.next_rows
        began = int(indptr[row])
        to = data[began : began + len(part.data)], indices[began : began + len(part.data)]
        if not _taken(part, self._n_features, *to):
            # Before its indices are narrowed: one beyond int32 must not wrap into range.
            check_csr(part, self._n_features, where, first_row)
            to[0][:], to[1][:] = part.data, part.indices
        indptr[row + 1 : row + n + 1] = part.indptr[1:] + began
        self.took(n)

    @property
    def next_rows(self) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
        """(number n of the next row, indptr, data, indices), to which the next rows may be written.

        Their entries go from indptr[n] on, and indptr[n + 1] on is to be written.
        """
        return self._rows, self._indptr, self._data, self._indices

    def make_room(self, n_rows: int, n_entries: int) -> None:
        """For so many entries of the next rows."""
        ended = int(self._indptr[self._rows]) + n_entries
        if ended > len(self._data):
            # Room for the rows to come, should they be as long; what nobody writes to takes no memory.
            left = (len(self._indptr) - 1 - self._rows) / n_rows
            room = ended - n_entries + int(n_entries * (1.1 * left if left > 1.0 else 1.0))
            self._data, self._indices = self._room("data", room), self._room("indices", room)

    def took(self, n_rows: int) -> None:
        """These rows were written."""
        self._rows += n_rows

    def whole(self) -> CSR:
        """All of them."""
        n_entries = int(self._indptr[self._rows])
        return CSR(self._data[:n_entries], self._indices[:n_entries], self._indptr)

    def _room(self, name: str, size: int) -> np.ndarray:
        dtype = (self._data if name == "data" else self._indices).dtype
        if self._rows and self._indptr[self._rows]:
            return self._memory.longer(name, size, dtype)
        return self._memory.array(name, (size,), dtype)


def growing_calls(dtype: np.dtype, stored: np.dtype, index_dtype: np.dtype) -> tuple[CompiledCall, ...]:
    """What GrowingRows call, of parts with indices of type `stored`."""
    part = CSR(np.zeros(1, dtype), np.zeros(1, stored), np.array([0, 1]))

    def take_one() -> None:
        _taken(part, 1, np.empty(1, dtype), np.empty(1, index_dtype))

    return (CompiledCall(("sparse rows", dtype.name, stored.name, index_dtype.name), take_one),)


def _taken(part: CSR, n_features: int, to_data: np.ndarray, to_indices: np.ndarray) -> bool:
    """Copy entries; False where rows are to be looked at: they are not sound, or their indices do not ascend."""
    data, indices, indptr = np.ascontiguousarray(part.data), part.indices, part.indptr
    if data.dtype != to_data.dtype or indptr[0] != 0 or not len(data) == len(indices) == indptr[-1]:
        return False
    # Two types of indices are compiled.
    indices = np.ascontiguousarray(indices, indices.dtype if indices.dtype in (np.int32, np.int64) else np.int64)
    found = np.array([data.ctypes.data, indices.ctypes.data], np.uint64)
    return bool(take_rows(found, frozen(indices[:0]), frozen(indptr), n_features, to_data, to_indices))
