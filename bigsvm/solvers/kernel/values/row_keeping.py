"""The kernel rows of an open model, with a cache within the memory and disk that the plan gives it."""

from __future__ import annotations

import numpy as np

from bigsvm.solvers.base import Need
from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.values.cached_rows import CachedRows
from bigsvm.solvers.kernel.values.data_rows import DataRows
from bigsvm.store.state.row_cache import RowCache

AT_ONCE = 8  # most missing rows of a sum in memory at a time
_FETCHED = 2  # rows of a step of two variables, which exist twice while they are fetched
CACHE = "kernel row cache"
"""Name of the need that the plan makes as large as memory allows."""


def row_needs(n: int) -> list[Need]:
    """Bytes of the smallest cache, and of rows that are being fetched."""
    row = np.dtype(np.float64).itemsize * n
    return [
        Need(CACHE, RowCache.least_bytes(n, np.float64, disk=True)),
        Need("kernel rows in work", (AT_ONCE + 2 * _FETCHED) * row),
    ]


def keep_rows(rows: DataRows, ctx: Context, keep_sums: bool) -> CachedRows:
    """`rows` with a cache of `ctx.cache_bytes` in memory for those used last, and `ctx.cache_disk_bytes` on disk for
    earlier ones.

    keep_sums : also cache the rows of sums, for solvers that ask only for sums
    """
    disk = ctx.cache_disk_bytes
    least = RowCache.least_bytes(rows.n, rows.dtype, disk > 0)
    cache = RowCache(rows.n, rows.dtype, max(ctx.cache_bytes, least), disk, ctx.workdir, n_rows=rows.n)
    return CachedRows(rows, cache, AT_ONCE, one_scan=not ctx.resident, keep_sums=keep_sums)
