"""Bytes of a file, of standard input, or of what a compressed file holds; a file cut short is refused."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Protocol, cast

import numpy as np
import zstandard

from bigsvm.errors import DataError, MissingInput, ReadFailed
from bigsvm.store.text.unpacking import decompressor_of, too_large
from bigsvm.units import KIB, MIB

_MAGIC = ((b"\x1f\x8b", ".gz"), (b"BZh", ".bz2"), (b"\xfd7zXZ\x00", ".xz"), (b"\x28\xb5\x2f\xfd", ".zst"))
COMPRESSED = tuple(suffix for _, suffix in _MAGIC)
"""Suffixes of compressed files."""
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, zstandard.ZstdError)


class _Readable(Protocol):
    def readinto(self, buffer: Any, /) -> int | None: ...


def total_bytes(sources: Sequence[str]) -> int:
    """Sum of the files' sizes in bytes, as they lie; standard input counts 0.

    Raises
    ------
    MissingInput : a file is not there, or is a folder.
    """
    total = 0
    for source in sources:
        if source == "-":
            continue
        try:
            total += os.stat(source).st_size
        except OSError as error:
            raise MissingInput(f"cannot be read: {error.strerror or error}", source) from error
        if os.path.isdir(source):
            raise MissingInput("is a folder, not a text file", source)
    return total


class ByteSource:
    """The decompressed bytes of a path (by its suffix: .gz .bz2 .xz .zst), or of "-"; a context manager.

    A file that changes until its end was read is refused by `fill`: what had been read was half of one and half of
    another.

    Raises
    ------
    MissingInput : the file cannot be opened.
    """

    def __init__(self, source: str) -> None:
        self.name = "<stdin>" if source == "-" else source
        self.consumed = 0
        self._suffix = os.path.splitext(source)[1].lower() if source != "-" else ""
        try:
            self._raw = _standard_input() if source == "-" else io.FileIO(source)
        except OSError as error:
            raise MissingInput(f"cannot be read: {error.strerror or error}", source) from error
        self._owned = source != "-"  # standard input stays open: it is not ours
        self._told = _status(self._raw)
        self._counted = _Counted(self._raw)
        self._file = self._open()
        self._started = False

    def _open(self) -> _Readable:
        file = cast(Any, self._counted)
        if self._suffix == ".gz":
            return cast(_Readable, gzip.GzipFile(fileobj=file, mode="rb"))
        if self._suffix == ".bz2":
            return _Streams(self._counted, bz2.BZ2Decompressor, bounded=True)
        if self._suffix == ".xz":
            return _Streams(self._counted, decompressor_of(self.name, ".xz"), bounded=True, padding=4)
        if self._suffix == ".zst":
            return _Streams(self._counted, decompressor_of(self.name, ".zst"))
        return self._counted

    def fill(self, buffer: np.ndarray) -> int:
        """Read until `buffer` (uint8) is full or the end is reached; returns the bytes read.

        Raises
        ------
        DataError : the compressed content is cut short or damaged, or the file changes
        ReadFailed : the device failed.
        """
        view, done = buffer.data, 0
        try:
            while done < len(view):
                got = self._file.readinto(view[done:])
                if not got:
                    break
                done += got
        except _DAMAGED as error:
            raise self._damaged(error) from error
        except OSError as error:
            if error.errno is None:  # so bz2 says that its content makes no sense
                raise self._damaged(error) from error
            raise ReadFailed(f"reading failed: {error.strerror or error}", self.name) from error
        self.consumed = self._counted.count
        if done < len(view) and _status(self._raw) != self._told:  # the end, of what it was or of what it is
            raise changed_meanwhile(self.name)
        if not self._started:
            self._started = True
            self._look_at(bytes(view[: min(done, 3)]))
        return done

    def _look_at(self, start: bytes) -> None:
        """Refuse what has the name of one thing and the content of another."""
        if self._suffix in (suffix for _, suffix in _MAGIC):
            if self._counted.count == 0:
                raise DataError("an empty file is no compressed file", self.name, "was its writing interrupted?")
            return
        for magic, suffix in _MAGIC:
            if start.startswith(magic[:3]):
                raise DataError(
                    f"compressed, but not named {suffix}",
                    self.name,
                    f"rename it, or unpack it to {self.name}",
                )

    def _damaged(self, error: Exception) -> DataError:
        if (refused := too_large(error, self.name)) is not None:
            return refused
        cut = isinstance(error, EOFError)
        what = "the compressed file ends too early" if cut else f"not a sound {self._suffix} file: {error}"
        return DataError(what, self.name, "was its writing or copying interrupted?")

    def __enter__(self) -> ByteSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._owned:
            self._raw.close()


def changed_meanwhile(name: str) -> DataError:
    """The refusal of a file that is not what it was when its reading began."""
    return DataError("the file changed while it was read", name, "is something still writing it?")


def _status(raw: io.RawIOBase) -> tuple[int, int] | None:
    """Size and time of a file; None of a pipe."""
    try:
        found = os.fstat(raw.fileno())
    except OSError:  # what has no number
        return None
    return (found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


def _standard_input() -> io.RawIOBase:
    # The raw file has no lock: a thread that waits in it cannot hold up the end of the process.
    if sys.stdin is None:  # closed by whoever started us
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    buffer = sys.stdin.buffer
    return cast(io.RawIOBase, getattr(buffer, "raw", buffer))


class _Counted(io.RawIOBase):
    """A raw file that knows how many bytes were read from it."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw, self.count = raw, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        got = self._raw.readinto(buffer) or 0
        self.count += got
        return got


