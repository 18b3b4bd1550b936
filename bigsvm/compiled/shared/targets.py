"""What y means for a row: the same functions for class codes and for targets.

y is an integer array of class codes, or a float64 array of targets.  The sign of a row for a model is +1 if its code is
the positive class of the model, and -1 otherwise; with targets it is 1.  The slack of a row is target - sign f(x), with
target 1 for a class: 1 - y f(x) or y - f(x).  A loop that calls these functions is compiled separately for each kind.
"""

from __future__ import annotations

import math

from numba import types

from bigsvm.compiled.shared.compile import overload
from bigsvm.compiled.shared.losses import gap_term, loss_value, residual_gap_term, residual_loss


def sign_of(y, i, positive):
    """+1 or -1 for row i; 1 for a target.

    positive : the code of the model's positive class; or an array with 1 or 0 for each code of a set of labels
    """
    raise NotImplementedError


def target_of(y, i):
    """1 for a class; the target itself for a target."""
    raise NotImplementedError


def class_cost(class_weight, y, i):
    """The weight of the class of a row; 1 for a target."""
    raise NotImplementedError


def model_cost(C, m, y, i, row):
    """C of model m for row i, without the weights that all models share; 0 if the row takes no part in the model.

    C : as DualModels has it;  row : the number by which FoldCosts.fold knows row i
    """
    raise NotImplementedError


def model_moves(C, m):
    """Whether model m is still trained; in a search, finished models are not."""
    raise NotImplementedError


def rest_model(C, m):
    """Stop training model m, while other models go on.  With classes, C[m] becomes 0, so that no row has a cost."""
    raise NotImplementedError


def row_loss(y, box, s, C):
    """C loss(s)."""
    raise NotImplementedError


def row_gap(y, box, s, alpha, C):
    """C loss(s) + conjugate(alpha) - alpha s, the bracket of a row in the duality gap; never negative."""
    raise NotImplementedError


def dual_gain(y, i, box, alpha):
    """The linear part of D of a row: alpha for a class, target alpha - epsilon |alpha| for a target."""
    raise NotImplementedError


def projected_gradient(y, box, G, alpha, lower, upper, high, low):
    """(the projected gradient, whether the row is shrunk away).

    The projected gradient is 0 where alpha cannot follow the negative gradient, because it is at a bound.

    G : derivative of the dual, which is to be minimised, without the term epsilon |alpha|
    alpha : in [lower, upper]
    high, low : thresholds of shrinking: a row at its lower bound leaves if the gradient is above `high`, one at its
        upper bound if it is below `low`; a target's row at the kink 0 if both of its one-sided derivatives are beyond
    """
    raise NotImplementedError


def best_alpha(y, box, G, H, alpha, lower, upper):
    """The minimiser of the dual over this alpha alone, in [lower, upper].  G, H : first and second derivative"""
    raise NotImplementedError


def beyond(y, s, step, epsilon):
    """(whether a row violates at the slack s - step, the end of the tube that it is beyond: epsilon or -epsilon).

    For a class the second is 0.
    """
    raise NotImplementedError


def _targets(y):
    return isinstance(y.dtype, types.Float)


@overload(sign_of)
def _sign_of(y, i, positive):
    if _targets(y):
        return lambda y, i, positive: 1.0
    if isinstance(positive, types.Array):  # of rows with several labels: whether a set has the model's
        return lambda y, i, positive: 1.0 if positive[y[i]] != 0 else -1.0
    return lambda y, i, positive: 1.0 if y[i] == positive else -1.0


@overload(target_of)
def _target_of(y, i):
    return (lambda y, i: y[i]) if _targets(y) else (lambda y, i: 1.0)


@overload(class_cost)
def _class_cost(class_weight, y, i):
    if _targets(y):
        return lambda class_weight, y, i: 1.0
    return lambda class_weight, y, i: class_weight[y[i]]


