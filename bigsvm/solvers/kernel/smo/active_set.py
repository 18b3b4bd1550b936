"""One round of block SMO: an active set in memory is solved, then one pass brings the other rows up to date.

What is in memory, and what the round has done, follows from flags of the rows and a few numbers: a run that is stopped
anywhere, in a pass too, goes on to the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bigsvm.compiled.kernel.support import Support
from bigsvm.solvers.base import Context
from bigsvm.solvers.kernel.dual_qp import DualQP, Progress
from bigsvm.solvers.kernel.ends import most_values
from bigsvm.solvers.kernel.nu_qp import NuQP
from bigsvm.solvers.kernel.smo.block_smo import ActiveRows, BlockSMO
from bigsvm.solvers.kernel.values.data import Rows
from bigsvm.solvers.kernel.values.data_rows import DataRows
from bigsvm.solvers.kernel.values.row_buffer import RowBuffer, support_rows
from bigsvm.solvers.selection import largest
from bigsvm.store.state.vectors import RowVector

_SMALL = 4096  # programmes of so few rows are active as a whole
_SHARE_MEMORY, _SHARE_DISK = 0.1, 0.02  # of the violation, to which an active set is solved
_BAND_MEMORY, _BAND_DISK = 0.05, 0.1  # of the scale of targets: how near to violating a row is active
_HELD = 3  # quarters of the capacity that an active set takes where rows do not all fit
_ROUNDS = 64  # working sets in one share of work
_SHARES = 16  # on one active set: the other rows are seen then, whatever its violation is
_VALUES = 1 << 32  # kernel values in one share
_SAMPLING = 7  # a key of random numbers, beside the seed
_SURE = 0.9  # of the violation that is asked for
ACTIVE, NEXT, LAST = np.uint8(1), np.uint8(2), np.uint8(4)
"""Flags of a row: it is in the active set; a candidate for the next; it was in the last working set."""


@dataclass
class SmoWork:
    """Where a model stands between two pauses.

    flags : uint8, sent : float64, beta as all rows' f knows it; both by position in the QP
    stage : 'choose' an active set, 'solve' it, or 'pass' over the others;  row : of the data, where the pass goes on
    steps, visits : of the round so far, what was told left out;  solved, values : working sets and kernel values of the
        share so far;  shares : on this active set;  idle : working sets in a row that nothing moved in
    target : violation to which A is solved;  middle : (b_up + b_low) / 2 of A
    threshold : candidates violate more
    band : how near to violating a row is active, for the whole round: where it is left must not change it
    epsilon : of the QP, where steps find it;  largest : K_ii of active rows so far
    """

    flags: RowVector
    sent: RowVector
    stage: str = "choose"
    row: int = 0
    target: float = 0.0
    middle: float = 0.0
    threshold: float = -np.inf
    violation: float = np.inf
    rounds: int = 0
    stuck: int = 0
    steps: int = 0
    visits: int = 0
    solved: int = 0
    values: int = 0
    shares: int = 0
    idle: int = 0
    band: float = 0.0
    epsilon: float = 0.0
    largest: float = 0.0
    row_buffer: Any = field(default=None, metadata={"derived": True})


class Round:
    """One round of the loop, begun or taken up again.

    q : rows of a working set;  second : WSS2 inside it, else WSS1;  sample : share of rows in the first active set
    """

    def __init__(
        self, qp: DualQP, work: SmoWork, rows: DataRows, ctx: Context, q: int, second: bool, sample: float
    ) -> None:
        self.qp, self.work, self.rows, self.ctx = qp, work, rows, ctx
        self.q, self.second, self.sample = q, second, sample
        self.flags = work.flags.values[: qp.n, 0]
        self.sent = work.sent.values[: qp.n, 0]
        qp.epsilon = work.epsilon

    def run(self) -> Progress:
        """The rest of the round."""
        work = self.work
        if work.stage == "choose":
            self._choose()
        if work.row_buffer is None:
            work.row_buffer = RowBuffer(self.rows.data)
            work.row_buffer.load(self._numbers(self._wanted()), charge=False)
        if work.stage == "solve" and not self._solve():
            return self._told(stale=not np.all(self.flags & ACTIVE)) if work.solved == 0 else self._paused()
        if work.stage == "pass" and not self._pass():
            return self._paused()
        work.rounds += 1
        work.stage, work.shares = "choose", 0
        return self._told()

    def _told(self, stale: bool = False) -> Progress:
        """What was done since it was told last: in one share on the active set, or to the end of the round."""
        work, qp = self.work, self.qp
        violation = work.violation if stale else qp.violation()
        if isinstance(qp, NuQP):
            qp.largest = work.largest
        # The same violation again and again, and nothing that moves: float arithmetic can do no more.
        work.stuck = work.stuck + 1 if violation >= work.violation and work.steps == 0 else 0
        work.violation = violation
        done = violation <= qp.eps and not stale
        progress = Progress(done, work.stuck > 2, work.steps, work.visits, violation, stale=stale)
        work.steps = work.visits = work.values = 0
        return progress

    def _paused(self) -> Progress:
        # What was done is told when the while is over: it counts once, wherever it was left.
        return Progress(False, False, 0, 0, self.work.violation, paused=True)

    def _leaves(self) -> bool:
        return self.ctx.pause() or self.ctx.expired()

    def _numbers(self, positions: np.ndarray) -> np.ndarray:
        """Rows of the data at positions of the QP."""
        return positions if self.qp.rows is None else self.qp.rows[positions]

    def _violations(self, where: np.ndarray, middle: float) -> np.ndarray:
        """By how much rows violate against the bias -middle; below 0 where they do not."""
        return np.maximum(middle - self.qp.up(where), self.qp.down(where) - middle)

    # -- the active set

    def _choose(self) -> None:
        """The next active set, of rows that are in the row buffer."""
        work, qp, n = self.work, self.qp, self.qp.n
        share = _SHARE_MEMORY if self.ctx.resident else _SHARE_DISK
        held = np.flatnonzero(self.flags & (ACTIVE | NEXT))
        first, empty = len(held) == 0, work.row_buffer is None
        if empty:
            work.row_buffer = RowBuffer(self.rows.data)
        if first:  # later it is that of the active set, by which the candidates were judged, as `middle` is
            qp.settle()
            work.epsilon = qp.epsilon
            work.band = self._band()
        room = work.row_buffer.capacity
        if n <= min(_SMALL, room):
            chosen = np.arange(n)
        elif first and not np.any(qp.beta):
            chosen = self._sampled(min(max(int(self.sample * n), min(2 * self.q, n)), room))
        elif first:  # a warm start, or scores made anew
            chosen = self._worst(np.arange(n), 0.5 * sum(qp.bounds()), room)
        else:
            chosen = self._worst(held, work.middle, room)
        work.band = self._band()  # not before: rows outside of the band of the pass are no longer in the row buffer
        if empty:  # at the begin, or taken up again
            chosen = chosen[: work.row_buffer.load(self._numbers(chosen), charge=first)]
        else:
            work.row_buffer.keep(self._numbers(chosen))
        self.flags &= LAST
        self.flags[chosen] |= ACTIVE
        work.target = max(share * qp.violation(), _SURE * qp.eps)
        work.stage, work.threshold = "solve", -np.inf

    def _band(self) -> float:
        """How far from violating a row may be and still belong to the active set; of a model that nu shapes it moves."""
        return (_BAND_MEMORY if self.ctx.resident else _BAND_DISK) * self.qp.scale()

    def _sampled(self, wanted: int) -> np.ndarray:
        """Some rows at random: of streamed rows whole blocks, so that little is read."""
        qp, rng = self.qp, np.random.default_rng([self.ctx.seed, _SAMPLING])
        if self.ctx.resident:
            return np.sort(rng.choice(qp.n, wanted, replace=False))
        chosen, found = [np.empty(0, np.int64)], 0
        for number in rng.permutation(len(self.ctx.refs)).tolist():
            ref = self.ctx.refs[number]
            ends = (ref.start, ref.stop) if qp.rows is None else np.searchsorted(qp.rows, [ref.start, ref.stop])
            chosen.append(np.arange(ends[0], ends[1])[: wanted - found])
            found += len(chosen[-1])
            if found >= wanted:
                break
        return np.sort(np.concatenate(chosen))

    def _worst(self, candidates: np.ndarray, middle: float, capacity: int) -> np.ndarray:
        """Free rows and those that violate or nearly do, the worst where there are too many; ascending.

        Where not all rows can be held a part of the capacity is left to those that the pass will find: a set that
        fills it with free rows would never hear of any other.
        """
        qp = self.qp
        room = capacity if qp.n <= capacity else max(capacity * _HELD // 4, 2)
        violations = self._violations(candidates, middle)
        beta = qp.beta[candidates]
        free = (beta > qp.lower[candidates]) & (beta < qp.upper[candidates]) & (beta != 0.0)
        keep = free | (violations > -self.work.band)
        chosen, violations = candidates[keep], violations[keep]
        if len(chosen) > room:
            chosen = np.sort(chosen[largest(violations, room)])
        return chosen

    # -- solving it

    def _solve(self) -> bool:
        """Solve the active set; False where the run is to stop before."""
        work, qp, rows = self.work, self.qp, self.rows
        where = np.flatnonzero(self.flags & ACTIVE)
        numbers = self._numbers(where)
        at = work.row_buffer.at(numbers)
        data = rows.data
        active = ActiveRows(
            X=work.row_buffer.X, at=at, column=data.column(numbers), diag=data.diagonal(work.row_buffer.X, at, numbers),
            beta=qp.beta[where], f=qp.f[where], lower=qp.lower[where], upper=qp.upper[where],
            epsilon=qp.epsilon, sums=qp.sums(),
        )  # fmt: skip
        work.largest = max(work.largest, float(active.diag.max(initial=0.0)))
        smo = BlockSMO(rows.gram, min(self.q, len(where)), self.second)
        last = np.flatnonzero((self.flags[where] & LAST) > 0)
        most = most_values(self.ctx, qp.n, _VALUES)
        found, last = smo.solve(
            active, work.target, last, _ROUNDS - work.solved, self._leaves, max(most - work.values, 1), work.idle
        )
        qp.beta[where], qp.f[where] = active.beta, active.f
        work.epsilon = qp.epsilon = active.epsilon
        self.flags &= ~LAST
        self.flags[where[last]] |= LAST
        work.visits += found.rounds * len(where)
        work.steps += found.steps
        rows.counts.computed += found.kernel_rows
        rows.counts.values += found.values
        rows.counts.asked += found.work
        work.solved, work.values = work.solved + found.rounds, work.values + found.work
        over = work.solved >= _ROUNDS or work.values >= most  # counted: wherever it was left, a share ends at one place
        work.idle = found.idle if found.left else 0
        if found.left and over:
            work.solved, work.shares = 0, work.shares + 1
        if found.left and not (over and work.shares >= _SHARES):
            return False
        work.solved = 0
        ends = found.b_up, found.b_low
        work.middle = 0.5 * sum(ends) if np.all(np.isfinite(ends)) else 0.0
        work.stage, work.row = "pass", 0
        return True

    # -- the pass

    def _pass(self) -> bool:
        """f of the rows outside the active set, and candidates among them; False where the run is to stop before."""
        work, qp, rows = self.work, self.qp, self.rows
        n, data = qp.n, rows.data
        if not np.all(self.flags & ACTIVE):
            moved = np.flatnonzero((self.flags & ACTIVE) * (qp.beta != self.sent))
            if work.row == 0:
                self._make_room()
            other_sides = self._other_sides(moved)
            for block in data.blocks(work.row):
                mine, all_numbers = rows.of(block)
                others = np.flatnonzero((self.flags[mine] & ACTIVE) == 0) + mine.start
                numbers = all_numbers[others - mine.start]
                if len(others):
                    f = qp.f[others][None, :]
                    for support, by in other_sides():
                        rows.gram.add(block.X, numbers - block.offset, support, by, f)
                    qp.f[others] = f[0]
                    near = self._violations(others, work.middle) > max(-work.band, work.threshold)
                    self._offer(block, others[near])
                rows.counts.values += len(others) * len(moved)
                rows.counts.asked += len(others) * len(moved)
                work.row = block.stop
                if block.stop < data.n and self.ctx.pause():
                    return False
            rows.counts.computed += len(moved)
            work.visits += n
        self.sent[:] = qp.beta
        return True

    def _make_room(self) -> None:
        """Let go of active rows that have not moved and do not come near to violating: f of these is done."""
        self.work.row_buffer.keep(self._numbers(self._wanted()))

    def _wanted(self) -> np.ndarray:
        """Rows whose X is wanted in the present stage, ascending."""
        qp, work = self.qp, self.work
        active = np.flatnonzero(self.flags & ACTIVE)
        if work.stage != "pass":
            return active
        near = self._violations(active, work.middle) > -work.band
        near |= (qp.beta[active] > qp.lower[active]) & (qp.beta[active] < qp.upper[active])
        near |= qp.beta[active] != self.sent[active]
        return np.sort(np.concatenate([active[near], np.flatnonzero(self.flags & NEXT)]))

    def _other_sides(self, moved: np.ndarray) -> Callable[[], Iterator[tuple[Support, np.ndarray]]]:
        """Gives the rows that moved and by what, some at a time; few of them are gathered once."""
        qp, rows, row_buffer = self.qp, self.rows, self.work.row_buffer
        numbers, by = self._numbers(moved), qp.beta[moved] - self.sent[moved]
        at_once = support_rows(self.ctx)

        def gathered() -> Iterator[tuple[Support, np.ndarray]]:
            at = row_buffer.at(numbers)  # rows move in the row buffer when it thins
            for start in range(0, len(moved), at_once):
                these = slice(start, start + at_once)
                yield rows.data.support(row_buffer.X, at[these], numbers[these], rows.gram), by[these, None]

        if len(moved) > at_once:
            return gathered
        once = list(gathered())
        return lambda: iter(once)

    def _offer(self, block: Rows, positions: np.ndarray) -> None:
        """Candidates of a block for the next active set; the lesser half of all goes where there are too many."""
        work, row_buffer = self.work, self.work.row_buffer
        if self.ctx.resident:
            self.flags[positions] |= NEXT
            return
        if row_buffer.n + len(positions) > row_buffer.capacity:
            waiting = np.flatnonzero(self.flags & NEXT)
            candidates = np.concatenate([waiting, positions])
            violations = self._violations(candidates, work.middle)
            order = largest(violations, len(candidates))  # candidates ascend: those that wait are of blocks before
            stays = max((row_buffer.capacity - (row_buffer.n - len(waiting))) // 2, 0)
            work.threshold = max(work.threshold, float(violations[order[min(stays, len(order) - 1)]]))
            kept = np.sort(candidates[order[:stays]])
            self.flags[waiting] &= ~NEXT
            old = kept[np.isin(kept, waiting, assume_unique=True)]
            self.flags[old] |= NEXT
            active = np.flatnonzero(self.flags & ACTIVE)
            row_buffer.keep(self._numbers(np.sort(np.concatenate([old, active]))))
            positions = kept[np.isin(kept, positions, assume_unique=True)]
        taken = row_buffer.offer(block, self._numbers(positions))
        self.flags[positions[: len(taken)]] |= NEXT
