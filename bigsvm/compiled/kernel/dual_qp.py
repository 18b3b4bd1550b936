"""One model's programme (`solvers/kernel/dual_qp.py`): its box, a point in it, and loops over its rows.

The loops allocate nothing.  The loops of `smo.py`, `keerthi.py` and Platt's in `platt.py` take the arrays one by one
instead of as tuples: Python calls several of them in each step, and a tuple of two arrays costs half a microsecond.
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

    lower, upper : float64, (n,)   lower_i <= 0 <= upper_i; of classification one is 0, the other y_i C_i
    """

    lower: np.ndarray
    upper: np.ndarray


class DualPoint(NamedTuple):
    """The point of a solver; loops change both arrays in place.

    beta : float64, (n,)   y_i alpha_i of classification, alpha_i - alpha*_i of regression
    f : float64, (n,)      K beta - t, the gradient without epsilon |beta_i|
    """

    beta: np.ndarray
    f: np.ndarray


@_loop
def fill_qp(labels, costs, C, class_weight, positive, negative, regression, rows, target, lower, upper):
    """Write t and the box of the rows that take part, one after another; returns their number.

    labels : float64, (n,), class codes or targets;  costs : float64, (n,) or (0,) for ones
    rows : int64, their numbers, or (0,) to leave them out;  target, lower, upper : float64, or (0,) to count only
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
    """(gap, loss, beta.f, beta.t, sum |beta|): gap and loss are sums of non-negative terms, at f(x) = K beta + b.

    With r = -(f + b) the residual, C loss = sup over b' in the box of b' r - epsilon |b'|, which one of its ends or 0
    attains; what beta makes of it is subtracted (docs/mathematics.md 2.2).
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
    """(costs of rows at an end of their box, or at 0, whose residual lies on the kink that would let them leave it,
    costs of all rows).

    near : how near, relative to the numbers that the residual is made of
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
    """Derivative of the sum of losses by the bias just above b.

    As b grows each residual falls: a row's part of it goes from -upper over 0 to -lower.
    """
    slope = 0.0
    for i in range(len(f)):
        r, up, down = -(f[i] + b), upper[i], lower[i]  # read whatever r is: no branch is guessed wrong
        slope -= up if r > epsilon else (down if r <= -epsilon else 0.0)
    return slope


@register_jitable
def _level(f, b, epsilon):
    """Which part of its loss a row is on just above b: 0, 1 or 2, and no less at a larger b, rounded or not."""
    r = -(f + b)
    return 1 - int(r > epsilon) + int(r <= -epsilon)


@_loop
def _keep_between(f, lower, upper, epsilon, low, high, held):
    """(slope of the rows whose part of it is the same at `low` and at `high`, how many rows are not so).

    As many of the others as there is room for are copied to `held`, which may be where the rows lie.
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
    """`best_bias`; held : float64, (3, m), rows that halving has not decided yet, once they are few enough."""
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
    # The slope is below 0 at `low` and not at `high`, which are as near as numbers come in the end.
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
    # Flat from here to the next breakpoint: its middle, as LIBSVM takes it.
    after = np.inf
    for i in range(len(f)):
        x, down, up = -f[i], lower[i], upper[i]
        after = min(after, x - epsilon if up > 0.0 and x - epsilon > high else np.inf)
        after = min(after, x + epsilon if down < 0.0 and x + epsilon > high else np.inf)
    # A row whose breakpoint is `high` but for rounding may be before it by its residual and behind it by its
    # breakpoint: then there is no flat part, and `after` is any later one.
    middle = 0.5 * (high + after) if after < np.inf else high
    return middle if abs(_slope(f, lower, upper, epsilon, middle)) <= level else high


def best_bias(f: np.ndarray, lower: np.ndarray, upper: np.ndarray, epsilon: float, room: int = _ROOM) -> float:
    """b with the least sum of losses (docs/mathematics.md 3.3): at a breakpoint -f +- epsilon, or halfway of two.

    f, lower, upper : float64, (n,);  room : undecided rows from which on the others are not looked at again
    """
    return float(_best_bias(f, lower, upper, epsilon, np.empty((3, max(min(room, len(f)), 1)))))


@_loop
def next_nonzero(beta, start, out):
    """Positions of the next values that are not 0, from `start` on; (how many, where to go on)."""
    found, i = 0, start
    while i < len(beta) and found < len(out):
        if beta[i] != 0.0:
            out[found] = i
            found += 1
        i += 1
    return found, i
