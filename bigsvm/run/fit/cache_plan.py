"""How much memory and disk rows of kernel values get: never a matter of what is computed, only of how often.

Memory: as asked with --cache-memory, else all that the budget leaves, and no more than all rows take.
Disk: only where a row is dearer to compute than to read (docs/measurements.md 7.4): dense data with 250 features, or
more than 100 non-zeros a row; or data that stream, whose scan for a row reads more than the row.  Rows are computed
one or two at a time here, at about 1 ns a feature and value, and read at 5 to 10 ns a value and some 0.1 ms: that pays
from rows of 20 kB on, and not of 200 kB as where thousands are computed together (docs/kernel-cache.md).
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
_DISK_PER_BUDGET = 4  # times the memory, at most, where no limit of scratch is given


class CachePlan(NamedTuple):
    """Bytes of kernel rows in memory and on disk, and why so."""

    memory_bytes: int = 0
    disk_bytes: int = 0
    why: str = ""

    def describe(self) -> list[tuple[str, str]]:
        """Rows for people; none where the solver keeps no rows."""
        return [("kernel rows", f"{show_bytes(self.memory_bytes)} in memory; {self.why}")] if self.memory_bytes else []


def needed(needs: tuple[Need, ...]) -> int:
    """The least bytes of memory for kernel rows; 0 for a solver that keeps none."""
    return next((need.nbytes for need in needs if need.what == CACHE), 0)


def plan_cache(
    store: RowBlocks, shape: DataShape, config: FitConfig, budget: int, room: int, resident: bool, scratch: int
) -> CachePlan:
    """What rows get of `room` bytes of memory, and of the disk beside `scratch` bytes."""
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
    """Whether a row is better read than computed, and why."""
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
