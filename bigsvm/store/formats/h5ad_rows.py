"""Rows of an .h5ad file, AnnData on HDF5, read by h5py."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.errors import BigSVMError, DataError, UsageError, in_words
from bigsvm.files.atomic import open_regular
from bigsvm.files.paths import no_such_file
from bigsvm.store.formats.layouts.packed_numbers import refuse_packed
from bigsvm.store.formats.tables.known_files import File, KnownFiles, files_fingerprint, opened_once, stat_file
from bigsvm.store.formats.tables.looked_at_first import DAMAGED_HINT, look_first
from bigsvm.store.formats.zarr_rows import ZarrRows
from bigsvm.store.identity import digest_of
from bigsvm.store.labels import Missing, Task
from bigsvm.store.remembered import recall, remember
from bigsvm.store.sealing.manifest import read_failed
from bigsvm.store.sealing.places import naming

_CHUNK_CACHE = 1 << 20  # of each dataset; newer versions of HDF5 would use 8 MiB
_INDEX_CACHE = 4 << 20  # of a file, for the index of its chunks; HDF5 would let it grow to 32 MiB
_COPY = "copy what it names into this file, with h5py: file[name] = array[...]"
_LOCK = threading.RLock()
"""HDF5 has one lock for the whole process; this one also covers reads that take two calls."""


class H5adRows(ZarrRows):
    """RowBlocks over an .h5ad file, with the properties of `ZarrRows`.

    At the first opening all bytes are read once for the fingerprint, which is cached while size and time stay the same.
    Chunks have no digests; only HDF5's own checksums, if the file has any, can detect damage.

    Raises
    ------
    UsageError : h5py is not installed. MissingInput : there is no file. DataError : it is bad.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        label: str | None = None,
        weight: str | None = None,
        task: Task = "auto",
        labelled: bool = True,
        matrix: str | None = None,
        missing: Missing = "refuse",
    ) -> None:
        self.uri = os.path.realpath(path)
        if not os.path.isfile(self.uri):
            raise no_such_file(str(path))
        try:
            import h5py
        except ImportError as error:
            hint = "install bigsvm[anndata], which is h5py"
            raise UsageError(".h5ad files are read by h5py, which is not installed", str(path), hint) from error
        self.warnings = []
        self.empty_chunks = {}
        status = stat_file(self.uri)
        self._h5 = File.of(self.uri, status)
        self.fingerprint = _fingerprint(self._h5)
        self._watched = KnownFiles([self._h5])
        self._watched.fingerprint = self.fingerprint
        self._options = (label, weight, task, None, labelled, matrix, missing)
        self._file = H5File(self.uri, h5py.File)
        with _LOCK, _h5_errors(self.uri):
            # HDF5 does not come back from some damaged attributes, and crashes at others.
            look_first([self.uri], self._select_parts, "HDF5", options=self._options)
            self._select_parts()
        self.content_fingerprint = None

    def _select_parts(self, _: str = "") -> None:
        """Find the matrix, the labels and the names of the features."""
        opened = functools.cache(lambda name: H5Array(self._file, name, self._h5, self._watched))
        self._select(_Plain(self._file.root()), opened, *self._options)

    def check_files(self, often: bool = False) -> None:
        """Raise DataError if the file has changed since the store was opened.  often : see `KnownFiles.check_all`"""
        self._watched.check_all(often)

    def __reduce__(self) -> tuple[Callable[..., H5adRows], tuple[Any, ...]]:
        label, weight, task, _, labelled, matrix, missing = self._options
        return reopen, (self.uri, label, weight, task, labelled, matrix, missing, self.fingerprint)

    def __repr__(self) -> str:
        return f"H5adRows({self.uri!r}, {self.n_samples} x {self.n_features} {self.layout})"

    @property
    def chunk_nbytes(self) -> int:
        """Bytes of the chunks that are decoded at a time, and of the index of the file."""
        return super().chunk_nbytes + _INDEX_CACHE

    def forget(self) -> None:
        """Close the file, which frees all caches of HDF5; plans rely on that.  The next read opens it again."""
        super().forget()
        with _LOCK:
            self._file.close()

    @property
    def content(self) -> dict[str, Any]:
        return {}

    def _known_content(self) -> str | None:
        return None


