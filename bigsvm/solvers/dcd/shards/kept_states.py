"""Where the states of all shards are kept: in this process, or on workers and in a folder that all processes see."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.errors import BigSVMError
from bigsvm.problem.deferred import DeferredCertificate
from bigsvm.solvers import shard_tasks
from bigsvm.solvers.context import Context
from bigsvm.solvers.dcd.shards.shard_rows import ShardRows
from bigsvm.solvers.dcd.shards.shard_state import ShardState
from bigsvm.solvers.shard_tasks import Shard
from bigsvm.tasks import ShardSum

if TYPE_CHECKING:
    from bigsvm.solvers.dcd.dual_cd_state import ModelGroup

_ROWS = ("alpha", "streams")  # parts of a shard's saved state of which the caller has its own arrays
_BESIDE = ("rounds", "row_buffer", "exact", "change", "proof")  # the other parts, which a checkpoint must hold


class KeptStates:
    """The states of the shards of a group of models.

    The state of a shard is in `_here` if tasks run in this process; otherwise it is on a worker, and below `home`.

    home : the folder for the shards of a fit (`shard_tasks.py`); '' if tasks run in this process
    """

    def __init__(self, rows: Sequence[ShardRows], models: ModelGroup, ctx: Context) -> None:
        self._rows, self._models = rows, models
        self._here: list[ShardState] | None = None
        self.home = ""
        self._unsaved: list[Any] | None = None
        self._mapper, self._at_most, self._stopping = ctx.mapper, ctx.pass_workers, ctx.stopping
        if ctx.mapper.in_process:
            self._here = [ShardState(one, *self._of(one), self._before(one)) for one in rows]
        else:
            self.home = shard_tasks.new_home(ctx.workdir)
            self._remove_home = weakref.finalize(self, shutil.rmtree, self.home, True)

    def ask(self, task: Callable[..., ShardSum], told: Any, may_be_left: bool = False) -> ShardSum:
        """The sum of what a task of `shard_tasks.py` gives on all shards.

        may_be_left : the task changes nothing, and PassLeft is raised if the run is to stop
        """
        states: Sequence[ShardState | None] = self._here or [None] * len(self._rows)
        shards = [Shard(rows, state, self.home) for rows, state in zip(self._rows, states, strict=True)]
        mapper = self._mapper
        begun = mapper.on_shards(task, shards, mapper.publish(told), self._at_most)
        return mapper.reduce(begun, self._stopping if may_be_left else None)

    def lend(self, riding: DeferredCertificate) -> None:
        """Set the point of a deferred certificate in states of this process that have none."""
        for rows, state in zip(self._rows, self._here or (), strict=True):
            if state.proof is None:
                at = slice(rows.first, rows.first + rows.n_rows)
                state.lend(rows.problem, riding.w, riding.alpha.values[at])

    def collect(self, rounds: int, theta: np.ndarray) -> None:
        """Apply the last step length on the shards, and copy alpha and flags to the arrays of this process."""
        if self._here is not None:
            for state in self._here:
                state.settle(theta)
            return
        if self._unsaved is not None:  # no round since the checkpoint was loaded
            return
        self.ask(shard_tasks.save_task, (rounds, theta))
        for rows in self._rows:
            tree = shard_tasks.saved_tree(self.home, rows.number, rounds, _ROWS)
            alpha, streams = self._of(rows)
            alpha[...], streams[...] = tree["alpha"], tree["streams"]
        shard_tasks.drop_log(self.home, rounds)

    def dump(self, rounds: int) -> list[Any]:
        """The states for a checkpoint, except for alpha and flags of the rows; to be called after `collect`."""
        if self._here is not None:
            return [state.dump() for state in self._here]
        if self._unsaved is not None:
            return self._unsaved
        return [shard_tasks.saved_tree(self.home, rows.number, rounds, _BESIDE) for rows in self._rows]

    def load(self, trees: Sequence[Any], shared: dict[str, Any]) -> None:
        """Take over what `dump` gave, also in a run with another mapper.

        shared : parts of a state that are the same on all shards: the w that the last round began at, and the buckets
        """
        if self._here is None:
            self._unsaved = list(trees)
            return
        for state, saved in zip(self._here, trees, strict=True):
            state.load({**saved, **shared})

    def restore(self, shared: dict[str, Any], riding: DeferredCertificate | None) -> None:
        """Save the states of a loaded checkpoint below `home`, where workers look for them.

        shared : as in `load`
        riding : the deferred certificate that an unfinished pass computes, whose point is saved with them
        """
        if self._unsaved is None:
            return
        for rows, saved in zip(self._rows, self._unsaved, strict=True):
            alpha, streams = self._of(rows)
            at = slice(rows.first, rows.first + rows.n_rows)
            point = None if riding is None else [riding.w, riding.alpha.values[at]]
            tree = {
                "alpha": alpha, "streams": streams, "point": point, "before": self._before(rows), **shared, **saved
            }  # fmt: skip
            shard_tasks.write_home(self.home, rows.number, tree)
        self._unsaved = None

    def finish(self) -> None:
        """Release the states, here and on the workers."""
        self._here = [] if self._here is not None else None
        if self.home:
            with suppress(BigSVMError):  # if the cluster is lost, so is what it kept
                self.ask(shard_tasks.forget_task, None)
            self._remove_home()

    def _of(self, rows: ShardRows) -> tuple[np.ndarray, np.ndarray]:
        """Views of alpha and of the flags of a shard's rows."""
        at = slice(rows.first, rows.first + rows.n_rows)
        return self._models.alpha.values[at], self._models.active.values[at, 0]

    def _before(self, rows: ShardRows) -> np.ndarray | None:
        """A view of a shard's alpha before the last step of momentum; None without momentum."""
        momentum = self._models.momentum
        return None if momentum is None else momentum.alpha.values[rows.first : rows.first + rows.n_rows]
