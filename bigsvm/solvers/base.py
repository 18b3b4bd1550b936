"""The solver interface: the memory that a solver asks for, its report on a step, and the methods that a run calls.

A solver is a frozen dataclass of hyperparameters.  Its state is a plain dataclass of arrays, row vectors and
numbers, so that generic code can save it.  It hands out pure block tasks (`bigsvm/tasks.py`); it opens no file and
sees no scheduler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, cast

import numpy as np

from bigsvm.problem.certificate import Certificate, RowsTerms
from bigsvm.problem.loss import Loss
from bigsvm.problem.problem import Problem
from bigsvm.solvers.context import Context
from bigsvm.store.blocks import Block, BlockGroup, BlockRef
from bigsvm.store.state.vectors import RowVector

WEIGHTS = "w"
"""The need of w, from which the plan knows the size of other arrays as large as w."""
STEPS, OWN_END = "steps", "the algorithm's own end"
"""Names of stop rules whose values are told in words of their own."""


class Need(NamedTuple):
    """Memory that a solver will ask for.

    what : its name in plans and in refusals
    may_spill : it grows with the rows, and the plan may put it on disk
    held : who holds it if rows lie on shards: the caller alone, or each worker too, or each shard its part
    """

    what: str
    nbytes: int
    may_spill: bool = False
    held: Literal["caller", "worker", "shard"] = "caller"


@dataclass(frozen=True)
class DataShape:
    """What plans may depend on: logical metadata, never encoded bytes, clocks or machines.

    Bytes are those of one entry.  Unless a field says otherwise, a flag describes all rows and models of the fit.
    """

    n_samples: int
    n_features: int
    nnz: int
    n_models: int
    shards: int = 1
    rounds: int = 1
    """Sums over all shards in a pass, of solvers that add shards up in rounds."""
    weight_bytes: int = 8
    entry_bytes: int = 12
    """A stored value in the copy by columns; with its row number if the data are sparse."""
    weighted: bool = False
    """Rows or classes have weights."""
    n_costs: int = 1
    """Values of C that each class is trained with.  Models that differ only in C share most support vectors."""
    smooth_loss: bool = True
    """The loss has a second derivative above 0 where rows violate (the squared losses), so Newton methods hold a matrix
    of it."""
    regression: bool = False
    """Rows have targets, not classes."""
    centred: bool = False
    """The problem is that of centred rows, but the stored rows are not centred (`Problem.centre`)."""
    folded: bool = False
    """Each model leaves out its own rows, as in cross-validation."""
    joint: bool = False
    """One loss couples all models (Crammer and Singer)."""
    label_sets: bool = False
    """A row may have several labels; each label has its own model."""
    models_per_row: int = 1
    """Models that one row takes part in; for pairs of classes fewer than n_models."""


class SmallFit(NamedTuple):
    """A fit of a few noisy rows that runs before the user's, to compile its code (`run/fit/precompile.py`).

    n_samples, C, tol : of the small fit.  tol follows the user's only as far as the types of arrays depend on it
    options : hyperparameters that make so few rows reach code that normally only large data reach
    load : whether to load the compiled code into this process.  False for code that few fits reach: it is compiled
        into the cache only, and the fits that reach it load it
    passes : limit of the small fit, in passes over its rows (kernel solvers: n_samples^2 kernel values); enough for
        every kind of proof, and for one solver to give up and another to take over
    """

    n_samples: int = 48
    C: float = 1.0
    tol: float = 1e-6
    options: tuple[tuple[str, Any], ...] = ()
    load: bool = True
    passes: float = 24.0


class Rule(NamedTuple):
    """A stop rule that is met: its name, the value that was tested, and the largest value that meets it."""

    name: str
    value: float
    tolerance: float

    @classmethod
    def where(cls, holds: bool, name: str, value: float, tolerance: float) -> Rule | None:
        """The rule if it holds."""
        return cls(name, float(value), float(tolerance)) if holds else None


@dataclass(frozen=True)
class StepInfo:
    """A solver's report on one step.  Its estimates are cheap, and never end a fit by themselves."""

    gap_estimate: float  # relative, from stale margins
    n_active: int  # rows not shrunk away
    visits: int  # row visits
    ask_certificate: bool  # the solver believes it is done, or cannot go on without a proof
    exhausted: bool = False  # no further progress is possible in floating point
    paused: bool = False  # the step was left early because `Context.pause` said so; its state can be saved
    collectable: bool = False  # the deferred certificates have seen all rows
    rule: Rule | None = None  # the stop rule of the solver's paper, if it is met
    message: str = ""  # a warning for the user
    gaps: np.ndarray | None = None  # absolute gap of each model, if the solver knows it exactly
    primal: np.ndarray | None = None  # P of each model; given together with `gaps`
    work: float = math.nan  # work so far in passes (`pace.py`), if row visits do not measure it
    readings: int = 1  # readings of all streamed rows (in memory: epochs) of the next step, if it heeds `sweeps_left`

    @classmethod
    def left(cls, gap_estimate: float, n_samples: int) -> StepInfo:
        """The report on a step that was left early.  Its row visits are counted when it has gone on and ended."""
        return cls(gap_estimate, n_samples, 0, ask_certificate=False, paused=True)


