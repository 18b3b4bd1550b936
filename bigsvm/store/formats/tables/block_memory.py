"""Memory that blocks of rows are decoded to, one after another."""

from __future__ import annotations

import math
import sys
import threading

import numpy as np

from bigsvm.compiled.shared.rows import CSR


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

    n_rows : of all parts;  dtype, index_dtype : of the whole;  memory : that it is put to
    """

    def __init__(self, n_rows: int, dtype: np.dtype, index_dtype: np.dtype, memory: BlockMemory) -> None:
        self._data, self._indices = np.empty(0, dtype), np.empty(0, index_dtype)
        self._indptr = np.zeros(n_rows + 1, np.int64)
        self._memory, self._rows = memory, 0

    def add(self, part: CSR) -> None:
        """The next rows."""
        n, began = len(part.indptr) - 1, int(self._indptr[self._rows])
        ended = began + len(part.data)
        if ended > len(self._data):
            # Room for the rows to come, should they be as long; what nobody writes to takes no memory.
            left = (len(self._indptr) - 1 - self._rows) / n
            room = began + int(len(part.data) * (1.1 * left if left > 1.0 else 1.0))
            self._data, self._indices = self._room("data", room), self._room("indices", room)
        self._data[began:ended], self._indices[began:ended] = part.data, part.indices
        self._indptr[self._rows + 1 : self._rows + n + 1] = part.indptr[1:] + began
        self._rows += n

    def whole(self) -> CSR:
        """All of them."""
        n_entries = int(self._indptr[self._rows])
        return CSR(self._data[:n_entries], self._indices[:n_entries], self._indptr)

    def _room(self, name: str, size: int) -> np.ndarray:
        dtype = (self._data if name == "data" else self._indices).dtype
        if self._rows and self._indptr[self._rows]:
            return self._memory.longer(name, size, dtype)
        return self._memory.array(name, (size,), dtype)
