"""Whether working sets come nearer: by the gap, and by P where the gap cannot tell.

The dual point of the hinge loss says nothing until the kept rows are nearly the right ones: rows that are folded have
alpha = 0 or C, and one of them on the wrong side costs D all that it may pull.  So D of a working set lies a thousand
times below 0 for some passes, the best dual point stays where it was, and then the gap falls to a hundredth in one
pass.  Until then all that a pass wins is P.
"""

from __future__ import annotations

import numpy as np

from bigsvm.solvers.newton_ws.working_state import WorkingState

_FALLEN = 0.01  # of P, in as many passes as a gap has to halve: less is no way to come anywhere
STUCK = 3  # passes in which w does not move, and nothing is to be expected of more
TOO_MANY = 100  # passes, from which working sets are no nearer than anybody


def does_not_fall(gaps: list[np.ndarray], patience: int, done: float) -> bool:
    """Whether no model that is still to come, its gap above `done`, has halved it in the last so many passes.

    One that has leaves more of the capacity to the others, soon.
    """
    if len(gaps) <= patience:
        return False
    return not np.any((gaps[-1] <= 0.5 * gaps[0]) & (gaps[0] > done))


def stands(state: WorkingState) -> bool:
    """Whether P of no model has fallen either, so that the rows that are kept do not lead to the ones that matter.

    P falls by a hundredth only so often, since it stays above D of any dual point; and after `TOO_MANY` passes that
    counts no more.  With a smooth loss every point has a dual point about as good as itself: there the gap tells.
    """
    if state.problem.loss.smooth or state.passes >= TOO_MANY:
        return True
    if len(state.primals) < len(state.gaps):  # a checkpoint of an earlier version has none
        return False
    return not np.any(state.primals[-1] <= (1.0 - _FALLEN) * state.primals[0])
