"""Where the rows of a model in work come from: computed, or kept within what the plan gives them."""

from __future__ import annotations

import numpy as np

from bigsvm.solvers.base import Need
from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.values.cached_rows import CachedRows
from bigsvm.solvers.kernel.values.data_rows import DataRows
from bigsvm.store.state.row_cache import RowCache

AT_ONCE = 8  # missing rows of a sum that are in memory together
_FETCHED = 2  # rows of a step of two variables, and as many again as they were computed
CACHE = "kernel row cache"
"""The need that the plan makes as large as memory allows."""


def row_needs(n: int) -> list[Need]:
    """Bytes without which rows cannot be kept: those of the smallest cache, and rows on their way."""
    row = np.dtype(np.float64).itemsize * n
    return [
        Need(CACHE, RowCache.least_bytes(n, np.float64, disk=True)),
        Need("kernel rows in work", (AT_ONCE + 2 * _FETCHED) * row),
    ]


def keep_rows(rows: DataRows, ctx: Context, keep_sums: bool) -> CachedRows:
    """`rows`, those used last kept in `ctx.cache_bytes`, and before them in `ctx.cache_disk_bytes` on disk.

    keep_sums : rows are asked for in sums alone, which are then worth keeping, too
    """
    disk = ctx.cache_disk_bytes
    least = RowCache.least_bytes(rows.n, rows.dtype, disk > 0)
    cache = RowCache(rows.n, rows.dtype, max(ctx.cache_bytes, least), disk, ctx.workdir, n_rows=rows.n)
    return CachedRows(rows, cache, AT_ONCE, one_scan=not ctx.resident, keep_sums=keep_sums)
