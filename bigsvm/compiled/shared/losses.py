"""Losses in compiled code, by integer code.

s is the slack, 1 - y f(x) of a class and y - f(x) of a target, C the row's own cost.  The readable twins are in
`bigsvm/problem/loss.py`; a test holds the two together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsvm.compiled.shared.compile import register_jitable

HINGE, SQUARED_HINGE, EPSILON_INSENSITIVE, SQUARED_EPSILON_INSENSITIVE = 0, 1, 2, 3


class DualBox(NamedTuple):
    """A loss and a bias form, as the numbers that the dual sees.

    alpha_i of a row whose cost is C_i lies in [lower_factor C_i, upper_factor C_i], D_i = diag_factor / C_i is on the
    diagonal, and epsilon |alpha_i| is what a target's alpha_i costs.
    bias : the constant feature, 0 for none
    """

    loss_code: int
    lower_factor: float
    upper_factor: float
    diag_factor: float
    epsilon: float
    bias: float


class FoldCosts(NamedTuple):
    """C of models that differ in the rows that take part, and in the weights of classes: in the place of DualModels.C.

    C : float64, (n_models, n_classes)   C times the model's own weight of the class; one column for targets
    fold : uint8, by working row   the fold that a row belongs to
    held_out : int32, (n_models,)  the fold whose rows take no part in a model; -1 for none
    moves : uint8, (n_models,)     0 of a model whose alpha is to stay as it is
    """

    C: np.ndarray
    fold: np.ndarray
    held_out: np.ndarray
    moves: np.ndarray


class DualModels(NamedTuple):
    """The models of a problem, as loops over rows see them.

    class_weight : float64, (n_classes,);  positive : int32, (n_models,), class code that is +1 for each model; or,
        of rows with several labels, uint8, (n_models, n_codes)
    C : float64, (n_models,), or FoldCosts;  box : DualBox
    """

    class_weight: np.ndarray
    positive: np.ndarray
    C: np.ndarray | FoldCosts
    box: DualBox


class JointModels(NamedTuple):
    """The models of a problem whose loss is of all of them together, in the place of `DualModels`.

    class_weight : float64, (n_classes,);  C : float64;  bias : the constant feature, 0 for none
    """

    class_weight: np.ndarray
    C: float
    bias: float


@register_jitable
def bracket_slope(code, epsilon, s, alpha, C):
    """What rounding of s is worth in C loss(s) + conjugate(alpha) - alpha s; of squared losses 0, see their brackets.

    Strictly inside its box a row is at its kink, whichever side of it s has come to lie.
    """
    if code in (SQUARED_HINGE, SQUARED_EPSILON_INSENSITIVE):
        return 0.0
    size = abs(alpha)
    if 0.0 < size < C:
        return max(size, C - size)
    slope = 0.0
    if s > epsilon:
        slope = C
    elif s < -epsilon and code == EPSILON_INSENSITIVE:
        slope = -C
    return abs(slope - alpha)


@register_jitable
def loss_value(code, s, C):
    """C loss(s) of a class."""
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


@register_jitable
def residual_loss(code, epsilon, s, C):
    """C loss(s) of a target."""
    r = abs(s) - epsilon
    if r <= 0.0:
        return 0.0
    return C * r if code == EPSILON_INSENSITIVE else C * r * r


@register_jitable
def residual_gap_term(code, epsilon, s, alpha, C):
    """`gap_term` of a target: |alpha| <= C where the loss is not squared.

    With t = alpha sign(s) and r = |s| - epsilon it is  C r + epsilon |t| - t (r + epsilon)  where r > 0; no two terms
    of what is computed cancel.
    """
    t = alpha if s >= 0.0 else -alpha
    r = abs(s) - epsilon
    against = 2.0 * epsilon * max(-t, 0.0)  # epsilon (|t| - t)
    if code == EPSILON_INSENSITIVE:
        if r > 0.0:
            return (C - t) * r + against
        return max(t, 0.0) * -r + max(-t, 0.0) * (epsilon + abs(s))
    if r > 0.0:
        u = r - t / (2.0 * C)
        return C * u * u + against
    return alpha * alpha / (4.0 * C) + max(t, 0.0) * -r + max(-t, 0.0) * (epsilon + abs(s))