@overload(model_cost)
def _model_cost(C, m, y, i, row):
    def folded_class(C, m, y, i, row):
        takes_part = C.moves[m] != 0 and C.held_out[m] != C.fold[row]
        return C.C[m, y[i]] if takes_part else 0.0

    def folded_target(C, m, y, i, row):
        takes_part = C.moves[m] != 0 and C.held_out[m] != C.fold[row]
        return C.C[m, 0] if takes_part else 0.0

    if isinstance(C, types.Array):
        return lambda C, m, y, i, row: C[m]
    return folded_target if _targets(y) else folded_class


@overload(model_moves)
def _model_moves(C, m):
    if isinstance(C, types.Float):  # of all models together
        return lambda C, m: True
    return (lambda C, m: C[m] != 0.0) if isinstance(C, types.Array) else (lambda C, m: C.moves[m] != 0)


@overload(rest_model)
def _rest_model(C, m):
    def rest(C, m):
        C[m] = 0.0

    def rest_of_search(C, m):
        C.moves[m] = 0

    if isinstance(C, types.Float):
        return lambda C, m: None
    return rest if isinstance(C, types.Array) else rest_of_search


@overload(row_loss)
def _row_loss(y, box, s, C):
    if _targets(y):
        return lambda y, box, s, C: residual_loss(box.loss_code, box.epsilon, s, C)
    return lambda y, box, s, C: loss_value(box.loss_code, s, C)


@overload(row_gap)
def _row_gap(y, box, s, alpha, C):
    if _targets(y):
        return lambda y, box, s, alpha, C: residual_gap_term(box.loss_code, box.epsilon, s, alpha, C)
    return lambda y, box, s, alpha, C: gap_term(box.loss_code, s, alpha, C)


@overload(dual_gain)
def _dual_gain(y, i, box, alpha):
    if _targets(y):
        return lambda y, i, box, alpha: y[i] * alpha - box.epsilon * abs(alpha)
    return lambda y, i, box, alpha: alpha


@overload(projected_gradient)
def _projected_gradient(y, box, G, alpha, lower, upper, high, low):
    def of_class(y, box, G, alpha, lower, upper, high, low):
        if alpha == 0.0:
            return min(G, 0.0), high < G
        if alpha == upper:
            return max(G, 0.0), low > G
        return G, False

    def of_target(y, box, G, alpha, lower, upper, high, low):
        up, down = G + box.epsilon, G - box.epsilon  # derivatives to the right and to the left of 0
        if alpha == 0.0:
            return min(up, 0.0) + max(down, 0.0), up > high and down < low
        if alpha == upper:
            return max(up, 0.0), up < low
        if alpha == lower:
            return min(down, 0.0), down > high
        return (up if alpha > 0.0 else down), False

    return of_target if _targets(y) else of_class


@overload(best_alpha)
def _best_alpha(y, box, G, H, alpha, lower, upper):
    def of_class(y, box, G, H, alpha, lower, upper):
        # A zero row of the hinge has H = 0 and G = -1: its best alpha is the upper bound.
        return min(max(alpha - G / H, 0.0), upper) if H > 0.0 else upper

    def of_target(y, box, G, H, alpha, lower, upper):
        if H > 0.0:
            u = H * alpha - G
            return min(max(math.copysign(max(abs(u) - box.epsilon, 0.0), u) / H, lower), upper)
        # A zero row without a bias, whose f is 0 whatever w is: all of the box is at its cost.
        if G + box.epsilon < 0.0:
            return upper
        return lower if G - box.epsilon > 0.0 else 0.0

    return of_target if _targets(y) else of_class


@overload(beyond)
def _beyond(y, s, step, epsilon):
    def of_target(y, s, step, epsilon):
        r = s - step
        if r > epsilon:
            return True, epsilon
        return r < -epsilon, -epsilon

    return of_target if _targets(y) else (lambda y, s, step, epsilon: (s > step, 0.0))
