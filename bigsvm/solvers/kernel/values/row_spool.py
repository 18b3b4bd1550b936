"""Sparse rows that wait, in memory and then in a file without a name, until it is known where they will lie."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from bigsvm.compiled.shared.rows import CSR
from bigsvm.files.atomic import cannot_write


class RowSpool:
    """Pieces of sparse rows, given back once in their order: in memory up to some bytes, then in a file without a name.

    held_bytes : in memory
    """

    def __init__(self, room: int, folder: Path) -> None:
        self._room, self._folder = room, folder
        self._held: list[CSR] = []
        self._filed: list[tuple[np.dtype, np.dtype, np.ndarray]] = []
        self._file: IO[bytes] | None = None
        self.held_bytes = 0

    def add(self, piece: CSR) -> None:
        """Raises OutputError where the scratch folder cannot hold it."""
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
