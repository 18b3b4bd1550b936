"""What a solver is: what it asks for, what it says of a step, and the methods that a run calls.

A solver is a frozen dataclass of hyperparameters.  Its state is a plain dataclass of arrays, row vectors and
numbers, so that generic code can save it.  It hands out pure block tasks (`bigsvm/tasks.py`); it opens no file and
sees no scheduler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from bigsvm.problem.certificate import Certificate, RowsTerms
from bigsvm.problem.problem import Problem
from bigsvm.solvers.context import Context
from bigsvm.store.blocks import Block, BlockGroup, BlockRef
from bigsvm.store.state.vectors import RowVector

if TYPE_CHECKING:
    pass


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