class H5File:
    """An HDF5 file that is open while it is read; use it under `_LOCK`."""

    def __init__(self, path: str, opening: Any) -> None:
        self._path, self._opening = path, opening
        self._root: Any = None
        self._opened_as: tuple[int, ...] = ()
        _FILES.add(self)

    def root(self) -> Any:
        """The file; opened if necessary."""
        if not self._root:
            self._close_former()
            self._root = self._opened()
            bounded = self._root.id.get_mdc_config()
            bounded.max_size = _INDEX_CACHE
            self._root.id.set_mdc_config(bounded)
        return self._root

    def _close_former(self) -> None:
        """Close handles of the same file that were opened before it was rewritten in place.

        HDF5 opens a file only once in a process, and would return the old index.
        """
        now = os.stat(self._path)
        self._opened_as = (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns)
        for other in list(_FILES):
            if other._opened_as[:2] == self._opened_as[:2] and other._opened_as != self._opened_as:
                other.close()

    def _opened(self) -> Any:
        """Open the file without HDF5's locks, which network folders lack, and which read-only files do not need.

        HDF5 cannot open a file in two ways in one process, so if it is open already with locks, locks are used.
        """
        ways: list[dict[str, Any]] = [{"locking": False}, {}, {"locking": True}, {"locking": "best-effort"}]
        for way in ways:
            try:
                return self._opening(self._path, "r", rdcc_nbytes=_CHUNK_CACHE, **way)
            except OSError as error:
                if "locking" not in str(error) or way is ways[-1]:
                    raise
        raise AssertionError

    def close(self) -> None:
        """Release chunks and index, which HDF5 frees only when a file is closed."""
        if self._root:
            self._root.close()
        self._root = None


_FILES: weakref.WeakSet[H5File] = weakref.WeakSet()


class H5Array:
    """An HDF5 dataset with the methods of `ChunkedArray`.

    Contiguous uncompressed data are read without h5py, which takes three times as long.  Of compressed chunks that are
    too large for HDF5's cache, the one in which the last read ended is kept: HDF5 would decode it again for each read,
    and a chunk may be the whole array.
    """

    raw = False

    def __init__(self, file: H5File, path: str, told: File, known: KnownFiles) -> None:
        node = _own(file.root(), path)
        if not hasattr(node, "shape"):
            raise DataError("is a group where an array was expected", path)
        if node.is_virtual or node.external:  # HDF5 would read zeros for a missing external file
            raise DataError("its values lie in other files, whose changes nobody would see", path, _COPY)
        refuse_packed({name: _plain(value) for name, value in node.attrs.items()}, node.dtype, path)
        self.path, self._told, self._watched, self._file, self._node = path, told, known, file, node
        self._text = node.dtype.kind in "OS"
        self.dtype = np.dtype(object) if self._text else node.dtype.newbyteorder("=")
        self.shape = tuple(node.shape)
        if node.dtype.kind not in "biufOS":
            raise DataError(f"values of type {node.dtype} cannot be used", path)
        self._place = _place_of(node, told.size)
        chunk = node.chunks
        self.unit_rows = int(chunk[0]) if chunk else 1
        nbytes = int(np.prod(chunk, dtype=np.int64)) * self.dtype.itemsize if chunk else 0
        # A filter holds the compressed chunk, and decodes it into a buffer that it doubles as needed.  Plans count a
        # reader at least two and a half times, which leaves room for the chunk that is kept.
        packed = bool(node.compression or node.shuffle)
        at_once = 2 * nbytes if packed else nbytes
        self.chunk_nbytes = max(at_once, _CHUNK_CACHE) if chunk else 0
        one_across = chunk is not None and tuple(chunk[1:]) == self.shape[1:]
        self._keeps = packed and one_across and nbytes > _CHUNK_CACHE and not self._text
        self._last: tuple[int, np.ndarray] | None = None

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop), read-only.  Raises DataError where they cannot be decoded."""
        self._watched.check(self._told.path)
        if self._place is not None:
            return self._plain(self._place, start, stop)
        if not self._keeps or stop <= start:
            return self._decoded(start, stop)
        first, last = start // self.unit_rows, (stop - 1) // self.unit_rows
        if first == last:
            return self._chunk(first)[start - first * self.unit_rows : stop - first * self.unit_rows]
        found = np.empty((stop - start, *self.shape[1:]), self.dtype)
        for number in range(first, last + 1):
            begin = number * self.unit_rows
            a, b = max(start, begin), min(stop, begin + self.unit_rows)
            whole = b - a == self.unit_rows
            found[a - start : b - start] = self._decoded(a, b) if whole else self._chunk(number)[a - begin : b - begin]
        found.flags.writeable = False
        return found

    def _chunk(self, number: int) -> np.ndarray:
        """All rows of one chunk, which is kept.  A thread that wants the one being decoded waits for it."""
        with _LOCK:
            last = self._last
            if last is not None and last[0] == number:
                return last[1]
            last = self._last = None  # free it first, so that two chunks are never held at a time
            values = self._decoded(number * self.unit_rows, min((number + 1) * self.unit_rows, len(self)))
            self._last = (number, values)
            return values

    def _decoded(self, start: int, stop: int) -> np.ndarray:
        with _LOCK, _h5_errors(f"{self._told.path}/{self.path}"):
            if not self._node:  # the file was closed in the meantime
                self._node = _own(self._file.root(), self.path)
            values = self._node.asstr()[start:stop] if self._text else self._node[start:stop]
        values = np.asarray(values).astype(self.dtype, copy=False)
        values.flags.writeable = False
        return values

    def _plain(self, place: tuple[int, np.dtype], start: int, stop: int) -> np.ndarray:
        """Rows of a contiguous dataset; place : (first byte, dtype as stored)."""
        first, stored = place
        row = stored.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))
        found = _bytes_of(self._told.path, first + row * start, row * max(stop - start, 0)).view(stored)
        values = found.astype(self.dtype, copy=False).reshape(stop - start, *self.shape[1:])
        values.flags.writeable = False
        return values

    def forget(self) -> None:
        """Release the chunk that was read last."""
        self._last = None


def _bytes_of(path: str, first: int, n: int) -> np.ndarray:
    """Bytes of a file, uint8; not from a map, whose bytes change, or are gone, with those of the file.

    Raises DataError where the file has become shorter, ReadFailed.
    """
    found = np.empty(n, np.uint8)
    try:
        with open(open_regular(Path(path)), "rb", buffering=0) as file:
            file.seek(first)
            left = memoryview(found.data)
            while left:
                got = file.readinto(left)
                if not got:
                    raise DataError("the file changed since it was opened", path)
                left = left[got:]
    except OSError as error:
        raise read_failed(path, error) from error
    return found


def _place_of(node: Any, file_size: int) -> tuple[int, np.dtype] | None:
    """(first byte, dtype) of a contiguous dataset in a type of NumPy; None for other datasets."""
    import h5py

    nbytes = node.dtype.itemsize * (node.size or 0)
    if node.chunks is not None or node.dtype.kind not in "iuf":
        return None
    # Data that were never written have no offset, which HDF5 reports like one before a file with a user block.
    first = node.id.get_offset() if nbytes and node.id.get_storage_size() == nbytes else None
    if first is None or node.id.get_type() != h5py.h5t.py_create(node.dtype):
        return None
    return (int(first), node.dtype) if first + nbytes <= file_size and first % node.dtype.alignment == 0 else None


def _own(group: Any, path: str) -> Any:
    """The object at a path in a group.

    Raises KeyError if there is none; DataError for a link to another file, or a broken link, which must not count as
    the absence of, say, weights.
    """
    at = group
    for name in path.strip("/").split("/"):
        link = at.get(name, getlink=True)
        try:
            at = at[name]
        except KeyError:
            if hasattr(link, "path"):
                to = getattr(link, "filename", link.path)
                raise DataError(f"is a link to {to}, which is not there", path) from None
            raise
    if at.file.id != group.file.id:
        raise DataError(f"is a link to another file, {at.file.filename}, whose changes nobody would see", path, _COPY)
    return at


class _Plain:
    """A group of h5py whose attributes have the types of JSON."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self.file = group.file

    @property
    def attrs(self) -> dict[str, Any]:
        return {name: _plain(value) for name, value in self._group.attrs.items()}

    def __contains__(self, path: str) -> bool:
        try:
            _own(self._group, path)
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._group)

    def __getitem__(self, path: str) -> Any:
        node = _own(self._group, path)
        return _PlainArray(node) if hasattr(node, "shape") else _Plain(node)


