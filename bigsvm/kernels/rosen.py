"""Rosen's gradient projection on a kernel matrix that is there (`algorithms` 3.2 to 3.6).

The programme is that of `solvers/kernel/part.py`: minimise 1/2 beta' K beta - t' beta + epsilon sum |beta_i| in a box,
sum beta_i fixed.  A row is free where it is strictly inside its box and not 0; for classification 0 is a bound, for
regression the kink of |beta_i|, where LIBSVM's alpha_i or alpha*_i is at its bound.  J is the set of free rows, on which

    F_i = f_i + epsilon sign(beta_i),   mu = mean_J F,   r_i = mu - F_i     the projected negative gradient

A bound row p that may move by F_p < mu upwards or F_p > mu downwards is released: all of J and p then move together.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numba.extending import register_jitable

from bigsvm.kernels.compile import inner_loop

CONJUGATE, STEEPEST, NEWTON = 0, 1, 2
OPTIMAL, DUE, LIMIT, STILL = 0, 1, 2, 3
"""Why `descend` ends: its rows are optimal; a release is due; steps are used up; nothing moved."""
FACE, RELEASE, PAIR, NAIVE, WORK = 0, 1, 2, 3, 4
"""Counts: steps inside a face, releases, pair steps, kernel rows that these would take one by one, multiplications."""
SQUARE, AGE = 0, 1
"""What conjugate directions keep: r.r of the last step, steps since their restart."""

_FLAT = 1e-14
_SNAP = 1e-12
_RIDGE = 1e-12


@register_jitable
def _shift(epsilon, beta):
    return epsilon if beta > 0.0 else -epsilon


@register_jitable
def _is_free(beta, lower, upper):
    return lower < beta < upper and beta != 0.0


@inner_loop
def descend(
    K, largest, numbers, beta, f, lower, upper, epsilon, stop, small, theta, level, releases, most, inner, e, r, z,
    square, memory, counts,
):  # fmt: skip
    """Move beta and f = (K beta - t) until the rows are optimal, a release is due that may not be made, or for long.

    K : float, (m, m) or larger;  largest : float   the largest K_ii
    numbers : int64, (m,)   break ties between rows that reach a bound together
    beta, f, lower, upper : float64, (m,)
    stop : float   optimal where b_low - b_up <= stop
    small, theta, level : a release is due where max |r| <= small, or <= theta times the largest multiplier of the wrong
        sign, or the face is a point; `level` is such a multiplier of rows that are not here
    releases : int   how many may be made, pair steps among them;  most : int   steps
    inner : CONJUGATE | STEEPEST | NEWTON
    e : float64, (m,)   the last direction, of use where memory[AGE] > 0;  r, z : float64, (m,), work space
    square : float64, (m + 2, m), work space of NEWTON, (0, 0) for the others
    memory : float64, (2,);  counts : int64, (5,), added to

    Returns
    -------
    reason : int;  gain : float   what the objective fell by;  b_low - b_up : float   of these rows, before the last step
    """
    m, gain, done, violation = beta.shape[0], 0.0, 0, -np.inf
    while True:
        n_free, total, b_up, b_low, i_up, i_low = 0, 0.0, np.inf, -np.inf, -1, -1
        for i in range(m):
            if beta[i] < upper[i]:
                F = f[i] + (epsilon if beta[i] >= 0.0 else -epsilon)
                if F < b_up:
                    b_up, i_up = F, i
            if beta[i] > lower[i]:
                F = f[i] + (epsilon if beta[i] > 0.0 else -epsilon)
                if F > b_low:
                    b_low, i_low = F, i
            if _is_free(beta[i], lower[i], upper[i]):
                n_free += 1
                total += f[i] + _shift(epsilon, beta[i])
        violation = b_low - b_up
        if i_up < 0 or i_low < 0 or violation <= stop:
            return OPTIMAL, gain, violation
        if done >= most:
            return LIMIT, gain, violation
        done += 1

        mu = total / n_free if n_free > 0 else 0.5 * (b_up + b_low)
        rr, worst, multiplier, p = 0.0, 0.0, 0.0, -1
        for i in range(m):
            if _is_free(beta[i], lower[i], upper[i]):
                r[i] = mu - f[i] - _shift(epsilon, beta[i])
                rr += r[i] * r[i]
                worst = max(worst, abs(r[i]))
                continue
            r[i] = 0.0
            if beta[i] < upper[i]:
                u = mu - f[i] - (epsilon if beta[i] >= 0.0 else -epsilon)
                if u > multiplier:
                    multiplier, p = u, i
            if beta[i] > lower[i]:
                u = f[i] + (epsilon if beta[i] > 0.0 else -epsilon) - mu
                if u > multiplier:
                    multiplier, p = u, i

        # The direction, and g = -(slope along it).
        if n_free == 0:
            if releases <= 0:
                return DUE, gain, violation
            releases -= 1
            kind, g = PAIR, 0.5 * violation * violation
            e[:] = 0.0
            e[i_up], e[i_low] = 0.5 * violation, -0.5 * violation
        elif worst <= max(theta * max(multiplier, level), small) or n_free == 1:
            if releases <= 0 or p < 0:
                return DUE, gain, violation
            releases -= 1
            kind = RELEASE
            rises = beta[p] < upper[p] and mu - f[p] - (epsilon if beta[p] >= 0.0 else -epsilon) == multiplier
            # mu^ - F_i = r_i + (mu^ - mu), and F_p is `multiplier` away from mu.
            moved = (-multiplier if rises else multiplier) / (n_free + 1.0)
            g = 0.0
            for i in range(m):
                e[i] = r[i] + moved if _is_free(beta[i], lower[i], upper[i]) else 0.0
                g += e[i] * e[i]
            e[p] = -n_free * moved
            g += e[p] * e[p]
        else:
            kind, g = FACE, 0.0
            if inner == CONJUGATE and 0.0 < memory[AGE] < n_free + 5.0:
                by = rr / memory[SQUARE]
                for i in range(m):
                    e[i] = r[i] + by * e[i] if _is_free(beta[i], lower[i], upper[i]) else 0.0
                    g += r[i] * e[i]
            elif inner == NEWTON:
                counts[WORK] += newton_direction(K, largest, beta, lower, upper, r, e, square)
                for i in range(m):
                    g += r[i] * e[i]
            if not g > 0.0:
                g, memory[AGE] = rr, 0.0
                for i in range(m):
                    e[i] = r[i]
            memory[SQUARE] = rr
            memory[AGE] += 1.0
        counts[kind] += 1

        z[:] = 0.0
        norm, taking = 0.0, 0
        for i in range(m):
            by = e[i]
            if by != 0.0:
                taking += 1
                norm += by * by
                for j in range(m):
                    z[j] += by * K[i, j]
        counts[NAIVE] += taking
        counts[WORK] += taking * m
        kappa = 0.0
        for i in range(m):
            kappa += e[i] * z[i]

        # 0 lies between the bounds: where beta_i moves towards it, it ends there.
        longest, blocking = np.inf, -1
        for i in range(m):
            if e[i] == 0.0:
                continue
            if e[i] > 0.0:
                room = ((0.0 if beta[i] < 0.0 else upper[i]) - beta[i]) / e[i]
            else:
                room = ((0.0 if beta[i] > 0.0 else lower[i]) - beta[i]) / e[i]
            if room < longest or (room == longest and blocking >= 0 and numbers[i] < numbers[blocking]):
                longest, blocking = room, i
        step = longest if kappa <= _FLAT * norm * largest else min(g / kappa, longest)
        if not step < np.inf:
            return STILL, gain, violation
        clipped, moves = step == longest, False
        if clipped or kind != FACE:
            memory[AGE] = 0.0
        for i in range(m):
            if e[i] == 0.0:
                continue
            before = beta[i]
            if e[i] > 0.0:
                bound = 0.0 if before < 0.0 else upper[i]
            else:
                bound = 0.0 if before > 0.0 else lower[i]
            after = before + step * e[i]
            # A bound is attained exactly; never the one that a released row has just left.
            if (clipped and i == blocking) or abs(bound - after) <= _SNAP * (upper[i] - lower[i]) or (
                (after > bound) == (e[i] > 0.0)
            ):
                after, memory[AGE] = bound, 0.0
            moves = moves or after != before
            beta[i] = after
        if not moves:
            return STILL, gain, violation
        gain += step * (g - 0.5 * step * kappa)
        for j in range(m):
            f[j] += step * z[j]


@inner_loop
def newton_direction(K, largest, beta, lower, upper, r, e, square):
    """e = the step to the minimum on the face of all free rows: [K_JJ 1; 1' 0] [e; nu] = [r; 0], by Cholesky.

    A ridge of 1e-12 of the largest K_ii makes flat directions long, so that they end at a bound.

    square : float64, (m + 2, m), work space: the factor, and two right-hand sides

    Returns
    -------
    multiplications : int
    """
    m, n = beta.shape[0], 0
    ridge = _RIDGE * largest
    a, b = square[m], square[m + 1]
    for i in range(m):
        if not _is_free(beta[i], lower[i], upper[i]):
            continue
        # Row n of the factor; e[:n + 1] holds the rows' numbers meanwhile.
        e[n] = i
        for k in range(n + 1):
            total = K[i, int(e[k])] + (ridge if k == n else 0.0)
            for l in range(k):
                total -= square[n, l] * square[k, l]
            square[n, k] = np.sqrt(max(total, ridge)) if k == n else total / square[k, k]
        a[n], b[n] = r[i], 1.0
        n += 1
    for k in range(n):
        for l in range(k):
            a[k] -= square[k, l] * a[l]
            b[k] -= square[k, l] * b[l]
        a[k] /= square[k, k]
        b[k] /= square[k, k]
    of_a = of_b = 0.0
    for k in range(n - 1, -1, -1):
        for l in range(k + 1, n):
            a[k] -= square[l, k] * a[l]
            b[k] -= square[l, k] * b[l]
        a[k] /= square[k, k]
        b[k] /= square[k, k]
        of_a += a[k]
        of_b += b[k]
    for k in range(n):
        a[k] -= of_a / of_b * b[k]
    e[:] = 0.0
    k = 0
    for i in range(m):
        if _is_free(beta[i], lower[i], upper[i]):
            e[i] = a[k]
            k += 1
    return n * n * n // 6 + 2 * n * n


@njit(cache=True, nogil=True)
def keep_members(K, kept):
    """The block of the rows and columns `kept` (int64, ascending), moved to the corner of K in place."""
    for a in range(kept.shape[0]):
        for b in range(kept.shape[0]):
            K[a, b] = K[kept[a], kept[b]]
