"""Margin losses in compiled code, by integer code: HINGE = 0, SQUARED_HINGE = 1.

s = 1 - y f(x) is the slack, C the row's own cost.  The readable twins are in `bigsvm/problem/loss.py`;
a test holds the two together.
"""

from __future__ import annotations

from typing import NamedTuple

from numba.extending import register_jitable

HINGE, SQUARED_HINGE = 0, 1


class DualBox(NamedTuple):
    """A loss and a bias form, as the numbers that the dual sees."""

    loss_code: int
    upper_factor: float
    diag_factor: float
    bias: float


@register_jitable
def loss_value(code, s, C):
    """C loss(s)."""
    if s <= 0.0:
        return 0.0
    return C * s if code == HINGE else C * s * s


@register_jitable
def gap_term(code, s, alpha, C):
    """C loss(s) + conjugate(alpha) - alpha s, one row's share of the duality gap; never negative.

    Written so that nothing cancels at the optimum: for the squared hinge it is the square it really is.
    """
    if code == HINGE:
        return max(-alpha * s, (C - alpha) * s)
    if s > 0.0:
        r = s - alpha / (2.0 * C)
        return C * r * r
    return alpha * alpha / (4.0 * C) - alpha * s
