"""What a solver is and what it is lent.

A solver is a frozen dataclass of hyperparameters.  Its state is a plain dataclass of arrays, row vectors and
numbers, so that generic code can save it.  It hands out pure block tasks (`bigsvm/tasks.py`); it opens no file and
sees no scheduler.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from bigsvm.budget import MemoryBudget
from bigsvm.problem.certificate import Certificate, RowsTerms
from bigsvm.problem.deferred import DeferredCertificate
from bigsvm.problem.problem import Problem
from bigsvm.store.blocks import Block, BlockGroup, BlockRef, RowBlocks
from bigsvm.store.columns.column_blocks import ColumnBlocks
from bigsvm.store.state.vectors import RowVector
from bigsvm.tasks import Mapper

if TYPE_CHECKING:
    from bigsvm.compiled.kernel.values.step import Steps

_CHARGING = threading.Lock()  # groups of models may be proved on several threads at one time


class Need(NamedTuple):
    """Bytes that a solver will ask for, by name; per-row needs may go to disk."""

    what: str
    nbytes: int
    may_spill: bool = False


@dataclass(frozen=True)
class DataShape:
    """What plans may depend on: logical metadata, never encoded bytes, clocks or machines."""

    n_samples: int
    n_features: int
    nnz: int
    n_models: int
    shards: int = 1
    weight_bytes: int = 8
    entry_bytes: int = 12
    """Of a value by columns, with its row number where the data are sparse."""
    weighted: bool = False
    """Rows or classes have weights."""
    n_costs: int = 1
    """So many models of each class differ in C alone: they share most of the rows that matter."""
    smooth_loss: bool = True
    """Rows beyond their kinks have curvature: where it is False (the hinge loss), no solver sums it up in a matrix."""
    regression: bool = False
    """Rows have targets, not classes."""
    centred: bool = False
    """Rows count as centred and are not (`Problem.centre`)."""
    folded: bool = False
    """Models differ in the rows that take part."""
    joint: bool = False
    """One loss of all models together."""
    label_sets: bool = False
    """Rows have several labels, of which each has a model."""
    models_per_row: int = 1
    """That a row takes part in: of pairs of classes fewer than there are."""


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


class SmallFit(NamedTuple):
    """A fit of a few noisy rows, made before the user's so that all is compiled by then (`run/fit/precompile.py`).

    n_samples, C, tol : of the fit; no more of the user's tolerance than what decides types
    options : hyperparameters of the solver under which so few rows call what else only many rows do
    load : most fits call what it calls; else that is compiled, and loaded by the fits that do
    passes : over rows, or of kernel values, after which it ends: enough for every proof, and to give up a solver
    """

    n_samples: int = 48
    C: float = 1.0
    tol: float = 1e-6
    options: tuple[tuple[str, Any], ...] = ()
    load: bool = True
    passes: float = 24.0


class Rule(NamedTuple):
    """A stop rule that holds: by its name, of which value, and up to which value it holds."""

    name: str
    value: float
    tolerance: float

    @classmethod
    def where(cls, holds: bool, name: str, value: float, tolerance: float) -> Rule | None:
        """The rule if it holds."""
        return cls(name, float(value), float(tolerance)) if holds else None


@dataclass(frozen=True)
class StepInfo:
    """What a step was worth by the solver's own, cheap measure: never a stop rule by itself."""

    gap_estimate: float  # relative, from stale margins
    n_active: int  # rows not shrunk away
    visits: int  # row visits
    ask_certificate: bool  # the solver believes it is done, or cannot go on without a proof
    exhausted: bool = False  # no further progress is possible in floating point
    paused: bool = False  # the step is not over: `Context.pause` asked, and the state may be saved
    collectable: bool = False  # the deferred certificates have seen all rows
    rule: Rule | None = None  # the stop rule of the solver's paper, where it holds
    message: str = ""  # what the user should know
    gaps: np.ndarray | None = None  # of each model, absolute, where the solver knows them exactly
    primal: np.ndarray | None = None  # of each model, beside `gaps`
    work: float = math.nan  # done so far, where visits of rows do not say: in passes (`pace.py`)


class Point(NamedTuple):
    """A solver's point for a group of models, as the certificate wants it.

    problem : of these models only
    w : (n_features + 1,) or (n_features + 1, n_models)   with its bias entry
    alpha : (n_samples, n_models), where there is one
    kept : what holds w and alpha of this point from the begin of the solver's next step until the step after it
    rescaled : a proof may speak of a multiple of w
    on_shards : gives the terms of all rows from where they are, as an `Accumulator` takes them, of (w, rescaled)
    still : alpha has not changed since the last proof, which w is of
    """

    problem: Problem
    w: np.ndarray
    alpha: RowVector | None
    kept: tuple[np.ndarray, RowVector] | None = None
    rescaled: bool = False
    on_shards: Callable[[np.ndarray, bool], list[RowsTerms]] | None = None
    still: bool = False


Keeps = Literal["off", "auto", "always"]
StartsFrom = Literal["", "weights", "duals"]


class LinearStart(Protocol):
    """The start of a fit from the duals of an earlier model."""

    def take(self, block: Block, where: BlockRef | BlockGroup) -> None:
        """Bring alpha of the rows of a block into the box, before they are looked at."""
        ...

    def settle(self, certificate: Certificate) -> int | None:
        """What can be done, after all rows were seen and w is that of alpha, without reading: row visits.

        None where the run is to stop.
        """
        ...


