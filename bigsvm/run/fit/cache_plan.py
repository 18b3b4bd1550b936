"""Memory and disk space for the cache of kernel rows.  It changes how often rows are computed, not the model.

Memory: as asked with --cache-memory, else all that the budget leaves, but no more than all rows of K take.
Disk: only if a row of K takes longer to compute than to read (docs/measurements.md 7.4).  That is so for dense data
with at least 250 features, for sparse data with more than 100 non-zeros a row, and for data that stream if the scan
that computes a row reads more bytes than the row has.  Solvers that use the cache compute one or two rows at a time,
which takes about 1 ns for each feature and value; reading takes 5 to 10 ns a value, and some 0.1 ms a row.  So disk
pays from rows of 20 kB on.  (Where thousands of rows are computed together it would be 200 kB: docs/kernel-cache.md.)
"""

from __future__ import annotations

from typing import NamedTuple

from bigsvm.config import FitConfig
from bigsvm.solvers.base import DataShape, Need
from bigsvm.solvers.kernel.base import float64_values
from bigsvm.solvers.kernel.values.row_keeping import CACHE
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.copy.scratch import is_tmpfs, scratch_folder
from bigsvm.units import show_bytes

DEAR_FEATURES, DEAR_NONZEROS = 250, 100
LONG_ROW = 20_000  # bytes
_DISK_PER_BUDGET = 4  # disk space is at most this many times the memory budget, unless --scratch-limit is given


class CachePlan(NamedTuple):
    """Bytes of kernel rows in memory and on disk, and the reason in words."""

    memory_bytes: int = 0
    disk_bytes: int = 0
    why: str = ""

    def describe(self) -> list[tuple[str, str]]:
        """Lines for people; none if the solver has no cache."""
        return [("kernel rows", f"{show_bytes(self.memory_bytes)} in memory; {self.why}")] if self.memory_bytes else []


def needed(needs: tuple[Need, ...]) -> int:
    """The least bytes of memory for kernel rows; 0 for a solver without a cache."""
    return next((need.nbytes for need in needs if need.what == CACHE), 0)


def plan_cache(
    store: RowBlocks, shape: DataShape, config: FitConfig, budget: int, room: int, resident: bool, scratch: int
) -> CachePlan:
    """The cache that fits in `room` bytes of memory, and on the disk beside `scratch` bytes of other files."""
    row = shape.n_samples * (8 if float64_values(config.tol) else 4)
    wanted = config.cache_bytes(budget)
    memory = min(room if wanted is None else max(min(wanted, room), 0), row * shape.n_samples)
    pays, why = _disk_pays(store, shape, config, resident, row)
    if not pays:
        return CachePlan(memory, 0, f"none on disk: {why}")
    limit = config.scratch_limit_bytes()
    most = max(limit - scratch, 0) if limit is not None else _DISK_PER_BUDGET * budget
    disk = min(most, max(row * shape.n_samples - memory, 0))
    if disk < row:
        return CachePlan(memory, 0, "none on disk: no room there, or memory holds all")
    return CachePlan(memory, disk, f"{show_bytes(disk)} on disk: {why}")


def _disk_pays(store: RowBlocks, shape: DataShape, config: FitConfig, resident: bool, row: int) -> tuple[bool, str]:
    """Whether reading a row from disk is faster than computing it, and why.  row : its bytes"""
    if is_tmpfs(scratch_folder(config)):
        return False, "the scratch folder is in memory"
    if not resident:
        scan = store.dtype.itemsize * (shape.nnz if store.layout == "csr" else shape.n_samples * shape.n_features)
        return scan > row, f"a row costs a scan of {show_bytes(scan)}"
    if config.kernel == "precomputed":
        return False, "rows are in memory already"
    per_row = shape.nnz / shape.n_samples if store.layout == "csr" else shape.n_features
    dear = per_row > DEAR_NONZEROS if store.layout == "csr" else per_row >= DEAR_FEATURES
    if not dear or row < LONG_ROW:
        return False, "a row is computed sooner than read"
    return True, f"a value costs {per_row:.0f} products"