class Point(NamedTuple):
    """The point (w, alpha) that a solver has reached for a group of models, as a certificate needs it.

    problem : the problem of these models only
    w : (n_features + 1,) or (n_features + 1, n_models)   the bias is the last entry
    alpha : (n_samples, n_models); None if the solver has no dual point
    kept : the arrays in which the solver itself keeps a copy of (w, alpha) while it takes its next step, so that a
        deferred certificate need not copy them; None if it keeps none
    rescaled : the proof may be that of a multiple of w
    on_shards : called with (w, rescaled, shortened), returns the terms of all rows for `Accumulator.add`, computed on
        the workers that hold the rows; None if rows are read by this process or by any worker
    still : alpha has not changed since the last proof, and w is the w(alpha) that this proof computed
    """

    problem: Problem
    w: np.ndarray
    alpha: RowVector | None
    kept: tuple[np.ndarray, RowVector] | None = None
    rescaled: bool = False
    on_shards: Callable[[np.ndarray, bool, bool], list[RowsTerms]] | None = None
    still: bool = False


Keeps = Literal["off", "auto", "always"]
StartsFrom = Literal["", "weights", "duals"]


class LinearStart(Protocol):
    """The start of a fit from the dual variables of an earlier model, during one pass over all rows."""

    def take(self, block: Block, where: BlockRef | BlockGroup) -> None:
        """Clip alpha of a block's rows to the box; called before the certificate sees the block."""
        ...

    def settle(self, certificate: Certificate) -> int | None:
        """Improve alpha without reading rows; called after the pass, when w = w(alpha).

        Returns the number of row visits, or None if the run was asked to stop.
        """
        ...


