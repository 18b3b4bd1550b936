"""A cache of rows of equal length that are expensive to compute, bounded in memory and on disk."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bigsvm.errors import OutputError
from bigsvm.store.state.slot_file import SlotFile

_IN_USE = 2
"""Number of rows that a caller may hold at a time: a step of two variables reads two."""


class CacheStats(NamedTuple):
    """Counts of a cache, and what it holds.

    memory_hits, disk_hits, misses : by the rows asked for
    spills : rows written to disk;  spill_failures : times that the disk refused, failed or returned other bytes
    memory_rows, disk_rows : rows held now;  memory_bytes, disk_bytes : allocated
    """

    memory_hits: int
    disk_hits: int
    misses: int
    spills: int
    spill_failures: int
    memory_rows: int
    disk_rows: int
    memory_bytes: int
    disk_bytes: int


class RowCache:
    """The most recently used rows in one array in memory; those used before them in one file, if there is a disk tier.

    A row is in one place only.  It moves from memory to disk, and comes back by changing places with the least recently
    used row.  Failures of the disk cost speed, and never change a result: if the file cannot be made, the tier is
    turned off; if a slot fails, it is not used again, and its row is a miss.  Not thread-safe.

    Parameters
    ----------
    row_len, dtype : of every row
    memory_bytes : int   limit of the array, at least `least_bytes`
    disk_bytes : int     limit of the file; 0 for no disk tier
    folder : Path        folder of the file; None for no disk tier
    n_rows : int         number of different rows, so that no more room is taken; None if unknown

    Raises
    ------
    ValueError : memory_bytes is below `least_bytes`.
    """

    def __init__(
        self,
        row_len: int,
        dtype: np.dtype | type,
        memory_bytes: int,
        disk_bytes: int = 0,
        folder: Path | None = None,
        n_rows: int | None = None,
    ) -> None:
        self.row_len, self.dtype = row_len, np.dtype(dtype)
        self.row_bytes = max(row_len * self.dtype.itemsize, 1)
        disk_slots = disk_bytes // self.row_bytes if folder is not None and row_len else 0
        least = self.least_bytes(row_len, dtype, disk_slots > 0)
        if memory_bytes < least:
            raise ValueError(
                f"a row cache needs at least {least} bytes for rows of {self.row_bytes}, not {memory_bytes}"
            )
        slots = memory_bytes // self.row_bytes if row_len else _IN_USE
        if n_rows is not None:
            disk_slots = min(disk_slots, max(n_rows - slots + 1, 0))
            slots = min(slots, max(n_rows, _IN_USE))
        self._trouble: str | None = None
        self._told = False
        self._memory_hits = self._disk_hits = self._misses = self._spills = self._spill_failures = 0
        self._disk: SlotFile | None = None
        if disk_slots and folder is not None:
            try:
                self._disk = SlotFile(self.row_bytes, disk_slots, folder)
            except OutputError as error:
                self._failed(f"kernel rows are not kept on disk: {error}")
        self._slab = np.empty((slots, row_len), self.dtype)
        # Row number -> slot, the least recently used row first.
        self._in_memory: OrderedDict[int, int] = OrderedDict()
        self._on_disk: OrderedDict[int, int] = OrderedDict()
        self._spare = -1
        self._free: list[int] = []
        self._free_on_disk: list[int] = []
        self._lost: set[int] = set()
        self.clear()

    @staticmethod
    def least_bytes(row_len: int, dtype: np.dtype | type, disk: bool) -> int:
        """Bytes of two rows in memory, and of one more for exchanges if there is a disk tier."""
        return (_IN_USE + disk) * max(row_len * np.dtype(dtype).itemsize, 1)

    def get(self, i: int) -> np.ndarray | None:
        """Row i, (row_len,), read-only; or None.

        It is a view of the cache's memory, valid until two more rows were asked for or put.
        """
        i = int(i)
        slot = self._in_memory.get(i)
        if slot is not None:
            self._in_memory.move_to_end(i)
            self._memory_hits += 1
            return self._shown(slot)
        if i in self._on_disk and self._promote(i):
            self._disk_hits += 1
            return self._shown(self._in_memory[i])
        self._misses += 1
        return None

    def get_many(self, idx: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Copy those of the rows `idx` that are cached to their places in `out`, (len(idx), row_len).

        Returns bool, (len(idx),): which rows were cached; the other rows of `out` are undefined.
        """
        found = np.zeros(len(idx), bool)
        here = np.fromiter((int(i) in self._in_memory for i in idx), bool, len(idx))
        # Rows in memory first, because bringing a row from disk may evict them.
        for k in (*np.flatnonzero(here), *np.flatnonzero(~here)):
            row = self.get(idx[k])
            if row is not None:
                out[k] = row
                found[k] = True
        return found

    def has(self, idx: np.ndarray) -> np.ndarray:
        """Which of the rows idx are cached, bool, (len(idx),); does not count as use."""
        return np.fromiter((int(i) in self._in_memory or int(i) in self._on_disk for i in idx), bool, len(idx))

    def put(self, i: int, row: np.ndarray) -> None:
        """Store a copy of row i as the most recently used.  Raises ValueError for another length or dtype."""
        if row.shape != (self.row_len,) or row.dtype != self.dtype:
            raise ValueError(f"a row {row.shape} of {row.dtype} in a cache of ({self.row_len},) of {self.dtype}")
        i = int(i)
        if i in self._on_disk:
            self._free_on_disk.append(self._on_disk.pop(i))
        slot = self._in_memory.pop(i, None)
        if slot is None:
            slot = self._free.pop() if self._free else self._evict()
        self._slab[slot] = row
        self._in_memory[i] = slot

    def clear(self) -> None:
        """Forget all rows; failed slots stay out of use."""
        self._in_memory.clear()
        self._on_disk.clear()
        self._free = list(range(len(self._slab) - 1, -1, -1))
        self._spare = -1 if self._disk is None else self._free.pop()
        slots = 0 if self._disk is None else self._disk.n_slots
        self._free_on_disk = [slot for slot in range(slots - 1, -1, -1) if slot not in self._lost]

    def stats(self) -> CacheStats:
        """The counts since the cache was made."""
        return CacheStats(
            self._memory_hits, self._disk_hits, self._misses, self._spills, self._spill_failures,
            len(self._in_memory), len(self._on_disk), self._slab.nbytes, 0 if self._disk is None else self._disk.nbytes,
        )  # fmt: skip

    def take_warning(self) -> str | None:
        """The first failure of the disk as a sentence, once; then None."""
        if self._told or self._trouble is None:
            return None
        self._told = True
        return self._trouble

    def close(self) -> None:
        """Release memory and disk, except for room for two rows; may be called twice."""
        self._drop_disk()
        self._slab = np.empty((_IN_USE, self.row_len), self.dtype)
        self.clear()

    def _shown(self, slot: int) -> np.ndarray:
        row = self._slab[slot]
        row.flags.writeable = False
        return row

    def _evict(self) -> int:
        """The memory slot of the least recently used row, after moving the row to disk if there is a tier."""
        i, slot = self._in_memory.popitem(last=False)
        if self._disk is not None:
            self._spill(i, slot, self._disk)
        return slot

    def _spill(self, i: int, slot: int, disk: SlotFile) -> None:
        if not self._free_on_disk and not self._on_disk:
            self._drop_disk()  # every slot has failed
            return
        place = self._free_on_disk.pop() if self._free_on_disk else self._on_disk.popitem(last=False)[1]
        try:
            disk.write(place, self._slab[slot])
        except OSError as error:
            self._lose(place, f"a kernel row could not be written to disk: {error}")
            return
        self._on_disk[i] = place
        self._spills += 1

    def _promote(self, i: int) -> bool:
        """Move row i from disk to memory; if that fails, it is lost."""
        place = self._on_disk.pop(i)
        disk, into = self._disk, self._spare
        if disk is None:
            return False
        try:
            disk.read(place, self._slab[into])
        except OSError as error:
            self._lose(place, f"a kernel row could not be read from disk: {error}")
            return False
        self._free_on_disk.append(place)
        # The row is now in the spare slot.  The evicted row leaves the next spare slot, and takes its place on disk.
        spare = self._free.pop() if self._free else self._evict()
        self._in_memory[i], self._spare = into, spare
        return True

    def _lose(self, place: int, trouble: str) -> None:
        self._lost.add(place)
        self._failed(trouble)

    def _failed(self, trouble: str) -> None:
        self._spill_failures += 1
        if self._trouble is None:
            self._trouble = f"{trouble}; rows are computed again instead"

    def _drop_disk(self) -> None:
        if self._disk is None:
            return
        self._disk.close()
        self._disk = None
        self._on_disk.clear()
        self._free_on_disk, self._lost = [], set()
        self._free.append(self._spare)
        self._spare = -1
