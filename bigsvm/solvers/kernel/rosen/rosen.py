"""Rosen's gradient projection in the dual of a kernel machine (`rosen`; Lopez and Dorronsoro; docs/mathematics.md 9).

One row leaves its bound at a time; between releases all free rows move together, along conjugate directions with
K_JJ at hand.  f of the other rows is wanted for the choice of the next release only, and is brought up to date then.
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

_CALL_WORK = 1_000_000_000  # multiplications of a call, about
_VALUE = 20  # of a kernel value
_LOOK = 50_000  # of what is done once a release


@dataclass(frozen=True)
class Rosen(KernelSolver):
    """Hyperparameters of `rosen`.

    theta : float   a bound row is released where no |r_i| on the face is above theta times its multiplier
    inner : 'cg' | 'steepest' | 'newton'   directions inside a face; 'steepest' is the text of the paper, and slow
    full : bool     f of all rows after every step, as in the paper, and not once a release: every release then comes
        when its rule says so, which saves 2 to 4 steps in a hundred, for 1.6 to 3.3 times the kernel values
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
        """Of the rows that move: much the same ones from one update of f to the next."""
        return True

    def own_needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """K of the free rows; of more of them than there is memory for, some wait."""
        return face_needs(shape)

    def start_model(self, qp: DualQP, rows: KernelRows, ctx: Context) -> FaceWork:
        """Nothing is computed."""
        return new_work(qp.n)

    def step_model(self, qp: DualQP, work: FaceWork, rows: KernelRows, ctx: Context) -> Progress:
        """Faces, each with one release and one update of f, until b_low - b_up <= qp.eps, or for one share of work.

        K_JJ is computed anew by each call, so that nothing depends on whether the state was saved before it.
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
            # Values that were asked for, not those computed: where a call ends must not depend on a cache.
            spent += _VALUE * (rows.counts.asked - values) + int(work.counts[WORK]) - multiplications
            spent += qp.n + _LOOK
        rows.counts.asked += (int(work.counts[WORK]) - begun) // _VALUE
        done = now.violation <= qp.eps
        return Progress(done, exhausted and not done, work.steps - steps, visits, now.violation)

    def _face(self, qp: DualQP, work: FaceWork, block: Block, workspace: Workspace, now: Look) -> bool:
        """A release where it is due, then steps inside the face until the next one is; whether anything moved.

        Of the rows outside only p's multiplier is kept up to date.  After its release the next one is expected to be
        as large: where it is smaller, the face goes on after another look, along the same directions.
        """
        eps, before = paper_eps(qp), work.steps
        if len(now.free):
            free = now.free
            if len(free) >= block.most:
                free = _ends(now, block.most - 1)
                work.memory[:] = 0.0  # other rows than last time: their directions are conjugate to nothing
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
        if reason == DUE and work.steps == before:  # a tie that rounding decides otherwise here than there
            reason = move(qp, work, W, point, block.K, block.largest, workspace, how._replace(releases=1))
        qp.beta[W] = point.beta
        return reason != STILL or work.steps > before + 1


def _ends(now: Look, most: int) -> np.ndarray:
    """The free rows with the smallest and the largest F, which are the farthest apart: int64, ascending."""
    order = np.argsort(now.up[now.free], kind="stable")
    low = most // 2
    return np.sort(now.free[np.concatenate([order[:low], order[len(order) - (most - low) :]])])


class Block:
    """K of a few rows that change little from one time to the next: what is new is computed, the rest stays.

    most : rows that there is room for
    numbers : int64, (m,)   the rows, those that came last at the end;  K : (m, m), of the rows' type
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
