"""The loops over rows of an interior-point method for the hinge loss: their sums, and the longest steps.

A row with cost C, slack s = 1 - y f(x) and dual variable alpha has room = C - alpha, and the two multipliers of
0 <= alpha <= C: eta (of alpha >= 0) and xi (of alpha <= C), with xi - eta = s.  On the central path of parameter mu

    alpha eta = room xi = mu min(C, cap).

`cap` limits rows whose C is far above that of all others.  mu is determined by a mean over all rows, in which such a
row would have nearly all of the sum; the targets of the other rows would be wrong by that factor.

h is the weight of a row in the Hessian, and p its product y (x.dw) with a direction.  `dual` and `primal` are the step
lengths of alpha and of w.  All arrays are float64, (n_rows,).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop, njit, register_jitable

_FAR = 10.0  # products above this many times their target, or below one part in it, get targets that bring them back


class RowsOnPath(NamedTuple):
    """The iterate of each row; float64, (n_rows,), all but s positive.

    s : slacks;  alpha, room : dual variables and C - alpha, in units of C
    xi, eta : multipliers of alpha <= C and alpha >= 0, in units of s
    """

    s: np.ndarray
    alpha: np.ndarray
    room: np.ndarray
    xi: np.ndarray
    eta: np.ndarray


class Targets(NamedTuple):
    """The targets of a Newton step: t1 for alpha eta, t2 for room xi; float64, (n_rows,), in units of C."""

    t1: np.ndarray
    t2: np.ndarray


@inner_loop
def centre(rows, C, mu):
    """Put each row on the central path at its slack: mu / (1 - a) - mu / a = s for a = alpha / C."""
    s, alpha, room, xi, eta = rows
    for i in range(s.shape[0]):
        t = abs(s[i]) / mu
        root = np.sqrt(16.0 + 4.0 * t * t)
        small = 0.5 * (4.0 + 16.0 / (root + 2.0 * t)) / (4.0 + root)  # the smaller of a and 1 - a, nothing cancels
        a = 1.0 - small if s[i] > 0.0 else small
        b = small if s[i] > 0.0 else 1.0 - small
        alpha[i], room[i] = C[i] * a, C[i] * b
        eta[i], xi[i] = mu / a, mu / b


@inner_loop
def weigh(rows, h):
    """Fill h with 1 / (xi / room + eta / alpha); returns the sum of alpha eta + room xi over the rows."""
    _, alpha, room, xi, eta = rows
    total = run = 0.0
    n = alpha.shape[0]
    for i in range(n):
        h[i] = 1.0 / (xi[i] / room[i] + eta[i] / alpha[i])
        run += alpha[i] * eta[i] + room[i] * xi[i]
        if i % 128 == 127 or i == n - 1:
            total += run
            run = 0.0
    return total


@register_jitable
def _change(s, alpha, room, xi, eta, h, p, t1, t2):
    """The changes of alpha, eta and xi in the Newton step to targets t1, t2, for a product p = y (x.dw)."""
    da = -h * (p + t2 / room - t1 / alpha - s)
    return da, t1 / alpha - eta - eta * da / alpha, t2 / room - xi + xi * da / room


@register_jitable
def _back(product, target):
    """The change of a target that brings back a product which is a factor of more than _FAR away from it."""
    if product < target / _FAR:
        return target / _FAR - product
    if product > target * _FAR:
        return max(target * _FAR - product, -target * _FAR)
    return 0.0


@inner_loop
def pull(rows, h, targets, out):
    """out = h (t2 / room - t1 / alpha - s): the coefficients of the rows on the right-hand side of Newton's equations.

    h : result of `weigh`;  targets : `Targets`;  out : filled
    """
    s, alpha, room, _, _ = rows
    t1, t2 = targets
    for i in range(s.shape[0]):
        out[i] = h[i] * (t2[i] / room[i] - t1[i] / alpha[i] - s[i])


@inner_loop
def reach(rows, h, p, targets):
    """(dual, primal): the longest steps along the direction with the products p, at which some variable becomes 0."""
    s, alpha, room, xi, eta = rows
    t1, t2 = targets
    dual = primal = np.inf
    for i in range(s.shape[0]):
        da, de, dx = _change(s[i], alpha[i], room[i], xi[i], eta[i], h[i], p[i], t1[i], t2[i])
        if da < 0.0:
            dual = min(dual, -alpha[i] / da)
        elif da > 0.0:
            dual = min(dual, room[i] / da)
        if de < 0.0:
            primal = min(primal, -eta[i] / de)
        if dx < 0.0:
            primal = min(primal, -xi[i] / dx)
    return dual, primal


@inner_loop
def products_after(rows, h, p, targets, dual, primal):
    """The sum of alpha eta + room xi over the rows, as it would be after steps of the lengths `dual` and `primal`."""
    s, alpha, room, xi, eta = rows
    t1, t2 = targets
    total = run = 0.0
    n = s.shape[0]
    for i in range(n):
        da, de, dx = _change(s[i], alpha[i], room[i], xi[i], eta[i], h[i], p[i], t1[i], t2[i])
        run += (alpha[i] + dual * da) * (eta[i] + primal * de) + (room[i] - dual * da) * (xi[i] + primal * dx)
        if i % 128 == 127 or i == n - 1:
            total += run
            run = 0.0
    return total


@inner_loop
def second_order(rows, h, p, C, cap, mu, most, targets):
    """Targets of Mehrotra's corrector: mu min(C, cap) minus the second-order terms of the predictor (targets 0).

    most : the largest second-order term that counts in full, in units of min(C, cap)
    """
    s, alpha, room, xi, eta = rows
    t1, t2 = targets
    for i in range(s.shape[0]):
        da, de, dx = _change(s[i], alpha[i], room[i], xi[i], eta[i], h[i], p[i], 0.0, 0.0)
        cost = min(C[i], cap)
        central, limit = mu * cost, most * cost
        t1[i] = central - min(max(da * de, -limit), limit)
        t2[i] = central + min(max(da * dx, -limit), limit)


@inner_loop
def recentre(rows, h, p, C, cap, mu, targets, dual, primal, out):
    """Targets of one of Gondzio's correctors.

    They are `targets`, changed for the products that steps of the lengths `dual` and `primal` would leave far from the
    central path.

    out : `Targets`, filled
    """
    s, alpha, room, xi, eta = rows
    t1, t2 = targets
    n1, n2 = out
    for i in range(s.shape[0]):
        da, de, dx = _change(s[i], alpha[i], room[i], xi[i], eta[i], h[i], p[i], t1[i], t2[i])
        central = mu * min(C[i], cap)
        n1[i] = t1[i] + _back((alpha[i] + dual * da) * (eta[i] + primal * de), central)
        n2[i] = t2[i] + _back((room[i] - dual * da) * (xi[i] + primal * dx), central)


@inner_loop
def step(rows, h, p, targets, dual, primal):
    """Make steps of the lengths `dual` and `primal` along the direction, and update the slacks; changes `rows`."""
    s, alpha, room, xi, eta = rows
    t1, t2 = targets
    for i in range(s.shape[0]):
        da, de, dx = _change(s[i], alpha[i], room[i], xi[i], eta[i], h[i], p[i], t1[i], t2[i])
        alpha[i] += dual * da
        room[i] -= dual * da
        eta[i] += primal * de
        xi[i] += primal * dx
        s[i] -= primal * p[i]


@inner_loop
def gap_sums(s, C, alpha, side):
    """(sum C max(0, s), sum side alpha), in the same order on every machine; a BLAS would also use several cores."""
    losses = linear = some_losses = some_linear = 0.0
    n = s.shape[0]
    for i in range(n):
        some_losses += C[i] * max(s[i], 0.0)
        some_linear += side[i] * alpha[i]
        if i % 128 == 127 or i == n - 1:
            losses += some_losses
            linear += some_linear
            some_losses = some_linear = 0.0
    return losses, linear


@njit(cache=True, nogil=True)
def at_bounds(C, xi, eta, alpha):
    """Set alpha of rows that are clearly outside the margin to 0, and of those clearly inside to C."""
    for i in range(C.shape[0]):
        if eta[i] > alpha[i] / C[i] and eta[i] > xi[i]:
            alpha[i] = 0.0
        elif xi[i] > 1.0 - alpha[i] / C[i] and xi[i] > eta[i]:
            alpha[i] = C[i]