class _Streams:
    """Streams or frames one after the other, each whole and sound.

    Python's own readers of bz2 and xz take a damaged later stream for the end of the file, and zstandard's a frame that
    is cut short for a whole one.

    bounded : `decompress` takes the most that it may give, and says when it needs more
    padding : zeros may follow a stream, a multiple of so many (xz)
    """

    _STEP, _LEAST = 8 * KIB, 128
    _UNPACKED = 1 * MIB  # of a step, where not bounded: the most repetitive content grows thirty thousandfold

    def __init__(
        self, file: io.RawIOBase, decompressor: Callable[[], Any], bounded: bool = False, padding: int = 0
    ) -> None:
        self._file, self._decompressor, self._bounded, self._padding = file, decompressor, bounded, padding
        self._stream: Any = None  # the one that is being read
        self._zeros: int | None = None  # since the last one ended; None before the first
        self._packed, self._ready = b"", memoryview(b"")
        self._step = self._STEP if bounded else self._LEAST

    def readinto(self, buffer: Any, /) -> int:
        while not self._ready:
            hungry = self._stream is None or not self._bounded or self._stream.needs_input
            if hungry and not self._packed:
                self._packed = self._file.read(self._step) or b""
                if not self._packed:
                    if self._stream is not None:
                        raise EOFError
                    self._check_padding()
                    return 0
            self._ready = memoryview(self._unpack(len(buffer)))
        n = min(len(self._ready), len(buffer))
        buffer[:n] = self._ready[:n]
        self._ready = self._ready[n:]
        return n

    def _unpack(self, most: int) -> bytes:
        """Some of the content, which may be none."""
        packed, self._packed = self._packed, b""
        if self._stream is None:
            packed = self._behind_padding(packed)
            if not packed:
                return b""
            self._stream = self._decompressor()
        content: bytes = self._stream.decompress(packed, *([most] if self._bounded else []))
        if not self._bounded:
            fits = len(packed) * self._UNPACKED // max(len(content), 1)
            self._step = max(self._LEAST, min(self._STEP, 4 * self._step, fits))
        if self._stream.eof:
            self._packed, self._stream, self._zeros = self._stream.unused_data, None, 0
        return content

    def _behind_padding(self, packed: bytes) -> bytes:
        if not self._padding or self._zeros is None:
            return packed
        rest = packed.lstrip(b"\0")
        self._zeros += len(packed) - len(rest)
        if rest:
            self._check_padding()
        return rest

    def _check_padding(self) -> None:
        if self._padding and (self._zeros or 0) % self._padding:
            raise lzma.LZMAError(f"{self._zeros} zeros behind a stream, which is no multiple of {self._padding}")
