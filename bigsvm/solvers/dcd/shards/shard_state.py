"""The state of one shard in dual coordinate descent (alpha and its row buffer), and its work in a round.

In round t of a pass a shard visits the t-th part of its rows, and sweeps a part of its row buffer, starting at the w
that all shards received.  It moves alpha at once, and remembers the values before.  The step length is decided
afterwards, by a line search over the sums of all shards; the shard learns it with the next call, and then shortens its
step (`settle`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from bigsvm.compiled.linear.dual_cd import GAP, LOSS, BlockRows, Stiffness, dual_cd_visit
from bigsvm.compiled.linear.momentum import leap
from bigsvm.compiled.shared.rows import sqnorms
from bigsvm.compiled.shared.visiting import VisitingOrder, mixed_runs_of, shuffled
from bigsvm.problem.deferred import DeferredCertificate
from bigsvm.problem.problem import Problem
from bigsvm.solvers.dcd.active_row_buffer import ActiveRowBuffer, make_row_buffer, parts_due
from bigsvm.solvers.dcd.shards.shard_momentum import ShareMomentum, by_model, products
from bigsvm.solvers.dcd.shards.stiffness import FeatureCounts, by_bucket, by_feature, of_features
from bigsvm.solvers.shard_reading import ShardReading, ShardVector, proof_of, proved, rows_within
from bigsvm.store.addresses import in_groups
from bigsvm.store.blocks import Block, BlockGroup, RowBlocks, readonly_view
from bigsvm.store.join import part, read_group
from bigsvm.tasks import ShardSum

_ORDER = 1 << 60  # in the key of the order of a shard's blocks, where other keys have a first row
_PIECE = 1 << 14  # steps that are looked at together, each of a row and a model

RESCALED = True
"""Proofs are those of the best multiple of w: its direction converges sooner than its length."""


class ShardRows(NamedTuple):
    """The rows of a shard, and how to work on them; the same in every round.

    number, n_shards : this shard, and how many there are
    block_rows, blocks : its consecutive blocks are `data.refs(block_rows)[blocks]`
    group_blocks : blocks that are read and worked on together
    row_buffer_bytes, row_buffer_packed, row_buffer_sweeps : size, coding, and sweeps in a pass, of its row buffer
    leaps : passes may begin with a step of momentum (`dcd/momentum.py`)
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
        """The number of the shard's first row in working order."""
        return rows_within(self.data, self.block_rows, self.blocks).start

    @property
    def n_rows(self) -> int:
        return len(rows_within(self.data, self.block_rows, self.blocks))

    def new_state(self) -> ShardState:
        """The state before the first round: alpha = 0, an empty row buffer."""
        return ShardState(self, np.zeros((self.n_rows, self.problem.n_models)), np.ones(self.n_rows, np.uint8))

    def told(self, tree: dict[str, Any]) -> Round:
        """The round that `Round.tree` saved."""
        return Round(**tree)


