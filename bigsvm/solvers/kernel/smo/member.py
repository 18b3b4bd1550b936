"""One model of a round of block SMO: its active set, and the solution of that.

The state of a round is the flags of the rows and a few numbers.  From these a run that was stopped anywhere, even
within a pass, goes on to the same bits.
"""

from __future__ import annotations

import numpy as np

from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.dual_qp import Progress
from bigsvm.solvers.kernel.ends import most_values
from bigsvm.solvers.kernel.nu_qp import NuQP
from bigsvm.solvers.kernel.smo.block_smo import ActiveRows, BlockSMO
from bigsvm.solvers.kernel.smo.round_work import ACTIVE, FAR, FLAGS, LAST, NEXT, SENT, Rules, SmoWork, Violations
from bigsvm.solvers.kernel.state import OpenModel
from bigsvm.solvers.kernel.values.data_rows import DataRows
from bigsvm.solvers.kernel.values.row_buffer import RowBuffer
from bigsvm.solvers.pace import kernel_limits

_SHARE_MEMORY, _SHARE_DISK = 0.1, 0.02  # share of the violation to which an active set is solved
_BAND_MEMORY, _BAND_DISK = 0.05, 0.1  # rows this near to violating are active, in units of the scale of scores
_ROUNDS = 64  # working sets in one share of work
_SHARES = 16  # shares on one active set; then the other rows get a pass, whatever the violation is
_SURE = 0.9  # share of the violation asked for at which an active set counts as solved


