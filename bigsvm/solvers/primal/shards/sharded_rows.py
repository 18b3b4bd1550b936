"""Rows on several shards, for a primal solver: each operation is done by every shard, and the results are added up.

The results are sums of the size of w, Hessians, and histograms of a line search; the mapper adds them in a tree.
Slacks, products and alpha stay with their rows, and are copied only when the shards are saved.
"""

from __future__ import annotations

import math
import shutil
import weakref
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np

from bigsvm.errors import BigSVMError
from bigsvm.problem.certificate import RowsTerms
from bigsvm.problem.problem import Problem
from bigsvm.solvers import shard_tasks
from bigsvm.solvers.base import DataShape, Need, Point
from bigsvm.solvers.context import Context
from bigsvm.solvers.primal.dual_point import Mixing
from bigsvm.solvers.primal.line_search import Step, exact_step_of
from bigsvm.solvers.primal.row_pass import Curvature, Weights
from bigsvm.solvers.primal.row_state import RowState, Smoothed, middle_of, new_rows, off_kink
from bigsvm.solvers.primal.shards.shard_state import PrimalRows, PrimalShard, Told, unpacked
from bigsvm.solvers.shard_reading import ShardReading, terms_of
from bigsvm.solvers.shard_tasks import Shard
from bigsvm.tasks import FAN_IN, PassLeft, ShardSum, TreeSum, leaving_when

_NOTHING = np.zeros(0)


