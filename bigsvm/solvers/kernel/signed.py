"""How a dual point is made feasible: that of an earlier model, or a solver's own after rounding.

A feasible beta has the right signs, lies in its box, and sums up to 0, which is the constraint of a free bias.
"""

from __future__ import annotations

import math

import numpy as np

from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.nu_qp import NuQP, check_feasible
from bigsvm.solvers.kernel.state import KernelState, make_qp
from bigsvm.store.blocks import tile

_PIECE = 1 << 16  # rows
_BALANCED = 2.0**-44  # |sum beta| / sum |beta| up to which the sum counts as 0


def sign_and_clip(state: KernelState, where: str) -> None:
    """Turn `state.alpha` (|beta| for classes, beta for targets) into a feasible beta of each model, in place.

    beta_i = y_i alpha_i is clipped to its box; then beta of the sign with the larger sum is scaled down until
    sum beta = 0.  With nu, beta gets the sums that nu asks for.  A row that takes no part in a model has 0.  All labels
    must have been read.

    where : str   address of the store, for errors.  Raises DataError if nu is infeasible.
    """
    for m in range(state.n_models):
        qp = make_qp(state, m)
        if isinstance(qp, NuQP):
            check_feasible(qp, float(state.problem.loss.nu or 0.0), _sides(state, m), where)
            qp.start()
        for start, stop in tile(qp.n if not isinstance(qp, NuQP) else 0, _PIECE):
            beta, piece = qp.beta[start:stop], slice(start, stop)
            if not state.problem.regression:
                beta *= np.sign(qp.target[piece])
            np.clip(beta, qp.lower[piece], qp.upper[piece], out=beta)
        if not isinstance(qp, NuQP):
            _balance(qp)
        keep_point(state, qp, m)
    state.unsigned = False


def make_feasible(state: KernelState, qp: DualQP, m: int) -> bool:
    """Clip beta of model m to its box and make its sum 0, in place and in `state.alpha`; whether it changed.

    Steps of two variables preserve the sum up to the rounding of the largest beta that ever occurred.  If beta has
    become much smaller since (kernel values of 1e20 and more), that rounding is larger than beta itself.
    """
    outside = False
    for start, stop in tile(qp.n, _PIECE):
        beta, piece = qp.beta[start:stop], slice(start, stop)
        outside |= bool(np.any((beta < qp.lower[piece]) | (beta > qp.upper[piece])))
        np.clip(beta, qp.lower[piece], qp.upper[piece], out=beta)
    moved = _balance(qp) or outside
    if moved:
        keep_point(state, qp, m)
    return moved


def keep_point(state: KernelState, qp: DualQP, m: int) -> None:
    """Copy beta of the programme of model m to its column of `state.alpha`."""
    column = state.alpha.values[:, m]
    if qp.rows is not None:
        column[:] = 0.0
        column[qp.rows] = qp.beta
    elif state.beta is not None:
        column[:] = qp.beta


def _sides(state: KernelState, m: int) -> tuple[str, str]:
    """Names of the positive and the negative class of a model; '' if there are no classes."""
    problem = state.problem
    if not len(problem.classes):
        return "", ""
    minus = int(problem.negative[m])
    other = str(problem.classes[minus]) if minus >= 0 else str(problem.classes[0])
    if minus < 0 and len(problem.classes) > 2:
        other = "the rest"
    return str(problem.classes[problem.positive[m]]), other


def _balance(qp: DualQP) -> bool:
    """Scale beta of the sign with the larger sum down, in place, until sum beta = 0.

    Returns False, and changes nothing, if the sum is 0 up to rounding.
    """
    pieces = [slice(start, stop) for start, stop in tile(qp.n, _PIECE)]
    plus = math.fsum(float(np.maximum(qp.beta[piece], 0.0).sum()) for piece in pieces)
    minus = math.fsum(float(np.maximum(-qp.beta[piece], 0.0).sum()) for piece in pieces)
    if abs(plus - minus) <= _BALANCED * (plus + minus):
        return False
    heavier, factor = (1.0, minus / plus) if plus > minus else (-1.0, plus / minus)
    for piece in pieces:
        beta = qp.beta[piece]
        beta[beta * heavier > 0.0] *= factor
    return True
