"""An array in a .npy file that is read piece by piece, and that notices when somebody changes the file.

A memory map would show whatever the file holds at the moment of each access: values of another array after the file is
overwritten in place, and a bus error, which ends the process without a word, after the file is shortened.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.lib.mixins import NDArrayOperatorsMixin

from bigsvm.errors import DataError, ReadFailed
from bigsvm.files import atomic
from bigsvm.files.plain_arrays import read_header

_PIECE = 1 << 20  # bytes that are read at a time for the digest, or to pick columns from
_SHORT_ROW = 4096  # bytes of a row up to which a whole row is read for some of its columns; a call costs as much
TICK_NS = 20_000_000
"""Upper bound of the tick of a file system's clock; Linux has 1 to 10 ms."""


class FileArray(NDArrayOperatorsMixin):
    """A read-only array whose values stay in its file; each access reads what it needs into memory.

    Rows (`a[2:9]`, `a[3]`) and columns of rows (`a[:, 2:9]`) are read alone; anything else, such as `a.sum()`, reads
    the whole array first.  Every access returns the values that the file had when it was opened, or raises DataError.
    Thread-safe.  The file may be renamed or deleted meanwhile.

    digest : xxh3-128 of the file as it was opened; empty if it was not asked for
    """

    def __init__(self, path: Path, with_digest: bool = True, transposed: bool = False) -> None:
        """Open the file and read it once, for its digest.

        with_digest : without it nothing is read, and a file that got another time counts as changed
        transposed : the values must be stored column by column, and the array is the transpose: its rows are columns

        Raises
        ------
        OSError : the file cannot be read.
        ValueError : it is not a plain array in this order, or is shorter than its header says.
        DataError : it changed while it was read.
        """
        self._path = Path(path)
        with open(atomic.open_regular(self._path), "rb", buffering=0) as file:
            self._handle = os.dup(file.fileno())
            weakref.finalize(self, os.close, self._handle)
            self._lock = threading.Lock()
            self._known = self._settled()
            self.digest = self._digest() if with_digest else ""
            self.shape, by_columns, self.dtype = read_header(file)
            self._offset = file.tell()
        if self.dtype.hasobject:
            raise ValueError("it holds Python objects")
        if transposed:
            self.shape = self.shape[::-1]
        if by_columns != transposed and sum(n > 1 for n in self.shape) > 1:
            raise ValueError(f"its values are stored {'column by column' if by_columns else 'row by row'}")
        if self._offset + self.nbytes > self._known.st_size:
            raise ValueError(f"{self._known.st_size} bytes are too few for shape {self.shape}")
        if not self._is_as_known():
            raise self._changed()

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, key: Any) -> np.ndarray:
        rows, *columns = key if isinstance(key, tuple) and key else (key,)
        if not (len(columns) < self.ndim <= 2 and _is_simple(rows) and all(map(_is_simple, columns))):
            return np.asarray(self)[key]
        if not isinstance(rows, slice):
            at = range(len(self))[rows]  # raises IndexError
            return self[(slice(at, at + 1), *columns)][0]
        width = prod(self.shape[1:])
        start, stop, _ = rows.indices(len(self))
        n = max(stop - start, 0)
        if not columns:
            return self._read((n, *self.shape[1:]), [start * width])
        if not isinstance(columns[0], slice):
            at = range(width)[columns[0]]
            return self[rows, at : at + 1][:, 0]
        first, last, _ = columns[0].indices(width)
        if last <= first:
            return self._read((n, 0), [])
        return self._read((n, last - first), range(start * width + first, (start + n) * width + first, width))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("an array in a file can only be copied")
        whole = self._read(self.shape, [0])
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*(np.asarray(one) if one is self else one for one in inputs), **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(np.ndarray, name):  # which is asked without reading the file
            raise AttributeError(f"an array in a file has no attribute {name!r}")
        return getattr(np.asarray(self), name)

    def __reduce__(self) -> tuple[Any, ...]:
        return np.asarray, (np.asarray(self),)

    def pieces(self, size: int) -> Iterator[np.ndarray]:
        """All values in their order, at most `size` at a time, as one-dimensional arrays."""
        for start in range(0, self.size, size):
            yield self._read((min(size, self.size - start),), [start])

    def _read(self, shape: tuple[int, ...], firsts: Sequence[int]) -> np.ndarray:
        """Values that the file had when it was opened: runs of equal length, each from this number of a value on."""
        while True:
            known, out = self._known, np.empty(shape, self.dtype)
            if out.size:
                self._fill_runs(out.reshape(-1).view(np.uint8).data, firsts)
            # Look at the times after the reading: a writer changes them before it changes the first byte.
            if marks(os.fstat(self._handle)) == marks(known):
                return out
            if not self._is_as_known():
                raise self._changed()

    def _fill_runs(self, out: memoryview, firsts: Sequence[int]) -> None:
        """Read runs of equal length, one after another, into `out`; `firsts` ascend, if there are several."""
        size, each = len(out) // len(firsts), self.dtype.itemsize
        apart = (firsts[1] - firsts[0]) * each if len(firsts) > 1 else 0
        if size == apart:
            self._fill(out, self._offset + firsts[0] * each)
            return
        if not size < apart <= _SHORT_ROW:
            for to, first in enumerate(firsts):
                self._fill(out[to * size : (to + 1) * size], self._offset + first * each)
            return
        # Runs that are this close come with what lies between them, many at a time.
        together = max(_PIECE // apart, 1)
        rows = np.empty((together, apart), np.uint8)
        wanted = np.frombuffer(out, np.uint8).reshape(-1, size)
        for to in range(0, len(firsts), together):
            n = min(together, len(firsts) - to)
            self._fill(rows.reshape(-1).data[: (n - 1) * apart + size], self._offset + firsts[to] * each)
            wanted[to : to + n] = rows[:n, :size]

    def _fill(self, left: memoryview, at: int) -> None:
        while left:
            n = self._pread(left, at)
            if not n:
                raise self._changed()  # the file has become shorter
            left, at = left[n:], at + n

    def _pread(self, target: memoryview, at: int) -> int:
        try:
            return os.preadv(self._handle, [target], at)
        except OSError as error:
            raise ReadFailed(f"reading failed: {error.strerror or error}", str(self._path)) from error

    def _is_as_known(self) -> bool:
        """Whether the file has the bytes that it had, although its times may have changed.

        Deleting a file or giving it other permissions changes a time too, so the bytes are compared.
        """
        with self._lock:
            now = os.fstat(self._handle)
            if marks(now) == marks(self._known):
                return True
            if now.st_size != self._known.st_size or marks(self._settled()) != marks(now):
                return False
            same = self._digest() == self.digest if self.digest else now.st_mtime_ns == self._known.st_mtime_ns
            if not same:
                return False
            self._known = now  # the next comparison notices a change that came after `now`
            return True

    def _settled(self) -> os.stat_result:
        """The status of the file, taken when a further change gives it other times."""
        status = os.fstat(self._handle)
        if changes_are_seen(status):
            return status
        time.sleep(TICK_NS / 1e9)
        return os.fstat(self._handle)

    def _digest(self) -> str:
        digest, room, at = xxhash.xxh3_128(), memoryview(bytearray(_PIECE)), 0
        while n := self._pread(room, at):
            digest.update(room[:n])
            at += n
        return digest.hexdigest()

    def _changed(self) -> DataError:
        return DataError("the file changed while it was read", str(self._path), "repeat the command")


def _is_simple(key: Any) -> bool:
    """Whether a key is a number, or a slice without steps."""
    if isinstance(key, slice):
        return key.step in (None, 1)
    return isinstance(key, int | np.integer) and not isinstance(key, bool)


def marks(status: os.stat_result) -> tuple[int, ...]:
    """What changes when a file is written, or when its times are set afterwards."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def changes_are_seen(status: os.stat_result, now: int | None = None) -> bool:
    """Whether a change of a file after it had this status gives it other times.

    File systems count time in ticks, and two changes within one tick leave the same times.

    now : when the status was taken, or earlier, in nanoseconds; None: it was taken just now
    """
    return times_are_past(newest_of(status), now)


def newest_of(status: os.stat_result) -> int:
    """The newest of the times of changes of a file, in nanoseconds."""
    return max(status.st_mtime_ns, status.st_ctime_ns)


def times_are_past(newest: int, now: int | None = None) -> bool:
    """As `changes_are_seen`, for the newest of all times of some files, in nanoseconds."""
    now = time.time_ns() if now is None else now
    return abs(now - newest) >= TICK_NS
