"""Arrays in NumPy's file format: read safely from several threads, and written so that a full disk is told as one.

NumPy parses headers with Python's parser.  In Python 3.11 that parser has one depth counter for all threads.  If a
garbage collection runs Python code during a parse (as Dask's workers do), another thread may start to parse, and the
first one fails with a SystemError that says nothing about its header.
"""

from __future__ import annotations

import tokenize
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar

import numpy as np

from bigsvm.errors import in_words

_Read = TypeVar("_Read")

_TRIES = 100
"""Attempts to parse one header; even threads that only parse collide in about one parse of a thousand."""

_NO_HEADER = (EOFError, tokenize.TokenError, SyntaxError, TypeError, OverflowError, RecursionError)
"""What NumPy raises for a damaged header beside ValueError; it also reads headers as Python 2 wrote them."""


def parsed(read: Callable[[], _Read]) -> _Read:
    """Call `read`, which parses a header, and repeat it if another thread disturbed it.

    Raises what `read` raises, or the SystemError if it came `_TRIES` times; ValueError where there is no valid header.
    """
    for attempt in range(_TRIES):
        try:
            return read()
        except SystemError:
            if attempt == _TRIES - 1:
                raise
        except _NO_HEADER as error:
            raise ValueError(f"not the header of an array: {in_words(error)}") from error
    raise AssertionError


def load_array(path: Path, mapped: bool = True) -> np.ndarray:
    """The array of a .npy file, as a read-only map or in memory.  Python objects are refused.

    Raises OSError if the file cannot be read, ValueError and others if it is not a plain array.
    """
    return parsed(lambda: np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False))


def load_arrays(file: BinaryIO) -> dict[str, np.ndarray]:
    """The arrays of a .npz, in memory.  Python objects are refused.  Raises what np.load, zipfile and zlib raise."""
    with np.load(file, allow_pickle=False) as held:
        return {name: parsed(partial(held.__getitem__, name)) for name in held.files}


def write_array(file: BinaryIO, array: np.ndarray) -> None:
    """Write an array as `np.save` does, to the same bytes.  Raises OSError with the reason.

    `np.save` leaves files to C, and where a disk becomes full it raises an OSError without an error number.
    """
    header = {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_1_0(file, header)
    file.write(np.ascontiguousarray(array).data)


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """(shape, whether column-major, dtype) from the header of an array at the start of a seekable file.

    Leaves the file at the first byte of the array.  Raises ValueError if there is no valid header.
    """

    def read() -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
        file.seek(0)
        version = np.lib.format.read_magic(file)
        first = version == (1, 0)
        return (np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0)(file)

    return parsed(read)
