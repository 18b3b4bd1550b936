"""Entries of a sparse matrix thrown into files by ranges of columns, through buffers of bounded size."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from bigsvm.compiled.shared.columns import split_entries
from bigsvm.errors import DataError
from bigsvm.files.atomic import remove
from bigsvm.files.space import cannot_write
from bigsvm.store.blocks import frozen, tile
from bigsvm.store.copy.stage_index import damaged
from bigsvm.store.copy.stage_write import _write_all
from bigsvm.units import KIB, MIB

_LEAST_BUFFER, _LARGEST_BUFFER = 64 * KIB, MIB  # of one range: what is written and read at a time
_FEWEST, _MOST = 4, 256  # ranges of one division; `split_entries` numbers them in 8 bits

Entries = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Columns, rows and the bits of values (`as_bits`), each of shape (n,) and read-only."""


class Spool:
    """The entries of columns [start, stop) in the order they came in, in chunks of `capacity` (the last has fewer).

    A chunk is the xxh3-128 of what follows, then its columns, its rows and its values.
    """

    def __init__(self, folder: Path, start: int, stop: int, dtypes: Sequence[np.dtype], capacity: int) -> None:
        self.path = folder / f"spool-{start}-{stop}"
        self.start, self.stop, self.entries = start, stop, 0
        self._dtypes, self._capacity = dtypes, capacity

    def append(self, arrays: Sequence[np.ndarray]) -> None:
        """A chunk: `capacity` entries, or fewer and no other after them.  Raises OutputError."""
        pieces: list[Any] = [array.view(np.uint8).data for array in arrays]
        nbytes = sum(map(len, pieces))
        try:
            # Opened every time: there may be hundreds of spools, and a process has not many more files.
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            try:
                _write_all(handle, [_digest(pieces), *pieces])
            finally:
                os.close(handle)
        except OSError as error:
            raise cannot_write(self.path, error, nbytes) from error
        self.entries += len(arrays[0])

    def drain(self) -> Iterator[Entries]:
        """The entries, chunk by chunk, each good until the next; then the file goes away.

        Raises DataError: it is not what was written.
        """
        if not self.entries:
            return
        header = np.empty(16, np.uint8)
        buffers = [np.empty(min(self._capacity, self.entries), dtype) for dtype in self._dtypes]
        with open(self.path, "rb") as file:
            for start, stop in tile(self.entries, self._capacity):
                chunk = [buffer[: stop - start] for buffer in buffers]
                pieces = [array.view(np.uint8).data for array in (header, *chunk)]
                try:
                    whole = all(file.readinto(piece) == len(piece) for piece in pieces)
                except OSError as error:
                    raise damaged(self.path, str(error)) from error
                if not whole or _digest(pieces[1:]) != header.tobytes():
                    raise self._changed()
                columns, rows, bits = map(frozen, chunk)
                yield columns, rows, bits
        # No advice to drop its pages: that would write them out first, and removing it waits for that.
        remove(self.path)

    def _changed(self) -> DataError:
        return damaged(self.path, "a spool of columns is not what was written")


def _digest(pieces: Sequence[Any]) -> bytes:
    digest = xxhash.xxh3_128()
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


class Spools:
    """Spools of one transpose; those that are left are removed at the end of the `with` block.

    dtypes : of columns, rows and bits of values
    room : bytes of buffers, held while entries are split
    """

    def __init__(self, folder: Path, dtypes: Sequence[np.dtype], room: int) -> None:
        self._folder, self._dtypes, self._room = folder, dtypes, room
        self._record_bytes = sum(dtype.itemsize for dtype in dtypes)
        self._most = min(max(room // _LEAST_BUFFER, _FEWEST), _MOST)

    def limit(self, nbytes: int, largest: int) -> int:
        """Bytes of each range when columns of `nbytes` are divided: `largest`, or more where there were too many.

        Two neighbouring ranges are longer than the limit together, or they would be one.
        """
        return max(largest, 2 * nbytes // self._most + 1)

    def split(self, entries: Iterator[Entries], edges: np.ndarray) -> Iterator[Spool]:
        """All entries, in a spool for each range of columns edges[b] to edges[b + 1] - 1; at most 256 ranges.

        Raises OutputError.
        """
        n = len(edges) - 1
        capacity = max(min(self._room // n, _LARGEST_BUFFER) // self._record_bytes, 1)
        ranges = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        spools = [Spool(self._folder, start, stop, self._dtypes, capacity) for start, stop in ranges]
        self._throw(entries, edges, spools, capacity)
        yield from spools

    def _throw(self, entries: Iterator[Entries], edges: np.ndarray, spools: Sequence[Spool], capacity: int) -> None:
        n, first = len(spools), int(edges[0])
        table = np.repeat(np.arange(n).astype(np.uint8), np.diff(edges))
        fill = np.zeros(n, np.int64)
        buffers = [np.empty((n, capacity), dtype) for dtype in self._dtypes]
        for columns, rows, bits in entries:
            at = 0
            while True:
                at = split_entries(columns, rows, bits, at, first, table, fill, *buffers)
                if at == len(columns):
                    break
                full = table[columns[at] - first]
                spools[full].append([buffer[full] for buffer in buffers])
                fill[full] = 0
        for b in np.flatnonzero(fill).tolist():
            spools[b].append([buffer[b, : fill[b]] for buffer in buffers])

    def __enter__(self) -> Spools:
        return self

    def __exit__(self, *_: object) -> None:
        for left in self._folder.glob("spool-*"):
            remove(left)