class Round(NamedTuple):
    """The message that all shards receive with a round.

    number : of the round since the fit began;  sweep : of the pass;  part : of the round within its pass of `parts`
    stiffness : float64, (N_BUCKETS + 1,)   factors for the local problems, by bucket of features; the last: the bias
    theta : float64, (n_models,)   step length of the round before
    afresh : bool, (n_models,)   models that restart at alpha = 0 with this round
    beta : float64, (n_models,)   momentum of the shards' parts of w (`shard_momentum.py`)
    proves : 1 in the first round, and 2 in the other rounds, of a pass that computes a deferred certificate; else 0
    buckets : uint8, (n_features,)   bucket of each feature, if it is new with this round; else (0,)
    ahead : float64, (n_models,)   in the first round of a pass, the length of the step of momentum that was made in w
        and that the shard makes in its alpha; (0,) in other rounds, and without momentum
    point : the w to be proved, in the first round of a pass that computes a deferred certificate; else (0,)
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
        """The round as the log saves it."""
        return self._asdict()


class Found(NamedTuple):
    """The answer of a shard to a round, for the line search and the estimate of the gap.  float64, (n_models,) unless
    said otherwise.

    gap, loss : sums over the visited rows, as they showed them when visited
    kept_gap, kept_loss : the same for the row buffer, extrapolated from the part that was swept
    linear, cross, square : sums over i of t_i d_i - epsilon (|new_i| - |old_i|), of D_i old_i d_i, and of D_i d_i^2,
        where d is the change of alpha, t the target (1 for classes) and D the diagonal of the dual
    balance : sum of y_i d_i, the change of sum alpha_i y_i (y is 1 for regression)
    response, kept_response : how much `balance` would rise at once if the bias fell by 1: the sum of
        1 / (|x_i|^2 + D_i) over the rows that moved or are inside their box, of visited and of kept rows
    norm : (n_models, N_BUCKETS), for each bucket of features the squared norm of change - beta e (`shard_momentum.py`)
    agreed : inner product of change - beta e with e
    visits, bytes_read : int
    proof : with the last round of a pass that computes a deferred certificate, its sums, as `terms_of` takes them
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
    """Rows whose alpha a round may have moved.

    at : number within the shard;  y : class code or target;  weight : sample weight, (0,) if rows have none
    sqnorm : |x|^2;  old : alpha before the round;  kept : they are in the row buffer
    """

    at: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    sqnorm: np.ndarray
    old: np.ndarray
    kept: bool

    def pieces(self) -> Iterator[_Moved]:
        """Views of some rows at a time, so that what is computed from them stays small."""
        rows = max(_PIECE // self.old.shape[1], 1)
        for start in range(0, len(self.at), rows):
            these = slice(start, start + rows)
            at, y, weight, sqnorm, old, kept = self
            yield _Moved(at[these], y[these], weight[these], sqnorm[these], old[these], kept)

    def cost(self, problem: Problem) -> np.ndarray:
        """float64, (n, n_models): C of each model times class weight and sample weight."""
        cost = np.ones(len(self.at)) if problem.regression else problem.class_weight[self.y]
        return problem.C * (cost * self.weight if len(self.weight) else cost)[:, None]


def moved_bytes(models: int, weighted: bool, regression: bool, n_rows: int) -> int:
    """Bytes that a round remembers of each row that it visits or keeps: those of `_Moved`.

    n_rows : those of the shard, or more
    """
    return _number_type(n_rows).itemsize + (8 if regression else 4) + 8 * weighted + 8 + 8 * models


def _number_type(n_rows: int) -> np.dtype:
    """The type of numbers of rows that are remembered."""
    return np.dtype(np.uint32 if n_rows < 1 << 32 else np.int64)


class ShardState:
    """The state of a shard between two rounds.

    alpha : float64, (n_rows, n_models);  streams : uint8, (n_rows,), 0 for rows in the row buffer
    before : alpha before the last step of momentum (`dcd/momentum.py`); None without momentum
    rounds : number of rounds so far
    """

    def __init__(
        self, rows: ShardRows, alpha: np.ndarray, streams: np.ndarray, before: np.ndarray | None = None
    ) -> None:
        self.alpha, self.streams, self.rounds = alpha, streams, 0
        self.before = np.zeros_like(alpha) if before is None and rows.leaps else before
        self._problem = rows.problem
        self.row_buffer: ActiveRowBuffer | None = None
        if rows.row_buffer_bytes and rows.n_rows:
            # Admission is not limited, even for a smooth loss: with limits a fit took one more pass.
            self.row_buffer = make_row_buffer(rows.row_buffer_bytes, rows.data, rows.row_buffer_packed)
        self._moved: list[_Moved] = []
        self.momentum = ShareMomentum()
        self.buckets = np.empty(0, np.uint8)
        self.proof: DeferredCertificate | None = None
        self.proved: np.ndarray | None = None
        self._partial: dict[str, Any] | None = None

    def lend(self, problem: Problem, w: np.ndarray, alpha: np.ndarray) -> None:
        """Set the point of a deferred certificate: arrays of the caller, or on a worker copies of the shard."""
        self.proved, self.proof = alpha, proof_of(problem, w, ShardVector(alpha, 0), RESCALED)
        if self._partial is not None:
            self.proof.load({**self._partial, "w": w})
            self._partial = None

    def dump(self) -> dict[str, Any]:
        """The state for a checkpoint, except for alpha and streams; to be called after `settle`."""
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
        """Everything that is needed to rebuild the shard on another worker."""
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
        """The terms of a certificate of (w, alpha) over the shard's rows; to be called after `settle`.

        question : prove the best multiple of w instead of w
        """
        assert not self._moved
        refs = rows.data.refs(rows.block_rows)[rows.blocks.start : rows.blocks.stop]
        reading = ShardReading(rows.data, refs)
        return proved(reading, rows.problem, w, ShardVector(self.alpha, rows.first), question)

    def settle(self, theta: np.ndarray) -> None:
        """Shorten the steps of the last round to their part `theta`, float64 (n_models,)."""
        if np.any(theta != 1.0):
            for part in (piece for whole in self._moved for piece in whole.pieces()):  # no row is in two of them
                alpha = part.old + theta * (self.alpha[part.at] - part.old)
                self.alpha[part.at] = alpha if self.before is None else self._within(part, alpha)
            if self._moved:
                self.momentum.settle(theta)
        self._moved = []

    def _within(self, part: _Moved, alpha: np.ndarray) -> np.ndarray:
        """alpha clipped to its box: a shortened step may leave rows where the step of momentum put them, outside."""
        box = self._problem.box
        cost = part.cost(self._problem)
        return np.clip(alpha, box.lower_factor * cost, np.where(cost > 0.0, box.upper_factor * cost, 0.0))

    def work(self, rows: ShardRows, told: Round, W: np.ndarray) -> ShardSum:
        """One round that starts at the weights W.

        Returns `Found`, with the change of w as the first vector.  In round 0 the rows that have each feature are
        counted, as the second vector; with the sums of a certificate comes w(alpha), as the last.
        """
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
            self._remember_kept(buffer)  # `_visit` relies on these being the first of `_moved`
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
        """Blocks of the rows of a round, with the number of each row within the shard.

        A group of blocks on the border of two rounds is read in both, since none stays in memory between rounds.  While
        a group is worked on, the next one is already requested from the disk.
        """
        wanted = list(self._groups(rows, told))
        for group, _, _ in wanted[:1]:
            _request(rows.data, group)
        for number, (group, a, b) in enumerate(wanted):
            for following, _, _ in wanted[number + 1 : number + 2]:
                _request(rows.data, following)
            at = np.concatenate([np.arange(ref.start, ref.stop) for ref in group.refs])[a:b] - rows.first
            block = _read(rows.data, group)
            yield part(block, block.start + a, block.start + b), at

    def _groups(self, rows: ShardRows, told: Round) -> Iterator[tuple[BlockGroup, int, int]]:
        """The groups of blocks of a round, each with the range [a, b) of its rows that belong to the round."""
        order = shuffled(len(rows.blocks), rows.seed, told.sweep, _ORDER + rows.number) + rows.blocks.start
        begin, end = (rows.n_rows * t // told.parts for t in (told.part, told.part + 1))
        if begin == end:
            return
        together = max(min(rows.group_blocks, (end - begin) // rows.block_rows), 1)
        start = 0
        for group in in_groups(rows.data.refs(rows.block_rows), order, together):
            stop = start + group.n_rows
            if stop > begin and start < end:
                yield group, max(begin - start, 0), min(end, stop) - start
            start = stop
            if start >= end:
                return

    def _visit(
        self, rows: ShardRows, block: Block, at: np.ndarray, told: Round, stiffness: Stiffness, w: np.ndarray
    ) -> tuple[int, np.ndarray]:
        """Take a step for each row that streams, and admit those that violate to the row buffer.

        Returns row visits and their statistics, float64 (n_models, 4).
        """
        problem, n = rows.problem, len(at)
        X = readonly_view(block.X)
        if block.sqnorm is None:
            sqnorm = np.empty(n)
            sqnorms(X, sqnorm)
        else:
            sqnorm = np.array(block.sqnorm)  # writeable, so that compiled code sees one type for maps and copies
        y = problem.y_of(block)
        weight = np.empty(0) if block.sample_weight is None else np.array(block.sample_weight)
        streaming = self.streams[at] == 1
        if self.row_buffer is not None and self.row_buffer.full:  # rows evicted in this round are in `_moved` already
            streaming &= ~np.isin(at, self._moved[0].at)
        which = at[streaming].astype(_number_type(len(self.alpha)))
        of_weight = weight[streaming] if len(weight) else weight
        self._moved.append(_Moved(which, y[streaming], of_weight, sqnorm[streaming], self.alpha[which], False))
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

    def _remember_kept(self, buffer: ActiveRowBuffer) -> None:
        """Note alpha of the buffered rows before the round moves it; slots are used again for rows that come in."""
        slots, n = buffer.slots, buffer.n
        at = slots.row[:n].astype(_number_type(len(self.alpha)))
        y, weight, sqnorm = slots.y[:n].copy(), slots.sample_weight[:n].copy(), slots.sqnorm[:n].copy()
        self._moved.append(_Moved(at, y, weight, sqnorm, self.alpha[at], True))

    def _terms(self, problem: Problem) -> np.ndarray:
        """(linear, cross, square, balance, response, kept_response) of what the round moved; see `Found`."""
        total, box = np.zeros((6, problem.n_models)), problem.box
        for piece in (piece for whole in self._moved for piece in whole.pieces()):
            new = self.alpha[piece.at]
            cost = piece.cost(problem)
            diagonal = np.divide(box.diag_factor, cost, out=np.zeros_like(cost), where=cost > 0.0)
            inside = (new != 0.0) & (cost > 0.0)
            if box.diag_factor == 0.0:
                inside &= np.abs(new) < cost
            firm = piece.sqnorm[:, None] + diagonal
            np.divide(1.0, firm, out=firm, where=firm > 0.0)
            change = new - piece.old
            total[5 if piece.kept else 4] += (firm * (inside | (change != 0.0))).sum(axis=0)
            if problem.regression:
                total[0] += piece.y @ change - box.epsilon * (np.abs(new) - np.abs(piece.old)).sum(axis=0)
                total[3] += change.sum(axis=0)
            else:
                total[0] += change.sum(axis=0)
                total[3] += (problem.signs(piece.y) * change).sum(axis=0)
            total[1] += (diagonal * piece.old * change).sum(axis=0)
            total[2] += (diagonal * change * change).sum(axis=0)
        return total


def _request(data: RowBlocks, group: BlockGroup) -> None:
    for ref in group.refs:
        data.will_need(ref)


def _read(data: RowBlocks, group: BlockGroup) -> Block:
    block = read_group(data, group)
    if len(group.refs) > 1:  # the block is a copy, so the pages of the store may go
        for ref in group.refs:
            data.release(ref)
    return block
