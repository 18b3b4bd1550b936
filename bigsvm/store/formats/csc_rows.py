"""Conversion of columns (CSC) to rows (CSR) out of core, once for each matrix, in the cache folder.

The columns are read twice: once to count the entries of each row, and once to write each entry to the file of its range
of rows.  Then each range, which fits a buffer, is sorted on its own; a range that does not fit is divided again.
"""

from __future__ import annotations

import itertools
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from bigsvm.errors import DataError, OutputError
from bigsvm.events import WAITING, WorkEnded, WorkStarted
from bigsvm.files.atomic import file_digest, remove, remove_dead, temporary_name
from bigsvm.files.locks import sign, unsign, wait_for
from bigsvm.files.sealed_json import read_sealed, write_sealed
from bigsvm.files.space import cannot_write, zeros_map
from bigsvm.store.identity import digest_of
from bigsvm.store.remembered import folder_to_write, made_folder, places
from bigsvm.store.remote.settings import current
from bigsvm.store.sealing.listed_chunks import ListedChunks
from bigsvm.units import MIB

_BUFFER = 8 * MIB
_MOST_FILES = 512
_PIECE = 1 << 17  # entries or rows that are handled at a time
_EARLIER = re.compile(r"\.transposed-[a-z0-9_]{8}")
_DEAD_S = 86_400.0


class Array(Protocol):
    """A one-dimensional array that is read by ranges."""

    dtype: np.dtype

    def __len__(self) -> int: ...
    def read(self, start: int, stop: int) -> np.ndarray: ...


class MappedArray:
    """A raw file as an array with the methods of `ChunkedArray`."""

    raw, chunk_nbytes, unit_rows = True, 0, 1 << 20

    def __init__(self, path: Path, dtype: np.dtype, n: int) -> None:
        self.dtype = np.dtype(dtype)
        self.shape: tuple[int, ...] = (n,)
        self._values = np.memmap(path, self.dtype, "r", shape=(n,)) if n else np.zeros(0, self.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, start: int, stop: int) -> np.ndarray:
        """Values [start, stop), read-only."""
        return self._values[start:stop].view(np.ndarray)

    def forget(self) -> None: ...


def rows_of_columns(
    parts: tuple[Array, Array, Array],
    n_samples: int,
    where: str,
    of: dict[str, Any],
    chunks: ListedChunks | None = None,
) -> tuple[MappedArray, MappedArray, MappedArray]:
    """(data, indices, indptr) of a matrix in CSR, from its arrays in CSC.

    of : identity of the columns; an earlier conversion of the same columns is reused after a check of its digests
    chunks : the chunks of the columns; None if `of` tells every change of them

    Raises
    ------
    DataError : an index beyond the rows, a row twice in a column, or pointers that are not ascending; or a chunk is not
        the one that was converted.
    OutputError : the cache folder is full.
    """
    data, _indices, indptr = parts
    n_features = len(indptr) - 1
    index = np.dtype(np.int32 if n_features <= 2**31 else np.int64)
    name = f"transposed-{digest_of(of)}"
    kinds = {"data": data.dtype.newbyteorder("="), "indices": index, "indptr": np.dtype(np.int64)}
    lengths = {"data": len(data), "indices": len(data), "indptr": n_samples + 1}
    folder = next((place for place in places(name) if _is_whole(place, of)), None)
    remove_dead(folder_to_write())
    _remove_earlier(folder_to_write())
    made = folder is None
    if folder is None:
        folder = made_folder() / name
        try:
            # One process makes the copy and the others wait for it, since each copy would need the space once more.
            with open(folder.with_suffix(".lock"), "a+") as lock:
                _take_turn(lock)
                made = not _is_whole(folder, of)
                if made:
                    sign(lock)
                    try:
                        with nullcontext() if chunks is None else chunks.all_read():
                            _make(folder, parts, n_samples, kinds, where, of)
                    finally:
                        unsign(lock)
        except OSError as error:
            if isinstance(error, OutputError):
                raise
            raise cannot_write(folder, error, len(data) * 12) from error
    if chunks is not None and not made:
        chunks.check()
    found = [MappedArray(folder / name, kind, lengths[name]) for name, kind in kinds.items()]
    return found[0], found[1], found[2]


def _take_turn(lock: IO[str]) -> None:
    """Take the lock of a copy.  If that takes long, an event names the process that makes the copy."""
    with ExitStack() as stack:

        def tell(who: str) -> None:
            waiting, began = f"{WAITING}{who}, which turns the same columns into rows", time.monotonic()
            emit = stack.enter_context(current().watch())
            emit(WorkStarted(waiting, 0, ""))
            stack.callback(lambda: emit(WorkEnded(waiting, time.monotonic() - began)))

        wait_for(lock, tell)


def _remove_earlier(place: Path) -> None:
    """Remove what killed processes of earlier versions left: folders whose names do not tell which process made them.

    A conversion writes all the time, so one in whose folder nothing changed for a day has ended.
    """
    for folder in place.glob(".transposed-*"):
        if _EARLIER.fullmatch(folder.name) and not folder.is_symlink():
            with suppress(OSError):  # another process removes it, too
                changed = max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
                if changed < time.time() - _DEAD_S:
                    remove(folder)


