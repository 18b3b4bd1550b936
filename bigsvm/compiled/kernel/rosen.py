"""Rosen's gradient projection with the kernel matrix in memory (docs/mathematics.md 9.1 to 9.3).

The programme is that of `solvers/kernel/dual_qp.py`: minimise 1/2 beta' K beta - t' beta + epsilon sum |beta_i| in a
box, with sum beta_i fixed.  A row is free if beta_i is strictly inside its box and not 0.  (For classification 0 is a
bound; for regression it is the kink of |beta_i|, where alpha_i or alpha*_i of LIBSVM's form is at its bound.)  J is the
set of free rows, on which

    F_i = f_i + epsilon sign(beta_i),   mu = mean_J F,   r_i = mu - F_i     the projected negative gradient

A bound row p that may rise with F_p < mu, or fall with F_p > mu, is released: then all of J and p move together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsvm.compiled.kernel.face import is_free, newton_direction
from bigsvm.compiled.shared.compile import inner_loop, njit, register_jitable

CONJUGATE, STEEPEST, NEWTON = 0, 1, 2
OPTIMAL, DUE, LIMIT, STILL = 0, 1, 2, 3
"""Why `descend` ended: its rows are optimal; a release is due that it may not make; a limit; nothing moves."""
FACE, RELEASE, PAIR, NAIVE, WORK = 0, 1, 2, 3, 4
"""Places in `counts`: steps inside a face, releases, pair steps, kernel rows that these steps read, multiplications."""
SQUARE, AGE = 0, 1
"""Places in `memory`: r.r of the last step, steps since the last restart of conjugate directions."""


class Descent(NamedTuple):
    """Options of `descend`: the directions, and when it ends.

    inner : int    CONJUGATE, STEEPEST or NEWTON: the directions inside a face
    stop : float   the rows are optimal if b_low - b_up <= stop
    small, theta, level : float   a release is due if max |r| <= small, or <= theta times the largest multiplier of the
        wrong sign, or if only one row is free; `level` is the largest such multiplier of rows that are not given
    releases : int   most releases and pair steps
    most, most_work : int   most steps, and most multiplications
    """

    inner: int
    stop: float
    small: float
    theta: float
    level: float
    releases: int
    most: int
    most_work: int


class LastDirection(NamedTuple):
    """The direction of the last step, from which conjugate directions go on; both arrays change.

    e : float64, (m,)        used if memory[AGE] > 0
    memory : float64, (2,)   numbers at SQUARE and AGE
    """

    e: np.ndarray
    memory: np.ndarray


class DescentWorkspace(NamedTuple):
    """Work space of `descend`.

    r, z : float64, (m,)           for the projected negative gradient, and for K e
    square : float64, (m + 2, m)   for the factor and two right-hand sides of NEWTON; (0, 0) for other directions
    """

    r: np.ndarray
    z: np.ndarray
    square: np.ndarray


_FLAT = 1e-14
_SNAP = 1e-12


@inner_loop
def descend(K, largest, numbers, point, box, epsilon, how, last, workspace, counts):
    """Move the point of m rows until they are optimal, a release is due that may not be made, or a limit is reached.

    K : float, (m, m) or larger;  largest : float   the largest K_ii
    numbers : int64, (m,)   numbers of the rows; if several reach a bound together, the lowest number ends the step
    point, box : `DualPoint`, changed, and `Box` of these rows (`dual_qp.py`)
    how : `Descent`;  last : `LastDirection`, changed;  workspace : `DescentWorkspace`
    counts : int64, (5,), grows

    Returns
    -------
    reason : int   OPTIMAL, DUE, LIMIT or STILL;  gain : float   decrease of the objective
    """
    beta, f = point
    lower, upper = box
    inner, stop, small, theta, level, releases, most, most_work = how
    e, memory = last
    r, z, square = workspace
    gain, done, began = 0.0, 0, counts[WORK]
    while True:
        n_free, mu, b_up, b_low, i_up, i_low = _bounds(beta, f, lower, upper, epsilon)
        if i_up < 0 or i_low < 0 or b_low - b_up <= stop:
            return OPTIMAL, gain
        if done >= most or counts[WORK] - began >= most_work:
            return LIMIT, gain
        done += 1

        kind, rr, multiplier, p = FACE, 0.0, 0.0, -1
        if n_free == 0:
            kind = PAIR
        else:
            rr, worst, multiplier, p = _multipliers(beta, f, lower, upper, epsilon, mu, r)
            if worst <= max(theta * max(abs(multiplier), level), small) or n_free == 1:
                kind = RELEASE
        # If nothing may be released, e keeps its value, because the next call may go on with it.
        if kind != FACE:
            if releases <= 0 or (kind == RELEASE and p < 0):
                return DUE, gain
            releases -= 1
        if kind == PAIR:
            g = 0.5 * (b_low - b_up) ** 2
            e[:] = 0.0
            e[i_up], e[i_low] = 0.5 * (b_low - b_up), -0.5 * (b_low - b_up)
        elif kind == RELEASE:
            g = _release(beta, lower, upper, r, n_free, p, multiplier, e)
        else:
            g = 0.0
            if inner == CONJUGATE and 0.0 < memory[AGE] < n_free + 5.0:
                g = _conjugate(beta, lower, upper, r, rr / memory[SQUARE], e)
            elif inner == NEWTON:
                counts[WORK] += newton_direction(K, largest, beta, lower, upper, r, e, square)
                g = _dot(r, e)
            if not g > 0.0:
                g, memory[AGE] = rr, 0.0
                for i in range(e.shape[0]):
                    e[i] = r[i]
            memory[SQUARE] = rr
            memory[AGE] += 1.0

        taken, norm = _products(K, e, z)
        counts[kind] += 1
        counts[NAIVE] += taken
        counts[WORK] += taken * e.shape[0]
        kappa = _dot(e, z)
        longest, blocking = _longest(numbers, beta, lower, upper, e)
        step = longest if kappa <= _FLAT * norm * largest else min(g / kappa, longest)
        if not step < np.inf:
            return STILL, gain
        moves, at_bound = _take(beta, lower, upper, e, step, blocking if step == longest else -1)
        if not moves:
            return STILL, gain
        if at_bound or kind != FACE:
            memory[AGE] = 0.0
        gain += step * (g - 0.5 * step * kappa)
        for j in range(f.shape[0]):
            f[j] += step * z[j]


@register_jitable
def _rising(epsilon, beta):
    return epsilon if beta >= 0.0 else -epsilon


@register_jitable
def _falling(epsilon, beta):
    return epsilon if beta > 0.0 else -epsilon


@register_jitable
def _end(beta, lower, upper, e):
    """The value at which a row that moves in the direction e must stop: its bound, or 0 on the way there."""
    if e > 0.0:
        return 0.0 if beta < 0.0 else upper
    return 0.0 if beta > 0.0 else lower


@register_jitable
def _bounds(beta, f, lower, upper, epsilon):
    """(|J|, mu, b_up, b_low, i_up, i_low); the last two are the rows of b_up and b_low, -1 if there is none."""
    n_free, total, b_up, b_low, i_up, i_low = 0, 0.0, np.inf, -np.inf, -1, -1
    for i in range(beta.shape[0]):
        if beta[i] < upper[i]:
            F = f[i] + _rising(epsilon, beta[i])
            if b_up > F:
                b_up, i_up = F, i
        if beta[i] > lower[i]:
            F = f[i] + _falling(epsilon, beta[i])
            if b_low < F:
                b_low, i_low = F, i
        if is_free(beta[i], lower[i], upper[i]):
            n_free += 1
            total += f[i] + _rising(epsilon, beta[i])
    return n_free, total / max(n_free, 1), b_up, b_low, i_up, i_low


@register_jitable
def _multipliers(beta, f, lower, upper, epsilon, mu, r):
    """Fill r; returns (r.r, max |r|, mu - F_p, p).

    p is the bound row with the largest multiplier of the wrong sign, -1 if there is none.
    """
    rr, worst, multiplier, p = 0.0, 0.0, 0.0, -1
    for i in range(beta.shape[0]):
        r[i] = 0.0
        if is_free(beta[i], lower[i], upper[i]):
            r[i] = mu - f[i] - _rising(epsilon, beta[i])
            rr += r[i] * r[i]
            worst = max(worst, abs(r[i]))
            continue
        if beta[i] < upper[i]:
            u = mu - f[i] - _rising(epsilon, beta[i])
            if u > abs(multiplier):
                multiplier, p = u, i
        if beta[i] > lower[i]:
            u = mu - f[i] - _falling(epsilon, beta[i])
            if -u > abs(multiplier):
                multiplier, p = u, i
    return rr, worst, multiplier, p


@register_jitable
def _release(beta, lower, upper, r, n_free, p, multiplier, e):
    """Set e_i = mu^ - F_i for J and p, mu^ the mean of F over these rows; returns e.e.  F_p = mu - multiplier"""
    moved = -multiplier / (n_free + 1.0)
    for i in range(beta.shape[0]):
        e[i] = r[i] + moved if is_free(beta[i], lower[i], upper[i]) else 0.0
    e[p] = -n_free * moved
    return _dot(e, e)


@register_jitable
def _conjugate(beta, lower, upper, r, by, e):
    """Set e = r + by e on J, 0 elsewhere; returns r.e."""
    for i in range(beta.shape[0]):
        e[i] = r[i] + by * e[i] if is_free(beta[i], lower[i], upper[i]) else 0.0
    return _dot(r, e)


@register_jitable
def _dot(a, b):
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return total


@register_jitable
def _products(K, e, z):
    """Fill z with K e, row by row; returns (the number of rows of K read, e.e)."""
    taken, norm = 0, 0.0
    z[:] = 0.0
    for i in range(e.shape[0]):
        by = e[i]
        if by != 0.0:
            taken += 1
            norm += by * by
            for j in range(z.shape[0]):
                z[j] += by * K[i, j]
    return taken, norm


@register_jitable
def _longest(numbers, beta, lower, upper, e):
    """(the step at which the first row reaches its end, that row)."""
    longest, blocking = np.inf, -1
    for i in range(e.shape[0]):
        if e[i] != 0.0:
            room = (_end(beta[i], lower[i], upper[i], e[i]) - beta[i]) / e[i]
            if room < longest or (room == longest and blocking >= 0 and numbers[i] < numbers[blocking]):
                longest, blocking = room, i
    return longest, blocking


@register_jitable
def _take(beta, lower, upper, e, step, blocking):
    """beta += step e; returns (whether anything moved, whether some row reached its end).

    A row that comes close to its end is set to it exactly.  Only the end towards which a row moves counts, because a
    row that was just released is still as close to the bound that it has left.
    """
    moves, at_bound = False, False
    for i in range(e.shape[0]):
        if e[i] != 0.0:
            end, after = _end(beta[i], lower[i], upper[i], e[i]), beta[i] + step * e[i]
            beyond = after > end if e[i] > 0.0 else after < end
            if i == blocking or beyond or abs(end - after) <= _SNAP * (upper[i] - lower[i]):
                after, at_bound = end, True
            moves = moves or after != beta[i]
            beta[i] = after
    return moves, at_bound


@njit(cache=True, nogil=True)
def keep_members(K, kept):
    """Move the rows and columns `kept` of K to its upper left corner, in place.  kept : int64, ascending"""
    for a in range(kept.shape[0]):
        for b in range(kept.shape[0]):
            K[a, b] = K[kept[a], kept[b]]
