"""Arrays that are read once, from the front, a bounded number of rows at a time.

One interface for arrays in memory, in .npy files, and in .npz files.  Pickled objects are never loaded.
"""

from __future__ import annotations

import errno
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from bigsvm.errors import DataError, MissingInput, ReadFailed
from bigsvm.files.file_array import FileArray
from bigsvm.files.plain_arrays import load_array, read_header
from bigsvm.store.frames.values import unmasked
from bigsvm.units import KIB, MIB

_COLUMN_BYTES = 2 * KIB  # bytes of a column that are read at a time, fewer where all columns would take too many
_BAND_BYTES = 16 * MIB  # most bytes of all columns
_DAMAGED = (EOFError, ValueError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError)
"""What Python's libraries raise for damaged files."""


class Sequential(Protocol):
    """An array with `shape` and `dtype`, whose rows are taken from the front.

    held_bytes : bytes that it holds in addition to the rows that it gives
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    where: str
    held_bytes: int

    def take(self, n: int) -> Any:
        """The next `n` rows (fewer at the end).  Raises DataError or ReadFailed naming the file."""
        ...


class InMemory:
    """An array in memory, or one that is read from its file."""

    held_bytes = 0

    def __init__(self, array: np.ndarray | FileArray, where: str) -> None:
        self.array, self.where = array, where
        self.shape, self.dtype = array.shape, array.dtype
        self._next = 0

    def take(self, n: int) -> np.ndarray:
        part = self.array[self._next : self._next + n]
        self._next += len(part)
        return part


class ByColumns:
    """An array whose values are stored column by column in a file.

    Some rows are a short run of each column, and each run is read on its own.  So that runs of many columns are not too
    short, more rows than are asked for are read, and kept for the next calls: 16 MiB of them at most.

    columns : the transposed array
    """

    def __init__(self, columns: FileArray, where: str) -> None:
        self.where = where
        self.shape, self.dtype = columns.shape[::-1], columns.dtype
        width = int(np.prod(self.shape[1:], dtype=np.int64))
        self.held_bytes = min(_COLUMN_BYTES * width, _BAND_BYTES)
        self._row_nbytes = max(width * self.dtype.itemsize, 1)
        self._columns, self._next = columns, 0
        self._band: np.ndarray | None = None  # the rows from number _first on, transposed
        self._first = 0

    def take(self, n: int) -> np.ndarray:
        n = min(n, self.shape[0] - self._next)
        if self._band is None or self._next + n > self._first + self._band.shape[1]:
            # Rows for a whole number of calls, so that none are read twice.  The former ones are freed first.
            rows = n * max(self.held_bytes // max(n * self._row_nbytes, 1), 1)
            self._band, self._first = None, self._next
            self._band = self._columns[:, self._first : self._first + rows]
        start = self._next - self._first
        self._next += n
        return np.ascontiguousarray(self._band[:, start : start + n].T)


class ZipMember:
    """An array in an .npz, decompressed as it is read; closed with the `stack`."""

    held_bytes = 0

    def __init__(self, archive: zipfile.ZipFile, key: str, where: str, stack: ExitStack) -> None:
        self.where = f"{where}[{key}]"
        with _member_errors(self.where):
            try:
                self._file: IO[bytes] = stack.enter_context(archive.open(f"{key}.npy"))
            except KeyError as error:
                raise DataError(f"has no array {key!r}", where, f"it has {', '.join(npz_keys(archive))}") from error
            self.shape, fortran, self.dtype = read_header(self._file)
        refuse_objects(self.dtype, self.where)
        self._left = self.shape[0] if self.shape else 0
        if fortran and len(self.shape) > 1:
            raise DataError("a column-major array in an .npz cannot be read by rows", self.where, "save it as .npy")

    def take(self, n: int) -> np.ndarray:
        row = int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize
        n = min(n, self._left)
        self._left -= n
        with _member_errors(self.where):
            content = self._file.read(n * row)
        if len(content) < n * row:
            raise DataError("ends too early", self.where)
        return np.frombuffer(content, self.dtype).reshape(n, *self.shape[1:])

    def whole(self) -> np.ndarray:
        """The whole array, which must be small; also a scalar."""
        with _member_errors(self.where):
            return np.frombuffer(self._file.read(), self.dtype).reshape(self.shape)


@contextmanager
def _member_errors(where: str) -> Iterator[None]:
    """Raise what reading a member of a .npz raises as errors of bigsvm."""
    try:
        yield
    except (*_DAMAGED, RuntimeError) as error:  # zipfile's, for a member that says it is encrypted
        raise DataError(f"not a valid array: {error}", where) from error
    except OSError as error:
        if error.errno == errno.EINVAL:  # zipfile goes to a negative place, which the archive's directory names
            raise DataError("not a valid array: it begins outside the file", where) from error
        raise ReadFailed(f"reading failed: {error.strerror or error}", where) from error


def take_exactly(source: Sequential, n: int, first_row: int = 0) -> np.ndarray:
    """The next `n` rows, the first of which has number `first_row`, from a source that may give fewer at a time.

    Raises DataError if the source ends early, or a row is masked.
    """
    parts = []
    while n > 0:
        part = unmasked(source.take(n), source.where, first_row)
        first_row += len(part)
        if len(part) == 0:
            raise DataError(f"ends {n} rows before the matrix does", source.where)
        parts.append(part)
        n -= len(part)
    return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else source.take(0)


def open_npy(path: Path) -> InMemory | ByColumns:
    """Open a .npy file, which is read as its rows are taken.

    Raises
    ------
    MissingInput : the file is missing.
    DataError : it is not a .npy file, is truncated, or holds Python objects.
    """
    try:
        found = _opened(path)
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        raise MissingInput(f"cannot be read: {error.strerror}", str(path)) from error
    except _DAMAGED as error:
        raise DataError(f"not a valid .npy file: {error}", str(path)) from error
    except OSError as error:
        raise ReadFailed(f"reading failed: {error.strerror or error}", str(path)) from error
    if found is None:
        raise DataError("this is an .npz file, not a .npy", str(path), "rename it to .npz")
    refuse_objects(found.dtype, str(path))
    return found


def _opened(path: Path) -> InMemory | ByColumns | None:
    """The array; None for an .npz file."""
    with suppress(ValueError):
        return InMemory(FileArray(path, with_digest=False), str(path))
    with suppress(ValueError):
        return ByColumns(FileArray(path, with_digest=False, transposed=True), str(path))
    with path.open("rb") as file:
        start = file.read(len(np.lib.format.MAGIC_PREFIX))
    # NumPy takes any other file for a pickle, and advises to load it.
    if start and start != np.lib.format.MAGIC_PREFIX and not start.startswith(b"PK"):
        raise DataError("not a .npy file: it does not begin as one", str(path), "write it with numpy.save")
    found = load_array(path)  # NumPy's own error says what is wrong
    return InMemory(found, str(path)) if isinstance(found, np.ndarray) else None


def open_npz(path: Path) -> zipfile.ZipFile:
    """Open an .npz file.  Raises MissingInput or DataError as `open_npy` does."""
    try:
        return zipfile.ZipFile(path)
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        raise MissingInput(f"cannot be read: {error.strerror}", str(path)) from error
    except _DAMAGED as error:
        raise DataError(f"not a valid .npz file: {error}", str(path)) from error


def npz_keys(archive: zipfile.ZipFile) -> list[str]:
    """Names of the arrays in it."""
    return [name.removesuffix(".npy") for name in archive.namelist()]


def refuse_objects(dtype: np.dtype, where: str) -> None:
    """Raise DataError for arrays whose elements would have to be unpickled."""
    if dtype.hasobject:
        raise DataError("holds Python objects, which are never loaded", where, "save numbers or fixed-width strings")
