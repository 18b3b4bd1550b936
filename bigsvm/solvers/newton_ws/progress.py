"""Whether working sets make progress: judged by the gap, or by P while the gap cannot tell.

With the hinge loss the dual point is useless until nearly the right rows are kept.  Folded rows have alpha = 0 or C,
and a few of them on the wrong side push D of the working set far below 0.  So for some passes the
best dual point stays the old one while only P falls, and then the gap falls to a hundredth in one pass.
"""

from __future__ import annotations

import numpy as np

from bigsvm.solvers.newton_ws.working_state import WorkingState

_FALLEN = 0.01  # relative fall of P that counts as progress, in the passes in which a gap has to halve
STUCK = 3  # passes without a change of w after which more passes are useless
TOO_MANY = 100  # passes after which a falling P no longer counts as progress


def does_not_fall(gaps: list[np.ndarray], patience: int, done: float) -> bool:
    """Whether no unfinished model (whose gap exceeds `done`) has halved its gap in the last `patience` passes.

    One model that progresses is enough: once it is finished, it leaves its capacity to the others.
    """
    if len(gaps) <= patience:
        return False
    return not np.any((gaps[-1] <= 0.5 * gaps[0]) & (gaps[0] > done))


def stands(state: WorkingState) -> bool:
    """Whether P of no model has fallen by `_FALLEN` either, so that the kept rows do not lead to those that matter.

    P can fall by a hundredth only so often, because it is bounded below by D, and after `TOO_MANY` passes its fall no
    longer counts.  With a smooth loss every w has a dual point about as good as w itself, so the gap alone decides.
    """
    if state.problem.loss.smooth or state.passes >= TOO_MANY:
        return True
    if len(state.primals) < len(state.gaps):  # a checkpoint of an earlier version has none
        return False
    return not np.any(state.primals[-1] <= (1.0 - _FALLEN) * state.primals[0])
