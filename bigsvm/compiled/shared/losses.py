"""Margin losses in compiled code, by integer code: HINGE = 0, SQUARED_HINGE = 1.

s = 1 - y f(x) is the slack, C the row's own cost.  The readable twins are in `bigsvm/problem/loss.py`;
a test holds the two together.
"""

from __future__ import annotations

from numba import njit
from numba.extending import register_jitable

HINGE, SQUARED_HINGE = 0, 1


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


@njit(cache=True)
def loss_values(code, s, C, out):
    """out[i] = C[i] loss(s[i])."""
    for i in range(s.shape[0]):
        out[i] = loss_value(code, s[i], C[i])


@njit(cache=True)
def gap_terms(code, s, alpha, C, out):
    """out[i] = C[i] loss(s[i]) + conjugate(alpha[i]) - alpha[i] s[i]."""
    for i in range(s.shape[0]):
        out[i] = gap_term(code, s[i], alpha[i], C[i])
