"""Rows on several shards, as a primal solver sees them: what it asks of its rows is asked of every shard, and added up.

Sums of the size of w, Hessians and histograms of a line search come back by the mapper's tree; slacks, products and
alpha stay with their rows, and leave them in saves alone.
"""

from __future__ import annotations

import math
import shutil
import weakref
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from bigsvm.errors import BigSVMError
from bigsvm.problem.certificate import RowsTerms
from bigsvm.problem.problem import Problem
from bigsvm.solvers import shard_tasks
from bigsvm.solvers.base import DataShape, Need
from bigsvm.solvers.context import Context
from bigsvm.solvers.primal.line_search import Step, exact_step_of
from bigsvm.solvers.primal.row_pass import Curvature, Weights
from bigsvm.solvers.primal.row_state import RowState, Smoothed, middle_of, new_rows, off_kink
from bigsvm.solvers.primal.shard_state import PrimalRows, PrimalShard, Told, unpacked
from bigsvm.solvers.shard_reading import ShardReading, terms_of
from bigsvm.solvers.shard_tasks import Shard
from bigsvm.tasks import FAN_IN, ShardSum, TreeSum

_NOTHING = np.zeros(0)


class ShardedRows(RowState):
    """A `RowState` whose vectors lie on shards; here they have rows only where tasks run in this process.

    alpha has all rows, which are those of the last `collect`
    rounds : operations since the fit began

    products : shards sum products up as conjugate gradients want it
    weights : what rows weigh in gradients, and in the dual point that they give; as the problem's loss where not given
    kind : what a shard can do; solvers whose rows do more than look, measure and move have one of their own
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
        self.rounds, self._saved = 0, -1
        self._problem, self._ctx, self._losses = problem, ctx, np.zeros(m)
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
        """Slacks at w, and V and H as `row_pass` gives them; with a direction d the rows' products with it, too."""
        total = self.tell("look", [curvature, d], w)
        self.looked(total)
        if curvature == "none":
            return total.vectors[0], None
        V, H = total.vectors
        return V, unpacked(H, len(w)) if curvature == "matrix" else H

    def looked(self, total: ShardSum) -> None:
        """Take the losses and the bytes that shards have found in a reading of their rows."""
        # A shard that has no rows, where shards are more than rows, has no losses.
        losses = [losses for losses, *_ in total.each if len(losses)]
        self._losses = np.array([math.fsum(column) for column in np.transpose(losses)])
        self._ctx.charge(sum(nbytes for _, nbytes, *_ in total.each))

    def product(self, d: np.ndarray) -> np.ndarray:
        """The rows' products with d, which stay there, and the Hessian's."""
        total = self.tell("product", [], d)
        self._ctx.charge(sum(total.each))
        return total.vectors[0]

    def measure(self, d: np.ndarray) -> None:
        """The rows' products with d."""
        self._ctx.charge(sum(self.tell("measure", [], d).each))

    def prove(self, w: np.ndarray, rescaled: bool) -> list[RowsTerms]:
        """The terms of all rows, as an `Accumulator` takes them, of w and the alpha that the shards have."""
        total = self.ask(("proof", rescaled), w)
        return terms_of(total.each, total.vectors[0])

    # -- sums of products ----------------------------------------------------------------------------------------------

    def begin_products(self) -> None:
        """A new sum of products, of none."""
        self.tell("begin", [])

    def add_products(self, length: np.ndarray) -> None:
        """Add `length`, (n_models,), times the last products."""
        self.tell("add", [length])

    def follow_products(self) -> None:
        """Take the sum as what `measure` would have found."""
        self.tell("follow", [])

    # -- as RowState and Mixing have them ------------------------------------------------------------------------------

    def losses(self, problem: Problem) -> np.ndarray:
        """Of the last look."""
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
        lengths, kinks = ([step[k] for step in steps] for k in range(2))
        self.tell("advance", [np.array(lengths), np.array(kinks)])

    def costless_bias(self, problem: Problem) -> float:
        """As `RowState` says."""
        if not (problem.regression and problem.bias == "free"):
            return 0.0
        spans = self.ask(("span",)).each
        return middle_of(problem, min(low for low, _ in spans), max(high for _, high in spans))

    def losses_after(self, problem: Problem, weights: Smoothed, t: np.ndarray, total: np.ndarray) -> np.ndarray:
        """As `RowState` says, of the weights that the shards were made with."""
        return total + summed(self.ask(("losses_after", t)).each)

    def search_bias(
        self, problem: Problem, m: int, way: float, linear: float = 0.0, quadratic: float = 0.0
    ) -> Step:  # fmt: skip
        """As `RowState` says."""
        return off_kink(problem, exact_step_of(LineOf(self, m, way), linear, quadratic))

    def shift(self, problem: Problem, m: int, way: float, step: Step) -> None:
        """As `RowState` says."""
        self.tell("shift", [m, way, float(step.length), bool(step.on_kink)])

    def sides(self) -> np.ndarray:
        """As `Mixing` says."""
        return summed(self.ask(("sides",)).each)

    def sums(self, shares: np.ndarray | None) -> np.ndarray:
        """As `Mixing` says."""
        return summed(self.ask(("sums", shares)).each)

    def move(self, shares: np.ndarray | None, theta: np.ndarray) -> None:
        """As `Mixing` says."""
        self.tell("move", [shares, theta])

    # -- saves ---------------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Let the shards be saved, so that one that is lost is made anew from here."""
        if not self._home or self._saved == self.rounds:
            return
        self._on_shards(shard_tasks.save_task, (self.rounds, None))
        self._saved = self.rounds
        shard_tasks.drop_log(self._home, self.rounds)

    def collect(self) -> None:
        """Bring alpha here."""
        if not self._home:
            return
        for rows, tree in zip(self._rows, self._trees(), strict=True):
            self.alpha.values[rows.first : rows.first + rows.n_rows] = tree["alpha"]

    def dump(self) -> dict[str, Any]:
        """What a checkpoint keeps: the same by whatever mapper."""
        return {"rounds": self.rounds, "losses": self._losses, "shards": self._trees()}

    def load(self, tree: dict[str, Any]) -> None:
        """Take over what `dump` gave."""
        self.rounds, self._losses = int(tree["rounds"]), np.array(tree["losses"])
        for rows, saved in zip(self._rows, tree["shards"], strict=True):
            if self._home:
                shard_tasks.write_home(self._home, rows.number, saved)
            else:
                self._states[rows.number].restore(rows, saved)
        self._saved = self.rounds

    def close(self) -> None:
        """Give back all but alpha, here and where the shards are."""
        self._states = []
        if self._home:
            with suppress(BigSVMError):  # a cluster that is gone has forgotten
                self._on_shards(shard_tasks.forget_task, None)
            self._remove_home()
        for vector in (*self._own, *([] if self._products is None else [self._products])):
            vector.close()
        super().close()

    def _trees(self) -> list[dict[str, Any]]:
        if not self._home:
            # A pass that was left has begun anew with some of them: what it found is looked for again.
            return [{**state.whole(), "rounds": self.rounds} for state in self._states]
        self.save()
        return [shard_tasks.saved_tree(self._home, rows.number, self.rounds) for rows in self._rows]

    # -- where the shards are ------------------------------------------------------------------------------------------

    def _part(self, rows: PrimalRows) -> Any:
        """The rows of a shard with what its state is made with (`shard_tasks.ShardRows`)."""
        return rows

    def _here(self, rows: Any, ctx: Context) -> PrimalShard:
        products = None if self._products is None else self._products.values[rows.first : rows.first + rows.n_rows]
        reading = ShardReading(ctx.data, rows.refs, ctx.mapper, ctx.pass_workers, ctx.stopping)
        return rows.kind(rows, self._vectors(rows), products, reading)

    def _vectors(self, rows: Any) -> list[np.ndarray]:
        """The rows of a shard in the vectors of all rows."""
        at = slice(rows.first, rows.first + rows.n_rows)
        return [vector.values[at] for vector in (self.s, self.p, self.alpha, self.cost, self.y, *self._own)]

    def tell(self, what: str, args: list[Any], w: np.ndarray = _NOTHING) -> ShardSum:
        """A round of all shards, the operation `what` of `PrimalShard`: it changes what they know, and is logged."""
        told = Told(self.rounds, what, args)
        if self._home:
            shard_tasks.log_round(self._home, told, w)
        total = self._on_shards(shard_tasks.round_task, (told, w))
        self.rounds += 1
        return total

    def ask(self, question: tuple[Any, ...], w: np.ndarray | None = None) -> ShardSum:
        """What all shards find that changes nothing: a question of `PrimalShard` by name, with what belongs to it."""
        return self._on_shards(shard_tasks.ask_task, (self.rounds, question, w))

    def _on_shards(self, task: Any, told: Any) -> ShardSum:
        """The sum over all shards.  Here one after another: each of them reads its rows by the mapper's threads."""
        if self._home:
            mapper, shards = self._ctx.mapper, [Shard(rows, None, self._home) for rows in self._rows]
            return mapper.reduce(mapper.on_shards(task, shards, mapper.publish(told)))
        total = TreeSum()
        for rows, state in zip(self._rows, self._states, strict=True):
            total.take(task(Shard(rows, state, ""), told))
        return total.total()


class LineOf:
    """`LineSums` of model m along p, or along the bias where `way` is its sign."""

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


def sums_need(shape: DataShape, nbytes: int) -> list[Need]:
    """What the tree of sums over shards holds, of results of so many bytes a shard; nothing of one shard."""
    if shape.shards == 1:
        return []
    held = FAN_IN * (math.ceil(math.log(shape.shards, FAN_IN)) + 1) + 2
    return [Need("sums of shards", held * nbytes)]


def summed(each: Iterable[Any]) -> np.ndarray:
    """Of a figure of every shard, in their order, rounded once; of any shape."""
    stacked = np.array(list(each), np.float64)
    flat = [math.fsum(column) for column in stacked.reshape(len(stacked), -1).T]
    return np.array(flat).reshape(stacked.shape[1:])
