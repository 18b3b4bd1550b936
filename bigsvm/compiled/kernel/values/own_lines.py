"""Arrays that begin with a cache line, and share none with another's.

A vector that lies across two lines takes two loads, and a line that two threads write goes back and forth between their
cores: small arrays of several threads, as an allocator places them, made two threads a quarter slower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

_LINES = 128  # bytes: processors fetch lines by twos


def zeros_on_own_lines(shapes: Sequence[tuple[int, ...]], dtypes: Sequence[np.dtype | type]) -> list[np.ndarray]:
    """Arrays of zeros in one piece of memory, each from a line's first byte on."""
    sizes = [math.prod(shape) * np.dtype(kind).itemsize for shape, kind in zip(shapes, dtypes, strict=True)]
    steps = [-(-size // _LINES) * _LINES for size in sizes]
    room = np.zeros(sum(steps) + _LINES, np.uint8)
    at, made = -room.ctypes.data % _LINES, []
    for shape, kind, size, step in zip(shapes, dtypes, sizes, steps, strict=True):
        made.append(room[at : at + size].view(kind).reshape(shape))
        at += step
    return made