class ShardedRows(RowState):
    """A `RowState` whose vectors lie on shards.

    If tasks run in this process, its vectors have all rows; otherwise they are empty, except alpha, which has all rows
    as of the last `collect`.

    If the run is to stop, operations that read rows raise PassLeft (`PrimalShard.may_be_left`).  A solver then goes on
    with the same operation, or calls `begin_again` and goes on with its whole step.

    rounds : int      rounds since the fit began
    products : bool   shards sum products up, for conjugate gradients
    weights : loss that gives alpha and curvature of a row; None: that of the problem
    kind : class of the shards; solvers that do more than look, measure and move have their own
    """

    def __init__(
        self, problem: Problem, ctx: Context, products: bool = False, weights: Weights | None = None,
        kind: type[PrimalShard] = PrimalShard,
    ) -> None:  # fmt: skip
        here, m, n = ctx.mapper.in_process, problem.n_models, len(ctx.refs)
        if here:
            whole = new_rows(problem, ctx)
            super().__init__(whole.s, whole.p, whole.alpha, whole.cost, whole.y)
        else:
            none = ctx.vector("slacks", m, n_rows=0)
            super().__init__(none, none, ctx.vector("alpha", m), none, none)
        self.rounds, self._saved, self._began, self._left = 0, -1, 0, False
        self._problem, self._ctx, self._losses, self._kind = problem, ctx, np.zeros(m), kind
        parts = [range(k * n // ctx.shards, (k + 1) * n // ctx.shards) for k in range(ctx.shards)]
        self._rows = [
            self._part(
                PrimalRows(ctx.data, problem, k, ctx.refs[0].n_rows, part, weights or problem.loss, kind, products)
            )
            for k, part in enumerate(parts)
        ]
        self._states: list[PrimalShard] = []
        self._home = ""
        self._own = [ctx.vector(own.what, m if own.of_models else 1, own.dtype) for own in kind.own if here]
        if here:
            self._products = ctx.vector("products", m) if products else None
            self._states = [self._here(rows, ctx) for rows in self._rows]
        else:
            self._products = None
            self._home = shard_tasks.new_home(ctx.workdir)
            self._remove_home = weakref.finalize(self, shutil.rmtree, self._home, True)

    # -- readings of the rows ------------------------------------------------------------------------------------------

    def look(
        self, w: np.ndarray, curvature: Curvature, d: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Compute slacks at w, and products with d if it is given; returns V and H of `row_pass`."""
        total = self.tell("look", [curvature, d], w)
        self.looked(total)
        if curvature == "none":
            return total.vectors[0], None
        V, H = total.vectors
        return V, unpacked(H, len(w)) if curvature == "matrix" else H

    def looked(self, total: ShardSum) -> None:
        """Record the losses, and count the bytes, of a reading of the rows."""
        # If there are more shards than rows, a shard without rows has no losses.
        losses = [losses for losses, *_ in total.each if len(losses)]
        self._losses = np.array([math.fsum(column) for column in np.transpose(losses)])
        self._ctx.charge(sum(nbytes for _, nbytes, *_ in total.each))

    def product(self, d: np.ndarray) -> np.ndarray:
        """Compute the products of the rows with d, which stay on the shards; H d."""
        total = self.tell("product", [], d)
        self._ctx.charge(sum(total.each))
        return total.vectors[0]

    def measure(self, d: np.ndarray) -> None:
        """Compute the products of the rows with d."""
        self._ctx.charge(sum(self.tell("measure", [], d).each))

    def prove(self, w: np.ndarray, rescaled: bool, shortened: bool) -> list[RowsTerms]:
        """The terms of a proof of w and the alpha of the shards, for an `Accumulator`."""
        total = self.ask(("proof", rescaled, shortened), w)
        return terms_of(total.each, total.vectors[0])

    # -- sums of products ----------------------------------------------------------------------------------------------

    def begin_products(self) -> None:
        """Begin a new sum of products, at 0."""
        self.tell("begin", [])

    def add_products(self, length: np.ndarray) -> None:
        """Add the last products times `length`, (n_models,), to the sum."""
        self.tell("add", [length])

    def follow_products(self) -> None:
        """Use the sum as the products with the direction, instead of calling `measure`."""
        self.tell("follow", [])

    # -- as RowState and Mixing have them ------------------------------------------------------------------------------

    def losses(self, problem: Problem) -> np.ndarray:
        """The losses of the last look; float64, (n_models,)."""
        return self._losses

    def search(
        self, problem: Problem, linear: np.ndarray, quadratic: np.ndarray, longest: float = np.inf
    ) -> list[Step]:
        """The exact step along p of each model."""
        return [
            off_kink(problem, exact_step_of(LineOf(self, m, 0.0), float(linear[m]), float(quadratic[m]), longest))
            for m in range(problem.n_models)
        ]

    def advance(self, steps: list[Step]) -> None:
        """s -= t p for each model's step."""
        self.tell("advance", told_of(steps))

    def costless_bias(self, problem: Problem) -> float:
        """See `RowState`."""
        if not (problem.regression and problem.bias == "free"):
            return 0.0
        spans = self.ask(("span",)).each
        return middle_of(problem, min(low for low, _ in spans), max(high for _, high in spans))

    def losses_after(self, problem: Problem, weights: Smoothed, t: np.ndarray, total: np.ndarray) -> np.ndarray:
        """See `RowState`; the shards use the weights that they were made with."""
        return total + summed(self.ask(("losses_after", t)).each)

    def search_bias(
        self, problem: Problem, m: int, way: float, linear: float = 0.0, quadratic: float = 0.0
    ) -> Step:  # fmt: skip
        """See `RowState`."""
        return off_kink(problem, exact_step_of(LineOf(self, m, way), linear, quadratic))

    def shift(self, problem: Problem, m: int, way: float, step: Step) -> None:
        """See `RowState`."""
        self.tell("shift", [m, way, float(step.length), bool(step.on_kink)])

    def point(self, problem: Problem, w: np.ndarray) -> Point:
        """w with alpha of all shards, which the shards prove."""
        self.collect()
        return Point(problem, w, self.alpha, on_shards=self.prove)

    def mixing(self) -> Mixing:
        """Itself: the shards add the sums up."""
        return self

    def end_step(self) -> None:
        """Save the shards."""
        self.save()
        self._began = self.rounds

    def begin_again(self) -> None:
        """Forget the rounds since the last step ended: the present one was left, and is repeated from its beginning."""
        self.rounds = self._began

    def sides(self) -> np.ndarray:
        """See `Mixing`."""
        return summed(self.ask(("sides",)).each)

    def sums(self, shares: np.ndarray | None) -> np.ndarray:
        """See `Mixing`."""
        return summed(self.ask(("sums", shares)).each)

    def move(self, shares: np.ndarray | None, theta: np.ndarray) -> None:
        """See `Mixing`."""
        self.tell("move", [shares, theta])

    # -- saves ---------------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Save the shards, so that a shard that is lost can be made again from this round."""
        if not self._home or self._saved == self.rounds:
            return
        if self._left:
            self._on_shards(shard_tasks.save_left_task, self.rounds)
        else:
            self._on_shards(shard_tasks.save_task, (self.rounds, None))
        self._saved, self._left = self.rounds, False
        shard_tasks.drop_log(self._home, self.rounds)

    def collect(self) -> None:
        """Copy alpha of all shards to this process."""
        if not self._home:
            return
        for rows, tree in zip(self._rows, self._trees(), strict=True):
            self.alpha.values[rows.first : rows.first + rows.n_rows] = tree["alpha"]

    def dump(self) -> dict[str, Any]:
        """The state for a checkpoint, which is the same for every mapper."""
        return {"rounds": self.rounds, "losses": self._losses, "shards": self._trees()}

    def load(self, tree: dict[str, Any]) -> None:
        """Restore what `dump` returned."""
        self.rounds, self._losses = int(tree["rounds"]), np.array(tree["losses"])
        for rows, saved in zip(self._rows, tree["shards"], strict=True):
            if self._home:
                shard_tasks.write_home(self._home, rows.number, saved)
            else:
                self._states[rows.number].restore(rows, saved)
        self._saved = self._began = self.rounds

    def close(self) -> None:
        """Release all but alpha, here and on the shards."""
        self._states = []
        if self._home:
            with suppress(BigSVMError):  # a cluster that is gone holds nothing
                self._on_shards(shard_tasks.forget_task, None)
            self._remove_home()
        for vector in (*self._own, *([] if self._products is None else [self._products])):
            vector.close()
        super().close()

    def _trees(self) -> list[dict[str, Any]]:
        if not self._home:
            # An interrupted pass may have advanced some shards, but not others; that pass is repeated.
            return [{**state.whole(), "rounds": self.rounds} for state in self._states]
        self.save()
        return [shard_tasks.saved_tree(self._home, rows.number, self.rounds) for rows in self._rows]

    # -- where the shards are ------------------------------------------------------------------------------------------

    def _part(self, rows: PrimalRows) -> Any:
        """The description of a shard from which its state is made (`shard_tasks.ShardRows`)."""
        return rows

    def _here(self, rows: Any, ctx: Context) -> PrimalShard:
        products = None if self._products is None else self._products.values[rows.first : rows.first + rows.n_rows]
        reading = ShardReading(ctx.data, rows.refs, ctx.mapper, ctx.pass_workers, ctx.stopping)
        return rows.kind(rows, self._vectors(rows), products, reading)

    def _vectors(self, rows: Any) -> list[np.ndarray]:
        """Views of the rows of a shard in the vectors of all rows."""
        at = slice(rows.first, rows.first + rows.n_rows)
        return [vector.values[at] for vector in (self.s, self.p, self.alpha, self.cost, self.y, *self._own)]

    def tell(self, what: str, args: list[Any], w: np.ndarray = _NOTHING) -> ShardSum:
        """Do a round: the operation `what` of `PrimalShard` on all shards.  It changes their state, and is logged."""
        told = Told(self.rounds, what, args)
        if self._home:
            shard_tasks.log_round(self._home, told, w)
        try:
            total = self._on_shards(shard_tasks.round_task, (told, w), what in self._kind.may_be_left)
        except PassLeft:
            self._left = True
            raise
        self.rounds += 1
        return total

    def ask(self, question: tuple[Any, ...], w: np.ndarray | None = None) -> ShardSum:
        """Ask all shards a question, (name, arguments...), which changes nothing; see `PrimalShard.answer`."""
        return self._on_shards(shard_tasks.ask_task, (self.rounds, question, w), question[0] == "proof")

    def _on_shards(self, task: Any, told: Any, may_be_left: bool = False) -> ShardSum:
        """The sum over all shards.  In this process they work one after another, each with all threads."""
        ctx = self._ctx
        stopping = ctx.stopping if may_be_left else None
        if stopping is not None and stopping():
            raise PassLeft
        if self._home:
            shards = [Shard(rows, None, self._home) for rows in self._rows]
            return ctx.mapper.reduce(ctx.mapper.on_shards(task, shards, ctx.mapper.publish(told)), stopping)
        total = TreeSum()
        with nullcontext() if stopping is None else leaving_when(stopping):
            for rows, state in zip(self._rows, self._states, strict=True):
                total.take(task(Shard(rows, state, ""), told))
        return total.total()


class LineOf:
    """`LineSums` of model m over rows on shards: along p if `way` is 0, else along the bias in that direction."""

    def __init__(self, rows: ShardedRows, m: int, way: float) -> None:
        self._rows, self._line = rows, (m, way)

    def at_start(self) -> np.ndarray:
        return self._rows.ask(("start", *self._line)).vectors[0]

    def histogram(self, prefix: int, shift: int) -> np.ndarray:
        return self._rows.ask(("histogram", *self._line, prefix, shift)).vectors[0]

    def breakpoints(self, prefix: int, shift: int, n: int) -> np.ndarray:
        return np.concatenate(self._rows.ask(("breakpoints", *self._line, prefix, shift, n)).each)

    def at_step(self, t: float) -> np.ndarray:
        return self._rows.ask(("step", *self._line, t)).vectors[0]


def told_of(steps: list[Step]) -> list[np.ndarray]:
    """The step of each model, as shards are told it: lengths, and whether they are on a kink."""
    lengths, kinks = ([step[k] for step in steps] for k in range(2))
    return [np.array(lengths), np.array(kinks)]


def sums_need(shape: DataShape, nbytes: int) -> list[Need]:
    """Memory for adding up the results of shards, `nbytes` each, in a tree; none for a single shard."""
    if shape.shards == 1:
        return []
    held = FAN_IN * (math.ceil(math.log(shape.shards, FAN_IN)) + 1) + 2
    return [Need("sums of shards", held * nbytes)]


def summed(each: Iterable[Any]) -> np.ndarray:
    """The sum of one array of each shard, float64, of any shape, rounded only once."""
    stacked = np.array(list(each), np.float64)
    flat = [math.fsum(column) for column in stacked.reshape(len(stacked), -1).T]
    return np.array(flat).reshape(stacked.shape[1:])