def _make(
    folder: Path, parts: tuple[Array, Array, Array], n_samples: int, kinds: dict[str, np.dtype], where: str,
    of: dict[str, Any],
) -> None:  # fmt: skip
    """Make the copy at `folder`, in the place of a damaged one."""
    made = temporary_name(folder)
    try:
        made.mkdir()
        _transpose(parts, n_samples, kinds["indices"], made, where)
        digests = {name: file_digest(made / name) for name in kinds}
        write_sealed(made / "about.json", {"of": of, "digests": digests})
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _is_whole(folder: Path, of: dict[str, Any]) -> bool:
    try:
        about = read_sealed(folder / "about.json")
        return about["of"] == of and all(file_digest(folder / n) == d for n, d in about["digests"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _entries(parts: tuple[Array, Array, Array], n_samples: int, where: str) -> Iterator[tuple[np.ndarray, ...]]:
    """(rows, columns, values) of all entries, column by column, a bounded number at a time."""
    data, indices, indptr = parts
    n_features = len(indptr) - 1
    for first in range(0, n_features, _PIECE):
        last = min(first + _PIECE, n_features)
        pointers = indptr.read(first, last + 1).astype(np.int64)
        if np.any(np.diff(pointers) < 0) or pointers[0] < 0 or pointers[-1] > len(data):
            raise DataError("its column pointers are not ascending, or point beyond the values", where)
        for a in range(int(pointers[0]), int(pointers[-1]), _PIECE):
            b = min(a + _PIECE, int(pointers[-1]))
            rows = indices.read(a, b)
            if len(rows) and (rows.min() < 0 or rows.max() >= n_samples):
                bad = int(rows.max()) if rows.max() >= n_samples else int(rows.min())
                raise DataError(f"row index {bad} is beyond the {n_samples} rows", where)
            columns = np.searchsorted(pointers, np.arange(a, b), "right") - 1 + first
            yield rows.astype(np.int64), columns, data.read(a, b)


def _transpose(parts: tuple[Array, Array, Array], n_samples: int, index: np.dtype, made: Path, where: str) -> None:
    values = parts[0].dtype.newbyteorder("=")
    entry = np.dtype([("row", np.int64), ("column", index), ("value", values)])
    with open(made / "indptr", "x+b") as file:
        pointers = np.frombuffer(zeros_map(file.fileno(), 8 * (n_samples + 1)), np.int64)
    for rows, _, _ in _entries(parts, n_samples, where):
        found, counts = np.unique(rows, return_counts=True)
        pointers[found + 1] += counts
    np.cumsum(pointers, out=pointers)

    def packed() -> Iterator[np.ndarray]:
        for rows, columns, data in _entries(parts, n_samples, where):
            piece = np.empty(len(rows), entry)
            piece["row"], piece["column"], piece["value"] = rows, columns, data
            yield piece

    with open(made / "data", "wb") as data_file, open(made / "indices", "wb") as index_file:
        for piece in _by_rows(packed(), pointers, 0, n_samples, made / "part", entry):
            data_file.write(piece["value"].tobytes())
            index_file.write(piece["column"].tobytes())


def _by_rows(
    pieces: Iterator[np.ndarray], pointers: np.ndarray, first: int, last: int, name: Path, entry: np.dtype
) -> Iterator[np.ndarray]:
    """The entries of rows [first, last), ascending by row and then by column, in arrays that a buffer can hold.

    Each range of rows has a file.  Where the largest number of files leaves more in one than a buffer can hold, that
    one is divided again; a single row is not.

    pieces : the entries, whose columns are ascending;  pointers : the row pointers of the matrix
    name : path of the files, without their numbers
    """
    edges = _edges(pointers, first, last, entry.itemsize)
    for piece in pieces:
        which = np.searchsorted(edges, piece["row"], "right") - 1
        for k in np.unique(which):
            with open(f"{name}-{k}", "ab") as file:
                file.write(piece[which == k].tobytes())
    for k, (a, b) in enumerate(itertools.pairwise(edges.tolist())):
        place = Path(f"{name}-{k}")
        if not place.exists():
            continue
        if place.stat().st_size > 2 * _BUFFER and (a, b) != (first, last):
            yield from _by_rows(_pieces_of(place, entry), pointers, a, b, place, entry)
            place.unlink()
            continue
        found = np.fromfile(place, entry)
        place.unlink()
        # Columns are ascending, and a stable sort by row preserves that within each row.
        yield found[np.argsort(found["row"], kind="stable")]


def _edges(pointers: np.ndarray, first: int, last: int, nbytes: int) -> np.ndarray:
    """The rows at which rows [first, last) are divided: their entries, of `nbytes` each, fill half a buffer or less."""
    begin, n = int(pointers[first]), int(pointers[last] - pointers[first])
    n_files = int(min(_MOST_FILES, max(1, 2 * n * nbytes // _BUFFER)))
    inner = first + np.searchsorted(pointers[first : last + 1], begin + np.arange(1, n_files) * (n / n_files))
    return np.unique(np.concatenate([[first], inner, [last]]))


def _pieces_of(place: Path, entry: np.dtype) -> Iterator[np.ndarray]:
    """The entries in a file, a bounded number at a time."""
    with open(place, "rb") as file:
        while len(piece := np.fromfile(file, entry, _PIECE)):
            yield piece
