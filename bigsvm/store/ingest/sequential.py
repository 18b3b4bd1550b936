"""Arrays that are read once, from the front, a bounded number of rows at a time.

One interface for arrays in memory, memory-mapped .npy files, and members of .npz files (which cannot be mapped).
Pickled objects are never loaded.
"""

from __future__ import annotations

import lzma
import zipfile
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from bigsvm.errors import DataError, MissingInput, ReadFailed
from bigsvm.files.file_array import FileArray
from bigsvm.files.plain_arrays import load_array, read_header
from bigsvm.store.frames.values import unmasked

_DAMAGED = (EOFError, ValueError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError)


class Sequential(Protocol):
    """An array with `shape` and `dtype`, whose rows are taken from the front."""

    shape: tuple[int, ...]
    dtype: np.dtype
    where: str

    def take(self, n: int) -> Any:
        """The next `n` rows (fewer at the end).  Raises DataError or ReadFailed naming the file."""
        ...


class InMemory:
    """An array in memory, a memory map, or an array that is read from its file."""

    def __init__(self, array: np.ndarray | FileArray, where: str) -> None:
        self.array, self.where = array, where
        self.shape, self.dtype = array.shape, array.dtype
        self._next = 0

    def take(self, n: int) -> np.ndarray:
        part = self.array[self._next : self._next + n]
        self._next += len(part)
        return part


class ZipMember:
    """An array in an .npz, decompressed as it is read; closed with the `stack`."""

    def __init__(self, archive: zipfile.ZipFile, key: str, where: str, stack: ExitStack) -> None:
        self.where = f"{where}[{key}]"
        try:
            self._file: IO[bytes] = stack.enter_context(archive.open(f"{key}.npy"))
            self.shape, fortran, self.dtype = read_header(self._file)
        except KeyError as error:
            raise DataError(f"has no array {key!r}", where, f"it has {', '.join(npz_keys(archive))}") from error
        except _DAMAGED as error:
            raise DataError(f"not a valid array: {error}", self.where) from error
        refuse_objects(self.dtype, self.where)
        self._left = self.shape[0] if self.shape else 0
        if fortran and len(self.shape) > 1:
            raise DataError("a column-major array in an .npz cannot be read by rows", self.where, "save it as .npy")

    def take(self, n: int) -> np.ndarray:
        row = int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize
        n = min(n, self._left)
        self._left -= n
        try:
            content = self._file.read(n * row)
        except _DAMAGED as error:
            raise DataError(f"damaged: {error}", self.where) from error
        except OSError as error:
            raise ReadFailed(f"reading failed: {error.strerror or error}", self.where) from error
        if len(content) < n * row:
            raise DataError("ends too early", self.where)
        return np.frombuffer(content, self.dtype).reshape(n, *self.shape[1:])

    def whole(self) -> np.ndarray:
        """The whole array, which must be small; also a scalar."""
        return np.frombuffer(self._file.read(), self.dtype).reshape(self.shape)


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


def open_npy(path: Path) -> InMemory:
    """Open a .npy file, which is read by rows, and is a memory map if its values are stored by columns.

    Raises
    ------
    MissingInput : the file is missing.
    DataError : it is not a .npy file, is truncated, or holds Python objects.
    """
    try:
        array = _opened(path)
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        raise MissingInput(f"cannot be read: {error.strerror}", str(path)) from error
    except _DAMAGED as error:
        raise DataError(f"not a valid .npy file: {error}", str(path)) from error
    except OSError as error:
        raise ReadFailed(f"reading failed: {error.strerror or error}", str(path)) from error
    if not isinstance(array, np.ndarray | FileArray):
        raise DataError("this is an .npz file, not a .npy", str(path), "rename it to .npz")
    refuse_objects(array.dtype, str(path))
    return InMemory(array, str(path))


def _opened(path: Path) -> np.ndarray | FileArray:
    try:
        return FileArray(path, with_digest=False)
    except ValueError:  # stored by columns, or no such file: NumPy's own error says what it is
        return load_array(path)


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
