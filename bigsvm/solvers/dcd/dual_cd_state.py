"""The state of `dcd` between two steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bigsvm.budget import Reservation
from bigsvm.compiled.shared.losses import DualModels, JointModels
from bigsvm.problem.problem import Problem
from bigsvm.solvers.dcd.active_row_buffer import ActiveRowBuffer
from bigsvm.solvers.dcd.momentum import Momentum
from bigsvm.solvers.dcd.rounding import Rounding
from bigsvm.solvers.dcd.shards.sharded_pass import ShardedGroup
from bigsvm.solvers.pace import Pace
from bigsvm.solvers.tube.streamed import StreamedTube
from bigsvm.store.state.vectors import RowVector

FIRST_EPS = 0.1  # LIBLINEAR's default; it only decides when shrunk rows come back, the gap decides the end
_MOST_PER_GROUP = 64  # the active rows of a group are stored as one bit per model
_SEARCHED_PER_GROUP = 8  # models of a search: as many sums as fit in the registers of a core
_MODELS_PER_GROUP = 4  # fewest models of a group when models are split for two cores


@dataclass
class ModelGroup:
    """Models that are trained together, and all that a resumed run needs of them.

    problem : of these models
    w : (n_features + 1,) or (n_features + 1, n_models)
    alpha : RowVector float64, (n_samples, n_models)
    active : RowVector   rows in memory: a bit for each model, 1 if the row is not shrunk.  Rows that stream: 1 if the
        row is not in the row buffer; all groups then share one vector
    thresholds : float64, (2, n_proofs)   projected gradients beyond which a row is shrunk
    floor : float64, (n_proofs,)   the largest proved dual value: a lower bound of the optimum
    eps : spread of the projected gradients at which shrunk rows become active again
    target : relative gap at which a proof is asked for
    estimate : relative gap, from margins at the time of each visit
    seen, row_buffer_stats, visits : statistics of an unfinished pass (`dual_cd_stream.py`)
    moves : uint8, (n_models,)   1 for models that are still trained; in a search the array of the problem's axis
    still : alpha has not changed since the last proof; only used if rows are in memory and models may rest
    spread : float64, (n_proofs, 2)   largest and smallest projected gradient of the pass so far
    swept : rows in memory that were visited so far
    fruitless : int64, (n_proofs,)   proofs in a row, of rows in memory, in which the dual value did not rise
    """

    problem: Problem = field(metadata={"derived": True})
    w: np.ndarray
    alpha: RowVector
    active: RowVector
    thresholds: np.ndarray
    floor: np.ndarray
    eps: float = FIRST_EPS
    target: float = 0.0
    estimate: float = math.inf
    seen: np.ndarray = field(default_factory=lambda: np.empty((0, 1, 2)))
    row_buffer_stats: np.ndarray = field(default_factory=lambda: np.empty((1, 4)))
    visits: int = 0
    momentum: Momentum | None = None
    moves: np.ndarray = field(default_factory=lambda: np.ones(1, np.uint8))
    still: bool = False
    spread: np.ndarray = field(default_factory=lambda: np.array([[-math.inf, math.inf]]))
    swept: int = 0
    fruitless: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))

    @property
    def rests(self) -> bool:
        """Whether models within the tolerance are left alone while the others are trained."""
        return self.problem.axis is not None or (self.problem.n_models > 1 and not self.problem.joint)

    def training_models(self) -> DualModels | JointModels:
        """The models as the compiled loops take them.  A model that rests has C = 0, which keeps all rows out of it."""
        models = self.problem.dual_models
        if self.problem.axis is not None or isinstance(models, JointModels):
            return models
        return models._replace(C=np.where(self.moves, models.C, 0.0))

    def rest(self, trained: DualModels | JointModels) -> None:
        """Let models rest that the compiled loop set to C = 0 in `trained`, because their target was reached."""
        if self.rests and self.problem.axis is None:
            self.moves[...] = trained.C != 0.0

    def reactivate(self) -> None:
        """Make every row active, and shrink none in the next sweep."""
        self.active.values[:] = all_live(len(self.floor))
        self.thresholds[...] = open_thresholds(len(self.floor))

    def bring_back(self, models: np.ndarray) -> None:
        """Make every row active for some of the models only.  models : bool, (n_models,)"""
        if models.any():
            bits = sum(1 << int(m) for m in np.flatnonzero(models))
            self.active.values[:] |= self.active.values.dtype.type(bits)
            self.thresholds[:, models] = open_thresholds(int(models.sum()))

    def relative(self, gap: np.ndarray, loss: np.ndarray) -> float:
        """The largest relative gap, from the sums of gap and loss, (n_proofs,), that rows showed at their visits."""
        norms = np.atleast_1d(np.einsum("j...,j...->...", self.w, self.w, dtype=np.float64))
        norms = norms.sum(keepdims=True) if self.problem.joint else norms
        primal = np.maximum(np.maximum(0.5 * norms + loss, self.floor), np.finfo(float).tiny)
        return float(np.max(gap / primal))


@dataclass
class DualCDState:
    """Everything that a resumed run needs.

    sweep : sweeps, or passes, so far
    sqnorm : RowVector float64   squared norms of the rows; None if rows stream
    cost : RowVector float64   class weight times sample weight of each row; None unless momentum needs it
    shrinks : rows are shrunk, which is so if they are in memory
    estimates : relative gaps estimated during the last two passes, the newest first
    share : proved gap / estimate, from the last proof
    done : of an unfinished pass, groups of blocks that were visited; on shards, rounds
    shards : one for each group of models; None unless rows are on several shards
    row_buffer : one for all groups of models, because mostly the same rows violate; None if rows are in memory
    hopeless : sweeps would not reach the tolerance, or would take longer than another method
    solved : that method was tried (`interior.py`)
    pace : how fast the gap falls with the epochs, from 1 on;  enough : the work of that method, in epochs, if this
        decides when it takes over; else inf
    swept : the report on the sweeps of a step that was left during that method, as `StepInfo` takes it; else empty
    finished : models that the method had solved by then
    path : the method on rows that stream, until all models are solved;  waiting : numbers of the models that it solves
    told : models that were solved when `DualCD.change` was asked last
    rounding : what is known and was done about rounding, if rows stream
    rooms : memory that was reserved when sweeps took long (`slow_sweeps.py`);  lacking : it was too little, as was told
    """

    sweep: int
    groups: list[ModelGroup]
    sqnorm: RowVector | None
    cost: RowVector | None
    shrinks: bool = field(metadata={"derived": True})
    estimates: tuple[float, float] = (math.inf, math.inf)
    share: float = 0.0
    done: int = 0
    shards: list[ShardedGroup] | None = None
    row_buffer: ActiveRowBuffer | None = None
    hopeless: bool = False
    pace: Pace = field(default_factory=lambda: Pace.of(1))
    enough: float = field(default=math.inf, metadata={"derived": True})
    solved: bool = False
    swept: list[Any] = field(default_factory=list)
    finished: int = 0
    path: StreamedTube | None = None
    waiting: list[int] = field(default_factory=list)
    told: int = -1
    rooms: list[Reservation] = field(default_factory=list, metadata={"derived": True})
    lacking: bool = False
    rounding: Rounding = field(default_factory=Rounding)


def with_proofs(groups: Sequence[ModelGroup]) -> Iterator[tuple[ModelGroup, slice]]:
    """Each group of models with its part of the arrays of a certificate, (n_proofs,)."""
    first = 0
    for group in groups:
        proofs = slice(first, first + group.problem.n_proofs)
        yield group, proofs
        first = proofs.stop


def groups_of_models(n_models: int, shards: int, searched: bool = False, joint: bool = False) -> list[slice]:
    """The models of each group: two groups from 8 models on, more beyond 128, whatever the number of cores.

    searched : models of a search over rows in memory.  Their groups are small: neighbouring models need the same rows,
        and a group that is done costs nothing
    joint : one loss couples all models, so they are one group
    """
    if joint:
        return [slice(0, n_models)]
    n = -(-n_models // (_SEARCHED_PER_GROUP if searched else _MOST_PER_GROUP))
    if shards == 1 and n_models >= 2 * _MODELS_PER_GROUP:
        n = max(n, 2)
    return [slice(g * n_models // n, (g + 1) * n_models // n) for g in range(n)]


def bytes_active(models: slice, resident: bool, joint: bool = False) -> int:
    """Bytes for each row in `ModelGroup.active`: a bit for each model if rows are shrunk, else one flag."""
    return 8 if resident and not joint and models.stop - models.start > 8 else 1


def all_live(n_models: int) -> int:
    """The bits of `active` for a row that no model has shrunk."""
    return (1 << n_models) - 1


def open_thresholds(n_models: int) -> np.ndarray:
    """Thresholds that shrink no row."""
    return np.array([[math.inf] * n_models, [-math.inf] * n_models])
