"""Arrays that begin at a cache line and share no cache line with other arrays.

A vector that crosses the border of two lines takes two loads, and a line to which two threads write is passed back and
forth between their cores.  With small arrays where an allocator places them, two threads were a quarter slower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

_LINES = 128  # bytes of two cache lines, because processors fetch them in pairs


def zeros_on_own_lines(shapes: Sequence[tuple[int, ...]], dtypes: Sequence[np.dtype | type]) -> list[np.ndarray]:
    """Arrays of zeros with these shapes and dtypes, in one piece of memory; each begins at a multiple of 128 bytes."""
    sizes = [math.prod(shape) * np.dtype(kind).itemsize for shape, kind in zip(shapes, dtypes, strict=True)]
    steps = [-(-size // _LINES) * _LINES for size in sizes]
    room = np.zeros(sum(steps) + _LINES, np.uint8)
    at, made = -room.ctypes.data % _LINES, []
    for shape, kind, size, step in zip(shapes, dtypes, sizes, steps, strict=True):
        made.append(room[at : at + size].view(kind).reshape(shape))
        at += step
    return made
