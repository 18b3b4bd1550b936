"""Arrays in NumPy's file format, read from any thread of a process.

NumPy has Python's parser read a header.  In Python 3.11 that parser keeps one count of depths for all threads of a
process.  Where a garbage collection calls Python code meanwhile (Dask's workers have it do so), another thread may
parse before the first is done, and the first ends with a SystemError that says nothing of its text.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar

import numpy as np

_Read = TypeVar("_Read")

_TRIES = 100
"""Of one header.  A collision is one parse of a thousand where threads do nothing but parse."""


def parsed(read: Callable[[], _Read]) -> _Read:
    """What `read` gives, which has a header parsed; it is asked again where other threads got in its way.

    Raises what `read` raises; SystemError if that is what it says `_TRIES` times.
    """
    for _ in range(_TRIES - 1):
        try:
            return read()
        except SystemError:
            continue
    return read()


def load_array(path: Path, mapped: bool = True) -> np.ndarray:
    """The array of a .npy file: a read-only map, or in memory.  Python objects are refused.

    Raises OSError for a file that cannot be read, ValueError and its like for one that is no plain array.
    """
    return parsed(lambda: np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False))


def load_arrays(file: BinaryIO) -> dict[str, np.ndarray]:
    """The arrays of a .npz, in memory.  Python objects are refused.  Raises what np.load does, or zipfile or zlib."""
    with np.load(file, allow_pickle=False) as held:
        return {name: parsed(partial(held.__getitem__, name)) for name in held.files}


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether column-major, and dtype of an array at the start of a file that can seek.

    The file is left at the array's first byte.  Raises ValueError for what is no such header.
    """

    def read() -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
        file.seek(0)
        version = np.lib.format.read_magic(file)
        first = version == (1, 0)
        return (np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0)(file)

    return parsed(read)
