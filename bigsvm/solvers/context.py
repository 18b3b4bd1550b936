"""What a solver is lent for a run: rows, memory, threads, and word of whether to go on."""

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

_CHARGING = threading.Lock()  # groups of models may be proved on several threads at one time


@dataclass
class RunControl:
    """What the run tells a solver between its inner steps; the loop of the fit owns it, solvers ask `Context`."""

    stopping: Callable[[], bool] = lambda: False
    """Whether the run was asked to stop."""
    pause: Callable[[], bool] = lambda: False
    """Whether to leave the step, whose state is then whole: to stop, or to save a checkpoint."""
    expired: Callable[[], bool] = lambda: False
    """Whether the user's time is up."""
    read_enough: Callable[[], bool] = lambda: False
    """Whether rows that stream were read as often as the user, or any fit, allows: steps that read end there."""
    sweeps_left: int | None = None
    """Sweeps that the user's limit still allows; None without a limit, where those of `pace.py` hold."""


@dataclass
class ReadAccount:
    """What solver and prover have read, of all passes of a run.

    bytes_read : decoded bytes of X, y and weights;  waited_s : seconds of waiting for a disk, for displays alone
    row_bytes : of `bytes_read`, for rows of kernel values, which a cache may hold
    rows_asked : rows of the data that would have been read for these rows of kernel values without any cache
    """

    bytes_read: int = 0
    waited_s: float = 0.0
    row_bytes: int = 0
    rows_asked: int = 0
    _asking: bool = False

    @contextmanager
    def asking(self, n_rows: int) -> Iterator[None]:
        """While rows of kernel values are made, or found in a cache: without any, so many rows would be read for them.

        Limits go by that, so that neither a cache nor a stop, after which it is empty, changes where a fit ends.
        """
        if self._asking:  # for somebody who counts it
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
        """Passes that would have been read if no row of kernel values had been kept."""
        return (self.bytes_read - self.row_bytes) / data_bytes + self.rows_asked / max(n_rows, 1)


@dataclass(frozen=True)
class Context:
    """What a solver is lent for a run; it owns none of it."""

    data: RowBlocks
    refs: Sequence[BlockRef]
    resident: bool
    """All rows are one block in memory: visiting it again reads nothing."""
    mapper: Mapper
    budget: MemoryBudget
    seed: int
    shards: int
    """Of the rows (L): part of the mathematics, not of the machine."""
    threads: int
    """For work whose result does not depend on them."""
    read_depth: int
    group_blocks: int
    """Blocks that are read and worked on together."""
    proof_refs: Sequence[BlockRef]
    """Larger blocks in store order, for passes whose result does not depend on the order."""
    workdir: Path
    tol: float
    columns: Callable[[], ColumnBlocks] | None = None
    """The data by columns, made on the first call: in memory where the rows are, else a copy on disk."""
    pass_workers: int = 2
    """Tasks of a pass whose sums the plan has counted."""
    row_buffer_bytes: int = 0
    """For rows that stay in memory while others stream by; 0 for none."""
    row_buffer_sweeps: int = 0
    """Sweeps of the row buffer in a pass."""
    row_buffer_packed: bool = False
    rounds_per_pass: int = 1
    """Sums over all shards in a pass (P)."""
    cache_bytes: int = 0
    """For rows of kernel values, of solvers that fetch them."""
    cache_disk_bytes: int = 0
    """For those that memory does not hold, in `workdir`; 0: none go to disk."""
    spilled: Sequence[str] = ()
    """Per-row vectors that go to disk, by name."""
    buffers: Callable[[], Any] | None = None
    """Makes room that a group of blocks is read into, where the data can be read that way."""
    steps: Steps | None = None
    """What the numbers of the rows are multiples of, where that is known and kernel values are quicker with it."""
    deferred: list[DeferredCertificate] = field(default_factory=list)
    """Certificates of earlier points that want to see the rows of the next pass: the prover puts them here."""
    control: RunControl = field(default_factory=RunControl)
    reads: ReadAccount = field(default_factory=ReadAccount)

    def stopping(self) -> bool:
        """Whether the run was asked to stop."""
        return self.control.stopping()

    def pause(self) -> bool:
        """Asked between groups of rows: whether to leave the step, whose state is then whole."""
        return self.control.pause()

    def expired(self) -> bool:
        """Asked between inner steps, by solvers of whose state a proof can be made anywhere: whether time is up."""
        return self.control.expired()

    def read_enough(self) -> bool:
        """Asked between inner steps that read rows, by such solvers: whether no limit allows another reading."""
        return self.control.read_enough()

    @property
    def sweeps_left(self) -> int | None:
        """Sweeps that the user's limit still allows."""
        return self.control.sweeps_left

    @property
    def bytes_read(self) -> int:
        """Decoded bytes of X, y and weights that were read."""
        return self.reads.bytes_read

    def charge(self, nbytes: int) -> None:
        """Count bytes of X, y and weights that were read; rows in memory cost nothing."""
        if not self.resident:
            with _CHARGING:
                self.reads.bytes_read += nbytes

    def uncharge(self, to: int) -> None:
        """Forget what was read since `bytes_read` was `to`: limits count what an undisturbed run reads."""
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
        """A vector of `width` values for each row of the data, all starting at `fill`; where the plan put it.

        what : its name in `Solver.needs`, by which the plan may have sent it to disk
        n_rows : rows other than those of the data
        """
        rows = self.data.n_samples if n_rows is None else n_rows
        return RowVector(what, rows, width, dtype, self.budget, self.workdir, fill, on_disk=what in self.spilled)
