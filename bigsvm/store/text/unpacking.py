"""How much memory it takes to unpack a compressed file, which is for whoever packed it to say.

A stream of .zst or .xz refers back to as many bytes of its content as its *window* has, and whoever unpacks it keeps
them: 2 MiB where zstd chose, 128 MiB after `zstd --long`, 8 MiB where xz chose, and 64 MiB after `xz -9`.
"""

from __future__ import annotations

import lzma
import os
import stat
from collections.abc import Callable, Sequence
from typing import Any

import zstandard

from bigsvm.errors import DataError
from bigsvm.units import KIB, MIB, show_bytes

USUAL = 9 * MIB
"""What files packed without an option of their own need at most."""
_OF_SUFFIX = {".gz": 64 * KIB, ".bz2": 4 * MIB}
"""Of formats whose files are all alike: bzip2 takes 4 bytes for each of the 900,000 that it unpacks at a time."""
_LARGEST = 1 << 31
"""The largest window that zstd makes."""
_HEAD = 256
"""Bytes at the front of a stream that say how large its window is."""
_OVER = 192 * KIB
"""What xz counts besides its window."""
_SKIPPED = 0x184D2A50
"""zstd's frames without content begin with this number, or one of the fifteen that follow."""


def unpacking_bytes(sources: str | Sequence[str]) -> int:
    """Bytes that unpacking one file after another holds at most, as each says at its front; 0 where none is compressed.

    A file that cannot be read, or is none of these, counts 0: whoever reads it says what is wrong.
    """
    return max((_of_file(path) for path in ([sources] if isinstance(sources, str) else sources)), default=0)


def decompressor_of(path: str, suffix: str) -> Callable[[], Any]:
    """What makes a decompressor for each stream of a .zst or .xz file, of no larger window than `unpacking_bytes` says.

    A later stream may need `USUAL` where the first one needs less.
    """
    most = max(USUAL, _of_file(path))
    if suffix == ".xz":
        return lambda: lzma.LZMADecompressor(memlimit=most)
    return lambda: zstandard.ZstdDecompressor(max_window_size=min(most, _LARGEST)).decompressobj()


def too_large(error: Exception, name: str) -> DataError | None:
    """The refusal of a stream whose window is larger than that of the first one; None for any other error."""
    if "Memory usage limit" in str(error) or "too much memory" in str(error):
        what = "a later part of the file takes more memory to unpack than its first one"
        return DataError(f"{what}, and more than {show_bytes(USUAL)}", name, "unpack it first")
    return None


def _of_file(path: str) -> int:
    suffix = os.path.splitext(path)[1].lower()
    if suffix in _OF_SUFFIX:
        return _OF_SUFFIX[suffix]
    if suffix not in (".zst", ".xz"):
        return 0
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # what is read of a pipe is gone
            return USUAL
        with open(path, "rb") as file:
            return (_window_of_zst if suffix == ".zst" else _window_of_xz)(file)
    except (OSError, zstandard.ZstdError, lzma.LZMAError):
        return 0


def _window_of_zst(file: Any) -> int:
    head = file.read(_HEAD)
    while len(head) >= 8 and int.from_bytes(head[:4], "little") & ~0xF == _SKIPPED:
        file.seek(int.from_bytes(head[4:8], "little") + 8 - len(head), os.SEEK_CUR)
        head = file.read(_HEAD)
    window: int = zstandard.get_frame_parameters(head).window_size
    return window + 2 * 128 * KIB  # and the blocks that come in and go out


def _window_of_xz(file: Any) -> int:
    head = file.read(_HEAD)
    for power in range(12, 32) if head else ():
        for window in (1 << power, 3 << (power - 1)):
            try:
                lzma.LZMADecompressor(memlimit=window + _OVER).decompress(head, 1)
            except lzma.LZMAError as error:
                if "Memory usage limit" in str(error):
                    continue
                raise
            return window + _OVER
    return 0
