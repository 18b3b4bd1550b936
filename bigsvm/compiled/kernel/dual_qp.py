"""The quadratic programme of one model (`solvers/kernel/dual_qp.py`): its box, a point in it, and loops over its rows.

The loops allocate nothing.  Those of `smo.py`, `keerthi.py` and Platt's in `platt.py` take single arrays instead of
tuples: Python calls several of them in each step, and a tuple of two arrays costs half a microsecond.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsvm.compiled.shared.compile import njit, register_jitable

_loop = njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
_STEPS = 2200  # most bisections: more than are needed to reach neighbouring float64 numbers
_ROOM = 1 << 16  # undecided rows up to which bisection copies them, which takes 1.5 MB


class Box(NamedTuple):
    """The box: the bounds of each beta_i.

    lower, upper : float64, (n,)   lower_i <= 0 <= upper_i; for classification one of them is 0, the other y_i C_i
    """

    lower: np.ndarray
    upper: np.ndarray


class DualPoint(NamedTuple):
    """The point of a solver; loops change both arrays in place.

    beta : float64, (n,)   y_i alpha_i for classification, alpha_i - alpha*_i for regression
    f : float64, (n,)      K beta - t, the gradient without the term epsilon |beta_i|
    """

    beta: np.ndarray
    f: np.ndarray


@_loop
def fill_qp(labels, costs, C, class_weight, positive, negative, regression, rows, target, lower, upper):
    """Write t and the box of the rows that take part in a model, one after another; returns their number.

    labels : float64, (n,), class codes or targets;  costs : float64, (n,) or (0,) for ones
    C : float;  class_weight : float64, (n_classes,)
    positive, negative : int, class codes of the model; negative -1: all other classes
    regression : bool, labels are targets
    rows : int64, filled with the numbers of these rows, or (0,) to leave them out
    target, lower, upper : float64, filled, or (0,) to count the rows only
    """
    found = 0
    for i in range(len(labels)):
        cost = C * (costs[i] if len(costs) else 1.0)
        sign = 1.0
        if not regression:
            code = np.int64(labels[i])
            cost *= class_weight[code]
            if code != positive:
                sign = -1.0
                if negative >= 0 and code != negative:
                    continue
        if not cost > 0.0:
            continue
        if len(rows):
            rows[found] = i
        if len(target):
            target[found] = labels[i] if regression else sign
            lower[found] = 0.0 if not regression and sign > 0.0 else -cost
            upper[found] = 0.0 if not regression and sign < 0.0 else cost
        found += 1
    return found


@_loop
def bounds_of(f, beta, lower, upper, epsilon):
    """(b_up, b_low): the smallest F_up of rows that may rise, and the largest F_down of rows that may fall."""
    b_up, b_low = np.inf, -np.inf
    for i in range(len(f)):
        if beta[i] < upper[i]:
            b_up = min(b_up, f[i] + (epsilon if beta[i] >= 0.0 else -epsilon))
        if beta[i] > lower[i]:
            b_low = max(b_low, f[i] + (epsilon if beta[i] > 0.0 else -epsilon))
    return b_up, b_low


@_loop
def qp_sums(f, beta, lower, upper, target, epsilon, b):
    """(gap, loss, beta.f, beta.t, sum |beta|) at the bias b, each a sum over rows (docs/mathematics.md 2.2).

    With the residual r = -(f + b) the loss of a row is the maximum of c r - epsilon |c| over c in its box, which is
    attained at an end of the box or at 0.  The gap of the row is that maximum minus the value at c = beta, so neither
    is negative.

    f, beta, lower, upper, target : float64, (n,);  epsilon, b : float
    """
    gap, loss, beta_f, beta_t, size = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(len(f)):
        r = -(f[i] + b)
        best = max(max(upper[i] * r - epsilon * abs(upper[i]), lower[i] * r - epsilon * abs(lower[i])), 0.0)
        loss += best
        gap += max(best - (beta[i] * r - epsilon * abs(beta[i])), 0.0)
        beta_f += beta[i] * f[i]
        beta_t += beta[i] * target[i]
        size += abs(beta[i])
    return gap, loss, beta_f, beta_t, size


@_loop
def unsure_costs(f, beta, lower, upper, target, epsilon, b, near):
    """(sum of costs of unsure rows, sum of costs of all rows).

    A row is unsure if its beta is at an end of the box or at 0 and its residual lies on the kink at which beta could
    leave that place.

    near : float, distance from the kink that counts as on it, relative to the numbers that make up the residual
    """
    unsure, total = 0.0, 0.0
    for i in range(len(f)):
        r = -(f[i] + b)
        total += max(upper[i], -lower[i])
        within = near * (abs(f[i]) + abs(b) + abs(target[i]))
        if abs(r - epsilon) <= within and (beta[i] == 0.0 or beta[i] == upper[i]):
            unsure += upper[i]
        if abs(r + epsilon) <= within and (beta[i] == 0.0 or beta[i] == lower[i]):
            unsure -= lower[i]
    return unsure, total


@_loop
def _slope(f, lower, upper, epsilon, b):
    """The derivative of the sum of losses by the bias, just above b.

    As b grows, the residual of a row falls, and its part of the derivative goes from -upper over 0 to -lower.
    """
    slope = 0.0
    for i in range(len(f)):
        r, up, down = -(f[i] + b), upper[i], lower[i]  # both are read in any case, so that no branch is needed
        slope -= up if r > epsilon else (down if r <= -epsilon else 0.0)
    return slope


@register_jitable
def _level(f, b, epsilon):
    """The piece of its loss, 0, 1 or 2, on which a row lies just above b; it never falls with b, even with rounding."""
    r = -(f + b)
    return 1 - int(r > epsilon) + int(r <= -epsilon)


@_loop
def _keep_between(f, lower, upper, epsilon, low, high, held):
    """(slope of the rows that lie on the same piece of their loss at `low` and at `high`, number of other rows).

    The other rows are copied to `held`, as many as it has room for.  `held` may be the memory of f, lower and upper.
    """
    slope, found, room = 0.0, 0, held.shape[1]
    for i in range(len(f)):
        x, down, up = f[i], lower[i], upper[i]
        if found < room:  # counted only if it stays
            held[0, found], held[1, found], held[2, found] = x, down, up
        level = _level(x, low, epsilon)
        stays = level != _level(x, high, epsilon)
        found += int(stays)
        slope -= 0.0 if stays or level == 1 else (up if level == 0 else down)
    return slope, found


@_loop
def _best_bias(f, lower, upper, epsilon, held):
    """As `best_bias`, with work space for m undecided rows, whose piece bisection has not determined yet.

    held : float64, (3, m)
    """
    low, high, weight = np.inf, -np.inf, 0.0
    for i in range(len(f)):
        x, down, up = -f[i], lower[i], upper[i]
        low = min(low, min(x - epsilon if up > 0.0 else np.inf, x + epsilon if down < 0.0 else np.inf))
        high = max(high, max(x - epsilon if up > 0.0 else -np.inf, x + epsilon if down < 0.0 else -np.inf))
        weight += up - down
    if not low <= high:
        return 0.0
    level = 1e-12 * weight
    if _slope(f, lower, upper, epsilon, low) >= -level:
        high = low
    # The slope is below 0 at `low` and not at `high`.  In the end these are neighbouring float64 numbers.
    decided, n = 0.0, held.shape[1] + 1
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        if not (low < middle and middle < high):
            break
        if n > held.shape[1]:
            decided, n = _keep_between(f, lower, upper, epsilon, low, high, held)
        else:
            part, n = _keep_between(held[0, :n], held[1, :n], held[2, :n], epsilon, low, high, held)
            decided += part
        if n > held.shape[1]:
            slope = _slope(f, lower, upper, epsilon, middle)
        else:
            slope = decided + _slope(held[0, :n], held[1, :n], held[2, :n], epsilon, middle)
        if slope >= -level:
            high = middle
        else:
            low = middle
    if _slope(f, lower, upper, epsilon, high) > level:
        return high
    # The sum of losses is constant from here to the next breakpoint.  As in LIBSVM, b is the middle of this interval.
    after = np.inf
    for i in range(len(f)):
        x, down, up = -f[i], lower[i], upper[i]
        after = min(after, x - epsilon if up > 0.0 and x - epsilon > high else np.inf)
        after = min(after, x + epsilon if down < 0.0 and x + epsilon > high else np.inf)
    # Rounding may put the residual of a row whose breakpoint is `high` on one side of it, and the breakpoint on the
    # other.  Then there is no such interval, and `after` is only some later breakpoint.
    middle = 0.5 * (high + after) if after < np.inf else high
    return middle if abs(_slope(f, lower, upper, epsilon, middle)) <= level else high


def best_bias(f: np.ndarray, lower: np.ndarray, upper: np.ndarray, epsilon: float, room: int = _ROOM) -> float:
    """The bias b with the smallest sum of losses (docs/mathematics.md 3.3): a breakpoint -f +- epsilon, or the middle
    between two.

    f, lower, upper : float64, (n,);  epsilon : float
    room : number of undecided rows from which on the other rows are not read again
    """
    return float(_best_bias(f, lower, upper, epsilon, np.empty((3, max(min(room, len(f)), 1)))))


@_loop
def next_nonzero(beta, start, out):
    """Fill `out`, int64, with positions of the values from `start` on that are not 0.

    Returns (number of positions found, where to go on).
    """
    found, i = 0, start
    while i < len(beta) and found < len(out):
        if beta[i] != 0.0:
            out[found] = i
            found += 1
        i += 1
    return found, i
