"""One shard of `newton-ws`: it measures directions on its rows, keeps some of them, and gives sums over them.

Each shard has a working set of its own, with limits, bands, kept rows and folded rows.  The problem on the kept rows of
all shards needs only sums and minima over them (`interior`, `working_newton`), of the size of w or of a triangle.  A
step of the solver is a pass and some hundred rounds of such sums.  Between two steps a shard remembers slacks, alpha,
and how many bytes its kept rows took.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np

from bigsvm.problem.deferred import DeferredCertificate
from bigsvm.problem.problem import Problem
from bigsvm.solvers.newton_ws.capacity import Room
from bigsvm.solvers.newton_ws.interior import GapSums, PathRows, RowCosts
from bigsvm.solvers.newton_ws.subproblem import Subproblem
from bigsvm.solvers.newton_ws.working_newton import NewtonRows
from bigsvm.solvers.newton_ws.working_pass import WorkingPass, slope_at_one
from bigsvm.solvers.newton_ws.working_problem import Placed, far_matter, kept_rows
from bigsvm.solvers.newton_ws.working_set import Fold, WorkingSet
from bigsvm.solvers.primal.dual_point import RowMixing
from bigsvm.solvers.primal.line_search import PieceSums, Step
from bigsvm.solvers.primal.shards.shard_state import PrimalRows, PrimalShard, Told, steps_of
from bigsvm.solvers.shard_reading import ShardReading, ShardVector, proof_of
from bigsvm.store.blocks import BlockRef, RowBlocks
from bigsvm.store.state.vectors import RowVector
from bigsvm.tasks import ShardSum


class WorkingPart(NamedTuple):
    """What a shard is in every round: its rows, and the limits of its working set.

    room : limits of the working set of this shard
    seed : int    seed of the run
    tasks : int   tasks of a pass in the plan, whatever runs them; the order of the rows depends on it
    """

    rows: PrimalRows
    room: Room
    seed: int
    tasks: int

    @property
    def number(self) -> int:
        return self.rows.number

    @property
    def data(self) -> RowBlocks:
        return self.rows.data

    @property
    def problem(self) -> Problem:
        return self.rows.problem

    @property
    def refs(self) -> Sequence[BlockRef]:
        return self.rows.refs

    @property
    def first(self) -> int:
        return self.rows.first

    @property
    def n_rows(self) -> int:
        return self.rows.n_rows

    def new_state(self) -> WorkingShard:
        """A shard at w = 0, alpha = 0, with new arrays."""
        place = np.zeros((self.n_rows, self.problem.n_models), np.uint8)
        reading = WorkingReading(self.data, self.refs, pass_workers=self.tasks, seed=self.seed)
        return WorkingShard(self, self.rows.new_vectors(), place, reading)

    def told(self, tree: dict[str, Any]) -> Told:
        """A round as it is kept in the log."""
        return self.rows.told(tree)


@dataclass
class WorkingReading(ShardReading):
    """What a pass over the rows of a shard needs, with the deferred proofs that it computes."""

    seed: int = 0
    deferred: list[DeferredCertificate] = field(default_factory=list)


class WorkingShard(PrimalShard):
    """The state of a shard between two rounds.

    place : uint8, (n_rows, n_models)   OUT, FOLDED or KEPT for each row
    entry_bytes : float   mean bytes of the entries of a row in the last working set, 0 before the first.  It changes
        only at the end of a step, so that a pass that was interrupted is repeated with the same value
    threads : int         for work whose result does not depend on their number

    During a step it also has the pass (_passing), its working set (_found), the steps that the line search found
    (_steps), the dual point after them (_known), and the problem of one model with its solution so far (_posed).
    Slacks and alpha stay as they are until the problems of all models are solved.  Up to then a step may be left, and
    it begins again with its pass.
    """

    may_be_left = PrimalShard.may_be_left | {
        "sample", "open", "rest", "arrive", "pose",
        "start", "weigh", "towards", "correct", "recentre", "step", "to_bounds", "take_back",
        "start_within", "look_within", "measure_within", "step_within",
        "settle_dual", "lighten",
    }  # fmt: skip

    def __init__(
        self, part: WorkingPart, vectors: Sequence[np.ndarray], place: np.ndarray, reading: WorkingReading,
        threads: int = 1,
    ) -> None:  # fmt: skip
        super().__init__(part.rows, vectors, None, reading)
        self._part, self._pass_reading, self._threads = part, reading, threads
        self._place = cast(RowVector, ShardVector(place, part.first))
        self.entry_bytes = self._of_sample = 0.0
        self._forget_step()

    def _forget_step(self) -> None:
        self._passing: WorkingPass | None = None
        self._found: WorkingSet | None = None
        self._steps: list[Step] = []
        self._known: Placed | None = None
        self._posed: PathRows | NewtonRows | None = None
        self._d, self._alpha, self._scale, self._of_pass = np.zeros(0), np.zeros(0), 1.0, 0.0

    def whole(self) -> dict[str, Any]:
        """The state between two steps, from which `restore` makes the shard again."""
        return {**super().whole(), "entry_bytes": self.entry_bytes}

    def restore(self, rows: PrimalRows, tree: dict[str, Any]) -> None:
        """Restore the state that `whole` returned."""
        super().restore(rows, tree)
        self.entry_bytes, self._of_sample = float(tree["entry_bytes"]), 0.0
        self._forget_step()

    # -- the pass ------------------------------------------------------------------------------------------------------

    def _new_pass(self, number: int, width: int, entry_bytes: float) -> WorkingPass:
        self._forget_step()
        part, problem = self._part, self._problem
        shape = (width,) if problem.n_models == 1 else (width, problem.n_models)
        rows = range(part.first, part.first + part.n_rows)
        return WorkingPass(
            self._pass_reading, problem, self.rows, self._place, shape, part.room, entry_bytes, number, rows
        )

    def _sample(self, w: np.ndarray, number: int) -> ShardSum:
        """Sample the rows, with costs scaled up to all rows of the shard; the bytes read."""
        before = self.reading.bytes_read
        self._pass_reading.deferred = []
        passing = self._new_pass(number, len(w), 0.0)
        if self._part.n_rows:
            self._found, share = passing.sample()
            self._scale, self._of_sample = 1.0 / share, self._found.entry_bytes
        else:
            self._found = passing.found
        return ShardSum((self.reading.bytes_read - before,))

    def _open(self, d: np.ndarray, number: int, points: list[Any]) -> ShardSum:
        """Read the first round of a pass along d, with deferred proofs of `points`: (w, whether alpha is rescaled).

        Returns the number of rows seen; for each model the slope at length 1 and its standard error; the sums of |p|
        and the number of rows in them; and the bytes read.
        """
        before, problem, alpha = self.reading.bytes_read, self._problem, cast(ShardVector, self.rows.alpha)
        self._pass_reading.deferred = [proof_of(problem, np.array(w), alpha, rescaled) for w, rescaled in points]
        passing = self._new_pass(number, len(d), self.entry_bytes or self._of_sample)
        self._passing, self._d = passing, np.array(d)
        if self._part.n_rows:
            passing.begin(self._d)
        ends = [slope_at_one(problem, m, passing.first_pieces(m)()) for m in range(problem.n_models)]
        passing.found.fold = Fold([], None)  # without matrices, which `_rest` makes for one shard at a time
        moved, rows = passing.moved()
        return ShardSum(((passing.found.seen, np.array(ends), moved, rows, self.reading.bytes_read - before),))

    def _rest(self, w: np.ndarray, ahead: np.ndarray, mean: np.ndarray, ready: np.ndarray) -> ShardSum:
        """Read the other rows, with the expected lengths of the step.

        Returns the rows on each side, the capacity, the sums and rows of each proof, and the bytes read; as vectors,
        which are added over the shards, leans, F, and v of each proof.
        """
        passing, before, problem = self._passing, self.reading.bytes_read, self._problem
        assert passing is not None
        passing.found.fold = Fold.empty(problem, passing.shape)
        found = passing.found
        if self._part.n_rows:
            passing.expect(ahead, mean)
            passing.rest(self._d, ready)
        self._of_pass = found.entry_bytes
        self._passing, self._found = None, found
        fold, found.fold = found.fold, Fold([], None)
        proofs = [proof.found() for proof in self._pass_reading.deferred]
        self._pass_reading.deferred = []
        capacity = found.capacity if self._part.n_rows else 0
        each = (found.sides, capacity, [proof[:2] for proof in proofs], self.reading.bytes_read - before)
        bends = [] if fold.F is None else [fold.F]
        return ShardSum((each,), (*fold.leans, *bends, *(v for _, _, v in proofs)))

    def _arrive(self, w: np.ndarray, lengths: np.ndarray, on_kink: np.ndarray) -> ShardSum:
        """Note the steps, along which `_advance` will move the slacks; the losses after them."""
        assert self._found is not None
        self._steps = steps_of(lengths, on_kink)
        self._known = Placed(self._problem, self.rows, self._place, self._found, lengths)
        if not self._part.n_rows:
            return ShardSum((np.zeros(self._problem.n_models),))
        return ShardSum((self.rows.losses_at(self._problem, self._steps),))

    def _end(self, w: np.ndarray) -> None:
        self.entry_bytes, self._of_sample = self._of_pass, 0.0
        self._forget_step()

    # -- the problem on the kept rows ----------------------------------------------------------------------------------

    def _pose(self, w: np.ndarray, m: int, sampled: bool) -> ShardSum:
        """Pose the problem of model m without lean and F, which the solver has; the statistics of its C."""
        assert self._found is not None
        nothing = np.zeros(len(w))
        part = kept_rows(self._problem, self._found, m, nothing, nothing, self._threads, self._scale, sampled)
        self._posed = NewtonRows(part) if self._problem.loss.smooth else PathRows(part)
        return ShardSum((tuple(RowCosts.of(part)),))

    def _start(self, w: np.ndarray, mu: float, most: float) -> ShardSum:
        rows = self._on_path()
        rows.most = most
        costs, sums = rows.start(w, mu)
        return _with_sums(sums, costs)

    def _weigh(self, w: np.ndarray) -> ShardSum:
        rows = self._on_path()
        H = rows.problem.triangles()
        before, pulled = rows.weigh(H)
        return ShardSum((before,), (H[0], pulled))

    def _towards(self, dw: np.ndarray) -> ShardSum:
        return ShardSum((self._on_path().towards(dw),))

    def _of_products_after(self, dual: float, primal: float) -> ShardSum:
        return ShardSum((self._on_path().products_after(dual, primal),))

    def _correct(self, w: np.ndarray, mu: float, most: float) -> ShardSum:
        return ShardSum((None,), (self._on_path().correct(mu, most),))

    def _recentre(self, w: np.ndarray, mu: float, dual: float, primal: float) -> ShardSum:
        return ShardSum((None,), (self._on_path().recentre(mu, dual, primal),))

    def _step(self, w: np.ndarray, dual: float, primal: float, present: bool) -> ShardSum:
        return _with_sums(self._on_path().step(dual, primal, present))

    def _to_bounds(self, w: np.ndarray) -> ShardSum:
        return _with_sums(self._on_path().to_bounds())

    def _take_back(self, w: np.ndarray) -> None:
        self._on_path().take_back()

    def _start_within(self, w: np.ndarray) -> None:
        self._descending().start(w)

    def _look_within(self, w: np.ndarray) -> ShardSum:
        rows = self._descending()
        H = rows.problem.triangles()
        pulled = rows.look(H)
        return ShardSum((None,), (H[0], pulled))

    def _measure_within(self, d: np.ndarray) -> None:
        self._descending().towards(d)

    def _step_within(self, w: np.ndarray, length: float) -> None:
        self._descending().step(length)

    # -- the dual point ------------------------------------------------------------------------------------------------

    def _of_crossed(self) -> ShardSum:
        part, alpha = self._solved()
        return ShardSum((far_matter(part, alpha),))

    def _settle_dual(self, w: np.ndarray, m: int) -> ShardSum:
        """Set alpha of the near rows; its sums over rows with y = -1 and +1, and its pull as a vector."""
        part, alpha = self._solved()
        self._alpha = np.where(part.far, 0.0, alpha)
        positive = part.codes == 1
        totals = [float(self._alpha[~positive].sum()), float(self._alpha[positive].sum())]
        return ShardSum((totals,), (self._put(m, part),))

    def _lighten(self, w: np.ndarray, m: int, positive: bool, left: float) -> ShardSum:
        """Multiply alpha of one class by `left`; its new pull as a vector."""
        part, _ = self._solved()
        self._alpha[(part.codes == 1) == positive] *= left
        return ShardSum((None,), (self._put(m, part),))

    def _put(self, m: int, part: Subproblem) -> np.ndarray:
        assert self._known is not None
        self._known.take(m, self._alpha[~part.far])
        return part.pull(self._alpha)

    def _mixing(self) -> RowMixing:
        return RowMixing(self._problem, self.rows, self._problem.loss, self._known)

    # -- the problem that is posed -------------------------------------------------------------------------------------

    def _on_path(self) -> PathRows:
        assert isinstance(self._posed, PathRows)
        return self._posed

    def _descending(self) -> NewtonRows:
        assert isinstance(self._posed, NewtonRows)
        return self._posed

    def _solved(self) -> tuple[Subproblem, np.ndarray]:
        assert self._posed is not None
        return self._posed.problem, self._posed.alpha

    def _line(self, m: int, way: float) -> PieceSums:
        """The losses along the direction: over the rows of the posed problem, those of the first round, or all rows."""
        if isinstance(self._posed, NewtonRows):
            return self._posed.line()
        if self._passing is not None:
            problem = self._problem
            return PieceSums(self._passing.first_pieces(m), float(problem.C[m]), problem.loss.one_sided)
        return super()._line(m, way)


def _with_sums(sums: GapSums, *others: float) -> ShardSum:
    return ShardSum(((sums.losses, sums.linear, *others),), (sums.pulled,))
