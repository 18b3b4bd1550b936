"""Values of some rows of vectors that are on disk, in memory while they are read and written at random.

A vector on disk is a map of its file.  The system reads a page of 512 values for each one that is used, and forgets the
page when memory is short: sweeps over a million rows of a vector of 256 MB took twenty times as long as a pass.  Here
the values of rows come in and go out in ascending order of the rows, so each page is read once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from bigsvm.store.blocks import tile
from bigsvm.store.state.vectors import RowVector

_WINDOWS = 16  # parts of the vector: rows are put in order a part at a time, which takes little memory
_TOGETHER = 1 << 16  # values that are moved at one time


class HeldRows:
    """The values of one row in each slot, for several vectors over the same rows.

    values : for each vector an array, shape (n_slots, width)
    """

    def __init__(self, vectors: Sequence[RowVector], n_slots: int) -> None:
        self._vectors = vectors
        self.values = [np.empty((n_slots, each.values.shape[1]), each.values.dtype) for each in vectors]

    def take(self, rows: np.ndarray, first: int = 0) -> None:
        """Copy the values of rows into slots.  rows : int64, the rows of the slots from `first` on"""
        for some in self._ascending(rows):
            for vector, held in zip(self._vectors, self.values, strict=True):
                held[first + some] = vector.values[rows[some]]

    def put(self, rows: np.ndarray, which: np.ndarray | None = None) -> None:
        """Copy values back.

        rows : int64, (n,), the rows of slots 0, 1, ...;  which : bool, (n,), the slots to copy; None: all
        """
        for some in self._ascending(rows, which):
            for vector, held in zip(self._vectors, self.values, strict=True):
                vector.values[rows[some]] = held[some]

    def close_gaps(self, stays: np.ndarray) -> None:
        """Move the values of the slots that stay to the first slots, in their order.  stays : bool, of the slots"""
        kept = 0
        for start, stop in tile(len(stays), _TOGETHER):
            part = stays[start:stop]
            n = int(np.count_nonzero(part))
            for held in self.values:
                held[kept : kept + n] = held[start:stop][part]
            kept += n

    def _ascending(self, rows: np.ndarray, which: np.ndarray | None = None) -> Iterator[np.ndarray]:
        """The slots whose rows are asked for, some at a time, in ascending order of their rows."""
        n = len(self._vectors[0].values)
        most_slots = max(2 * len(self.values[0]) // _WINDOWS, _TOGETHER)
        window_rows = -(-n // _WINDOWS) if len(rows) > _TOGETHER else n  # few rows are in one window
        windows = list(tile(n, window_rows))[::-1]
        while windows:
            start, stop = windows.pop()
            inside = rows >= start
            inside &= rows < stop
            if which is not None:
                inside &= which
            # Early in the first pass the rows of all slots lie close together, in few windows.
            if stop - start > 1 and np.count_nonzero(inside) > most_slots:
                middle = (start + stop) // 2
                windows += (middle, stop), (start, middle)
                continue
            slots = np.flatnonzero(inside)
            del inside
            slots = slots[np.argsort(rows[slots])]
            for first, last in tile(len(slots), _TOGETHER):
                yield slots[first:last]


def held_bytes(width: int) -> int:
    """Bytes of a slot for float64 vectors of so many columns together: values, and work space."""
    return 8 * width + 8
