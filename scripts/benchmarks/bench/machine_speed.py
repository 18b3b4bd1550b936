"""What the machine does just now, to stand beside a figure: neighbours empty caches and share the disk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

_GATHERED = 1 << 22  # numbers, of an array larger than any core's own cache
_READ = 1 << 26  # bytes of a file at most
_PIECE = 1 << 20


class Speed(NamedTuple):
    """gather_ns : of one number at a random place of 64 MiB;  memory_gb_s : of a sum over them
    disk_mb_s : of a file that is not in the page cache; nan where there is none
    """

    gather_ns: float
    memory_gb_s: float
    disk_mb_s: float

    def __str__(self) -> str:
        return f"gathers {self.gather_ns:.1f} ns, memory {self.memory_gb_s:.1f} GB/s, disk {self.disk_mb_s:.0f} MB/s"


def machine_speed(folder: Path) -> Speed:
    """Measure for half a second or so; `folder` has a file that lies on the disk in question."""
    numbers = np.ones(1 << 23)
    places = np.random.default_rng(0).integers(0, len(numbers), _GATHERED)
    gather_s = _seconds(lambda: numbers[places].sum())
    sum_s = _seconds(lambda: numbers.sum())
    return Speed(gather_s / _GATHERED * 1e9, numbers.nbytes / sum_s / 1e9, _disk(folder))


def _seconds(work: Callable[[], object]) -> float:
    work()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _disk(folder: Path) -> float:
    files = [path for path in folder.rglob("*") if path.is_file()]
    if not files:
        return float("nan")
    largest = max(files, key=lambda path: path.stat().st_size)
    fd = os.open(largest, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        began, size = time.perf_counter(), 0
        while size < _READ and (piece := os.read(fd, _PIECE)):
            size += len(piece)
        return size / max(time.perf_counter() - began, 1e-9) / 1e6
    finally:
        os.close(fd)
