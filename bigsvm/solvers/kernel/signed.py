"""Points made feasible: the dual point of an earlier model, and what rounding has left of a solver's own.

A feasible beta has its signs, lies in its box, and has the sum 0 that a free bias wants.
"""

from __future__ import annotations

import math

import numpy as np

from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.nu_qp import NuQP, check_feasible
from bigsvm.solvers.kernel.state import KernelState, make_qp
from bigsvm.store.blocks import tile

_PIECE = 1 << 16  # rows
_BALANCED = 2.0**-44  # of sum |beta|: what rounding leaves of a sum that is 0


def sign_and_clip(state: KernelState, where: str) -> None:
    """Turn `state.alpha`, |beta| of classes and beta of targets, into a feasible beta of each model, in place.

    beta_i = y_i alpha_i, clipped to its box; then the heavier side is scaled until sum beta = 0.  A row that takes no
    part in a model has 0 there.  All labels have been read.  Where nu shapes the problem: a beta that has its sums.

    where : the store, for an error.  Raises DataError where nu is infeasible.
    """
    for m in range(state.n_models):
        qp, column = make_qp(state, m), state.alpha.values[:, m]
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
        _keep(state, qp, column)
    state.unsigned = False


def make_feasible(state: KernelState, qp: DualQP, m: int) -> bool:
    """Bring the beta of model m into its box and to the sum 0, in place and in `state.alpha`; whether it moved.

    Steps of two variables keep the sum to the rounding of the largest beta that they ever met.  Where beta has become
    much smaller since (kernel values of 1e20 and more), that is more than what beta is now.
    """
    outside = False
    for start, stop in tile(qp.n, _PIECE):
        beta, piece = qp.beta[start:stop], slice(start, stop)
        outside |= bool(np.any((beta < qp.lower[piece]) | (beta > qp.upper[piece])))
        np.clip(beta, qp.lower[piece], qp.upper[piece], out=beta)
    moved = _balance(qp) or outside
    if moved:
        _keep(state, qp, state.alpha.values[:, m])
    return moved


def _keep(state: KernelState, qp: DualQP, column: np.ndarray) -> None:
    """The beta of a programme into its column of `state.alpha`."""
    if qp.rows is not None:
        column[:] = 0.0
        column[qp.rows] = qp.beta
    elif state.beta is not None:
        column[:] = qp.beta


def _sides(state: KernelState, m: int) -> tuple[str, str]:
    """The two classes that a model tells apart; none where there are no classes."""
    problem = state.problem
    if not len(problem.classes):
        return "", ""
    minus = int(problem.negative[m])
    other = str(problem.classes[minus]) if minus >= 0 else str(problem.classes[0])
    if minus < 0 and len(problem.classes) > 2:
        other = "the rest"
    return str(problem.classes[problem.positive[m]]), other


def _balance(qp: DualQP) -> bool:
    """Scale the positive or the negative beta, whichever are heavier, in place, until they sum up to 0.

    False where they do already, to rounding.
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
