"""Kernel values as solvers ask for them: whole rows, small blocks, and sums of rows that nobody stores."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass
class KernelCounts:
    """Work: rows of kernel values by where they came from, and single values computed (KO).

    asked : values that were asked for, whether computed or kept: the same with any cache, so that a solver may go by
        it; steps among few rows whose values are at hand count a little, too (`active_rows.py`)
    """

    computed: int = 0
    ram_hits: int = 0
    disk_hits: int = 0
    values: int = 0
    asked: int = 0
    reading: Callable[[np.ndarray], AbstractContextManager[None]] = lambda idx: nullcontext()
    """While rows idx are made or found, counts what they would have read without a cache (`ReadAccount.asking`)."""


class KernelRows(Protocol):
    """K of the rows of one `DualQP`, by their positions in it.

    Values are those of float32 or float64 arithmetic (`dtype`); the same call gives the same bits, cached or not.
    """

    n: int
    dtype: np.dtype
    counts: KernelCounts

    @property
    def diag(self) -> np.ndarray:
        """float64, (n,), K_ii exactly."""
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
        """f += sum_k change_k K[k, :] of rows that were fetched: to the bits of `update`, which may fuse a product."""
        ...
