"""The small problem of `hyperpass` on the near rows, those on or near their hyperplanes: Gram matrix and best shares.

With r = d0 - sum_i a_i z_i over q near rows, z_i = y_i [x_i, bias], the *shares* a_i maximise

    G(a) = sum_i a_i s_i - 1/2 ||r||^2,   0 <= a_i <= C_i      (and sum_i y_i a_i = const if the bias is free)

If all near rows lie exactly on their hyperplanes (s_i = 0), -r is the direction of steepest descent
(docs/mathematics.md 3.4).  In general G(a) is, up to a constant, the dual value with alpha_i = a_i.  So one small
problem gives both the best direction and the best dual bound.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.linear.hessian import solve_symmetric
from bigsvm.compiled.shared.compile import njit, register_jitable
from bigsvm.compiled.shared.fingerprint import row_sums
from bigsvm.compiled.shared.rows import row_axpy, row_dot

_SWEEPS = 4  # sweeps over single rows before rows are moved together
_WORK = 3e7  # multiplications up to which one round begins another Newton step
_TURNS = 64  # most Newton steps in one round, per row: when G changes only by rounding, every step seems to gain
_TIE = 1e-13  # relative difference up to which two rows violate equally
_RIDGE = 1e-8  # ridge, relative to the largest diagonal entry; if G is flat, steps are long and end at a bound


@njit(cache=True, nogil=True)
def row_keys(X, out):
    """out[i] = a 64-bit hash of the content of row i, the same for equal rows; uint64, (n_rows,), may be strided."""
    for i in range(out.shape[0]):
        low, high = row_sums(X, i)
        out[i] = low ^ (high * np.uint64(0x9E3779B97F4A7C15))


@register_jitable
def crosses(s, p, reach):
    """Whether a row reaches its hyperplane in the direction, and is not a near row, with |s| <= reach."""
    return abs(s) > reach and ((s > 0.0 and p > 0.0) or (s < 0.0 and p < 0.0))


@njit(cache=True, nogil=True)
def add_binned(X, codes, positive, cost, C, s, p, bias, edges, reach, S):
    """S[m, b] += the change of sum_i C_i z_i, over violating rows, when the rows of bin b cross their hyperplanes.

    A row is in the bin of its breakpoint s / p.

    X : dense or CSR;  codes : int32, (n_rows,), class codes;  positive : int32, (n_models,), the code that is +1
    cost : float64, (n_rows,);  C : float64, (n_models,);  s, p : float64, (n_rows, n_models);  bias : constant feature
    edges : float64, (n_models, n_bins - 1), ascending; bin b ends at edges[b], and the last is open
    reach : float64, (n_models,)   rows with |s| <= reach are left out
    S : float64, (n_models, n_bins, n_features + 1)
    """
    last = S.shape[2] - 1
    for i in range(codes.shape[0]):
        for m in range(positive.shape[0]):
            c = C[m] * cost[i]
            if c > 0.0 and crosses(s[i, m], p[i, m], reach[m]):
                b = np.searchsorted(edges[m], s[i, m] / p[i, m])
                a = c if (codes[i] == positive[m]) == (s[i, m] < 0.0) else -c
                row_axpy(a, X, i, S[m, b])
                S[m, b, last] += a * bias


@njit(cache=True, nogil=True)
def foresee(s, p, cost, edges, whole, reach, out):
    """out[i] = whether row i violates after exactly the rows of the first `whole` bins have crossed, for one model.

    s, p, cost : float64, (n_rows,);  edges, reach : as for `add_binned`, of this model;  out : uint8, (n_rows,), filled
    """
    for i in range(s.shape[0]):
        violates = s[i] > 0.0
        if cost[i] > 0.0 and crosses(s[i], p[i], reach) and np.searchsorted(edges, s[i] / p[i]) < whole:
            violates = not violates
        out[i] = 1 if violates else 0


@njit(cache=True, nogil=True)
def put_shares(s, keys, cost, C, near, reach, alpha):
    """Overwrite alpha of near rows by their parts of the shares: a row has its part of the cost of all its copies.

    s, alpha : float64, (n_rows, n_models);  cost : float64, (n_rows,);  C, reach : float64, (n_models,)
    keys : uint64, (n_rows,)   hashes of the rows with their classes
    near : (keys in ascending order, uint64; the entry of each, int64; shares and costs by entry, float64), (n_models,
        most) each; and the number of entries of each model, int64, (n_models,)
    """
    ordered, entry, share, of_copies, count = near
    for i in range(s.shape[0]):
        for m in range(s.shape[1]):
            if abs(s[i, m]) <= reach[m]:
                at = np.searchsorted(ordered[m, : count[m]], keys[i])
                if at < count[m] and ordered[m, at] == keys[i]:
                    k = entry[m, at]
                    alpha[i, m] = share[m, k] / (of_copies[m, k] * C[m]) * (cost[i] * C[m])


@njit(cache=True, nogil=True)
def gram(X, sign, bias, dense, Q):
    """Q[i, j] = z_i.z_j for the q rows of X: their Gram matrix.

    X : dense or CSR;  sign : float64 (q,), y of the rows
    bias : the constant feature; 0 without a bias, and with a free one, which is not regularised
    dense : float64, (n_features + 1,), zeros, work space;  Q : float64 (q, q), filled
    """
    q = sign.shape[0]
    for i in range(q):
        row_axpy(1.0, X, i, dense)
        for j in range(i, q):
            Q[i, j] = sign[i] * sign[j] * (row_dot(X, j, dense) + bias * bias)
            Q[j, i] = Q[i, j]
        row_axpy(-1.0, X, i, dense)


@register_jitable
def _shift(Q, g, a, i, change):
    """Add `change` to a_i, and update the gradient g."""
    a[i] += change
    for j in range(g.shape[0]):
        g[j] -= Q[i, j] * change


@register_jitable
def _one_by_one(Q, g, a, C):
    """One sweep of coordinate ascent on G over all rows."""
    for i in range(g.shape[0]):
        if Q[i, i] > 0.0:
            to = min(max(a[i] + g[i] / Q[i, i], 0.0), C[i])
        else:
            to = C[i] if g[i] > 0.0 else 0.0 if g[i] < 0.0 else a[i]
        if to != a[i]:
            _shift(Q, g, a, i, to - a[i])
            a[i] = to


@register_jitable
def _level(g, a, C, sign):
    """(up, low, i, j): the pair that violates most, with sum y a = const; i is the row for `up` and j that for `low`.

    Among rows that violate equally up to rounding, such as two that were moved together, the first is taken, so that
    rounding does not choose.
    """
    up, low, i, j = -np.inf, np.inf, -1, -1
    largest = 0.0
    for k in range(g.shape[0]):
        v = sign[k] * g[k]
        largest = max(largest, abs(v))
        if a[k] < C[k] if sign[k] > 0.0 else a[k] > 0.0:
            up = max(up, v)
        if a[k] > 0.0 if sign[k] > 0.0 else a[k] < C[k]:
            low = min(low, v)
    for k in range(g.shape[0] - 1, -1, -1):
        v = sign[k] * g[k]
        if v >= up - _TIE * largest and (a[k] < C[k] if sign[k] > 0.0 else a[k] > 0.0):
            i = k
        if v <= low + _TIE * largest and (a[k] > 0.0 if sign[k] > 0.0 else a[k] < C[k]):
            j = k
    return up, low, i, j


@register_jitable
def _pair_by_pair(Q, g, a, C, sign):
    """As many steps of the pair that violates most as there are rows (docs/mathematics.md 8.1)."""
    for _ in range(g.shape[0]):
        up, low, i, j = _level(g, a, C, sign)
        if i < 0 or j < 0 or i == j or not up > low:
            return
        bend = Q[i, i] + Q[j, j] - 2.0 * sign[i] * sign[j] * Q[i, j]
        t = (up - low) / bend if bend > 0.0 else np.inf
        room_i = C[i] - a[i] if sign[i] > 0.0 else a[i]
        room_j = a[j] if sign[j] > 0.0 else C[j] - a[j]
        t = min(t, room_i, room_j)
        to_i, to_j = a[i] + sign[i] * t, a[j] - sign[j] * t
        if room_i - t <= _TIE * C[i]:
            to_i = C[i] if sign[i] > 0.0 else 0.0
        if room_j - t <= _TIE * C[j]:
            to_j = 0.0 if sign[j] > 0.0 else C[j]
        _shift(Q, g, a, i, to_i - a[i])
        _shift(Q, g, a, j, to_j - a[j])
        a[i], a[j] = to_i, to_j


@register_jitable
def _multiplier(g, a, C, sign, free):
    """The multiplier of sum y a = const if the bias is free, else 0: what a free bias adds to sign * g."""
    if not free:
        return 0.0
    up, low, i, j = _level(g, a, C, sign)
    if i < 0:
        return low if j >= 0 else 0.0
    return 0.5 * (up + low) if j >= 0 else up


@register_jitable
def _gap(g, a, C, sign, mu):
    total = 0.0
    for i in range(g.shape[0]):
        h = g[i] - mu * sign[i]
        total += max(-a[i] * h, (C[i] - a[i]) * h)
    return total


@register_jitable
def _projected(Q, g, a, C, inside, step):
    """Take the Newton step with each row cut at its bounds, if G gains at least half of what it would without bounds.

    inside : rows strictly inside their box;  step : their Newton step.  Returns whether the step was taken.
    """
    change, after = np.zeros(g.shape[0]), g.copy()
    hoped = rounding = 0.0
    for r in range(inside.shape[0]):
        i = inside[r]
        change[i] = min(max(a[i] + step[r], 0.0), C[i]) - a[i]
        hoped += 0.25 * step[r] * g[i]
        rounding += C[i] * abs(g[i])
        for j in range(g.shape[0]):
            after[j] -= Q[i, j] * change[i]
    # Without the first condition, a gain that is only rounding would be tried again and again.
    if hoped <= 1e-16 * rounding or not 0.5 * np.sum(change * (g + after)) >= hoped:
        return False
    for j in range(g.shape[0]):
        g[j] = after[j]
    for r in range(inside.shape[0]):
        i = inside[r]
        to = a[i] + step[r]
        a[i] = 0.0 if to <= 0.0 else C[i] if to >= C[i] else a[i] + change[i]
    return True


@register_jitable
def _together(Q, g, a, C, sign, free):
    """Newton steps of all rows strictly inside their box, until one of them reaches no bound.

    A step is cut at the first bound that a row reaches, and the next step leaves that row out.
    """
    q = g.shape[0]
    work, turns = _WORK, _TURNS * (q + 1)
    while work > 0.0 and turns > 0:
        turns -= 1
        inside = np.zeros(q + 1, np.int64)
        n, largest = 0, 0.0
        for i in range(q):
            if 0.0 < a[i] < C[i] and Q[i, i] > 0.0:
                inside[n] = i
                n += 1
                largest = max(largest, Q[i, i])
        if free:
            n -= 1  # the last row balances the changes of the others, so that sum y a does not change
        if n <= 0:
            return
        work -= float(n) * n * n + q * q
        H, U = np.empty((n, n)), np.empty((n, n))
        rhs, step = np.empty(n), np.empty(n + 1)
        last = inside[n]
        for r in range(n):
            i = inside[r]
            rhs[r] = g[i]
            for k in range(r, n):
                H[r, k] = Q[i, inside[k]]
            if free:
                turn = sign[i] * sign[last]
                rhs[r] -= turn * g[last]
                for k in range(r, n):
                    j = inside[k]
                    other = sign[j] * sign[last]
                    H[r, k] += turn * (other * Q[last, last] - Q[last, j]) - other * Q[i, last]
            H[r, r] += _RIDGE * largest
        solve_symmetric(H, rhs, U, step[:n])
        step[n] = 0.0
        if free:
            for r in range(n):
                step[n] -= sign[inside[r]] * sign[last] * step[r]
            n += 1
        elif _projected(Q, g, a, C, inside[:n], step):
            continue
        t, first = 1.0, -1
        for r in range(n):
            i = inside[r]
            if step[r] > 0.0 and a[i] + step[r] * t > C[i]:
                t, first = (C[i] - a[i]) / step[r], r
            elif step[r] < 0.0 and a[i] + step[r] * t < 0.0:
                t, first = -a[i] / step[r], r
        for r in range(n):
            i = inside[r]
            change = t * step[r]
            if change != 0.0:
                _shift(Q, g, a, i, change)
                a[i] = min(max(a[i], 0.0), C[i])
        if first < 0:
            return
        i = inside[first]
        a[i] = C[i] if step[first] > 0.0 else 0.0


@njit(cache=True, nogil=True)
def best_shares(Q, g, a, C, sign, free, missing, part, floor, rounds):
    """Maximise G in rounds of sweeps over single rows (pairs if the bias is free) and Newton steps of several.

    Q : float64 (q, q), the Gram matrix z_i.z_j
    g : float64 (q,), the gradient s_i + z_i.r of G at `a`; updated
    a : float64 (q,), the shares, in [0, C]; updated to the solution
    C, sign : float64 (q,), upper bounds and y of the rows;  free : bool, the bias is free: sum y a must not change
    missing : primal minus dual value at `a`, with alpha of all other rows fixed
    part, floor : stop when the gap of this small problem is at most `part` of what is missing then, or at most `floor`
    rounds : most rounds

    Returns the multiplier of sum y a = const, 0 if the bias is not free.
    """
    a_0, g_0 = a.copy(), g.copy()
    mu = 0.0
    for _ in range(rounds):
        for k in range(_SWEEPS + 1):
            if k == _SWEEPS:
                _together(Q, g, a, C, sign, free)
            elif free:
                _pair_by_pair(Q, g, a, C, sign)
            else:
                _one_by_one(Q, g, a, C)
            mu = _multiplier(g, a, C, sign, free)
            risen = 0.5 * np.sum((a - a_0) * (g + g_0))
            if _gap(g, a, C, sign, mu) <= max(part * (missing - risen), floor):
                return mu
    return mu
