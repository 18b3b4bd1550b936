"""Rows so far from violating that passes leave them out: their f is of an earlier beta, and nobody asks for it.

The last passes of a fit move scores by less and less.  A row that is many times as far from violating takes no part in
the fit any more, like LIBSVM's shrunken rows; how far rows in reach have moved since says whether that still holds.
Where it may not, f of the far rows is computed anew.  A fit that ends does without: its proof computes f of all rows.

For one model whose rows are all in memory.  Of rows that stream every pass reads all, so that leaving some out would
spare the lesser part of its time.
"""

from __future__ import annotations

import numpy as np

from bigsvm.solvers.kernel.nu_qp import NuQP
from bigsvm.solvers.kernel.smo.exact_scores import scores_anew, support_of_model
from bigsvm.solvers.kernel.smo.member import Member
from bigsvm.solvers.kernel.smo.round_work import FAR

_OF_VIOLATION, _OF_MOVE = 3.0, 2.0
"""How far from violating a far row is: so many times the violation, and the most that the last pass moved a score."""
_WITNESSES = 256
"""Rows that stay in reach however far they are: how scores move is seen by them."""
_FARTHER = 1.5  # far rows may move so many times as far as rows in reach


def see_pass(member: Member) -> None:
    """After a pass: whether far rows may still be left out, and which others may from now on."""
    work, qp = member.work, member.qp
    violation, middle = qp.violation(), work.middle
    work.slack -= _FARTHER * work.move + abs(middle - work.far_middle)
    reach = max(_OF_VIOLATION * violation, _OF_MOVE * work.move)
    work.move, work.far_middle = 0.0, middle
    if isinstance(qp, NuQP) or not np.isfinite(reach):  # of nu the ends of either side move on their own
        return
    waiting = np.flatnonzero(member.waits(slice(None)))
    if member.has_far and (work.slack < 0.0 or not len(waiting)):  # of no row in reach: nothing says how scores move
        work.stage = "far"
        return
    found = member.violations(waiting, middle)
    far = waiting[(found < -reach) & (found < _nearest(found))]
    if len(far):
        member.flags[far] |= FAR
        work.slack = min(work.slack, reach)


def _nearest(found: np.ndarray) -> float:
    """The violation of the last of the rows that stay in reach whatever it is; -inf where there are no more than so
    many."""
    return float(np.partition(found, -_WITNESSES)[-_WITNESSES]) if len(found) > _WITNESSES else -np.inf


def bring_back(member: Member) -> bool:
    """f of all far rows anew, block by block; False where the run is to stop before, and it goes on there."""
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
