"""The state of one shard in dual coordinate descent (alpha and its row buffer), and its work in a round.

In round t of a pass a shard visits the t-th part of its rows, and sweeps a part of its row buffer, starting at the w
that all shards received.  It moves alpha at once, and remembers the values before.  The step length is decided
afterwards, by a line search over the sums of all shards; the shard learns it with the next call, and then shortens its
step (`settle`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.compiled.linear.dual_cd import GAP, LOSS, BlockRows, Stiffness, dual_cd_visit
from bigsvm.compiled.linear.momentum import leap
from bigsvm.compiled.shared.rows import sqnorms
from bigsvm.compiled.shared.visiting import VisitingOrder, mixed_runs_of
from bigsvm.problem.deferred import DeferredCertificate
from bigsvm.problem.problem import Problem
from bigsvm.solvers.dcd.active_row_buffer import ActiveRowBuffer, make_row_buffer, parts_due
from bigsvm.solvers.dcd.shards.moved_alpha import MovedAlpha, dual_changes, number_type
from bigsvm.solvers.dcd.shards.round_messages import Found, Round
from bigsvm.solvers.dcd.shards.shard_momentum import ShareMomentum, by_model, products
from bigsvm.solvers.dcd.shards.stiffness import FeatureCounts, by_bucket, by_feature, of_features
from bigsvm.solvers.shard_reading import ShardReading, ShardVector, proof_of, proved
from bigsvm.store.blocks import Block, readonly_view
from bigsvm.tasks import ShardSum

if TYPE_CHECKING:
    from bigsvm.solvers.dcd.shards.shard_rows import ShardRows

RESCALED = True
"""Proofs are those of the best multiple of w: its direction converges sooner than its length."""


class ShardState:
    """The state of a shard between two rounds.

    alpha : float64, (n_rows, n_models);  streams : uint8, (n_rows,), 0 for rows in the row buffer
    before : alpha before the last step of momentum (`dcd/momentum.py`); None without momentum
    rounds : number of rounds so far
    exact : the row buffer keeps values as they are, though the plan rounds them (`dcd/rounding.py`)
    """

    def __init__(
        self, rows: ShardRows, alpha: np.ndarray, streams: np.ndarray, before: np.ndarray | None = None
    ) -> None:
        self.alpha, self.streams, self.rounds = alpha, streams, 0
        self.before = np.zeros_like(alpha) if before is None and rows.leaps else before
        self._problem = rows.problem
        self._row_buffer = (rows.row_buffer_bytes if rows.n_rows else 0, rows.data, rows.row_buffer_packed)
        self.row_buffer, self.exact = self._new_row_buffer(), False
        self._moved: list[MovedAlpha] = []
        self.momentum = ShareMomentum()
        self.buckets = np.empty(0, np.uint8)
        self.proof: DeferredCertificate | None = None
        self.proved: np.ndarray | None = None
        self._partial: dict[str, Any] | None = None

    def _new_row_buffer(self, exact: bool = False) -> ActiveRowBuffer | None:
        nbytes, data, packed = self._row_buffer
        # Admission is not limited, even for a smooth loss: with limits a fit took one more pass.
        return make_row_buffer(nbytes, data, packed and not exact) if nbytes else None

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
            "exact": self.exact,
            "change": self.momentum.change,
            "proof": seen and {name: value for name, value in seen.items() if name != "w"},
        }

    def load(self, tree: dict[str, Any]) -> None:
        """Take over what `dump` gave."""
        self.rounds, self._moved = int(tree["rounds"]), []
        self.momentum.load(tree["change"], tree.get("given"))
        self.buckets = np.asarray(tree["buckets"])
        self.proof, self._partial = None, tree.get("proof")
        if tree.get("exact", False) != self.exact:
            self.exact = not self.exact
            self.row_buffer = self._new_row_buffer(self.exact)
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

    def answer(self, rows: ShardRows, question: tuple[bool, bool], w: np.ndarray) -> ShardSum:
        """The terms of a certificate of (w, alpha) over the shard's rows; to be called after `settle`.

        question : prove the best multiple of w instead of w; try much shorter ones, too
        """
        assert not self._moved
        refs = rows.data.refs(rows.block_rows)[rows.blocks.start : rows.blocks.stop]
        reading = ShardReading(rows.data, refs)
        return proved(reading, rows.problem, w, ShardVector(self.alpha, rows.first), *question)

    def settle(self, theta: np.ndarray) -> None:
        """Shorten the steps of the last round to their part `theta`, float64 (n_models,)."""
        if np.any(theta != 1.0):
            for part in (piece for whole in self._moved for piece in whole.pieces()):  # no row is in two of them
                alpha = part.old + theta * (self.alpha[part.at] - part.old)
                self.alpha[part.at] = alpha if self.before is None else self._within(part, alpha)
            if self._moved:
                self.momentum.settle(theta)
        self._moved = []

    def _within(self, part: MovedAlpha, alpha: np.ndarray) -> np.ndarray:
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
        if told.exact and not self.exact:
            self.row_buffer, self.exact = self._new_row_buffer(exact=True), True
            self.streams[...] = 1
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
        for block, at in rows.blocks_of(told):
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
        linear, cross, square, balance, response, kept_response = dual_changes(self._moved, self.alpha, problem)
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
        which = at[streaming].astype(number_type(len(self.alpha)))
        of_weight = weight[streaming] if len(weight) else weight
        self._moved.append(MovedAlpha(which, y[streaming], of_weight, sqnorm[streaming], self.alpha[which], False))
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
        at = slots.row[:n].astype(number_type(len(self.alpha)))
        y, weight, sqnorm = slots.y[:n].copy(), slots.sample_weight[:n].copy(), slots.sqnorm[:n].copy()
        self._moved.append(MovedAlpha(at, y, weight, sqnorm, self.alpha[at], True))
