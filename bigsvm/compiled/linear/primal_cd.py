"""One coefficient at a time: searches along columns of the data, for the two squared losses.

Along column j the objective of one model is

    phi(t) = linear t + quadratic t^2 / 2 + sum_i C_i e(s_i - t p_i)^2,   p_i = y_i x_ij,   e(s) = max(0, s)

(docs/mathematics.md 6).  phi is differentiable, and quadratic between the breakpoints s_i / p_i.  For a regression
y_i = 1, and e(s) is the part of |s| above epsilon, with the sign of s.  The matrix X has the columns of the data as its
rows, dense or CSR, so the functions for rows read columns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop, njit, register_jitable
from bigsvm.compiled.shared.many import row_entry, row_span
from bigsvm.compiled.shared.targets import beyond, sign_of

NEWTON_STEP, EXACT, GLOBAL_NEWTON = 0, 1, 2  # rules of `search`
SIGMA = 0.01  # of the sufficient decrease of Chang, Hsieh and Lin
_RUN = 128  # entries whose terms are added before they join the total
_MOST = 200  # evaluations of a search; the bracket alone ends it before


class SearchRows(NamedTuple):
    """What a search along a column needs of the rows.

    s : float64, (n_samples, n_models)    slacks, updated with each step
    y : int32 or float64, (n_samples,)    class codes, or targets of a regression
    positive : int32, (n_models,)         class code that is +1 for each model
    cost : float64, (n_samples,)          class weight times sample weight
    C : float64, (n_models,)
    epsilon : float                       residuals up to this size cost nothing; 0 for classes
    """

    s: np.ndarray
    y: np.ndarray
    positive: np.ndarray
    cost: np.ndarray
    C: np.ndarray
    epsilon: float


@register_jitable
def _slopes(X, j, m, rows, t):
    """(a, b, h), from which phi'(t) = linear - a + (quadratic + b) t follows.

    a and b are the sums of 2 C_i p_i s_i and of 2 C_i p_i^2 over the rows with s_i > t p_i, and h is the sum of
    2 C_i p_i^2 over all rows.  For a regression a and b are over the rows with |s_i - t p_i| > epsilon, and the nearer
    end of the tube, epsilon or -epsilon, is subtracted from s_i.
    """
    C = rows.C[m]
    a = b = h = 0.0
    start, stop = row_span(X, j)
    while start < stop:
        end = min(start + np.uint64(_RUN), stop)
        run_a = run_b = run_h = 0.0
        for k in range(start, end):
            i, x = row_entry(X, j, k)
            p = x * sign_of(rows.y, i, rows.positive[m])
            weight = 2.0 * C * rows.cost[i] * p
            run_h += weight * p
            violates, end_of_tube = beyond(rows.y, rows.s[i, m], t * p, rows.epsilon)
            if violates:
                run_a += weight * (rows.s[i, m] - end_of_tube)
                run_b += weight * p
        a += run_a
        b += run_b
        h += run_h
        start = end
    return a, b, h


@register_jitable
def _loss(X, j, m, rows, t):
    """sum_i C_i e(s_i - t p_i)^2 over the column's entries."""
    C = rows.C[m]
    total = 0.0
    start, stop = row_span(X, j)
    while start < stop:
        end = min(start + np.uint64(_RUN), stop)
        run = 0.0
        for k in range(start, end):
            i, x = row_entry(X, j, k)
            tp = t * (x * sign_of(rows.y, i, rows.positive[m]))
            violates, end_of_tube = beyond(rows.y, rows.s[i, m], tp, rows.epsilon)
            if violates:
                r = rows.s[i, m] - tp - end_of_tube
                run += C * rows.cost[i] * r * r
        total += run
        start = end
    return total


@register_jitable
def _exact(X, j, m, rows, linear, quadratic, a, b):
    """The root of phi', by Newton's method inside a bracket.

    phi' is linear between breakpoints.  The method ends when the line at t has its root at t.  Then the same rows
    violate as in the iteration before, the sums have the same bits, and the root is exact up to rounding.

    a, b : the results of `_slopes` at t = 0
    """
    low, high, t = -np.inf, np.inf, 0.0
    for _ in range(_MOST):
        curvature, slope = quadratic + b, linear - a
        if curvature <= 0.0:  # flat here: no row violates and nothing is regularised
            return t
        root = -slope / curvature
        if root == t or not np.isfinite(root):
            return t
        if slope + curvature * t < 0.0:
            low = t
        else:
            high = t
        if not low < root < high:
            root = 0.5 * (low + high)
            if not low < root < high:
                return t
        t = root
        a, b, _ = _slopes(X, j, m, rows, t)
    return t


@register_jitable
def _armijo(X, j, m, rows, linear, quadratic, d, longest):
    """The first step t of d, d/2, d/4, ... that lowers phi by at least SIGMA t^2; 0 if none does.

    longest : a step of at most `longest` times d surely does, and is taken without computing phi
    """
    share = 1.0
    now = _loss(X, j, m, rows, 0.0)
    while share > longest:
        t = share * d
        then = linear * t + 0.5 * quadratic * t * t + _loss(X, j, m, rows, t)
        if then - now <= -SIGMA * t * t:
            return t
        share *= 0.5
        if share < 1e-10:
            return 0.0
    return share * d


