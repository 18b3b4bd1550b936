"""A spool for sparse rows whose final place is not known yet: in memory, and beyond that in a file without a name."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from bigsvm.compiled.shared.rows import CSR
from bigsvm.files.space import cannot_write


class RowSpool:
    """Stores pieces of sparse rows, and yields them once, in order.

    room : int         bytes of pieces in memory; later pieces go to a file without a name in `folder`
    held_bytes : int   bytes in memory
    """

    def __init__(self, room: int, folder: Path) -> None:
        self._room, self._folder = room, folder
        self._held: list[CSR] = []
        self._filed: list[tuple[np.dtype, np.dtype, np.ndarray]] = []
        self._file: IO[bytes] | None = None
        self.held_bytes = 0

    def add(self, piece: CSR) -> None:
        """Add a piece.  Raises OutputError if the scratch folder has no room for it."""
        nbytes = sum(part.nbytes for part in piece)
        if self._file is None and self.held_bytes + nbytes <= self._room:
            self._held.append(piece)
            self.held_bytes += nbytes
            return
        try:
            if self._file is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115
            self._file.write(np.ascontiguousarray(piece.data).data)
            self._file.write(np.ascontiguousarray(piece.indices).data)
        except OSError as error:
            raise cannot_write(self._folder, error, nbytes) from error
        self._filed.append((piece.data.dtype, piece.indices.dtype, piece.indptr))

    def __iter__(self) -> Iterator[CSR]:
        self._held.reverse()
        while self._held:
            yield self._held.pop()
        if self._file is None:
            return
        self._file.seek(0)
        for dtype, index_dtype, indptr in self._filed:
            n = int(indptr[-1])
            values = np.frombuffer(self._file.read(n * dtype.itemsize), dtype)
            yield CSR(values, np.frombuffer(self._file.read(n * index_dtype.itemsize), index_dtype), indptr)
        self._file.close()