class Solver(Protocol):
    """Implemented by frozen dataclasses of hyperparameters, which derive from `SolverBase` or a template that does."""

    name: ClassVar[str]
    losses: ClassVar[tuple[str, ...]]
    biases: ClassVar[tuple[str, ...]]
    kernels: ClassVar[tuple[str, ...]]
    """Mercer kernels that it supports."""
    proof: ClassVar[str]
    """Its kind of proof (`run/proof/provers.py`): 'linear' for points with weights w, 'kernel' for points without."""
    can_defer: ClassVar[bool]
    """The certificate of its point may be computed during its next pass."""
    self_paced: ClassVar[bool]
    """It gives hopeless models up by itself, and reports its work in passes if all rows are in memory."""
    paper_rule: ClassVar[bool]
    """It has the stop rule of its paper, for --stop paper."""
    in_shards: ClassVar[bool]
    """It can train each shard of the rows on the worker that holds it, and add the results up (`Context.shards`)."""
    shards_if_asked: ClassVar[bool]
    """It uses shards only if the user names the solver and asks for shards: with one shard it can hand over to dcd."""
    in_rounds: ClassVar[bool]
    """It adds the results of the shards up many times in a pass (`Context.rounds_per_pass`)."""
    column_access: ClassVar[bool]
    """It reads the data by columns (`Context.columns`)."""
    starts_from: ClassVar[StartsFrom]
    """What it takes over from an earlier model; '' for nothing."""
    centres: ClassVar[bool]
    """It multiplies and adds rows only through `Problem.met` and `Problem.summed`, so rows may count as centred."""
    label_sets: ClassVar[bool]
    """It takes the signs of rows only from `Problem.sides` and `Problem.signs`, so rows may have several labels."""
    looks_first: ClassVar[bool]
    """Its first step only looks, so --max-time ends a fit after the second at the earliest."""

    @property
    def keeps_rows(self) -> Keeps:
        """Whether spare memory is used for a buffer of rows that stay in memory while the others stream."""

    def refusal(self, shape: DataShape) -> str | None:
        """Why the solver does not support data of this shape; None if it does."""
        ...

    def small_fits(self, tol: float, resident: bool) -> list[SmallFit]:
        """Fits that together call all compiled code that a fit to `tol` may call.

        resident : all rows are in memory
        """
        ...

    def weight_bytes(self, tol: float, regression: bool) -> int:
        """Bytes of one entry of w in a fit to `tol`: 4 or 8."""
        ...

    def needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """The memory that a fit will ask for, beside rows and the row buffer."""
        ...

    def init(self, problem: Problem, ctx: Context) -> Any:
        """The state before the first step."""
        ...

    def step(self, problem: Problem, state: Any, ctx: Context) -> StepInfo:
        """Advance `state` in place: usually by one pass, or by several sweeps over rows in memory."""
        ...

    def before_load(self, state: Any, tree: Any, ctx: Context) -> None:
        """Make a new `state` ready to take a saved `tree` (`store/state/state_files.py`)."""
        ...

    def forecast(self, state: Any) -> float:
        """The relative gap that a proof of the present point is expected to show."""
        ...

    def points(self, state: Any) -> list[Point]:
        """The present point of each group of models, in the order of the models."""
        ...

    def last_points(self, state: Any) -> list[Point]:
        """As `points`, for the last proof where a limit ends the fit, which tries multiples of w: never w = 0 if a
        direction is known along which P falls."""
        ...

    def learn(
        self, state: Any, certificate: Certificate, rebuilt: Sequence[np.ndarray], of: Sequence[np.ndarray]
    ) -> None:
        """Take over what a proof found.

        rebuilt : w(alpha) of each point
        of : the w that was proved, of each point: the point's own array if the solver has not moved since, an earlier
            copy if the certificate was deferred
        """
        ...

    def start_at(self, state: Any, w: np.ndarray | None) -> list[RowVector]:
        """Start a new `state` at the weights of an earlier model instead of 0.

        w : shaped as by `zero_weights`; None if the earlier model has no weights

        Returns the vectors to be filled with alpha of the earlier model, those of all models in order; an empty list if
        the solver starts from weights.
        """
        ...

    def linear_start(self, state: Any, known: int, by_weights: bool, ctx: Context) -> LinearStart:
        """For linear solvers that start from dual variables: what to do in the pass that proves the starting point.

        known : how many rows the earlier model was trained on; they are the first rows of the store
        by_weights : the earlier model had weights
        """
        ...

    def take_proved(self, state: Any, proved: np.ndarray) -> None:
        """Called after `learn`.  proved : bool, (n_models,), models that the last proof found within the tolerance"""
        ...

    def proof_readings(self, state: Any) -> int:
        """Readings of all streamed rows that a proof of the present point takes, if memory holds what it needs."""
        ...

    def may_hand_over(self, loss: Loss, n_features: int) -> bool:
        """Whether another method may take over from sweeps that take long, if the rows are in memory."""
        ...

    def change(self, state: Any) -> str:
        """Called when the fit seems hopeless: train by another method from the next step on, if there is one.

        Returns the warning that says so; '' if there is none, so that the fit ends.
        """
        ...

    def finish(self, state: Any) -> None:
        """Release the memory that only training needs."""
        ...

    def let_threads_go(self, state: Any) -> None:
        """End the threads that the state keeps.  Called when a fit ends, however it ends."""
        ...


class SolverBase:
    """Defaults for the members of `Solver` that most solvers share."""

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
    looks_first: ClassVar[bool] = False

    @property
    def keeps_rows(self) -> Keeps:
        return "off"

    def last_points(self, state: Any) -> list[Point]:
        """The present points: their w is 0 only where nothing better is known."""
        return cast(Solver, self).points(state)

    def let_threads_go(self, state: Any) -> None:
        """Nothing to do: threads run only during a step."""

    def start_at(self, state: Any, w: np.ndarray | None) -> list[RowVector]:
        """Not supported: `starts_from` is ''."""
        raise NotImplementedError(f"{self.name} starts from 0")  # type: ignore[attr-defined]

    def linear_start(self, state: Any, known: int, by_weights: bool, ctx: Context) -> LinearStart:
        """Not supported: `starts_from` is not 'duals'."""
        raise NotImplementedError(f"{self.name} does not start from duals")  # type: ignore[attr-defined]

    def take_proved(self, state: Any, proved: np.ndarray) -> None:
        """Nothing to do: all models are trained until the last one is proved."""

    def proof_readings(self, state: Any) -> int:
        """One, for all models."""
        return 1

    def may_hand_over(self, loss: Loss, n_features: int) -> bool:
        """There is no other method."""
        return False

    def change(self, state: Any) -> str:
        """There is no other method."""
        return ""
