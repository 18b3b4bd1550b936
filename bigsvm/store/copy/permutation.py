"""Permutations of rows on disk, written and inverted in bounded memory."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import xxhash

from bigsvm.files.atomic import new_file, sync_directory, temporary_name
from bigsvm.files.plain_arrays import write_array
from bigsvm.files.space import cannot_write
from bigsvm.store.blocks import tile

_MOST_FILES = 256
_CHUNK_BYTES, _WINDOW_BYTES = 64, 32  # bytes for each row of a chunk being distributed, and of a window being filled


def order_digest(order: np.ndarray | None) -> str:
    """A digest of an order, 32 hex digits; '' for the identity."""
    return "" if order is None else xxhash.xxh3_128_hexdigest(np.ascontiguousarray(order).data)


class OrderWriter:
    """A .npy file of `n` int64 numbers that is appended piece by piece; it appears with `finish`.

    Raises OutputError.
    """

    def __init__(self, path: Path, n: int) -> None:
        self.path, self._nbytes = path, 8 * n
        self._temporary = temporary_name(path)
        try:
            self._file = open(self._temporary, "xb")  # noqa: SIM115  closed by __exit__
            header = {"descr": "<i8", "fortran_order": False, "shape": (n,)}
            np.lib.format.write_array_header_1_0(self._file, header)
        except OSError as error:
            raise cannot_write(path, error, self._nbytes) from error

    def append(self, numbers: np.ndarray) -> None:
        try:
            self._file.write(np.ascontiguousarray(numbers, "<i8").data)
        except OSError as error:
            raise cannot_write(self.path, error, self._nbytes) from error

    def finish(self) -> None:
        """Flush the file and rename it."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            os.replace(self._temporary, self.path)
            sync_directory(self.path.parent)
        except OSError as error:
            raise cannot_write(self.path, error, self._nbytes) from error

    def __enter__(self) -> OrderWriter:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._file.close()
        except OSError:  # a full disk fails again on closing; `append` or `finish` has raised the error already
            pass
        self._temporary.unlink(missing_ok=True)


def save_order(path: Path, order: np.ndarray) -> None:
    """Write an order as a .npy file, whole or not at all.  Raises OutputError."""
    with new_file(path, order.nbytes) as file:
        write_array(file, order)


def write_inverse(order: np.ndarray, path: Path, memory: int) -> None:
    """Write the inverse of a permutation as a .npy of int64.

    order : int64, shape (n,), possibly a map; read once from front to back
    memory : bytes to use

    The result is divided into windows that fit in memory.  If there are several, the pairs (place, value) are first
    written to a file for each window, which takes 16 bytes of scratch for each row.  Beyond memory / 32 * 256 rows (5 *
    10^8 for 64 MiB) the windows grow with the number of rows.

    Raises OutputError.
    """
    n = len(order)
    window = max(memory // _WINDOW_BYTES, -(-n // _MOST_FILES), 1)
    chunk = max(memory // _CHUNK_BYTES, 1)
    with OrderWriter(path, n) as writer:
        if window >= n:
            inverse = np.empty(n, np.int64)
            for start, stop in tile(n, chunk):
                inverse[order[start:stop]] = np.arange(start, stop)
            writer.append(inverse)
        else:
            _through_files(order, window, chunk, path, writer)
        writer.finish()


def _through_files(order: np.ndarray, window: int, chunk: int, path: Path, writer: OrderWriter) -> None:
    windows = list(tile(len(order), window))
    with ExitStack() as stack:
        names = [temporary_name(path) for _ in windows]
        for name in names:
            stack.callback(name.unlink, missing_ok=True)
        try:
            with ExitStack() as opened:
                files = [opened.enter_context(open(name, "xb")) for name in names]
                for start, stop in tile(len(order), chunk):
                    _distribute(np.asarray(order[start:stop]), start, window, files)
            for (start, stop), name in zip(windows, names, strict=True):
                pairs = np.fromfile(name, np.int64).reshape(-1, 2)
                inverse = np.empty(stop - start, np.int64)
                inverse[pairs[:, 0] - start] = pairs[:, 1]
                writer.append(inverse)
                name.unlink()
        except OSError as error:
            raise cannot_write(path, error, 16 * len(order)) from error


def _distribute(numbers: np.ndarray, first: int, window: int, files: list) -> None:
    which = numbers // window
    by_window = np.argsort(which, kind="stable")
    edges = np.searchsorted(which[by_window], np.arange(len(files) + 1))
    pairs = np.column_stack((numbers[by_window], by_window + first))
    for file, a, b in zip(files, edges[:-1], edges[1:], strict=True):
        file.write(np.ascontiguousarray(pairs[a:b]).data)
