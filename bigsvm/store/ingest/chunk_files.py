"""Writing the chunks of a Zarr v3 array one after another, each once and complete."""

from __future__ import annotations

import os
import shutil
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numcodecs.blosc import BITSHUFFLE, Blosc

from bigsvm.errors import UsageError
from bigsvm.files.space import cannot_write
from bigsvm.store.sealing.manifest import digest

CODECS = ("lz4", "zstd", "none")
DEFAULT_CHUNK_BYTES = 4 << 20
"""Below about 1 Mi elements the costs of each chunk dominate; docs/measurements.md 10.1."""


def compressor(codec: Any, itemsize: int) -> tuple[Blosc | None, tuple[Any, ...]]:
    """(encoder or None, value of `compressors` for zarr's create_array) for the name of a codec."""
    from zarr.codecs import BloscCodec

    if codec == "none":
        return None, ()
    clevel = {"lz4": 5, "zstd": 3}[codec]
    encoder = Blosc(cname=codec, clevel=clevel, shuffle=BITSHUFFLE)
    return encoder, (BloscCodec(typesize=itemsize, cname=codec, clevel=clevel, shuffle="bitshuffle"),)


class ChunkFiles:
    """Writes the chunk files of a 1-D array, or of a 2-D array cut into rows, by `append`.

    It holds one chunk.  Chunk files are written to `root/path/c/...`; `create` writes the metadata at the end, when the
    length is known.  An array shorter than a chunk becomes a single chunk of exactly its length.
    """

    def __init__(
        self, root: Path, path: str, dtype: np.dtype, codec: str, chunk_bytes: int, width: int | None = None
    ) -> None:
        if codec not in CODECS:
            raise UsageError(f"unknown codec {codec!r}", hint=f"one of {', '.join(CODECS)}")
        self.path, self.dtype, self.codec, self.width = path, np.dtype(dtype).newbyteorder("<"), codec, width
        row_bytes = self.dtype.itemsize * (1 if width is None else max(width, 1))
        self.chunk_rows = max(chunk_bytes // row_bytes, 1)
        self.length = 0
        self.nbytes = 0
        self._root = root
        self._encoder, self._compressors = compressor(codec, self.dtype.itemsize)
        self._buffer: np.ndarray | None = None
        self._filled = 0
        self._digests = array("Q")
        self._has_folder = False

    @classmethod
    def at(
        cls, root: Path, path: str, dtype: np.dtype, codec: str, chunk_rows: int, width: int | None = None
    ) -> ChunkFiles:
        """A ChunkFiles with the given number of rows in a chunk, for `encoded` on a worker."""
        files = cls(root, path, dtype, codec, 1, width)
        files.chunk_rows = chunk_rows
        return files

    def encoded(self, chunk: Any, number: int, target: Path) -> tuple[int, str]:
        """Write a whole chunk as the file `target`, for `take_over`; returns (bytes, digest) for the chunk `number`."""
        content: Any = memoryview(chunk).cast("B") if self._encoder is None else self._encoder.encode(chunk)
        _written(target, content)
        return len(content), digest(self._key(number), content)

    def take_over(self, source: Path, nbytes: int, hexdigest: str) -> None:
        """Take the file `source` as the next chunk, by moving it to its place."""
        assert self._filled == 0, "the rows before this chunk do not fill a chunk"
        target = self._root / self._key(len(self._digests) // 2)
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
        self._take(int(hexdigest, 16))
        self.nbytes += nbytes
        self.length += self.chunk_rows

    def resume(self, length: int, chunk_rows: int, digests: Iterable[str], rest: np.ndarray) -> None:
        """Continue an array that was written before, and whose last chunk may not be full.

        length : present length of the array;  chunk_rows : rows of its chunks
        digests : digests of its full chunks, which stay as they are;  rest : the values after them
        """
        self.chunk_rows = chunk_rows
        for hexdigest in digests:
            self._take(int(hexdigest, 16))
        self.append(rest)
        self.length = length

    def append(self, values: np.ndarray) -> None:
        """Append values, shape (n,) or (n, width); n may be any number."""
        start = 0
        while start < len(values):
            n = min(len(values) - start, self.chunk_rows - self._filled)
            piece = values[start : start + n]
            start += n
            if n == self.chunk_rows:
                self._write(np.ascontiguousarray(piece, self.dtype))
                continue
            if self._buffer is None:
                self._buffer = np.zeros(self._shape(self.chunk_rows), self.dtype)
            self._buffer[self._filled : self._filled + n] = piece
            self._filled += n
            if self._filled == self.chunk_rows:
                self._write(self._buffer)
                self._filled = 0
        self.length += len(values)

    def flush(self) -> None:
        """Write the last chunk, padded with zeros; or, if it is the only chunk, cut to its length."""
        if self._filled and self._buffer is not None:
            if not self._digests:
                self.chunk_rows = self._filled
                self._buffer = self._buffer[: self._filled]
            self._buffer[self._filled :] = 0
            self._write(self._buffer)
        self._buffer, self._filled = None, 0

    def create(self, group: Any, **attributes: Any) -> None:
        """Write the metadata of the array below the zarr group `group` of the same root; call `flush` before."""
        # Metadata only: the chunks exist already, and zarr must not write any.
        group.create_array(
            self.path, shape=self._shape(self.length), chunks=self._shape(self.chunk_rows), dtype=self.dtype,
            compressors=self._compressors, filters=(), fill_value=0, attributes=attributes,
            config={"write_empty_chunks": True},
        )  # fmt: skip

    def digests(self) -> Iterator[tuple[str, str]]:
        """(key, digest) of every chunk, in order."""
        words = self._digests
        for number in range(len(words) // 2):
            yield self._key(number), f"{words[2 * number]:016x}{words[2 * number + 1]:016x}"

    def read_back(self) -> Iterator[np.ndarray]:
        """The values written so far, one chunk at a time; call `flush` before."""
        left = self.length
        for number in range(len(self._digests) // 2):
            text = (self._root / self._key(number)).read_bytes()
            values = np.frombuffer(text if self._encoder is None else self._encoder.decode(text), self.dtype)
            yield values[: min(left, self.chunk_rows)]
            left -= self.chunk_rows

    def move(self, path: str) -> None:
        """Move the chunk files written so far to another path below the root."""
        if self._digests:  # there is no folder before the first chunk
            (self._root / self.path).rename(self._root / path)
        self.path = path

    def remove(self) -> None:
        """Delete the chunk files."""
        if self._digests:
            shutil.rmtree(self._root / self.path)

    def _shape(self, rows: int) -> tuple[int, ...]:
        rows = max(rows, 0)
        return (rows,) if self.width is None else (rows, self.width)

    def _key(self, number: int) -> str:
        return f"{self.path}/c/{number}" + ("" if self.width is None else "/0")

    def _write(self, chunk: Any) -> None:
        key = self._key(len(self._digests) // 2)
        target = self._root / key
        content: Any = memoryview(chunk).cast("B") if self._encoder is None else self._encoder.encode(chunk)
        if self.width is not None or not self._has_folder:
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise cannot_write(target, error, len(content)) from error
            self._has_folder = True
        _written(target, content)
        self._take(int(digest(key, content), 16))
        self.nbytes += len(content)

    def _take(self, number: int) -> None:
        self._digests.extend((number >> 64, number & 0xFFFF_FFFF_FFFF_FFFF))


def _written(target: Path, content: Any) -> None:
    """Write a new file.  Raises OutputError."""
    try:
        with open(target, "xb", buffering=0) as file:
            written = file.write(content)
            while written < len(content):  # a raw write near a size limit is short first, and fails only when repeated
                written += file.write(memoryview(content)[written:])
            if hasattr(os, "posix_fadvise"):  # start writing to the disk now, instead of when everything is flushed
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError as error:
        raise cannot_write(target, error, len(content)) from error
