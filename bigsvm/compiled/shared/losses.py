"""The losses in compiled code, named by integer codes.

s is the slack of a row: 1 - y f(x) for a class, y - f(x) for a target.  C is the cost of that row.  All functions take
and return float64.  `bigsvm/problem/loss.py` defines the same losses for arrays, and a test compares the two.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsvm.compiled.shared.compile import register_jitable

HINGE, SQUARED_HINGE, EPSILON_INSENSITIVE, SQUARED_EPSILON_INSENSITIVE = 0, 1, 2, 3


class DualBox(NamedTuple):
    """A loss and a form of the bias, as the numbers that matter to the dual (docs/mathematics.md 1.4).

    A row of cost C_i has its alpha_i in [lower_factor C_i, upper_factor C_i].  D_i = diag_factor / C_i is added to the
    diagonal of the Gram matrix, and epsilon |alpha_i| is subtracted from the dual value of a target.

    loss_code : HINGE, ...;  bias : the constant feature B, 0 for none
    """

    loss_code: int
    lower_factor: float
    upper_factor: float
    diag_factor: float
    epsilon: float
    bias: float


class FoldCosts(NamedTuple):
    """The costs of models in a search by cross-validation, which takes the place of the array DualModels.C.

    These models differ in the rows that take part, and in the weights of classes.

    C : float64, (n_models, n_classes)   C times the model's own weight of the class; one column for targets
    fold : uint8, (n_samples,)     the fold of each row, by its number in working order
    held_out : int32, (n_models,)  the fold whose rows take no part in a model; -1 for none
    moves : uint8, (n_models,)     0 for a model whose alpha must not change any more
    """

    C: np.ndarray
    fold: np.ndarray
    held_out: np.ndarray
    moves: np.ndarray


class DualModels(NamedTuple):
    """What loops over rows need to know of the models of a problem.

    class_weight : float64, (n_classes,)
    positive : int32, (n_models,), the class code that is +1 for each model; or, for rows with several labels, uint8,
        (n_models, n_codes), 1 for the codes of label sets that count as +1
    C : float64, (n_models,), or FoldCosts;  box : DualBox
    """

    class_weight: np.ndarray
    positive: np.ndarray
    C: np.ndarray | FoldCosts
    box: DualBox


class JointModels(NamedTuple):
    """As `DualModels`, for the loss of Crammer and Singer, which couples all models.

    class_weight : float64, (n_classes,);  C : float64;  bias : the constant feature, 0 for none
    """

    class_weight: np.ndarray
    C: float
    bias: float


@register_jitable
def bracket_slope(code, epsilon, s, alpha, C):
    """How much C loss(s) + conjugate(alpha) - alpha s can change per unit of rounding error in s.

    That is the size of its slope in s.  If alpha is strictly inside its box, the row lies on its kink, and rounding may
    have moved s to either side of it, so the larger of two slopes counts.  The result is 0 for squared losses, whose
    rounding errors are bounded otherwise (docs/mathematics.md 2.8).
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
    """C loss(s) for a class: the hinge or its square.  code : HINGE or SQUARED_HINGE"""
    if s <= 0.0:
        return 0.0
    return C * s if code == HINGE else C * s * s


@register_jitable
def gap_term(code, s, alpha, C):
    """C loss(s) + conjugate(alpha) - alpha s for a class: the term of a row in the duality gap, never negative.

    It is computed in a form in which nothing cancels at the optimum; for the squared hinge that is a square.
    """
    if code == HINGE:
        return max(-alpha * s, (C - alpha) * s)
    if s > 0.0:
        r = s - alpha / (2.0 * C)
        return C * r * r
    return alpha * alpha / (4.0 * C) - alpha * s


@register_jitable
def residual_loss(code, epsilon, s, C):
    """C loss(s) for a target.  code : EPSILON_INSENSITIVE or SQUARED_EPSILON_INSENSITIVE"""
    r = abs(s) - epsilon
    if r <= 0.0:
        return 0.0
    return C * r if code == EPSILON_INSENSITIVE else C * r * r


@register_jitable
def residual_gap_term(code, epsilon, s, alpha, C):
    """As `gap_term`, for a target.  If the loss is not squared, |alpha| must not exceed C.

    With t = alpha sign(s) and r = |s| - epsilon, the term is  C r + epsilon |t| - t (r + epsilon)  where r > 0 and the
    loss is not squared.  It is computed as a sum of terms that are not negative.
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
