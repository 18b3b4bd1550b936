"""`newton-ws` with rows on shards: a pass, and the problem on all kept rows, as sums over the shards.

The kept rows of all shards form one working set, whose problem is solved by the same iterations as on one machine.
Each iteration adds up a triangle of order n_features + 1 and a few vectors of the size of w.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsvm.problem.problem import Problem
from bigsvm.solvers.context import Context
from bigsvm.solvers.newton_ws.capacity import Room
from bigsvm.solvers.newton_ws.interior import GapSums, RowCosts, follow, most_counted
from bigsvm.solvers.newton_ws.shards.working_shard import WorkingPart, WorkingReading, WorkingShard
from bigsvm.solvers.newton_ws.subproblem import Around
from bigsvm.solvers.newton_ws.working_newton import descend
from bigsvm.solvers.newton_ws.working_pass import LONGEST, is_whole
from bigsvm.solvers.newton_ws.working_problem import Measured, Posed, share_left
from bigsvm.solvers.primal.line_search import Step, exact_step_of
from bigsvm.solvers.primal.shards.shard_state import PrimalRows
from bigsvm.solvers.primal.shards.sharded_rows import LineOf, ShardedRows, summed, told_of
from bigsvm.solvers.shard_reading import terms_of
from bigsvm.solvers.weights import inner, squared_norm
from bigsvm.tasks import ShardSum


class ShardedWorkingRows(ShardedRows):
    """A `RowState` whose vectors and working sets lie on shards.

    room : limits of the working set of each shard
    """

    def __init__(self, problem: Problem, ctx: Context, room: Room) -> None:
        self._room = room
        self._place = ctx.vector("row places", problem.n_models, np.uint8) if ctx.mapper.in_process else None
        super().__init__(problem, ctx, products=False, kind=WorkingShard)

    def _part(self, rows: PrimalRows) -> WorkingPart:
        room = self._room._replace(most=min(self._room.most, rows.n_rows))
        return WorkingPart(rows, room, self._ctx.seed, self._ctx.pass_workers)

    def _here(self, rows: WorkingPart, ctx: Context) -> WorkingShard:
        assert self._place is not None
        reading = WorkingReading(
            ctx.data, rows.refs, ctx.mapper, rows.tasks, ctx.stopping, seed=rows.seed
        )  # fmt: skip
        place = self._place.values[rows.first : rows.first + rows.n_rows]
        return WorkingShard(rows, self._vectors(rows), place, reading, ctx.threads)

    def sample(self, number: int, shape: tuple[int, ...]) -> MeasuredOnShards:
        """Let every shard sample its rows; the problems on the samples.  number, shape : as for `PassOnShards`"""
        total = self.tell("sample", [number], np.zeros(shape[0]))
        self._ctx.charge(sum(total.each))
        return MeasuredOnShards(self, [], None, np.zeros((2, self._problem.n_models), np.int64), 0)

    def read(self, w: np.ndarray, d: np.ndarray, ready: np.ndarray, number: int) -> MeasuredOnShards:
        """Measure the direction d on all rows, and let every shard choose its working set; see `WorkingPass.read`.

        number : int   number of the pass
        """
        problem, riding = self._problem, self._ctx.deferred
        for proof in riding:
            proof.restart()
        points: list[Any] = [[proof.w, False] for proof in riding]
        first = self.tell("open", [number, points], d)
        self._ctx.charge(sum(each[-1] for each in first.each))
        moved, rows = summed(each[2] for each in first.each), sum(each[3] for each in first.each)
        ahead = self._ahead(first, inner(problem, w, d), squared_norm(problem, d))
        total = self.tell("rest", [ahead, moved / max(rows, 1), ready])
        sides, capacities, proved, nbytes = zip(*total.each, strict=True)
        self._ctx.charge(sum(nbytes))
        vectors = list(total.vectors)
        for k, proof in reversed(list(enumerate(riding))):
            for terms in terms_of([(*found[k], 0) for found in proved], vectors.pop()):
                proof.take(terms)
        F = vectors.pop() if problem.loss.smooth else None
        return MeasuredOnShards(self, vectors, F, np.sum(sides, axis=0), sum(capacities))

    def _ahead(self, first: ShardSum, linear: np.ndarray, quadratic: np.ndarray) -> np.ndarray:
        """Predict the length of the step of each model from the rows of the first rounds; float64, (n_models,)."""
        problem = self._problem
        scale = self._ctx.data.n_samples / max(sum(each[0] for each in first.each), 1)
        ends, ahead = [each[1] for each in first.each], np.ones(problem.n_models)
        slopes = scale * summed(end[:, 0] for end in ends)
        errors = scale * np.sqrt(summed(end[:, 1] ** 2 for end in ends))
        for m in range(problem.n_models):
            if not is_whole(linear[m] + quadratic[m], slopes[m], errors[m]):
                # The shards do not scale the rows seen up to all rows, so the regulariser is scaled down instead.
                regular = float(linear[m]) / scale, float(quadratic[m]) / scale
                ahead[m] = exact_step_of(LineOf(self, m, 0.0), *regular, LONGEST).length
        return ahead

    def losses_at(self, problem: Problem, steps: list[Step]) -> np.ndarray:
        """See `RowState`.  From now on the shards know the dual points that their working sets give after the steps."""
        return summed(self.tell("arrive", told_of(steps)).each)

    def end_step(self) -> None:
        """Let the shards release their kept rows, and save the shards."""
        self.tell("end", [])
        super().end_step()

    def close(self) -> None:
        """Release all but alpha, here and on the shards."""
        super().close()
        if self._place is not None:
            self._place.close()


class PassOnShards:
    """`Passing` for rows on shards."""

    def __init__(self, rows: ShardedWorkingRows, shape: tuple[int, ...], number: int) -> None:
        self._rows, self._shape, self._number = rows, shape, number

    def sample(self) -> tuple[Measured, float]:
        """See `Passing`.  Each shard knows which share it has sampled, so the share here is 1."""
        return self._rows.sample(self._number, self._shape), 1.0

    def read(self, w: np.ndarray, d: np.ndarray, done: np.ndarray) -> Measured:
        """See `Passing`."""
        return self._rows.read(w, d, done, self._number)


class MeasuredOnShards:
    """`Measured` for rows on shards.  Only the shards know alpha of their rows, and the bytes of the entries."""

    known = None
    entry_bytes = 0.0

    def __init__(
        self, rows: ShardedWorkingRows, leans: list[np.ndarray], F: np.ndarray | None, sides: np.ndarray, capacity: int
    ) -> None:  # fmt: skip
        self._rows, self.leans, self.F, self.sides, self.capacity = rows, leans, F, sides, capacity

    def moved(self, lengths: np.ndarray) -> Measured:
        """See `Measured`.  The shards know of the step already."""
        return self

    def posed(
        self, m: int, lean: np.ndarray, at: np.ndarray, sampled: bool = False, bends: bool = True, scale: float = 1.0
    ) -> Posed:
        """See `Measured`.  `scale` is not used: each shard knows by how much the costs of its sample are larger."""
        problem, F = self._rows._problem, None if self.F is None or not bends else self.F[m]
        free = problem.bias == "free"
        return PosedOnShards(self._rows, m, Around(lean=np.array(lean), at=np.array(at), free=free, F=F), sampled)


class PosedOnShards:
    """`Posed` and `OnPath` for rows on shards."""

    def __init__(self, rows: ShardedWorkingRows, m: int, around: Around, sampled: bool) -> None:
        self._rows, self._m, self._around = rows, m, around
        each = [RowCosts(*costs) for costs in rows.tell("pose", [m, sampled], around.at).each]
        self.costs = float(summed(part.total for part in each))
        self._most = most_counted(each)

    def minimum(self, w: np.ndarray, target: float, mu: float) -> np.ndarray:
        """See `Posed`."""
        if self._rows._problem.loss.smooth:
            return descend(self._around, _Within(self._rows, self._m), w, target)[0]
        return follow(self._around, self, w, target, mu)[0]

    def crossed(self) -> bool:
        """See `Posed`."""
        return any(self._rows.ask(("crossed",)).each)

    def dual(self, folded: float) -> tuple[np.ndarray, bool]:
        """See `Posed`."""
        total = self._rows.tell("settle_dual", [self._m])
        pulled = total.vectors[0]
        if not self._around.free:
            return pulled, True
        excess = (folded + float(pulled[-1])) / self._rows._problem.constant_feature
        left = share_left(excess, float(summed(total.each)[int(excess > 0.0)]))
        if left is None:
            return pulled, False
        return self._rows.tell("lighten", [self._m, excess > 0.0, left]).vectors[0], True

    def start(self, w: np.ndarray, mu: float) -> tuple[float, GapSums]:
        """See `OnPath`."""
        total = self._rows.tell("start", [mu, self._most], w)
        return float(summed(each[2] for each in total.each)), _gap_sums(total)

    def weigh(self, H: list[np.ndarray]) -> tuple[float, np.ndarray]:
        """See `OnPath`."""
        total = self._rows.tell("weigh", [])
        H[0][:] = total.vectors[0]
        return float(summed(total.each)), total.vectors[1]

    def towards(self, dw: np.ndarray) -> tuple[float, float]:
        """See `OnPath`."""
        dual, primal = np.min(self._rows.tell("towards", [], dw).each, axis=0)
        return float(dual), float(primal)

    def products_after(self, dual: float, primal: float) -> float:
        """See `OnPath`."""
        return float(summed(self._rows.ask(("products_after", dual, primal)).each))

    def correct(self, mu: float, most: float) -> np.ndarray:
        """See `OnPath`."""
        return self._rows.tell("correct", [mu, most]).vectors[0]

    def recentre(self, mu: float, dual: float, primal: float) -> np.ndarray:
        """See `OnPath`."""
        return self._rows.tell("recentre", [mu, dual, primal]).vectors[0]

    def step(self, dual: float, primal: float, present: bool) -> GapSums:
        """See `OnPath`."""
        return _gap_sums(self._rows.tell("step", [dual, primal, present]))

    def to_bounds(self) -> GapSums:
        """See `OnPath`."""
        return _gap_sums(self._rows.tell("to_bounds", []))

    def take_back(self) -> None:
        """See `OnPath`."""
        self._rows.tell("take_back", [])


class _Within:
    """`Descending` for rows on shards."""

    anew = True

    def __init__(self, rows: ShardedWorkingRows, m: int) -> None:
        self._rows, self._m = rows, m

    def start(self, w: np.ndarray) -> None:
        """See `Descending`."""
        self._rows.tell("start_within", [], w)

    def look(self, H: list[np.ndarray]) -> np.ndarray:
        """See `Descending`."""
        total = self._rows.tell("look_within", [])
        H[0][:] = total.vectors[0]
        return total.vectors[1]

    def towards(self, d: np.ndarray) -> None:
        """See `Descending`."""
        self._rows.tell("measure_within", [], d)

    def search(self, linear: float, quadratic: float) -> Step:
        """See `Descending`."""
        return exact_step_of(LineOf(self._rows, self._m, 0.0), linear, quadratic)

    def step(self, length: float) -> None:
        """See `Descending`."""
        self._rows.tell("step_within", [length])


def _gap_sums(total: ShardSum) -> GapSums:
    losses, linear = summed(each[:2] for each in total.each)
    return GapSums(float(losses), float(linear), total.vectors[0])