class Member:
    """One open model in a round, from its start or from where the round was interrupted."""

    def __init__(self, one: OpenModel, ctx: Context, rules: Rules) -> None:
        assert isinstance(one.rows, DataRows)
        self.qp, self.rows, self.classes, self.ctx, self.rules = one.qp, one.rows, one.classes, ctx, rules
        self.work: SmoWork = one.work
        self.flags, self.sent = one.qp.own[FLAGS], one.qp.own[SENT]
        self.qp.epsilon = self.work.epsilon

    def told(self, stale: bool, moved: bool) -> Progress:
        """Report what was done since the last report, and reset the counts.

        stale : f of some rows is old, so that the violation is not known
        moved : beta has changed, in this model or in one with which it shares the row buffer
        """
        work, qp = self.work, self.qp
        violation = work.violation if stale else qp.violation()
        if isinstance(qp, NuQP):
            qp.largest = work.largest
        # If the violation stays and nothing moves, three times in a row, floating point can do no more.
        if not stale:
            work.stuck = work.stuck + 1 if violation >= work.violation and not moved else 0
        work.violation = violation
        done = violation <= qp.eps and not stale
        progress = Progress(done, work.stuck > 2, work.steps, work.visits, violation, stale=stale)
        work.steps = work.visits = work.values = 0
        return progress

    def numbers(self, positions: np.ndarray) -> np.ndarray:
        """The rows of the data at these positions of the QP."""
        return positions if self.qp.rows is None else self.qp.rows[positions]

    def positions(self, numbers: np.ndarray) -> np.ndarray:
        """The positions in the QP of rows of the data, which must all take part in this model."""
        return numbers if self.qp.rows is None else np.searchsorted(self.qp.rows, numbers)

    def violations(self, where: np.ndarray, middle: float) -> np.ndarray:
        """By how much rows violate with the bias -middle, float64; negative if they do not."""
        return np.maximum(middle - self.qp.up(where), self.qp.down(where) - middle)

    def sides(self, where: np.ndarray, middle: float) -> Violations:
        """By how much rows violate with the bias -middle, and on which side."""
        rise, fall = middle - self.qp.up(where), self.qp.down(where) - middle
        return Violations(np.maximum(rise, fall), fall > rise)

    def near(self, where: np.ndarray) -> np.ndarray:
        """The positions, out of `where` outside the active set, that are candidates for the next one."""
        found, work = self.sides(where, self.work.middle), self.work
        return where[found.by > np.maximum(-work.band, np.where(found.falls, work.falling, work.rising))]

    def let_go(self, positions: np.ndarray, found: Violations) -> None:
        """Drop candidates for lack of room; from now on a candidate must violate more than these."""
        work = self.work
        self.flags[positions] &= ~NEXT
        work.rising = max(work.rising, float(found.by[~found.falls].max(initial=-np.inf)))
        work.falling = max(work.falling, float(found.by[found.falls].max(initial=-np.inf)))

    def flagged(self, flag: np.uint8) -> np.ndarray:
        """Positions of rows that have at least one of the flags."""
        return np.flatnonzero(self.flags & flag)

    @property
    def all_active(self) -> bool:
        """Whether all rows are active, so that steps keep f of all of them up to date."""
        return bool(np.all(self.flags & ACTIVE))

    def waits(self, where: np.ndarray | slice) -> np.ndarray:
        """bool: which of some rows a pass updates."""
        return (self.flags[where] & (ACTIVE | FAR)) == 0

    @property
    def has_far(self) -> bool:
        """Whether there are far rows, which passes leave out."""
        return bool(np.any(self.flags & FAR))

    def moved(self) -> np.ndarray:
        """Active rows whose beta has changed since the last pass, so that f of the other rows is out of date."""
        return np.flatnonzero((self.flags & ACTIVE) * (self.qp.beta != self.sent))

    # -- the active set

    def begin_first(self) -> None:
        """Set epsilon and the band before the first active set."""
        self.qp.settle()
        self.work.epsilon = self.qp.epsilon
        self.work.band = self.band()

    def band(self) -> float:
        """How far from violating an active row may be.  With nu this changes from round to round."""
        return (_BAND_MEMORY if self.ctx.resident else _BAND_DISK) * self.qp.scale()

    def wants(self, candidates: np.ndarray, middle: float, everything: bool) -> tuple[np.ndarray, Violations]:
        """Rows for the next active set: candidates that are free, violate, or nearly do; and their violations.

        everything : take all candidates
        """
        qp = self.qp
        found = self.sides(candidates, middle)
        beta = qp.beta[candidates]
        free = (beta > qp.lower[candidates]) & (beta < qp.upper[candidates]) & (beta != 0.0)
        keep = free | (found.by > -self.work.band) | everything
        return candidates[keep], found.of(keep)

    def take(self, chosen: np.ndarray) -> None:
        """Make `chosen` the active set, to be solved next."""
        work, qp = self.work, self.qp
        share = _SHARE_MEMORY if self.ctx.resident else _SHARE_DISK
        self.flags &= LAST | FAR
        self.flags[chosen] |= ACTIVE
        work.target = max(share * qp.violation(), _SURE * qp.eps)
        work.stage, work.rising, work.falling, work.moved = "solve", -np.inf, -np.inf, 0

    def wanted(self) -> np.ndarray:
        """Positions, ascending, of rows that must be in memory in the present stage.

        During a pass, active rows that have not moved and are not near to violating are not needed, since their f is up
        to date.  A programme that is active as a whole takes no part in the pass, and keeps all rows.
        """
        qp, work = self.qp, self.work
        active = self.flagged(ACTIVE)
        if work.stage != "pass" or len(active) == qp.n:
            return active
        near = self.violations(active, work.middle) > -work.band
        near |= (qp.beta[active] > qp.lower[active]) & (qp.beta[active] < qp.upper[active])
        near |= qp.beta[active] != self.sent[active]
        return np.sort(np.concatenate([active[near], self.flagged(NEXT)]))

    # -- solving it

    def solve(self, row_buffer: RowBuffer) -> bool:
        """Solve the active set; False if the share of work ends before, or the run is to stop."""
        work, qp, rows = self.work, self.qp, self.rows
        where = self.flagged(ACTIVE)
        numbers = self.numbers(where)
        at = row_buffer.at(numbers)
        data = rows.data
        active = ActiveRows(
            X=row_buffer.X, at=at, column=data.column(numbers), diag=data.diagonal(row_buffer.X, at, numbers),
            beta=qp.beta[where], f=qp.f[where], lower=qp.lower[where], upper=qp.upper[where],
            epsilon=qp.epsilon, sums=qp.sums(),
        )  # fmt: skip
        work.largest = max(work.largest, float(active.diag.max(initial=0.0)))
        smo = BlockSMO(rows.gram, min(self.rules.q, len(where)), self.rules.second)
        last = np.flatnonzero((self.flags[where] & LAST) > 0)
        most = most_values(self.ctx, qp.n, self.rules.values)
        if isinstance(qp, NuQP) and not qp.at_most:  # it may have no margin, which is looked at between shares
            most = min(most, int(kernel_limits(qp.n).patience) * qp.n**2)
        found, last = smo.solve(
            active, work.target, last, _ROUNDS - work.solved, self._leaves, max(most - work.values, 1), work.idle
        )
        qp.beta[where], qp.f[where] = active.beta, active.f
        work.epsilon = qp.epsilon = active.epsilon
        self.flags &= ~LAST
        self.flags[where[last]] |= LAST
        work.visits += found.rounds * len(where)
        work.steps, work.moved = work.steps + found.steps, work.moved + found.steps
        rows.counts.computed += found.kernel_rows
        rows.counts.values += found.values
        rows.counts.asked += found.work
        work.solved, work.values = work.solved + found.rounds, work.values + found.work
        # A share of work is measured in counts, so that an interruption does not change where it ends.
        over = work.solved >= _ROUNDS or work.values >= most
        work.idle = found.idle if found.left else 0
        if found.left and over:
            work.solved, work.shares = 0, work.shares + 1
        if found.left and not (over and work.shares >= _SHARES):
            return False
        work.solved = 0
        ends = found.b_up, found.b_low
        work.middle = 0.5 * sum(ends) if np.all(np.isfinite(ends)) else 0.0
        work.stage = "pass"
        return True

    def _leaves(self) -> bool:
        return self.ctx.pause() or self.ctx.expired()