@register_jitable
def _value(X, j, m, rows, linear, quadratic, t):
    return linear * t + 0.5 * quadratic * t * t + _loss(X, j, m, rows, t)


@register_jitable
def _global_newton(X, j, m, rows, linear, quadratic, eps2):
    """The search of Liu, Liu and Gu: Newton's method from t = 1 until |phi'| < eps2, with steps shortened by halves."""
    t = 1.0
    value = _value(X, j, m, rows, linear, quadratic, t)
    for _ in range(_MOST):
        a, b, _ = _slopes(X, j, m, rows, t)
        curvature = quadratic + b
        slope = linear - a + curvature * t
        if abs(slope) < eps2 or curvature <= 0.0:
            return t
        share, moved = 1.0, t
        while share > 1e-10:
            moved = t - share * slope / curvature
            then = _value(X, j, m, rows, linear, quadratic, moved)
            if then <= value - 0.25 * share * slope * slope / curvature + 1e-15 * abs(value):
                value = then
                break
            share *= 0.5
        if share <= 1e-10 or moved == t:
            return t
        t = moved
    return t


@register_jitable
def _search(X, j, m, rows, linear, quadratic, rule, eps2):
    a, b, h = _slopes(X, j, m, rows, 0.0)
    if h == 0.0 and quadratic == 0.0:
        return 0.0
    if rule == EXACT:
        return _exact(X, j, m, rows, linear, quadratic, a, b)
    if rule == GLOBAL_NEWTON:
        return _global_newton(X, j, m, rows, linear, quadratic, eps2)
    curvature = quadratic + b
    if curvature <= 0.0:
        return 0.0
    # Shares of the Newton step up to this lower phi enough.  The whole step nearly always does, and needs no value.
    longest = curvature / (0.5 * (quadratic + h) + SIGMA)
    d = (a - linear) / curvature
    if longest >= 1.0 or d == 0.0:
        return d
    return _armijo(X, j, m, rows, linear, quadratic, d, longest)


@register_jitable
def _move(X, j, m, rows, t):
    start, stop = row_span(X, j)
    for k in range(start, stop):
        i, x = row_entry(X, j, k)
        rows.s[i, m] -= t * (x * sign_of(rows.y, i, rows.positive[m]))


@inner_loop
def search(X, j, m, rows, linear, quadratic, rule, eps2):
    """Search along column j for model m; returns the step t, and updates the slacks of the rows.

    X : the columns;  rows : SearchRows
    linear, quadratic : float, slope and curvature of the regulariser along the column
    rule : EXACT: the minimum of phi;  GLOBAL_NEWTON: until |phi'| < eps2;  NEWTON_STEP: one Newton step with sufficient
        decrease (docs/mathematics.md 6.1, 6.2)
    """
    t = _search(X, j, m, rows, linear, quadratic, rule, eps2)
    if t != 0.0:
        _move(X, j, m, rows, t)
    return t


@inner_loop
def column_total(X, j, m, alpha, y, positive):
    """The sum over rows of alpha[i, m] y_i x_ij for model m.  alpha : float64, (n_samples, n_models)"""
    total = 0.0
    start, stop = row_span(X, j)
    while start < stop:
        end = min(start + np.uint64(_RUN), stop)
        run = 0.0
        for k in range(start, end):
            i, x = row_entry(X, j, k)
            run += alpha[i, m] * (x * sign_of(y, i, positive[m]))
        total += run
        start = end
    return total


@inner_loop
def sweep(X, order, first, rows, w, rule, eps2, alpha, V, moved):
    """Search along the columns of a block one after another, for all models; updates w and the slacks.

    order : int64, (n_columns,)   columns of the block, counted from 0, in the order of the visits
    first : int   the feature number of column 0
    w : float64, (n_features + 1, n_models)
    alpha : float64, (n_samples, n_models);  V : float64, the shape of w, receives sum_i alpha_i y_i x_ij
    moved : float64, (n_models,), grows by the squared steps
    rows, rule, eps2 : as for `search`
    """
    for k in range(order.shape[0]):
        j = order[k]
        f = first + j
        for m in range(rows.positive.shape[0]):
            V[f, m] = column_total(X, j, m, alpha, rows.y, rows.positive)
            t = _search(X, j, m, rows, w[f, m], 1.0, rule, eps2)
            if t != 0.0:
                _move(X, j, m, rows, t)
                w[f, m] += t
                moved[m] += t * t


@njit(cache=True, nogil=True)
def model_sweep(H, D, r, x, steps):
    """Exact searches along the rows of D, one after another, on a quadratic function with the Hessian H.

    H : float64, (n, n), symmetric;  D : float64, (n_directions, n)
    r : float64, (n,), the gradient, updated;  x : float64, (n,), the point, updated
    steps : float64, (n_directions,), filled with the step along each direction
    """
    n = H.shape[0]
    u = np.empty(n)
    for k in range(D.shape[0]):
        u[:] = 0.0
        for j in range(n):
            d = D[k, j]
            if d != 0.0:
                for i in range(n):
                    u[i] += d * H[j, i]
        slope = curvature = 0.0
        for i in range(n):
            slope += r[i] * D[k, i]
            curvature += u[i] * D[k, i]
        t = -slope / curvature if curvature > 0.0 else 0.0
        steps[k] = t
        for i in range(n):
            x[i] += t * D[k, i]
            r[i] += t * u[i]
