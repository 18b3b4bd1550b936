"""The interface by which solvers ask for kernel values: whole rows, small blocks, and sums of rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass
class KernelCounts:
    """Counts of kernel rows by where they came from, and of single values.

    computed, ram_hits, disk_hits : rows computed, found in memory, and found on disk
    values : single values computed (the kernel operations of papers)
    asked : values that were asked for, computed or from a cache.  It is the same with every cache, so a solver may
        depend on it.  Steps within a small matrix are included, at a lower rate (`block_smo.py`)
    """

    computed: int = 0
    ram_hits: int = 0
    disk_hits: int = 0
    values: int = 0
    asked: int = 0
    reading: Callable[[np.ndarray], AbstractContextManager[None]] = lambda idx: nullcontext()
    """A context in which rows idx are computed or found: counts what would be read without a cache
    (`ReadAccount.asking`)."""


class KernelRows(Protocol):
    """Kernel rows of one `DualQP`, by positions in it.

    Values are in float32 or float64 (`dtype`).  The same call gives the same bits, from a cache or not.
    """

    n: int
    dtype: np.dtype
    counts: KernelCounts

    @property
    def diag(self) -> np.ndarray:
        """K_ii, float64, (n,), without the rounding of `dtype`."""
        ...

    def fetch(self, idx: np.ndarray) -> np.ndarray:
        """Rows idx (distinct) of K, (len(idx), n), read-only; at most one scan of the data for all of them."""
        ...

    def block(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """K[a, b], (len(a), len(b))."""
        ...

    def update(self, f: np.ndarray, idx: np.ndarray, change: np.ndarray) -> None:
        """f += sum_k change_k K[idx_k, :], in the order of idx, summed in float64; at most one scan of the data."""
        ...

    def add(self, f: np.ndarray, K: np.ndarray, change: np.ndarray) -> None:
        """f += sum_k change_k K[k, :] for fetched rows K, with the bits of `update` (both may fuse products)."""
        ...