class Solver(Protocol):
    """Implemented by frozen dataclasses of hyperparameters, which derive from `SolverBase` or a template that does."""

    name: ClassVar[str]
    losses: ClassVar[tuple[str, ...]]
    biases: ClassVar[tuple[str, ...]]
    kernels: ClassVar[tuple[str, ...]]
    """Mercer kernels through which it sees the rows."""
    proof: ClassVar[str]
    """Its kind of proof (`run/proof/provers.py`): 'linear' of points that have weights w, 'kernel' of those that have
    none."""
    can_defer: ClassVar[bool]
    """The certificate of its point may be deferred to its next pass."""
    self_paced: ClassVar[bool]
    """It gives hopeless models up by itself, and tells its work in passes where all rows are in memory."""
    paper_rule: ClassVar[bool]
    """It has a stop rule of its paper's, for --stop paper."""
    in_shards: ClassVar[bool]
    """It works on shards of the rows where these are, and adds up what they find (`Context.shards`)."""
    shards_if_asked: ClassVar[bool]
    """It does so only where it is named and shards are asked for: of one it can do more."""
    in_rounds: ClassVar[bool]
    """It adds up many times in a pass (`Context.rounds_per_pass`)."""
    column_access: ClassVar[bool]
    """It reads the data by columns (`Context.columns`)."""
    starts_from: ClassVar[StartsFrom]
    """What it can take over of an earlier model, if anything."""
    centres: ClassVar[bool]
    """It meets rows through `Problem.met` and `Problem.summed` alone, so that they may count as centred."""
    label_sets: ClassVar[bool]
    """It takes signs of rows from `Problem.sides` and `Problem.signs` alone, so that rows may have several labels."""

    @property
    def keeps_rows(self) -> Keeps:
        """Whether the memory that is left goes to rows that stay there while the others stream by."""

    def refusal(self, shape: DataShape) -> str | None:
        """Why data of such a shape are not for this solver; None where they are."""
        ...

    def small_fits(self, tol: float, resident: bool) -> list[SmallFit]:
        """Fits that together call all compiled code that a fit to `tol` may call.

        resident : all rows are in memory
        """
        ...

    def weight_bytes(self, tol: float, regression: bool) -> int: ...
    def needs(self, shape: DataShape, resident: bool) -> list[Need]: ...
    def init(self, problem: Problem, ctx: Context) -> Any: ...
    def step(self, problem: Problem, state: Any, ctx: Context) -> StepInfo: ...
    def before_load(self, state: Any, tree: Any, ctx: Context) -> None:
        """Make `state`, as new, ready to take a saved `tree` (`store/state/state_files.py`)."""
        ...

    def forecast(self, state: Any) -> float:
        """The relative gap that a proof of the present point is expected to show."""
        ...

    def points(self, state: Any) -> list[Point]: ...
    def learn(
        self, state: Any, certificate: Certificate, rebuilt: Sequence[np.ndarray], of: Sequence[np.ndarray]
    ) -> None:
        """What a proof found: w(alpha) of each point as `rebuilt`, and the w that it looked at as `of`.

        `of` is the point's own array where nothing has moved since, an earlier copy where the certificate was deferred.
        """
        ...

    def start_at(self, state: Any, w: np.ndarray | None) -> list[RowVector]:
        """Begin, of a `state` as `init` made it, at the weights of an earlier model instead of 0.

        w : as `zero_weights` shapes them; None: the earlier model has none

        Returns the vectors that take alpha of that model, those of all models in order; none of a solver that starts
        from weights.
        """
        ...

    def linear_start(self, state: Any, known: int, by_weights: bool, ctx: Context) -> LinearStart:
        """What is done, of a solver with weights that starts from duals, while a first pass proves where it starts.

        known : rows of the store that the earlier model knew, the first ones;  by_weights : it had weights
        """
        ...

    def take_proved(self, state: Any, proved: np.ndarray) -> None:
        """Which models, bool (n_models,), the last proof found to be within the tolerance; after `learn`."""
        ...

    def finish(self, state: Any) -> None:
        """Give back what only training needs."""
        ...

    def let_threads_go(self, state: Any) -> None:
        """End the threads that the state keeps: called when a fit ends, however it ends."""
        ...


class SolverBase:
    """The members of `Solver` that most solvers share."""

    kernels: ClassVar[tuple[str, ...]] = ("linear",)
    proof: ClassVar[str] = "linear"
    can_defer: ClassVar[bool] = False
    self_paced: ClassVar[bool] = False
    paper_rule: ClassVar[bool] = False
    in_shards: ClassVar[bool] = False
    shards_if_asked: ClassVar[bool] = False
    in_rounds: ClassVar[bool] = False
    column_access: ClassVar[bool] = False
    starts_from: ClassVar[StartsFrom] = ""
    centres: ClassVar[bool] = False
    label_sets: ClassVar[bool] = False

    @property
    def keeps_rows(self) -> Keeps:
        return "off"

    def let_threads_go(self, state: Any) -> None:
        """There are none but while a step is taken."""

    def start_at(self, state: Any, w: np.ndarray | None) -> list[RowVector]:
        """As `Solver`; of solvers that start from 0 and nowhere else."""
        raise NotImplementedError(f"{self.name} starts from 0")  # type: ignore[attr-defined]

    def linear_start(self, state: Any, known: int, by_weights: bool, ctx: Context) -> LinearStart:
        """As `Solver`; of the others."""
        raise NotImplementedError(f"{self.name} does not start from duals")  # type: ignore[attr-defined]

    def take_proved(self, state: Any, proved: np.ndarray) -> None:
        """Nothing to do: all models are trained until the last one is proved."""
