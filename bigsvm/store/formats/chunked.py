"""Reading rows of one Zarr array chunk by chunk; every chunk is compared with the manifest.

There are three ways, with the same result.  Of uncompressed chunks only the rows asked for are read, if they are not
small.  Common compressors are decoded here, directly into the result.  Everything else (shards, filters, several chunks
across) goes through zarr.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zstandard
from numcodecs.blosc import Blosc

from bigsvm.errors import BigSVMError, DataError
from bigsvm.files.atomic import read_bytes, read_unlinked
from bigsvm.files.file_array import changes_are_seen
from bigsvm.files.paths import local_path, unlinked_path
from bigsvm.store.formats.tables.block_memory import BlockMemory
from bigsvm.store.sealing.former import verified
from bigsvm.store.sealing.manifest import Manifest, read_failed
from bigsvm.store.sealing.raw_chunks import RawChunks

_MAX_UNIT_BYTES = 1 << 36
_SMALL_BYTES = 1 << 14  # size up to which an uncompressed chunk is read whole, since a call costs more than its bytes
_LARGE_BYTES = 1 << 18  # size from which the memory of a result is reused for the next one
ALLOWED_CODECS = frozenset({
    "bytes", "blosc", "zstd", "gzip", "zlib", "lz4", "bz2", "lzma",
    "shuffle", "crc32c", "transpose", "vlen-utf8", "sharding_indexed",
})  # fmt: skip
"""Codecs that only compute; all others, such as pickle, are refused by name."""


class ChunkedArray:
    """Rows [a, b) of a zarr array as read-only NumPy arrays; thread-safe.

    raw : whether chunks are uncompressed, so that a part of one can be read
    chunk_nbytes : decoded bytes of the unit that is decoded at once; 0 if chunks are uncompressed

    It keeps one decoded unit, or small chunk: the one in which the last read ended, because the next read begins there.
    """

    def __init__(self, array: Any, path: str, root: Path, manifest: Manifest) -> None:
        self.path, self.shape = path, tuple(array.shape)
        self.dtype = array.dtype.newbyteorder("=") if array.dtype.kind in "iuf" else array.dtype
        self._array, self._root, self._manifest = array, root, manifest
        self._root_name = os.fspath(root)
        metadata = array.metadata.to_dict()
        codecs = _codec_names(metadata)
        for name in codecs:
            if name not in ALLOWED_CODECS:
                raise DataError(f"codec {name!r} is not one that bigsvm will run", path, "store it with blosc or zstd")
        unit = array.shards or array.chunks
        self.unit_rows = int(unit[0]) if unit else 1
        if 0 in (unit or ()) and 0 not in self.shape:
            raise DataError(f"chunks of shape {tuple(unit)} hold nothing", path)
        width = int(np.prod(self.shape[1:], dtype=np.int64))
        self._one_across = bool(unit) and tuple(unit[1:]) == self.shape[1:]
        self._unit_bytes = self.unit_rows * width * self.dtype.itemsize
        self._decoder, self.raw = self._choose_decoder(metadata)
        self.chunk_nbytes = 0 if self.raw else self._unit_bytes
        if self.chunk_nbytes > _MAX_UNIT_BYTES:
            raise DataError(f"chunks of {self._unit_bytes} bytes", path, "store it again with chunks of a few MiB")
        self._memory = BlockMemory()
        self._last: tuple[int, np.ndarray] | None = None
        self._chunks = RawChunks(root, manifest, self._unit_bytes, self._key)
        self._in_parts = self.raw and self._unit_bytes > _SMALL_BYTES

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop), read-only.

        Raises
        ------
        DataError : a chunk is missing, damaged or exchanged (names its key), or cannot be decoded.
        ReadFailed : the device failed.
        """
        if stop <= start:
            return _frozen(np.empty((0, *self.shape[1:]), self.dtype))
        first, last = start // self.unit_rows, (stop - 1) // self.unit_rows
        if first == last and not self._in_parts:
            offset = first * self.unit_rows
            return self._unit(first)[start - offset : stop - offset]
        out = self._room("rows", stop - start)
        for number in range(first, last + 1):
            offset = number * self.unit_rows
            a, b = max(start, offset), min(stop, offset + self.unit_rows)
            target = out[a - start : b - start]
            if self._in_parts:
                self._read_part(number, a - offset, target)
            elif self._decoder is not None and not self.raw and b - a == self.unit_rows and not self._holds(number):
                self._decode(number, target)
            else:
                target[...] = self._unit(number)[a - offset : b - offset]
        return _frozen(out)

    def forget(self) -> None:
        """Release the chunk that was read last, and the memory for the next ones."""
        self._last = None
        self._memory.forget()

    def _room(self, name: str, n_rows: int) -> np.ndarray:
        """An uninitialised array for rows; a large numeric one reuses the memory of the last one, if that is free."""
        nbytes = n_rows * (self._unit_bytes // self.unit_rows)
        if nbytes < _LARGE_BYTES or self.dtype.kind not in "biuf":
            return np.empty((n_rows, *self.shape[1:]), self.dtype)
        return self._memory.array(name, (n_rows, *self.shape[1:]), self.dtype)

    def _holds(self, number: int) -> bool:
        last = self._last
        return last is not None and last[0] == number

    def _unit(self, number: int) -> np.ndarray:
        """All rows of one chunk, or of one shard."""
        last = self._last
        if last is not None and last[0] == number:
            return last[1]
        if self.raw:
            small = self._read_small(number)
            self._last = (number, small)
            return small
        last = self._last = None  # free it first, so that two chunks are never held at a time
        if self._decoder is not None:
            values = self._decoded(number)
        else:
            values = self._through_zarr(number)
        self._last = (number, _frozen(values))  # one assignment: other threads see either the old or the new pair
        return values

    def _read_small(self, number: int) -> np.ndarray:
        """All rows of a small uncompressed chunk; special cases take the way of large ones."""
        key = self._key(number)
        path = unlinked_path(self._root_name, key)
        began = time.time_ns()
        found = None if path is None else read_unlinked(path, self._unit_bytes)
        if found is not None and not self._chunks.is_verified(number, found[1]):
            try:
                self._manifest.verify(key, found[0])
                if changes_are_seen(found[1], began):
                    self._chunks.remember(number, found[1])
            except DataError:
                found = None
        if found is not None:
            return np.frombuffer(found[0], self.dtype).reshape(self.unit_rows, *self.shape[1:])
        values = np.empty((self.unit_rows, *self.shape[1:]), self.dtype)
        self._read_part(number, 0, values)
        return _frozen(values)

    def _read_part(self, number: int, first: int, out: np.ndarray) -> None:
        """Read rows of an uncompressed chunk, from row `first` of the chunk on, to `out`, which is contiguous."""
        start = first * (self._unit_bytes // self.unit_rows)
        if not self._chunks.read(number, start, out.reshape(-1).view(np.uint8).data):
            out[...] = self._filled()[: len(out)]

    def _decode(self, number: int, out: np.ndarray) -> None:
        """Decode one chunk into `out`, which is contiguous and exactly as large."""
        content = self._content(number)
        if content is None:
            out[...] = self._filled()
            return
        self._decoder(content, out, self._key(number))

    def _decoded(self, number: int) -> np.ndarray:
        """One decoded chunk.  Memory is allocated only if the chunk can fill it, whatever the metadata claim."""
        content = self._content(number)
        if content is None:
            return self._filled()
        if not _MAY_HOLD[self._decoder](content, self._unit_bytes):
            raise _cannot_decode(self._key(number), f"does not hold {self._unit_bytes} bytes")
        values = self._room("unit", self.unit_rows)
        self._decoder(content, values, self._key(number))
        return values

    def _content(self, number: int) -> bytes | None:
        """The verified stored bytes of one chunk; None for an absent chunk."""
        key = self._key(number)
        try:
            content: bytes | None = read_bytes(local_path(self._root, key))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            content = None
        except OSError as error:
            raise read_failed(key, error) from error
        return verified(self._root, self._manifest, key, content)

    def _through_zarr(self, number: int) -> np.ndarray:
        start = number * self.unit_rows
        try:
            values = np.asarray(self._array[start : min(start + self.unit_rows, len(self))])
        except (BigSVMError, MemoryError):
            raise
        except Exception as error:  # decoders raise many kinds of errors without a common base
            raise DataError(f"rows from {start} cannot be decoded: {error}", self.path) from error
        return values.astype(self.dtype, copy=False)

    def _filled(self) -> np.ndarray:
        fill = 0 if self._array.fill_value is None else self._array.fill_value
        return np.broadcast_to(np.asarray(fill, self.dtype), (self.unit_rows, *self.shape[1:]))

    def _key(self, number: int) -> str:
        place = (number,) + (0,) * (len(self.shape) - 1)
        key = self._array.metadata.encode_chunk_key(place)
        return f"{self.path}/{key}" if self.path else key

    def _choose_decoder(self, metadata: dict[str, Any]) -> tuple[Any, bool]:
        """(numcodecs decoder, or None for zarr's own way; whether chunks are uncompressed and can be read in parts)."""
        if not self._one_across or not self.shape or self.dtype.kind not in "biuf":
            return None, False
        if metadata["zarr_format"] == 2:
            little = np.dtype(self._array.dtype).newbyteorder("<") == np.dtype(self._array.dtype)
            if metadata["filters"] or not little or (metadata["order"] != "C" and len(self.shape) > 1):
                return None, False
            config = metadata["compressor"]
            if config is None:
                return None, True
            config = config if isinstance(config, dict) else config.get_config()
            return _DECODERS.get(config["id"]), False
        codecs = metadata["codecs"]
        if self._array.shards or codecs[0]["name"] != "bytes" or len(codecs) > 2:
            return None, False
        if self.dtype.itemsize > 1 and codecs[0].get("configuration", {}).get("endian") != "little":
            return None, False
        if len(codecs) == 1:
            return None, True
        return _DECODERS.get(codecs[1]["name"]), False


def _blosc_may_hold(content: bytes, nbytes: int) -> bool:
    """Whether the header of a chunk is consistent with this decoded size."""
    return len(content) >= 16 and struct.unpack_from("<I", content, 4)[0] == nbytes


def _zstd_may_hold(content: bytes, nbytes: int) -> bool:
    """The same; if a frame does not record its size, four bytes of it make at most 128 KiB."""
    try:
        told = zstandard.frame_content_size(content)
    except zstandard.ZstdError:
        return False
    return told == nbytes if told >= 0 else nbytes <= len(content) << 15


def _deflate_may_hold(content: bytes, nbytes: int) -> bool:
    """The same; a byte of deflate makes at most 1032 bytes."""
    return nbytes <= 1032 * len(content)


def _decode_blosc(content: bytes, out: np.ndarray, key: str) -> None:
    # The decoder would accept a chunk that is shorter than its header says, and leave the rest of `out` unset, so the
    # header is compared with the known size.
    decoded, _, encoded = struct.unpack_from("<III", content, 4) if len(content) >= 16 else (0, 0, 0)
    if (decoded, encoded) != (out.nbytes, len(content)):
        raise _cannot_decode(key, f"does not hold {out.nbytes} bytes")
    try:
        _BLOSC.decode(content, out.reshape(-1).view(np.uint8))
    except (ValueError, RuntimeError) as error:
        raise _cannot_decode(key, str(error)) from error


def _decode_zstd(content: bytes, out: np.ndarray, key: str) -> None:
    try:
        values = zstandard.ZstdDecompressor().decompress(content, max_output_size=out.nbytes)
    except (zstandard.ZstdError, MemoryError) as error:
        raise _cannot_decode(key, str(error)) from error
    if len(values) != out.nbytes:
        raise _cannot_decode(key, f"holds {len(values)} bytes, not {out.nbytes}")
    out.reshape(-1).view(np.uint8)[:] = np.frombuffer(values, np.uint8)


def _decode_deflate(content: bytes, out: np.ndarray, key: str) -> None:
    inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        values = inflater.decompress(
            content, out.nbytes + 1
        )  # limited to one byte more than expected, so that a small chunk cannot expand to gigabytes
    except zlib.error as error:
        raise _cannot_decode(key, str(error)) from error
    if len(values) != out.nbytes or not inflater.eof:
        raise _cannot_decode(key, f"does not hold {out.nbytes} bytes")
    out.reshape(-1).view(np.uint8)[:] = np.frombuffer(values, np.uint8)


def _cannot_decode(key: str, why: str) -> DataError:
    return DataError(f"chunk cannot be decoded: {why}", key, "restore it, or ingest the store again")


_BLOSC = Blosc()
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
_MAY_HOLD: dict[Any, Callable[[bytes, int], bool]] = {
    _decode_blosc: _blosc_may_hold, _decode_zstd: _zstd_may_hold, _decode_deflate: _deflate_may_hold,
}  # fmt: skip
_DECODERS = {"blosc": _decode_blosc, "zstd": _decode_zstd, "gzip": _decode_deflate, "zlib": _decode_deflate}


def _codec_names(metadata: dict[str, Any]) -> list[str]:
    """Names of all codecs of an array, including those inside shards."""
    if metadata["zarr_format"] == 2:
        found = [*(metadata["filters"] or ()), *([metadata["compressor"]] if metadata["compressor"] else [])]
        return [str((c if isinstance(c, dict) else c.get_config())["id"]) for c in found]
    names = []
    pending = list(metadata["codecs"])
    while pending:
        codec = pending.pop()
        names.append(str(codec["name"]))
        if codec["name"] == "sharding_indexed":
            pending += [*codec["configuration"]["codecs"], *codec["configuration"]["index_codecs"]]
    return names


def _frozen(values: np.ndarray) -> np.ndarray:
    values.flags.writeable = False
    return values