class _PlainArray(_Plain):
    def __init__(self, node: Any) -> None:
        super().__init__(node)
        self.shape, self.dtype = node.shape, node.dtype


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value.tolist()]
    return value.item() if isinstance(value, np.generic) else value


def _fingerprint(file: File) -> str:
    """xxh3-128 of the bytes of a file, from the cache or by reading them."""
    of = digest_of({"h5": file.known_by})
    name = f"h5-{of}.json"
    found = recall(name, lambda known: str(known["fingerprint"]) if known["of"] == of else None)
    if found is None:
        found = files_fingerprint([file])
        remember(name, {"of": of, "fingerprint": found})
    return found


@opened_once
def reopen(
    uri: str,
    label: str | None,
    weight: str | None,
    task: Task,
    labelled: bool,
    matrix: str | None,
    missing: Missing,
    fingerprint: str,
) -> H5adRows:
    """The store of a pickled H5adRows, opened once per process.  Raises DataError if it changed."""
    with naming(uri):
        store = H5adRows(uri, label=label, weight=weight, task=task, labelled=labelled, matrix=matrix, missing=missing)
    if store.fingerprint != fingerprint:
        raise DataError("the store changed since the run began", uri)
    return store


@contextmanager
def _h5_errors(where: str) -> Iterator[None]:
    """Raise what h5py raises for a damaged file as DataError."""
    try:
        yield
    except BigSVMError:
        raise
    except (OSError, RuntimeError, ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise DataError(f"not an .h5ad file that can be read: {in_words(error)}", where, DAMAGED_HINT) from error
