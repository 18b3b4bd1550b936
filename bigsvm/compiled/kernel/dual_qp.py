"""One model's programme (`solvers/kernel/dual_qp.py`): its box, a point in it, and loops over its rows.

The loops allocate nothing.  Those of `smo.py` and `keerthi.py`, and Platt's of `platt.py`, take the arrays one by one:
Python calls several of them for each step, and a tuple of two arrays costs a call half a microsecond more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsvm.compiled.shared.compile import njit

_loop = njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
_STEPS = 2200  # bisections: more than float64 has values to halve between


class Box(NamedTuple):
    """What each beta_i may be.

    lower, upper : float64, (n,)   lower_i <= 0 <= upper_i; of classification one is 0, the other y_i C_i
    """

    lower: np.ndarray
    upper: np.ndarray


class DualPoint(NamedTuple):
    """Where a solver stands; its loops move both.

    beta : float64, (n,)   y_i alpha_i of classification, alpha_i - alpha*_i of regression
    f : float64, (n,)      K beta - t, the gradient without epsilon |beta_i|
    """

    beta: np.ndarray
    f: np.ndarray


@_loop
def fill_qp(labels, costs, C, class_weight, positive, negative, regression, rows, target, lower, upper):
    """t and box of the rows that take part, one after another; how many they are.

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
    """(b_up, b_low): the least F_up of rows that may rise, the largest F_down of rows that may fall."""
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
        r = -(f[i] + b)
        if r > epsilon:
            slope -= upper[i]
        elif r <= -epsilon:
            slope -= lower[i]
    return slope


@_loop
def best_bias(f, lower, upper, epsilon):
    """b with the least sum of losses (docs/mathematics.md 3.3): at a breakpoint -f +- epsilon, or halfway of two."""
    low, high, weight = np.inf, -np.inf, 0.0
    for i in range(len(f)):
        if upper[i] > 0.0:
            low, high = min(low, -f[i] - epsilon), max(high, -f[i] - epsilon)
        if lower[i] < 0.0:
            low, high = min(low, -f[i] + epsilon), max(high, -f[i] + epsilon)
        weight += upper[i] - lower[i]
    if not low <= high:
        return 0.0
    level = 1e-12 * weight
    if _slope(f, lower, upper, epsilon, low) >= -level:
        high = low
    # The slope is below 0 at `low` and not at `high`, which are as near as numbers come in the end.
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        if not (low < middle and middle < high):
            break
        if _slope(f, lower, upper, epsilon, middle) >= -level:
            high = middle
        else:
            low = middle
    if _slope(f, lower, upper, epsilon, high) > level:
        return high
    # Flat from here to the next breakpoint: its middle, as LIBSVM takes it.
    after = np.inf
    for i in range(len(f)):
        for place, moves in ((-f[i] - epsilon, upper[i] > 0.0), (-f[i] + epsilon, lower[i] < 0.0)):
            if moves and place > high:
                after = min(after, place)
    return 0.5 * (high + after) if after < np.inf else high


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
