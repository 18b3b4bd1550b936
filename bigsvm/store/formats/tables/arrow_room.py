"""Memory for rows from Arrow's pool, and sparse rows that come in parts as one matrix there.

The C library gives the arrays of each block back to the system (`return_freed_memory`).  The pages of the next one,
which the system maps and clears anew, cost twice as much time as writing rows to them; the pool has those of the block
before at hand.  `forget` of the files empties it.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from bigsvm.compiled.shared.rows import CSR


def room_for(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array in C order, not initialised."""
    return np.ndarray(shape, dtype, buffer=pa.allocate_buffer(math.prod(shape) * dtype.itemsize))


class GrowingRows:
    """Sparse rows that come in parts, as one matrix: each part is copied to its place at once, and not kept.

    n_rows : of all parts;  dtype, index_dtype : of the whole
    """

    def __init__(self, n_rows: int, dtype: np.dtype, index_dtype: np.dtype) -> None:
        self._data, self._indices = _GrowingArray(dtype), _GrowingArray(index_dtype)
        self._indptr = np.zeros(n_rows + 1, np.int64)
        self._rows = 0

    def add(self, part: CSR) -> None:
        """The next rows."""
        n, began = len(part.indptr) - 1, int(self._indptr[self._rows])
        ended = began + len(part.data)
        if ended > self._data.size:
            # Room for the rows to come, should they be as long.
            left = (len(self._indptr) - 1 - self._rows) / n
            room = began + int(len(part.data) * (1.1 * left if left > 1.0 else 1.0))
            self._data.resize(room)
            self._indices.resize(room)
        self._data.values[began:ended], self._indices.values[began:ended] = part.data, part.indices
        self._indptr[self._rows + 1 : self._rows + n + 1] = part.indptr[1:] + began
        self._rows += n

    def whole(self) -> CSR:
        """All of them."""
        n_entries = int(self._indptr[self._rows])
        self._data.resize(n_entries)
        self._indices.resize(n_entries)
        return CSR(self._data.values, self._indices.values, self._indptr)


class _GrowingArray:
    """An array whose end moves; making it smaller by less than half copies nothing."""

    def __init__(self, dtype: np.dtype) -> None:
        self._buffer = pa.allocate_buffer(0, resizable=True)
        self.values = np.empty(0, dtype)

    @property
    def size(self) -> int:
        return self.values.size

    def resize(self, size: int) -> None:
        dtype = self.values.dtype
        self.values = np.empty(0, dtype)  # it may move: nobody may look at the old place
        self._buffer.resize(size * dtype.itemsize, shrink_to_fit=True)
        self.values = np.ndarray(size, dtype, buffer=self._buffer)
