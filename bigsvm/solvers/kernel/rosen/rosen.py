"""Rosen's gradient projection in the dual of a kernel machine (`rosen`; Lopez and Dorronsoro; docs/mathematics.md 9).

J is the set of free rows, and the points with J free and all other rows at their bounds form a *face*.  One row at a
time is *released* from its bound.  Between two releases all free rows move together, along conjugate directions, with
the matrix K_JJ in memory.  f of the other rows is needed only to choose the next release, and is updated then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigsvm.compiled.kernel.dual_qp import DualPoint
from bigsvm.compiled.kernel.rosen import DUE, STILL, WORK, Descent, keep_members
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
    grown,
    look,
    move,
    new_work,
    paper_eps,
    stands_still,
)
from bigsvm.solvers.kernel.values.kernel_rows import KernelRows

_CALL_WORK = 1_000_000_000  # multiplications of one call, about
_VALUE = 20  # multiplications that a kernel value counts as
_LOOK = 50_000  # multiplications that the fixed work of a release counts as


@dataclass(frozen=True)
class Rosen(KernelSolver):
    """Hyperparameters of `rosen`.

    theta : float   a bound row is released once no |r_i| on the face exceeds theta times its multiplier
    inner : 'cg' | 'steepest' | 'newton'   directions inside a face; 'steepest' is the text of the paper, and slow
    full : bool     update f of all rows after every step, as in the paper, instead of once for each release.  Releases
        then come exactly when their rule says so: 2 to 4 % fewer steps, for 1.6 to 3.3 times the kernel values
    """

    name: ClassVar[str] = "rosen"
    rule_factor: ClassVar[float] = 2.0
    keep_sums: ClassVar[bool] = True

    theta: float = 0.5
    inner: str = "cg"
    full: bool = False

    def __post_init__(self) -> None:
        check(self.theta, self.inner)

    @property
    def caches(self) -> bool:
        """True, because mostly the same rows move between one update of f and the next."""
        return True

    def own_needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """Bytes of K of the free rows; if more rows are free than fit, some of them wait."""
        return face_needs(shape)

    def start_model(self, qp: DualQP, rows: KernelRows, ctx: Context) -> FaceWork:
        """The first state; nothing is computed."""
        return new_work(qp.n)

    def step_model(self, qp: DualQP, work: FaceWork, rows: KernelRows, ctx: Context) -> Progress:
        """Solve faces, each with one release and one update of f, until b_low - b_up <= qp.eps or the share is over.

        K_JJ is computed anew by each call, so that the result does not depend on whether the state was saved in
        between.
        """
        block, workspace, spent, visits, steps = Block(rows, rows_that_fit(ctx)), Workspace(), 0.0, 0, work.steps
        now = look(qp)
        exhausted = False
        begun = int(work.counts[WORK])
        most = most_values(ctx, qp.n, _CALL_WORK // _VALUE) * _VALUE
        while now.violation > qp.eps and spent < most and not exhausted and not expired(ctx):
            values, multiplications = rows.counts.asked, int(work.counts[WORK])
            before = qp.beta.copy()
            moved = self._face(qp, work, block, workspace, now)
            visits += qp.n * (bring_up_to_date(qp, before, work, rows) > 0)
            now = look(qp)
            exhausted = stands_still(qp, work, rows, now.violation, moved, patience=200 + qp.n)
            if work.stale == 0:
                now = look(qp)
            # Count values that were asked for, not those computed: the end of a call must not depend on a cache.
            spent += _VALUE * (rows.counts.asked - values) + int(work.counts[WORK]) - multiplications
            spent += qp.n + _LOOK
        rows.counts.asked += (int(work.counts[WORK]) - begun) // _VALUE
        done = now.violation <= qp.eps
        return Progress(done, exhausted and not done, work.steps - steps, visits, now.violation)

    def _face(self, qp: DualQP, work: FaceWork, block: Block, workspace: Workspace, now: Look) -> bool:
        """Release a row if that is due, then make steps inside the face until the next release is; whether beta moved.

        Of the rows outside the face only the multiplier of p is kept up to date.  After p was released, the next
        multiplier is expected to be as large.  If it turns out to be smaller, the face continues along the same
        directions, after all multipliers are known again.
        """
        eps, before = paper_eps(qp), work.steps
        if len(now.free):
            free = now.free
            if len(free) >= block.most:
                free = _ends(now, block.most - 1)
                work.memory[:] = 0.0  # the rows differ from the last ones, so conjugacy is lost
            numbers = np.append(free, now.p) if now.p >= 0 else free
            due = now.worst <= max(self.theta * now.multiplier, 0.5 * eps) or len(now.free) == 1
        else:
            numbers, due = np.array([now.i_up, now.i_low]), True
        block.take(numbers)
        how = Descent(
            INNER[self.inner], stop=-np.inf, small=0.5 * eps, theta=self.theta, level=now.multiplier, releases=int(due),
            most=1 if self.full else len(numbers) + 5, most_work=_CALL_WORK,
        )  # fmt: skip
        W, point = block.numbers, DualPoint(qp.beta[block.numbers], qp.f[block.numbers])
        reason = move(qp, work, W, point, block.K, block.largest, workspace, how)
        if reason == DUE and work.steps == before:  # a tie, which rounding has decided differently
            reason = move(qp, work, W, point, block.K, block.largest, workspace, how._replace(releases=1))
        qp.beta[W] = point.beta
        return reason != STILL or work.steps > before + 1


def _ends(now: Look, most: int) -> np.ndarray:
    """The free rows with the smallest and the largest F, half of each, which violate most; int64, ascending."""
    order = np.argsort(now.up[now.free], kind="stable")
    low = most // 2
    return np.sort(now.free[np.concatenate([order[:low], order[len(order) - (most - low) :]])])


class Block:
    """K of a set of rows that changes little from one time to the next; only values of new rows are computed.

    most : int   rows that fit
    numbers : int64, (m,)   the rows, the newest last;  K : (m, m), in the dtype of the kernel rows
    """

    def __init__(self, rows: KernelRows, most: int) -> None:
        self.most = most
        self.numbers = np.empty(0, np.int64)
        self.largest = float(rows.diag.max(initial=0.0))
        self._rows, self._store = rows, np.empty((0, 0), rows.dtype)

    @property
    def K(self) -> np.ndarray:
        return self._store[: len(self.numbers), : len(self.numbers)]

    def take(self, wanted: np.ndarray) -> None:
        """Hold the rows `wanted` (int64, distinct) and no others."""
        kept = np.flatnonzero(np.isin(self.numbers, wanted))
        if len(kept) < len(self.numbers):
            keep_members(self._store, kept)
            self.numbers = self.numbers[kept]
        new = np.setdiff1d(wanted, self.numbers)
        if not len(new):
            return
        k, m = len(self.numbers), len(self.numbers) + len(new)
        self.numbers = np.concatenate([self.numbers, new])
        if m > len(self._store):
            larger = np.empty((min(grown(m), self._rows.n, max(self.most, m)),) * 2, self._rows.dtype)
            larger[:k, :k] = self._store[:k, :k]
            self._store = larger
        self._store[k:m, :m] = self._rows.block(new, self.numbers)
        self._store[:k, k:m] = self._store[k:m, :k].T
