"""Per-row state (alpha, activity, norms): an array with a row for each row of the data.

It lies in memory where the budget allows, else in a scratch file, and is sliced by block either way.  Rows
are in WORKING order, so that a block's slice is contiguous; `in_store_order` gives the user's order back.
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
from bigsvm.files.atomic import cannot_write
from bigsvm.files.mapped import zeros_map
from bigsvm.store.blocks import BlockGroup, BlockRef, tile


class RowVector:
    """n_samples rows of `width` values of one dtype, all starting at `fill`.

    Parameters
    ----------
    what : name under which the budget knows it
    budget : reserved from where the rows fit; else the rows go to a file in `folder`
    on_disk : force the file

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

        Of one block a view: writing to it changes the vector.  Of several a copy, for `put` to bring back.
        """
        refs = where.refs if isinstance(where, BlockGroup) else (where,)
        if len(refs) == 1:
            return self.values[refs[0].start : refs[0].stop]
        return np.concatenate([self.values[ref.start : ref.stop] for ref in refs])

    def between(self, start: int, stop: int) -> np.ndarray:
        """Working rows [start, stop), a view."""
        return self.values[start:stop]

    def put(self, where: BlockRef | BlockGroup, rows: np.ndarray) -> None:
        """Take over the rows of a block or group; free when they are the view that `get` gave."""
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

        working_row : int64, shape (n_samples,), working row of each store row, may be a map; None for the
            identity.  Only a piece of it is in memory at one time.
        """
        for start, stop in tile(len(self.values), rows):
            yield self.values[start:stop] if working_row is None else self.values[working_row[start:stop]]

    def clear(self) -> None:
        """Make all values 0, before they are written anew: what lies in a file is then not read back for that.

        Raises OutputError where the disk has filled meanwhile.
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
        """Give memory and file back."""
        if self._reservation is not None:
            self._reservation.release()
        self.values = self.values[:0].copy()
        if self._map is not None:
            self._map.close()
            self._close_handle()


def _scratch_map(path: Path, nbytes: int) -> tuple[mmap.mmap, int]:
    """A shared map of a new file of `nbytes` zeros that has no name, and its descriptor: nothing is ever left."""
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
