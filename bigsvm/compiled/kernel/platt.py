"""Two-variable steps of the dual with a free bias, as Platt's SMO and its simplified form choose and take them.

alpha_i = y_i beta_i is in [0, C_i] with C_i = upper_i - lower_i.  E_i = f_i + b, with f = K beta - y, is the error of
row i.  All arrays of rows are float64, (n,); kernel rows are float32 or float64, (n,).  When a pair (1, 2) is chosen,
only the kernel row of row 2 is in memory.  That is enough for the step, which needs K_12 and two entries of the
diagonal.  So the functions here take the step and add the part of row 2 to f; the caller adds the part of row 1.

Sources: Platt, Fast training of support vector machines using sequential minimal optimization, 1998, with u = ... + b
as in Wang 2016, misprints mended (docs/mathematics.md 10, 11).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop, register_jitable
from bigsvm.compiled.shared.visiting import pick, stream_of

_SNAP = 1e-12  # distance from a bound, relative to C, up to which alpha is set to the bound

LARGEST, LARGEST_THEN_ANY, ANY_ONE = 0, 1, 2


class FetchedRows(NamedTuple):
    """Kernel rows of the consecutive rows first, ..., stop - 1.

    K : float32 or float64, (n_stored, n);  at : int64, (stop - first,)   K[at[i - first]] is the kernel row of row i
    """

    K: np.ndarray
    at: np.ndarray
    first: int
    stop: int


class PairRule(NamedTuple):
    """Which rows take a step, and with which partner j.

    eps : float        a row must violate by more than this
    min_step : float   smallest change of alpha_j
    second : int       LARGEST: only the j with the largest |E_i - E_j|;  LARGEST_THEN_ANY: that one, then all others in
                       random order;  ANY_ONE: one random j
    """

    eps: float
    min_step: float
    second: int


@register_jitable
def _violates(y, a, C, E, eps):
    """Whether a row violates its optimality condition by more than eps."""
    r = y * E
    return (r < -eps and a < C) or (r > eps and a > 0.0)


@register_jitable
def _ends(y1, y2, a1, a2, C1, C2):
    """(L, H): the range of alpha_2 in which both are in their boxes and y_1 alpha_1 + y_2 alpha_2 does not change."""
    if y1 != y2:
        return max(0.0, a2 - a1), min(C2, C1 + a2 - a1)
    return max(0.0, a1 + a2 - C1), min(C2, a1 + a2)


@register_jitable
def _snapped(a, C):
    if a <= _SNAP * C:
        return 0.0
    return C if a >= C - _SNAP * C else a


@register_jitable
def _bias(b, E1, E2, d1, d2, k11, k22, k12, a1, a2, C1, C2):
    """b after a step that changed beta_1 by d1 and beta_2 by d2.

    It makes the error of a row of the pair that is inside its box 0; if neither is, it is the mean of both candidates.
    """
    b1 = b - E1 - d1 * k11 - d2 * k12
    b2 = b - E2 - d1 * k12 - d2 * k22
    if 0.0 < a1 < C1:
        return b1
    return b2 if 0.0 < a2 < C2 else 0.5 * (b1 + b2)


@register_jitable
def _dot(row, beta):
    """row . beta in float64, by four partial sums that do not wait for one another."""
    n = beta.shape[0]
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    whole = n - n % 4
    for k in range(0, whole, 4):
        s0 += row[k] * beta[k]
        s1 += row[k + 1] * beta[k + 1]
        s2 += row[k + 2] * beta[k + 2]
        s3 += row[k + 3] * beta[k + 3]
    for k in range(whole, n):
        s0 += row[k] * beta[k]
    return (s0 + s1) + (s2 + s3)


@inner_loop
def add_row(f, row, by):
    """f += by row, in float64.  f : float64, (n,);  row : a kernel row;  by : float"""
    for k in range(f.shape[0]):
        f[k] += by * np.float64(row[k])


@register_jitable
def _furthest(f, i):
    """The lowest j with the largest |E_i - E_j|."""
    found, most = 0, -1.0
    for k in range(f.shape[0]):
        d = abs(f[i] - f[k])
        if d > most:
            found, most = k, d
    return found


@inner_loop
def simplified_scan(rows, i, y, box, point, diag, b, rule, seed, epoch, order):
    """Examine the rows from i on until one takes a step.

    Returns (its number i, its partner j, change, b).  beta and b are those after the step, and f has the part of row i;
    the caller adds `change` times the kernel row of j.  If no row takes a step, the result is (rows.stop, -1, 0, b).

    The error of row i is computed anew from its kernel row.  If the row violates, partners are tried by the rule.  A
    partner is skipped if L >= H, if eta <= 0, or if alpha_j would change by less than `rule.min_step`.

    rows : `FetchedRows`;  box : `Box`;  point : `DualPoint`, changed (`dual_qp.py`);  rule : `PairRule`
    y, diag : float64, (n,);  seed, epoch : int, with i the key of the random order
    order : int64, (n,), work space
    """
    K, at, first, stop = rows
    lower, upper = box
    beta, f = point
    eps, min_step, second = rule
    n = y.shape[0]
    while i < stop:
        row, Ci = K[at[i - first]], upper[i] - lower[i]
        f[i] = _dot(row, beta) - y[i]
        Ei, ai = f[i] + b, y[i] * beta[i]
        if _violates(y[i], ai, Ci, Ei, eps):
            state = stream_of(seed, epoch, i)
            tries = n + 1 if second == LARGEST_THEN_ANY else 1
            for t in range(tries):
                if second == ANY_ONE:
                    if n < 2:
                        break
                    state, j = pick(state, n - 1)
                    j += j >= i
                elif t == 0:
                    j = _furthest(f, i)
                else:
                    if t == 1:
                        for k in range(n):
                            order[k] = k
                    state, u = pick(state, n - t + 1)
                    u += t - 1
                    order[t - 1], order[u] = order[u], order[t - 1]
                    j = order[t - 1]
                if j == i:
                    continue
                aj, Cj = y[j] * beta[j], upper[j] - lower[j]
                L, H = _ends(y[i], y[j], ai, aj, Ci, Cj)
                eta = diag[i] + diag[j] - 2.0 * row[j]
                if L >= H or not eta > 0.0:
                    continue
                Ej = f[j] + b
                new = _snapped(min(max(aj + y[j] * (Ei - Ej) / eta, L), H), Cj)
                if abs(new - aj) < min_step:
                    continue
                other = _snapped(ai + y[i] * y[j] * (aj - new), Ci)
                di, dj = y[i] * (other - ai), y[j] * (new - aj)
                b = _bias(b, Ei, Ej, di, dj, diag[i], diag[j], np.float64(row[j]), other, new, Ci, Cj)
                beta[i], beta[j] = y[i] * other, y[j] * new
                for k in range(n):
                    f[k] += di * np.float64(row[k])
                return i, j, dj, b
        i += 1
    return stop, -1, 0.0, b


@inner_loop
def next_violator(y, lower, upper, beta, f, b, eps, i, free_only):
    """The first row from i on that violates by more than eps; n if there is none.

    free_only : bool, look only at rows strictly inside their box
    """
    while i < y.shape[0]:
        a, C = y[i] * beta[i], upper[i] - lower[i]
        if (not free_only or 0.0 < a < C) and _violates(y[i], a, C, f[i] + b, eps):
            return i
        i += 1
    return i


@inner_loop
def platt_examine(row, i2, y, lower, upper, beta, f, diag, b, least, seed, sweep):
    """Platt's examineExample(i2) for a row i2 that violates; returns (i1, change, b).

    Partners i1 are tried in Platt's order: the row inside its box with the smallest E_1 (the largest if E_2 <= 0), then
    all rows inside their box from a random one on, then all rows from a random one on.  The first with which a step is
    possible is taken.  beta and b are those after the step, and f has the part of row i2; the caller adds `change`
    times the kernel row of i1.  If no step is possible, the result is (-1, 0, b).

    row : kernel row of i2
    least : float       eps of takeStep: a step must change alpha_2 by at least least (alpha_2' + alpha_2 + least)
    seed, sweep : int   with i2 the key of the random starts
    """
    n = y.shape[0]
    E2 = f[i2] + b
    free, best = 0, -1
    for k in range(n):
        a = y[k] * beta[k]
        if 0.0 < a < upper[k] - lower[k]:
            free += 1
            if best < 0 or (f[k] < f[best] if E2 > 0.0 else f[k] > f[best]):
                best = k
    state = stream_of(seed, sweep, i2)
    state, start_free = pick(state, n)
    state, start_all = pick(state, n)
    for t in range(2 * n + 1):
        if t == 0:
            if free < 2:
                continue
            i1 = best
        elif t <= n:
            i1 = (start_free + t - 1) % n
            if not 0.0 < y[i1] * beta[i1] < upper[i1] - lower[i1]:
                continue
        else:
            i1 = (start_all + t - n - 1) % n
        done, d1, b = _take_step(row, i1, i2, y, lower, upper, beta, f, diag, b, least)
        if done:
            return i1, d1, b
    return -1, 0.0, b


@register_jitable
def _take_step(row, i1, i2, y, lower, upper, beta, f, diag, b, least):
    """Platt's takeStep(i1, i2); returns (whether a step was taken, change of beta_1, b)."""
    if i1 == i2:
        return False, 0.0, b
    y1, y2 = y[i1], y[i2]
    a1, a2, C1, C2 = y1 * beta[i1], y2 * beta[i2], upper[i1] - lower[i1], upper[i2] - lower[i2]
    L, H = _ends(y1, y2, a1, a2, C1, C2)
    if L >= H:
        return False, 0.0, b
    k12 = np.float64(row[i1])
    E1, E2 = f[i1] + b, f[i2] + b
    eta, g = diag[i1] + diag[i2] - 2.0 * k12, y2 * (E1 - E2)
    if eta > 0.0:
        new = min(max(a2 + g / eta, L), H)
    else:  # the objective along the line, eta (v - a2)^2 / 2 - g (v - a2), has its minimum at an end
        low, high = 0.5 * eta * (L - a2) ** 2 - g * (L - a2), 0.5 * eta * (H - a2) ** 2 - g * (H - a2)
        new = L if low < high - least else H if low > high + least else a2
    new = _snapped(new, C2)
    if abs(new - a2) < least * (new + a2 + least):
        return False, 0.0, b
    other = _snapped(a1 + y1 * y2 * (a2 - new), C1)
    d1, d2 = y1 * (other - a1), y2 * (new - a2)
    b = _bias(b, E1, E2, d1, d2, diag[i1], diag[i2], k12, other, new, C1, C2)
    beta[i1], beta[i2] = y1 * other, y2 * new
    for k in range(f.shape[0]):
        f[k] += d2 * np.float64(row[k])
    return True, d1, b
