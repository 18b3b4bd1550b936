"""Sequential minimal optimisation as in the papers: each step moves two variables and fetches their kernel rows.

| wss | raises i | lowers j |
|---|---|---|
| 1 | arg min F_up | arg max F_down (the maximal violating pair) |
| 2, 3 | arg min F_up | the largest (F_down(j) - b_up)^2 / curvature; a curvature that is not positive is 1e-12 |
| wr | as 3, among *fresh* variables: those that are 0 and were never selected | as 3; ends when none violates |
| wr+3 | as wr, then as 3 from where that ends | |
| keerthi2 | see `keerthi.py` | |

Rows at a bound whose scores press them against it are shrunk, and become active again before the end
(docs/mathematics.md 8.4).

Source: Fan, Chen, Lin, JMLR 6 (2005); Chang and Lin, LIBSVM, 4.2 and 5; docs/mathematics.md 8.1 to 8.4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigsvm.compiled.kernel.smo import (
    FALLS,
    RISES,
    add_block,
    add_pair,
    add_row,
    curvature,
    extremes,
    second_order_partner,
    shrink,
    take_step,
)
from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.dual_qp import DualQP, Progress
from bigsvm.solvers.kernel.ends import expired, most_values
from bigsvm.solvers.kernel.smo.keerthi import KeerthiWork, keerthi_advance, keerthi_begin
from bigsvm.solvers.kernel.smo.rounding import resolution
from bigsvm.solvers.kernel.values.kernel_rows import KernelRows

_SHRINK_EVERY = 1000  # steps between two shrinkings, or the number of rows if that is smaller
_COME_BACK = 10.0  # multiple of eps: at this violation all rows become active once
_BLOCK_VALUES = 1 << 20  # values of a block of K that are computed at a time


@dataclass
class TextbookWork:
    """The state of a model between two calls.

    active : int64, (n,)      the active rows are its first n_active entries, ascending
    countdown : int           steps until the next shrinking
    unshrunk : bool           all rows became active once, near the end
    at_bound : float64, (n,)  sum of beta_j K_j over rows j with |beta_j| = C_j (LIBSVM's G_bar); (0,) without shrinking
    fresh : uint8, (n,)       see `compiled/kernel/smo.py`; (0,) unless the rule is wr or wr+3
    limited : bool            only fresh variables may be chosen
    selected : int32, (2, n)  how often alpha and alpha* were selected (for classes, the one that a row has); (2, 0) if
        that is not recorded
    """

    active: np.ndarray
    n_active: int
    countdown: int
    unshrunk: bool
    at_bound: np.ndarray
    fresh: np.ndarray
    limited: bool
    selected: np.ndarray


@dataclass(frozen=True)
class Textbook:
    """SMO with two variables in a step.  Between two calls f of shrunk rows is out of date, until `whole` or the end.

    steps : int      most steps in one call of `step_model`
    record : bool    count how often each variable is selected
    wss, shrinking : the options of these names
    """

    steps: int = 1000
    record: bool = False
    wss: str = "2"
    shrinking: bool = True

    def start_model(self, qp: DualQP, rows: KernelRows, ctx: Context | None = None) -> TextbookWork | KeerthiWork:
        """The first state of a model, whose beta is feasible and f = K beta - t.

        With shrinking, a start other than beta = 0 costs one scan of the rows.  For wr, rows with beta != 0 count as
        selected.
        """
        n = qp.n
        selected = np.zeros((2, n if self.record else 0), np.int32)
        if self.wss == "keerthi2":
            return keerthi_begin(qp, selected)
        limited = self.wss.startswith("wr")
        at_bound = np.zeros(n if self.shrinking and self.wss != "wr" else 0)
        bound = np.flatnonzero(_cost_used_up(qp))
        if len(at_bound) and len(bound):
            rows.update(at_bound, bound, qp.beta[bound])
        fresh = np.zeros(n if limited else 0, np.uint8)
        if limited:
            zero = qp.beta == 0.0
            fresh[zero & (qp.upper > 0.0)] |= RISES
            fresh[zero & (qp.lower < 0.0)] |= FALLS
        countdown = min(n, _SHRINK_EVERY) + 1
        return TextbookWork(np.arange(n), n, countdown, False, at_bound, fresh, limited, selected)

    def step_model(
        self,
        qp: DualQP,
        work: TextbookWork | KeerthiWork,
        rows: KernelRows,
        ctx: Context | None = None,
    ) -> Progress:
        """Make steps until the violation is at most `qp.eps`, wr has ended, or `self.steps` are done.

        The result is `exhausted` if a step changes nothing, or if the violation is no more than rounding.
        """
        # Rounded like the kernel rows; otherwise equal rows would seem to differ.
        diag = rows.diag.astype(rows.dtype).astype(np.float64)
        most = max(min(self.steps, most_values(ctx, qp.n, 2 * qp.n * self.steps) // (2 * max(qp.n, 1))), 1)
        if isinstance(work, KeerthiWork):
            return keerthi_advance(qp, work, rows, diag, most, ctx)
        done = visits = 0
        violation, moved = np.inf, True
        while done < most and not expired(ctx):
            if len(work.at_bound) and not work.limited:
                work.countdown -= 1
                if work.countdown == 0:
                    _shrink(qp, work, rows)
            fresh = work.fresh[: qp.n if work.limited else 0]
            among = (work.active, work.n_active)
            i, j, b_up, b_low = extremes(qp.f, qp.beta, qp.lower, qp.upper, qp.epsilon, fresh, *among)
            violation = b_low - b_up if min(i, j) >= 0 else -np.inf
            if violation <= qp.eps:
                if work.limited and self.wss == "wr":
                    left = qp.violation()
                    return Progress(left <= qp.eps, False, done, visits, left, final=True)
                if work.limited:
                    work.limited = False
                elif work.n_active == qp.n:
                    return Progress(True, False, done, visits, violation)
                else:
                    _all_back(qp, work, rows)
                    work.countdown = 2  # shrinks again after one step among all
                continue
            if self.wss == "1":
                row_i, row_j = rows.fetch(np.array([i, j]))
                worse = violation
            else:
                row_i = rows.fetch(np.array([i]))[0]
                j, worse = second_order_partner(
                    i, b_up, row_i, diag, qp.f, qp.beta, qp.lower, qp.epsilon, fresh, *among
                )
                if j < 0:  # kernel values overflow, so no partner can be chosen
                    moved = False
                    break
                row_j = rows.fetch(np.array([j]))[0]
            a = curvature(i, j, row_i[j], diag)
            moved = self._step(qp, work, fresh, (i, j), worse / a, (row_i, row_j))
            done, visits = done + 1, visits + work.n_active
            if not moved and not work.limited:
                break
        exhausted = not work.limited and violation <= resolution(qp, diag)
        if exhausted or not moved:
            self.whole(qp, work, rows)
        return Progress(False, exhausted or not moved, done, visits, float(violation))

    def whole(self, qp: DualQP, work: TextbookWork | KeerthiWork, rows: KernelRows) -> None:
        """Make f valid for all rows.  The active set does not change, so later steps are the same."""
        if isinstance(work, TextbookWork) and work.n_active < qp.n:
            _reconstruct(qp, work, rows)

    def _step(
        self,
        qp: DualQP,
        work: TextbookWork,
        fresh: np.ndarray,
        pair: tuple[int, int],
        step: float,
        pair_rows: tuple[np.ndarray, np.ndarray],
    ) -> bool:
        """Move a pair of variables, and update f and the state; whether beta changed."""
        i, j = pair
        if self.record:
            work.selected[int(qp.beta[i] < 0.0 and not len(fresh)), i] += 1
            work.selected[int(qp.beta[j] <= 0.0 or bool(len(fresh))), j] += 1
        changes = take_step(i, j, step, qp.beta, qp.lower, qp.upper, qp.epsilon, fresh)
        add_pair(qp.f, work.active, work.n_active, *pair_rows, *changes[:2])
        if len(fresh):
            fresh[i] &= ~np.uint8(RISES)
            fresh[j] &= ~np.uint8(FALLS)
        if len(work.at_bound):
            for row, change in zip(pair_rows, changes[2:], strict=True):
                if change != 0.0:
                    add_row(work.at_bound, row, change)
        return changes[0] != 0.0 or changes[1] != 0.0


def _cost_used_up(qp: DualQP) -> np.ndarray:
    """bool, (n,): rows with alpha or alpha* at C, which is an end of their box other than 0."""
    return (qp.beta != 0.0) & ((qp.beta == qp.lower) | (qp.beta == qp.upper))


def _shrink(qp: DualQP, work: TextbookWork, rows: KernelRows) -> None:
    """Shrink as LIBSVM does: by thresholds over the active rows; near the end all rows become active once."""
    work.countdown = min(qp.n, _SHRINK_EVERY)
    *_, b_up, b_low = extremes(
        qp.f, qp.beta, qp.lower, qp.upper, qp.epsilon, work.fresh[:0], work.active, work.n_active
    )
    if not work.unshrunk and b_low - b_up <= _COME_BACK * qp.eps:
        work.unshrunk = True
        _all_back(qp, work, rows)
    work.n_active = shrink(qp.f, qp.beta, qp.lower, qp.upper, qp.epsilon, b_up, b_low, work.active, work.n_active)


def _all_back(qp: DualQP, work: TextbookWork, rows: KernelRows) -> None:
    _reconstruct(qp, work, rows)
    work.active[:] = np.arange(qp.n)
    work.n_active = qp.n


def _reconstruct(qp: DualQP, work: TextbookWork, rows: KernelRows) -> None:
    """Compute f of the rows that are not active, from `at_bound` and the free rows.

    It takes either whole kernel rows of the free rows, or only the block of K between the two sets.  The block is
    chosen only if it is much smaller, because whole rows take a single scan and may be cached.  Both add in the same
    order, and give the same bits.
    """
    away = np.ones(qp.n, bool)
    away[work.active[: work.n_active]] = False
    away = np.flatnonzero(away)
    inside = np.flatnonzero((qp.beta != 0.0) & ~_cost_used_up(qp))
    f = work.at_bound - qp.target
    if len(inside) * qp.n > 2 * work.n_active * len(away):
        piece = max(_BLOCK_VALUES // max(len(inside), 1), 1)
        for start in range(0, len(away), piece):
            where = away[start : start + piece]
            few = f[where]
            add_block(few, rows.block(where, inside), qp.beta[inside])
            f[where] = few
    elif len(inside):
        rows.update(f, inside, qp.beta[inside])
    qp.f[away] = f[away]
