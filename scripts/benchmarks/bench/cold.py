"""Files out of the page cache, and what the device itself gives."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

_PIECE = 1 << 20


def files_below(folder: Path) -> list[Path]:
    """All files of a folder, sorted by name."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def drop_pages(folder: Path) -> int:
    """Write what is dirty and let every file below leave the page cache; bytes of these files."""
    total = 0
    for path in files_below(folder):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)  # a dirty page does not leave
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            total += os.fstat(handle).st_size
        finally:
            os.close(handle)
    return total


def raw_read(files: Iterable[Path]) -> tuple[int, float]:
    """(bytes, seconds) of reading files from end to end, a MiB at a time, and doing nothing with them."""
    buffer, total = bytearray(_PIECE), 0
    began = time.perf_counter()
    for path in files:
        with open(path, "rb", buffering=0) as file:
            while count := file.readinto(buffer):
                total += count
    return total, time.perf_counter() - began
