"""State for each row (alpha, activity, norms): an array with one row for each row of the data.

It is in memory if the budget allows, otherwise in a scratch file, and is sliced by block in both cases.  Rows are in
WORKING order, so that the slice of a block is contiguous; `in_store_order` restores the order of the store.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bigsvm.budget import MemoryBudget, Reservation
from bigsvm.files.space import cannot_write, zeros_map
from bigsvm.store.blocks import BlockGroup, BlockRef, tile

_TILE_WIDTH, _TILE = 256, 1 << 17  # most values of a row, and values, of a tile


class RowVector:
    """n_samples rows with `width` values of one dtype each, all initialised to `fill`.

    Parameters
    ----------
    what : name of the reservation in the budget
    budget : memory is reserved from it if the rows fit; otherwise they go to a file in `folder`
    on_disk : use the file in any case

    Raises
    ------
    OutputError : the scratch folder cannot hold the file.
    """

    def __init__(
        self,
        what: str,
        n_samples: int,
        width: int,
        dtype: np.dtype | type,
        budget: MemoryBudget,
        folder: Path,
        fill: float = 0,
        on_disk: bool = False,
    ) -> None:
        self.what = what
        self._reservation: Reservation | None = None
        self._map: mmap.mmap | None = None
        self._handle = -1
        dtype = np.dtype(dtype)
        nbytes = n_samples * width * dtype.itemsize
        if not on_disk:
            self._reservation = budget.try_reserve(what, nbytes)
        if self._reservation is not None:
            self.values = np.full((n_samples, width), fill, dtype)
        else:
            self._path = folder / what
            self._map, self._handle = _scratch_map(self._path, max(nbytes, 1))
            self._close_handle = weakref.finalize(self, os.close, self._handle)
            self.values = np.frombuffer(self._map, dtype, n_samples * width).reshape(n_samples, width)
            if fill != 0:
                self.values[:] = fill
        self.disk_bytes = 0 if self._map is None else nbytes

    def get(self, where: BlockRef | BlockGroup) -> np.ndarray:
        """The rows of a block or group, shape (n_rows, width).

        For a single block it is a view: writing to it changes the vector.  For several it is a copy, to be returned
        with `put`.
        """
        refs = where.refs if isinstance(where, BlockGroup) else (where,)
        if len(refs) == 1:
            return self.values[refs[0].start : refs[0].stop]
        return np.concatenate([self.values[ref.start : ref.stop] for ref in refs])

    def between(self, start: int, stop: int) -> np.ndarray:
        """Working rows [start, stop), as a view."""
        return self.values[start:stop]

    def put(self, where: BlockRef | BlockGroup, rows: np.ndarray) -> None:
        """Store the rows of a block or group; costs nothing if they are the view from `get`."""
        refs = where.refs if isinstance(where, BlockGroup) else (where,)
        first = 0
        for ref in refs:
            target = self.values[ref.start : ref.stop]
            part = rows[first : first + ref.n_rows]
            first += ref.n_rows
            if not np.may_share_memory(part, target):
                target[:] = part

    def in_store_order(self, working_row: np.ndarray | None, rows: int = 1 << 16) -> Iterator[np.ndarray]:
        """Pieces of at most `rows` rows, in the order of the store's rows.

        working_row : int64, shape (n_samples,), working row of each store row, possibly a map; None for the identity.
            Only a piece of it is in memory at a time.
        """
        for start, stop in tile(len(self.values), rows):
            yield self.values[start:stop] if working_row is None else self.values[working_row[start:stop]]

    def tiles_in_store_order(self, working_row: np.ndarray | None) -> Iterator[tuple[int, int, np.ndarray]]:
        """(first row, first column, values) of tiles of at most 1 MiB, whose rows are in the order of the store.

        They cover all values once, however many columns there are, and each page of a file is read about once.
        """
        n_rows, width = self.values.shape
        for start, stop in tile(n_rows, _TILE // max(min(width, _TILE_WIDTH), 1)):
            rows = slice(start, stop) if working_row is None else working_row[start:stop]
            for first, last in tile(width, _TILE_WIDTH):
                yield start, first, self.values[rows, first:last]

    def clear(self) -> None:
        """Set all values to 0 before they are overwritten, so that the content of a file need not be read back.

        Raises OutputError if the disk has become full meanwhile.
        """
        if self._map is None:
            self.values[...] = 0
            return
        try:
            os.ftruncate(self._handle, 0)
            os.posix_fallocate(self._handle, 0, len(self._map))
        except OSError as error:
            raise cannot_write(self._path, error, len(self._map)) from error

    def close(self) -> None:
        """Release memory and file."""
        if self._reservation is not None:
            self._reservation.release()
        self.values = self.values[:0].copy()
        if self._map is not None:
            self._map.close()
            self._close_handle()


def _scratch_map(path: Path, nbytes: int) -> tuple[mmap.mmap, int]:
    """A shared map of a new file of `nbytes` zeros without a name, and its descriptor."""
    handle = -1
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name.replace(' ', '-')}-", dir=path.parent)
        os.unlink(name)
        return zeros_map(handle, nbytes), handle
    except OSError as error:
        if handle >= 0:
            os.close(handle)
        raise cannot_write(path, error, nbytes) from error
