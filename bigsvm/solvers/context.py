"""What a run lends its solver: rows, memory, threads, and the requests to pause or to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.budget import MemoryBudget
from bigsvm.problem.deferred import DeferredCertificate
from bigsvm.store.blocks import BlockRef, RowBlocks
from bigsvm.store.columns.column_blocks import ColumnBlocks
from bigsvm.store.state.vectors import RowVector
from bigsvm.tasks import Mapper

if TYPE_CHECKING:
    from bigsvm.compiled.kernel.values.step import Steps

_CHARGING = threading.Lock()  # proofs of several groups of models may charge reads from several threads


@dataclass
class RunControl:
    """What the run tells a solver between its inner steps; the loop of the fit owns it, solvers ask `Context`."""

    stopping: Callable[[], bool] = lambda: False
    """Whether the run was asked to stop."""
    pause: Callable[[], bool] = lambda: False
    """Whether to leave the step, in order to stop or to save a checkpoint.  The state must be consistent then."""
    expired: Callable[[], bool] = lambda: False
    """Whether --max-time is over."""
    read_enough: Callable[[], bool] = lambda: False
    """Whether the limit of readings (--max-passes, or that of `run/fit/loop.py`) is reached: steps end before the next
    reading."""
    advanced: Callable[[], None] = lambda: None
    """Told after each block that was read, on any thread."""
    sweeps_left: int | None = None
    """Sweeps that --max-passes still allows; None without it."""


@dataclass
class ReadAccount:
    """What solver and prover have read during a run.

    bytes_read : decoded bytes of X, y and weights
    waited_s : seconds spent waiting for the disk; only displayed, nothing depends on it
    row_bytes : the part of `bytes_read` that was read to compute rows of kernel values
    rows_asked : rows of the data that would have been read to compute these rows of kernel values without a cache
    """

    bytes_read: int = 0
    waited_s: float = 0.0
    row_bytes: int = 0
    rows_asked: int = 0
    _asking: bool = False

    @contextmanager
    def asking(self, n_rows: int) -> Iterator[None]:
        """Count the reads of the block as those of rows of kernel values, whether computed or found in a cache.

        n_rows : rows of the data that would be read without a cache.  Limits count these, so that the size of the cache
            (or a resume, which starts with an empty one) does not change where a fit ends.
        """
        if self._asking:  # the outer call counts these reads
            yield
            return
        before, self._asking = self.bytes_read, True
        try:
            yield
        finally:
            self._asking = False
            self.row_bytes += self.bytes_read - before
            self.rows_asked += n_rows

    def without_cache(self, data_bytes: int, n_rows: int) -> float:
        """The passes that the run would have read without a cache of kernel rows."""
        return (self.bytes_read - self.row_bytes) / data_bytes + self.rows_asked / max(n_rows, 1)


@dataclass(frozen=True)
class Context:
    """What a run lends its solver.  The solver owns none of it, and opens no file and no pool of its own."""

    data: RowBlocks
    refs: Sequence[BlockRef]
    resident: bool
    """All rows are one block in memory: visiting them again reads nothing."""
    mapper: Mapper
    budget: MemoryBudget
    seed: int
    shards: int
    """Parts of the rows that are trained apart (L).  The model depends on it, but not on the number of workers."""
    threads: int
    """Only for work whose result does not depend on the number of threads."""
    read_depth: int
    """Groups of blocks that are read ahead."""
    group_blocks: int
    """Blocks that are read and worked on together."""
    proof_refs: Sequence[BlockRef]
    """Larger blocks in store order, for passes whose result does not depend on the order."""
    workdir: Path
    tol: float
    columns: Callable[[], ColumnBlocks] | None = None
    """Makes the data by columns on the first call: in memory if the rows are in memory, else as a copy on disk."""
    pass_workers: int = 2
    """Tasks of a pass that may run at one time: the plan has counted the sums of so many."""
    row_buffer_bytes: int = 0
    """Size of the row buffer: rows that stay in memory while the others stream; 0 for none."""
    row_buffer_sweeps: int = 0
    """Sweeps over the row buffer in each pass."""
    row_buffer_packed: bool = False
    """Values in the row buffer are rounded to 16 bits."""
    rounds_per_pass: int = 1
    """Sums over all shards in a pass (P)."""
    cache_bytes: int = 0
    """Memory for cached rows of kernel values."""
    cache_disk_bytes: int = 0
    """Disk space in `workdir` for rows of kernel values that memory does not hold; 0: none go to disk."""
    spilled: Sequence[str] = ()
    """Names of the per-row vectors that the plan put on disk."""
    buffers: Callable[[], Any] | None = None
    """Makes a buffer that a group of blocks is read into; None if the data cannot be read that way."""
    steps: Steps | None = None
    """The number that all values of the rows are multiples of; None if unknown, or if kernel values are not faster to
    compute with it."""
    deferred: list[DeferredCertificate] = field(default_factory=list)
    """Certificates of earlier points that the prover asks the solver to compute during its next pass."""
    control: RunControl = field(default_factory=RunControl)
    reads: ReadAccount = field(default_factory=ReadAccount)

    def stopping(self) -> bool:
        """Whether the run was asked to stop."""
        return self.control.stopping()

    def pause(self) -> bool:
        """Whether to leave the step now; solvers ask between groups of rows, when their state is consistent."""
        return self.control.pause()

    def expired(self) -> bool:
        """Whether --max-time is over; asked between inner steps by solvers whose state can be proved in mid-step."""
        return self.control.expired()

    def read_enough(self) -> bool:
        """Whether the limit of readings is reached; asked by the same solvers before they read rows."""
        return self.control.read_enough()

    @property
    def sweeps_left(self) -> int | None:
        """Sweeps that --max-passes still allows; None without it."""
        return self.control.sweeps_left

    @property
    def bytes_read(self) -> int:
        """Decoded bytes of X, y and weights that were read."""
        return self.reads.bytes_read

    def charge(self, nbytes: int) -> None:
        """Count decoded bytes that were read.  Rows in memory cost nothing."""
        if not self.resident:
            with _CHARGING:
                self.reads.bytes_read += nbytes
            self.control.advanced()

    def uncharge(self, to: int) -> None:
        """Forget what was read since `bytes_read` was `to`.

        For a pass that was left and will begin again: limits count what an undisturbed run reads.
        """
        with _CHARGING:
            self.reads.bytes_read = to

    def vector(
        self,
        what: str,
        width: int,
        dtype: np.dtype | type = np.float64,
        fill: float = 0,
        n_rows: int | None = None,
    ) -> RowVector:
        """A new vector of `width` values for each row, in memory or on disk as the plan decided.

        what : its name in `Solver.needs`
        fill : the initial value
        n_rows : number of rows; None: those of the data
        """
        rows = self.data.n_samples if n_rows is None else n_rows
        return RowVector(what, rows, width, dtype, self.budget, self.workdir, fill, on_disk=what in self.spilled)
