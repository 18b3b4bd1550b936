"""Far rows: rows so far from violating that passes do not update their f, like rows that LIBSVM has shrunk.

The last passes of a fit change scores less and less.  A row that is many times that far from violating does not matter
to the fit.  How much the scores of the other rows have changed since shows whether that still holds.  If it may not,
f of the far rows is computed anew.  The end of a fit does not need it, because the proof computes f of all rows.

This is done only for a single open model whose rows are all in memory.  If rows stream, a pass reads all of them
anyway, and leaving some out would save the smaller part of its time.
"""

from __future__ import annotations

import numpy as np

from bigsvm.solvers.kernel.nu_qp import NuQP
from bigsvm.solvers.kernel.smo.exact_scores import scores_anew, support_of_model
from bigsvm.solvers.kernel.smo.member import Member
from bigsvm.solvers.kernel.smo.round_work import FAR

_OF_VIOLATION, _OF_MOVE = 3.0, 2.0
"""A far row is farther from violating than these multiples of the violation, and of the largest change of a score in
the last pass."""
_WITNESSES = 256
"""Rows that are never far, so that changes of scores can be observed on them."""
_FARTHER = 1.5  # scores of far rows are taken to change by up to this many times as much as those of other rows


def see_pass(member: Member) -> None:
    """After a pass, decide whether far rows may still be left out, and which other rows become far."""
    work, qp = member.work, member.qp
    violation, middle = qp.violation(), work.middle
    work.slack -= _FARTHER * work.move + abs(middle - work.far_middle)
    reach = max(_OF_VIOLATION * violation, _OF_MOVE * work.move)
    work.move, work.far_middle = 0.0, middle
    if isinstance(qp, NuQP) or not np.isfinite(reach):  # with nu the two sides move apart from each other
        return
    waiting = np.flatnonzero(member.waits(slice(None)))
    if member.has_far and (work.slack < 0.0 or not len(waiting)):  # without other rows, changes cannot be observed
        work.stage = "far"
        return
    found = member.violations(waiting, middle)
    far = waiting[(found < -reach) & (found < _nearest(found))]
    if len(far):
        member.flags[far] |= FAR
        work.slack = min(work.slack, reach)


def _nearest(found: np.ndarray) -> float:
    """The `_WITNESSES`-th largest violation: rows above it are never far; -inf if there are no more rows than that."""
    return float(np.partition(found, -_WITNESSES)[-_WITNESSES]) if len(found) > _WITNESSES else -np.inf


def bring_back(member: Member) -> bool:
    """Compute f of all far rows anew, block by block; False if the run is to stop before, to go on there later."""
    side = support_of_model(member)
    for block in member.rows.data.blocks():
        mine, _ = member.rows.of(block)
        far = np.flatnonzero(member.flags[mine] & FAR) + mine.start
        if not len(far):
            continue
        member.qp.f[far] = scores_anew(member, side, far, member.rows.gram)
        member.flags[far] &= ~FAR
        if member.ctx.pause() and np.any(member.flags & FAR):
            return False
    member.work.slack = np.inf
    return True
