"""The rows of one shard in dual coordinate descent: alpha, the rows kept in memory, and one round's work on them.

In round t of a pass a shard visits the t-th part of its rows, and sweeps a part of its row buffer, against the weights
that all shards were given.  It moves alpha at once, and remembers where it came from: how far the step really goes is
decided by a line search over the sums of all shards, and is taken back to that at the next call (`settle`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from bigsvm.compiled.linear.dual_cd import GAP, LOSS, BlockRows, Stiffness, dual_cd_visit
from bigsvm.compiled.linear.momentum import leap
from bigsvm.compiled.shared.rows import CSR, sqnorms
from bigsvm.compiled.shared.visiting import VisitingOrder, mixed_runs_of, shuffled
from bigsvm.problem.deferred import DeferredCertificate
from bigsvm.problem.problem import Problem
from bigsvm.solvers.dcd.active_row_buffer import ActiveRowBuffer, make_row_buffer, parts_due
from bigsvm.solvers.dcd.shard_momentum import ShareMomentum, by_model, products
from bigsvm.solvers.dcd.shard_stiffness import FeatureCounts, by_bucket, by_feature, of_features
from bigsvm.solvers.shard_reading import ShardReading, ShardVector, proof_of, proved, rows_within
from bigsvm.store.addresses import in_groups
from bigsvm.store.blocks import Block, BlockGroup, RowBlocks, readonly_view
from bigsvm.store.join import read_group
from bigsvm.tasks import ShardSum

_ORDER = 1 << 60  # in place of a first row, in the key of the order of a shard's blocks

RESCALED = True
"""Proofs are of the best multiple of w, which is right in direction sooner than in length."""


class ShardRows(NamedTuple):
    """Which rows, and how they are worked on: the same in every round.

    number : of the shard, of n_shards
    block_rows, blocks : its blocks, which follow one another, are `data.refs(block_rows)[blocks]`
    group_blocks : blocks that are read and worked on together
    row_buffer_bytes, row_buffer_packed, row_buffer_sweeps : of the rows that stay in memory; sweeps a pass
    leaps : passes may start ahead (`momentum.py`)
    """

    data: RowBlocks
    problem: Problem
    number: int
    n_shards: int
    block_rows: int
    blocks: range
    group_blocks: int
    seed: int
    row_buffer_bytes: int
    row_buffer_packed: bool
    row_buffer_sweeps: int
    leaps: bool = False

    @property
    def first(self) -> int:
        """Working row of the first row."""
        return rows_within(self.data, self.block_rows, self.blocks).start

    @property
    def n_rows(self) -> int:
        return len(rows_within(self.data, self.block_rows, self.blocks))

    def new_state(self) -> ShardState:
        """alpha = 0, no row in memory."""
        return ShardState(self, np.zeros((self.n_rows, self.problem.n_models)), np.ones(self.n_rows, np.uint8))

    def told(self, tree: dict[str, Any]) -> Round:
        """As the log keeps a round."""
        return Round(**tree)


class Round(NamedTuple):
    """What all shards are told in a round.

    number : of the round since the fit began;  sweep : the pass;  part : of `parts`, the round within the pass
    stiffness : float64, (N_BUCKETS + 1,)   of the local problems, by bucket of features; the last is of the bias
    theta : float64, (n_models,)   how far the steps of the round before go, as its line search found
    afresh : bool, (n_models,)   models that begin anew with this round, at alpha = 0
    beta : float64, (n_models,)   momentum of the shards' shares (`shard_momentum.py`)
    proves : 0, or a proof of the point that the pass begins at rides on the pass: 1 in its first round, 2 in others
    buckets : uint8, (n_features,)   of each feature, from here on; (0,) where they are as they were
    ahead : float64, (n_models,)   in the first round of a pass: how far ahead of where the last one ended it starts;
        w is there already; (0,) where passes do not
    point : as w, in the first round of a pass that a proof rides on: the w that it is of; else (0,)
    """

    number: int
    sweep: int
    part: int
    parts: int
    stiffness: np.ndarray
    theta: np.ndarray
    afresh: np.ndarray
    beta: np.ndarray
    proves: int = 0
    buckets: np.ndarray = np.empty(0, np.uint8)
    ahead: np.ndarray = np.empty(0)
    point: np.ndarray = np.empty(0)

    def tree(self) -> dict[str, Any]:
        """As the log keeps it."""
        return self._asdict()


class Found(NamedTuple):
    """What a shard found in a round, for the line search and the estimate of the gap; of shape (n_models,).

    gap, loss : as the rows of the part showed them when they were visited
    kept_gap, kept_loss : the same of the row buffer, told from the part of it that was swept
    linear, cross, square : sum of t_i d_i - epsilon (|new_i| - |old_i|), of D_i old_i d_i and of D_i d_i^2, where d is
        the change of alpha, t the target and D the diagonal of the dual
    balance : sum of y_i d_i, by which the change of alpha pushes the bias (y is 1 for targets)
    response, kept_response : how much that would change if the bias went down by 1, at once: sum of 1 / (|x_i|^2 + D_i)
        of the rows that moved or are inside their box, of those that were visited and of those kept
    norm : (n_models, N_BUCKETS), squared norm of what the round added to the shard's momentum, in the features of
        each bucket
    agreed : the product of that with the direction of the momentum
    visits, bytes_read : int
    proof : at the end of a pass that a proof rides on: what was proved, as `terms_of` takes it
    """

    gap: np.ndarray
    loss: np.ndarray
    kept_gap: np.ndarray
    kept_loss: np.ndarray
    linear: np.ndarray
    cross: np.ndarray
    square: np.ndarray
    balance: np.ndarray
    response: np.ndarray
    kept_response: np.ndarray
    norm: np.ndarray
    agreed: np.ndarray
    visits: int
    bytes_read: int
    proof: tuple[np.ndarray, int, int] | None = None


class _Moved(NamedTuple):
    """Rows whose alpha a round may have moved: by number within the shard, with y, cost, |x|^2 and alpha before."""

    at: np.ndarray
    y: np.ndarray
    cost: np.ndarray
    sqnorm: np.ndarray
    old: np.ndarray
    kept: bool


class ShardState:
    """What a shard knows between two rounds.

    alpha : float64, (n_rows, n_models);  streams : uint8, (n_rows,), 0 for rows in the row buffer
    before : as alpha, where the pass would have started without a leap; None where passes do not leap
    rounds : so many were taken part in
    """

    def __init__(
        self, rows: ShardRows, alpha: np.ndarray, streams: np.ndarray, before: np.ndarray | None = None
    ) -> None:
        self.alpha, self.streams, self.rounds = alpha, streams, 0
        self.before = np.zeros_like(alpha) if before is None and rows.leaps else before
        self._problem = rows.problem
        self.row_buffer: ActiveRowBuffer | None = None
        if rows.row_buffer_bytes and rows.n_rows:
            # Without rations, whatever the loss: they took a pass more, and here passes cost most.
            self.row_buffer = make_row_buffer(rows.row_buffer_bytes, rows.data, rows.row_buffer_packed)
        self._moved: list[_Moved] = []
        self.momentum = ShareMomentum()
        self.buckets = np.empty(0, np.uint8)
        self.proof: DeferredCertificate | None = None
        self.proved: np.ndarray | None = None
        self._partial: dict[str, Any] | None = None

    def lend(self, problem: Problem, w: np.ndarray, alpha: np.ndarray) -> None:
        """The point that a riding proof is of, where the caller has it; of a shard elsewhere it is its own copy."""
        self.proved, self.proof = alpha, proof_of(problem, w, ShardVector(alpha, 0), RESCALED)
        if self._partial is not None:
            self.proof.load({**self._partial, "w": w})
            self._partial = None

    def dump(self) -> dict[str, Any]:
        """What a checkpoint keeps beside alpha and streams.  The last line search must have been settled."""
        assert not self._moved
        kept = None if self.row_buffer is None else self.row_buffer.dump()
        seen = self._partial if self.proof is None else self.proof.dump()
        return {
            "rounds": self.rounds,
            "row_buffer": kept,
            "change": self.momentum.change,
            "proof": seen and {name: value for name, value in seen.items() if name != "w"},
        }

    def load(self, tree: dict[str, Any]) -> None:
        """Take over what `dump` gave."""
        self.rounds, self._moved = int(tree["rounds"]), []
        self.momentum.load(tree["change"], tree.get("given"))
        self.buckets = np.asarray(tree["buckets"])
        self.proof, self._partial = None, tree.get("proof")
        if self.row_buffer is not None:
            self.row_buffer.load(tree["row_buffer"])

    def whole(self) -> dict[str, Any]:
        """All that a shard that is made anew needs."""
        point = None if self.proof is None else [self.proof.w, self.proved]
        shared = {"given": self.momentum.given, "buckets": self.buckets, "before": self.before}
        return {"alpha": self.alpha, "streams": self.streams, "point": point, **shared, **self.dump()}

    def restore(self, rows: ShardRows, tree: dict[str, Any]) -> None:
        """Take over what `whole` gave."""
        self.alpha[...], self.streams[...] = tree["alpha"], tree["streams"]
        if self.before is not None:
            self.before[...] = tree["before"]
        self.load(tree)
        if tree["point"] is not None:
            w, alpha = tree["point"]
            self.lend(rows.problem, np.array(w), np.array(alpha))

    def answer(self, rows: ShardRows, question: bool, w: np.ndarray) -> ShardSum:
        """What the rows prove of (w, alpha), or of a multiple of w.  The last line search must have been settled."""
        assert not self._moved
        refs = rows.data.refs(rows.block_rows)[rows.blocks.start : rows.blocks.stop]
        reading = ShardReading(rows.data, refs)
        return proved(reading, rows.problem, w, ShardVector(self.alpha, rows.first), question)

    def settle(self, theta: np.ndarray) -> None:
        """Let the steps of the last round go as far as `theta` of the way, model by model."""
        if np.any(theta != 1.0):
            moved = [(part, part.old + theta * (self.alpha[part.at] - part.old)) for part in self._moved]
            for part, alpha in moved:
                self.alpha[part.at] = alpha if self.before is None else self._within(part, alpha)
            if self._moved:
                self.momentum.settle(theta)
        self._moved = []

    def _within(self, part: _Moved, alpha: np.ndarray) -> np.ndarray:
        """alpha in its box: a part of a step leaves rows outside that a leap has put there."""
        box = self._problem.box
        cost = self._problem.C * part.cost[:, None]
        return np.clip(alpha, box.lower_factor * cost, np.where(cost > 0.0, box.upper_factor * cost, 0.0))

    def work(self, rows: ShardRows, told: Round, W: np.ndarray) -> ShardSum:
        """One round against the weights W: what was found, and the change of w that the change of alpha makes."""
        self.settle(told.theta)
        problem, m = rows.problem, rows.problem.n_models
        seen, kept = np.zeros((m, 4)), np.zeros((m, 4))
        visits = nbytes = 0
        buffer = self.row_buffer
        if told.proves == 1 and self.proof is None:
            self.lend(problem, told.point if len(told.point) else W, self.alpha.copy())
        if self.before is not None and told.part == 0:
            leap(self.alpha, self.before, told.ahead)
        if told.afresh.any():
            self.alpha[:, told.afresh] = 0.0
            W = np.where(told.afresh if W.ndim == 2 else told.afresh[0], W.dtype.type(0), W)
        if len(told.buckets):
            self.buckets = told.buckets
        stiffness = of_features(told.stiffness, self.buckets, rows.data.n_features)
        counts = FeatureCounts(rows.data.n_features) if told.number == 0 else None
        apart = self.momentum.apart(W, rows.n_shards, told.afresh)
        start = W.copy()
        start[:-1] -= by_feature(stiffness, W) * (by_model(told.beta, W) * apart[:-1])
        w = start.copy()
        if buffer is not None:
            if told.part == 0:
                buffer.begin_pass()
            self._remember_kept(buffer, problem)  # before all others
        key = (rows.seed, told.sweep)
        for block, at in self._part(rows, told):
            if self.proof is not None:
                self.proof.add(block, at)
            if counts is not None:
                counts.add(block.X)
            visited, stats = self._visit(rows, block, at, told, stiffness, w)
            visits, nbytes, seen = visits + visited, nbytes + block.nbytes, seen + stats
        if buffer is not None and rows.row_buffer_sweeps:
            swept = 0
            for part in parts_due(told.part, told.parts, rows.row_buffer_sweeps):
                place = part._replace(number=rows.number * (1 << 20) + part.number)
                order = buffer.order(key, place)
                kept += buffer.sweep(problem, self.alpha, w, order, stiffness)
                swept += len(order)
                if part.ends:
                    buffer.end_sweep()
            kept *= buffer.n / max(swept, 1)
            visits += swept
        change = w - start
        change[:-1] /= by_feature(stiffness, W)
        change[-1] /= w.dtype.type(stiffness.bias or 1.0)
        self.rounds = told.number + 1
        linear, cross, square, balance, response, kept_response = self._terms(problem)
        added = change - by_model(told.beta, W) * apart
        self.momentum.remember(change, W)
        found = Found(
            seen[:, GAP], seen[:, LOSS], kept[:, GAP], kept[:, LOSS], linear, cross, square, balance, response,
            kept_response, by_bucket(added, self.buckets), products(added, apart), visits, nbytes,
        )  # fmt: skip
        vectors = (change,) if counts is None else (change, counts.values)
        if self.proof is None or told.part < told.parts - 1:
            return ShardSum((found,), vectors)
        sums, n_rows, v = self.proof.found()
        self.proof = self.proved = None
        return ShardSum((found._replace(proof=(sums, n_rows, 0)),), (*vectors, v))

    def _part(self, rows: ShardRows, told: Round) -> Iterator[tuple[Block, np.ndarray]]:
        """The rows of a part of the pass: blocks, with the number of each row within the shard.

        A group of blocks on the border of two parts is read for both: none stays in memory between rounds.
        """
        order = shuffled(len(rows.blocks), rows.seed, told.sweep, _ORDER + rows.number) + rows.blocks.start
        begin, end = (rows.n_rows * t // told.parts for t in (told.part, told.part + 1))
        if begin == end:
            return
        together = max(min(rows.group_blocks, (end - begin) // rows.block_rows), 1)
        start = 0
        for group in in_groups(rows.data.refs(rows.block_rows), order, together):
            stop = start + group.n_rows
            if stop > begin and start < end:
                a, b = max(begin - start, 0), min(end, stop) - start
                at = np.concatenate([np.arange(ref.start, ref.stop) for ref in group.refs])[a:b] - rows.first
                yield _between(_read(rows.data, group), a, b), at
            start = stop
            if start >= end:
                return

    def _visit(
        self, rows: ShardRows, block: Block, at: np.ndarray, told: Round, stiffness: Stiffness, w: np.ndarray
    ) -> tuple[int, np.ndarray]:
        """A step for each row that streams; those that violate stay in memory."""
        problem, n = rows.problem, len(at)
        X = readonly_view(block.X)
        if block.sqnorm is None:
            sqnorm = np.empty(n)
            sqnorms(X, sqnorm)
        else:
            sqnorm = np.array(block.sqnorm)  # of one type for compiled code, whether the block is a map or a copy
        y, cost = problem.y_and_cost(block)
        weight = np.empty(0) if block.sample_weight is None else np.array(block.sample_weight)
        streaming = self.streams[at] == 1
        if self.row_buffer is not None and self.row_buffer.full:  # rows that left it in this round are remembered
            streaming &= ~np.isin(at, self._moved[0].at)
        self._moved.append(
            _Moved(at[streaming], y[streaming], cost[streaming], sqnorm[streaming], self.alpha[at[streaming]], False)
        )
        given = BlockRows(X, y, weight, sqnorm, at)
        mixed = mixed_runs_of(X, problem.constant_feature != 0.0)
        key = VisitingOrder(mixed, rows.seed, told.sweep, rows.first + int(at[0]))
        order, score, stats = np.empty(n, np.int64), np.empty(n, np.float32), np.empty((problem.n_models, 4))
        visited = dual_cd_visit(
            given, problem.dual_models, self.alpha, w, self.streams, stiffness, key, order, stats, score
        )  # fmt: skip
        if self.row_buffer is not None:
            self.row_buffer.admit(given, order[:visited], score, self.streams)
        return visited, stats

    def _remember_kept(self, buffer: ActiveRowBuffer, problem: Problem) -> None:
        slots, n = buffer.slots, buffer.n
        at, y = slots.row[:n].copy(), slots.y[:n].copy()
        cost = np.ones(n) if problem.regression else problem.class_weight[y]
        if len(slots.sample_weight):
            cost = cost * slots.sample_weight[:n]
        self._moved.append(_Moved(at, y, cost, slots.sqnorm[:n].copy(), self.alpha[at], True))

    def _terms(self, problem: Problem) -> np.ndarray:
        """(linear, cross, square, balance, response, kept_response) of what the round moved; see `Found`."""
        total, box = np.zeros((6, problem.n_models)), problem.box
        for part in self._moved:
            new = self.alpha[part.at]
            cost = problem.C * part.cost[:, None]
            diagonal = np.divide(box.diag_factor, cost, out=np.zeros_like(cost), where=cost > 0.0)
            inside = (new != 0.0) & (cost > 0.0)
            if box.diag_factor == 0.0:
                inside &= np.abs(new) < cost
            firm = part.sqnorm[:, None] + diagonal
            np.divide(1.0, firm, out=firm, where=firm > 0.0)
            change = new - part.old
            total[5 if part.kept else 4] += (firm * (inside | (change != 0.0))).sum(axis=0)
            if problem.regression:
                total[0] += part.y @ change - box.epsilon * (np.abs(new) - np.abs(part.old)).sum(axis=0)
                total[3] += change.sum(axis=0)
            else:
                total[0] += change.sum(axis=0)
                total[3] += (problem.signs(part.y) * change).sum(axis=0)
            total[1] += (diagonal * part.old * change).sum(axis=0)
            total[2] += (diagonal * change * change).sum(axis=0)
        return total


def _read(data: RowBlocks, group: BlockGroup) -> Block:
    for ref in group.refs:
        data.will_need(ref)
    block = read_group(data, group)
    if len(group.refs) > 1:  # then it is a copy
        for ref in group.refs:
            data.release(ref)
    return block


def _between(block: Block, a: int, b: int) -> Block:
    """Rows [a, b) of a block, as views."""
    if (a, b) == (0, block.n_rows):
        return block
    X: Any = block.X
    if isinstance(X, CSR):
        first, stop = int(X.indptr[a]), int(X.indptr[b])
        X = CSR(X.data[first:stop], X.indices[first:stop], X.indptr[a : b + 1] - first)
    else:
        X = X[a:b]
    weight, norm = (None if array is None else array[a:b] for array in (block.sample_weight, block.sqnorm))
    return Block(block.start, block.start + b - a, X, block.y[a:b], weight, norm)
