"""Rosen's gradient projection in rounds that release many rows at once (`rosen-block`; docs/mathematics.md 9.5).

A round takes the set W of the free rows and the bound rows that violate most, solves the programme on W with K_WW in
memory, and then updates f of all rows.  So a round takes one pass over the data, however many steps it has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bigsvm.compiled.kernel.dual_qp import DualPoint
from bigsvm.compiled.kernel.rosen import LIMIT, STILL, WORK, Descent
from bigsvm.solvers.base import DataShape, Need
from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.base import KernelSolver
from bigsvm.solvers.kernel.dual_qp import DualQP, Progress
from bigsvm.solvers.kernel.ends import expired, most_values
from bigsvm.solvers.kernel.rosen.capacity import face_needs, rows_that_fit
from bigsvm.solvers.kernel.rosen.rosen_face import (
    INNER,
    FaceWork,
    Look,
    Workspace,
    bring_up_to_date,
    check,
    look,
    move,
    new_work,
    paper_eps,
    stands_still,
)
from bigsvm.solvers.kernel.values.kernel_rows import KernelRows
from bigsvm.solvers.selection import largest

_CALL_WORK = 1_000_000_000  # multiplications of one call, about
_VALUE = 20  # multiplications that a kernel value counts as
_SHARE = 0.1  # share of the violation to which a round is solved
_STEPS = 20  # most steps of a round for each of its rows, plus 1000
_PATIENCE = 100  # rounds without progress


@dataclass
class RoundWork(FaceWork):
    """The state of `rosen`, and that of a round which is under way.

    chosen : bool, (n,)       the rows of W
    beta, f : float64, (n,)   present values within the round, valid on W
    stop : float              violation at which the round ends; negative if no round is under way
    last_step : int           value of `steps` at which it ends in any case
    """

    chosen: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    beta: np.ndarray = field(default_factory=lambda: np.zeros(0))
    f: np.ndarray = field(default_factory=lambda: np.zeros(0))
    stop: float = -1.0
    last_step: int = 0


@dataclass(frozen=True)
class RosenBlock(KernelSolver):
    """Hyperparameters of `rosen-block`.

    q : int         most bound rows in a round: half of them may rise, half may fall
    max_set : int   most rows in a round (K_WW has the square of that); --working-set overrides it
    theta, inner : see `Rosen`
    """

    name: ClassVar[str] = "rosen-block"
    rule_factor: ClassVar[float] = 2.0

    q: int = 1000
    max_set: int = 4000
    theta: float = 0.5
    inner: str = "cg"

    def __post_init__(self) -> None:
        check(self.theta, self.inner)
        if not (self.q >= 2 and self.max_set >= 2):
            raise ValueError("q and max_set must be at least 2")

    def own_needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """Bytes of K of the rows of a round, of which there are as many as fit."""
        return face_needs(shape)

    def start_model(self, qp: DualQP, rows: KernelRows, ctx: Context) -> RoundWork:
        """The first state; nothing is computed."""
        face = new_work(qp.n)
        chosen, beta, f = np.zeros(qp.n, bool), np.zeros(qp.n), np.zeros(qp.n)
        return RoundWork(face.direction, face.memory, face.counts, chosen=chosen, beta=beta, f=f)

    def step_model(self, qp: DualQP, work: RoundWork, rows: KernelRows, ctx: Context) -> Progress:
        """Make rounds until b_low - b_up <= qp.eps, or the share of work is over; `iterations` counts rounds.

        A long round continues in the next call, which computes K_WW anew.  `qp` changes only at the end of a round.
        """
        most = max(min(self.asked.working_set or self.max_set, rows_that_fit(ctx)), 2)
        workspace, spent, visits, rounds = Workspace(), 0, 0, work.updates
        now, largest = look(qp), float(rows.diag.max(initial=0.0))
        exhausted = False
        begun = int(work.counts[WORK])
        most_work = most_values(ctx, qp.n, _CALL_WORK // _VALUE) * _VALUE
        while now.violation > qp.eps and spent < most_work and not exhausted and not expired(ctx):
            values, multiplications = rows.counts.asked, int(work.counts[WORK])
            if work.stop < 0.0:
                self._begin_round(qp, work, now, most)
            reason = self._go_on(qp, work, rows, largest, workspace, max(_CALL_WORK - spent, 1))
            spent += int(work.counts[WORK]) - multiplications + _VALUE * (rows.counts.asked - values)
            if reason == LIMIT and work.steps < work.last_step:
                break
            values, before = rows.counts.asked, qp.beta.copy()
            qp.beta[work.chosen] = work.beta[work.chosen]
            work.stop = -1.0
            changed = bring_up_to_date(qp, before, work, rows)
            visits += qp.n * (changed > 0)
            now = look(qp)
            exhausted = stands_still(qp, work, rows, now.violation, reason != STILL or changed > 0, _PATIENCE)
            if work.stale == 0:
                now = look(qp)
            spent += qp.n * changed + _VALUE * (rows.counts.asked - values)
        rows.counts.asked += (int(work.counts[WORK]) - begun) // _VALUE
        done = now.violation <= qp.eps
        return Progress(done, exhausted and not done, work.updates - rounds, visits, now.violation)

    def _begin_round(self, qp: DualQP, work: RoundWork, now: Look, most: int) -> None:
        """Begin a round: choose its rows, and the violation at which it ends."""
        W = working_set(qp, now, self.q, most)
        work.chosen[:] = False
        work.chosen[W] = True
        work.beta[:], work.f[:] = qp.beta, qp.f
        work.stop = max(_SHARE * now.violation, paper_eps(qp))
        work.last_step = work.steps + _STEPS * len(W) + 1000
        work.memory[:] = 0.0

    def _go_on(
        self, qp: DualQP, work: RoundWork, rows: KernelRows, largest: float, workspace: Workspace, most_work: int
    ) -> int:  # fmt: skip
        """Make steps of the round, which change only `work`; the reason why they ended."""
        W = np.flatnonzero(work.chosen)
        K = np.ascontiguousarray(rows.block(W, W))
        most = work.last_step - work.steps
        how = Descent(
            INNER[self.inner], stop=work.stop, small=0.25 * work.stop, theta=self.theta, level=0.0, releases=most,
            most=most, most_work=most_work,
        )  # fmt: skip
        point = DualPoint(work.beta[W], work.f[W])
        reason = move(qp, work, W, point, K, largest, workspace, how)
        work.beta[W], work.f[W] = point
        return reason


def working_set(qp: DualQP, now: Look, q: int, most: int) -> np.ndarray:
    """The rows of a round, int64, ascending.

    These are the free rows, q / 2 bound rows on each side by their violation, and the most violating pair.  If they are
    more than `most`, those with the largest violations are taken, always with that pair.
    """
    bound = np.ones(qp.n, bool)
    bound[now.free] = False
    rising, falling = now.centre - now.up, now.down - now.centre
    chosen = ~bound
    for violations in (rising, falling):
        candidates = np.flatnonzero(bound & (violations > 0.0))
        chosen[candidates[largest(violations[candidates], q // 2)]] = True
    pair = [now.i_up, now.i_low]
    chosen[pair] = True
    W = np.flatnonzero(chosen)
    if len(W) > most:
        violations = np.maximum(rising[W], falling[W])
        violations[np.isin(W, pair)] = np.inf
        W = np.sort(W[largest(violations, most)])
    return W
