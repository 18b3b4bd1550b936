"""What `dcd` knows between two steps, a group of models at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from bigsvm.compiled.shared.losses import DualModels, JointModels
from bigsvm.problem.problem import Problem
from bigsvm.solvers.dcd.active_row_buffer import ActiveRowBuffer
from bigsvm.solvers.dcd.momentum import Momentum
from bigsvm.solvers.dcd.shard_pass import ShardedGroup
from bigsvm.store.state.vectors import RowVector

FIRST_EPS = 0.1  # LIBLINEAR's default; it only decides when shrunk rows come back, the gap decides the end
_MOST_PER_GROUP = 64  # bits
_SEARCHED_PER_GROUP = 8  # as many as the registers of a core hold sums of
_MODELS_PER_GROUP = 4  # at least, before models are split over two groups


@dataclass
class ModelGroup:
    """Models that are trained together, and all that a resumed run needs of them.

    problem : of these models
    w : (n_features + 1,) or (n_features + 1, n_models)
    alpha : RowVector float64, (n_samples, n_models)
    active : RowVector of bits, one a model: not shrunk away; of streamed data: 1 for rows not in the row buffer, one
        vector for all groups of models
    seen, row_buffer_stats, visits : of the pass that is going on (`dual_cd_stream.py`)
    moves : uint8, (n_models,), which models are not done; of a search the array of the problem's axis
    still : nothing has moved since the last proof; told where rows are in memory and models may rest
    spread : float64, (n_proofs, 2), largest and smallest projected gradient that the pass has seen
    thresholds : float64, (2, n_proofs);  floor : float64, (n_proofs,), proved lower bounds of the primal
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

    @property
    def rests(self) -> bool:
        """Whether a model that is done may rest while others go on."""
        return self.problem.axis is not None or (self.problem.n_models > 1 and not self.problem.joint)

    def training_models(self) -> DualModels | JointModels:
        """The models as loops train them: one that rests costs nothing, so that no row takes part in it."""
        models = self.problem.dual_models
        if self.problem.axis is not None or isinstance(models, JointModels):
            return models
        return models._replace(C=np.where(self.moves, models.C, 0.0))

    def rest(self, trained: DualModels | JointModels) -> None:
        """Models that came to rest in a loop that took them as `trained` go on resting."""
        if self.rests and self.problem.axis is None:
            self.moves[...] = trained.C != 0.0


@dataclass
class DualCDState:
    """All that a resumed run needs.

    sqnorm : RowVector float64, squared norms of rows that are in memory
    cost : RowVector float64, class weight times sample weight of each row, where momentum needs to know
    shrinks : rows leave the active ones; only where they are in memory
    estimates : stale relative gaps of the last two passes, the newest first
    share : proved gap over estimate, as of the last proof
    done : groups of rows of the present pass that have been visited, or rounds of it where rows lie on shards
    shards : of each group of models, where there are several
    row_buffer : of rows that stream; one for all groups of models, since mostly the same rows violate
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


def groups_of_models(n_models: int, shards: int, searched: bool = False, joint: bool = False) -> list[slice]:
    """Two groups where there are models enough for both cores, more beyond 128: the machine has no say.

    searched : the models of a search whose rows are in memory, neighbours alike.  They are few to a group: these need
        the same rows, and a group that is done costs nothing
    joint : one loss of all models together, which are one group
    """
    if joint:
        return [slice(0, n_models)]
    n = -(-n_models // (_SEARCHED_PER_GROUP if searched else _MOST_PER_GROUP))
    if shards == 1 and n_models >= 2 * _MODELS_PER_GROUP:
        n = max(n, 2)
    return [slice(g * n_models // n, (g + 1) * n_models // n) for g in range(n)]


def bytes_active(models: slice, resident: bool, joint: bool = False) -> int:
    """Bytes a row for what is active: a bit for each model where rows are shrunk, else a flag."""
    return 8 if resident and not joint and models.stop - models.start > 8 else 1


def all_live(n_models: int) -> int:
    """Bits of `active` for a row that no model has shrunk away."""
    return (1 << n_models) - 1


def open_thresholds(n_models: int) -> np.ndarray:
    """Thresholds under which no row shrinks."""
    return np.array([[math.inf] * n_models, [-math.inf] * n_models])
