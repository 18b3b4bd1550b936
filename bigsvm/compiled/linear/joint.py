r"""Crammer and Singer's loss: one weight vector for each class, and one loss for all of them.

With z_k = w_k.x_i, and C_i the cost of row i of class y = y_i,

    P(w) = 1/2 sum_k ||w_k||^2 + sum_i C_i max_k s_ik,     s_ik = [k != y] + z_k - z_y   (s_iy = 0)

In the dual every row has a mass C_i, which it distributes over the classes: q_ik >= 0, sum_k q_ik = C_i.  The mass on
its own class has no effect; the rest is spent.  With alpha_ik = -q_ik for the other classes and alpha_iy = C_i - q_iy,
which sum up to 0, and w_k = sum_i alpha_ik x_i,

    D(alpha) = sum_i alpha_iy - 1/2 sum_k ||w_k||^2,
    P(w) - D(alpha) = sum_i sum_k q_ik (max_l s_il - s_ik) + 1/2 sum_k ||w_k - v_k||^2

where v_k = sum_i alpha_ik x_i.  No term is negative (docs/mathematics.md 1.8).  alpha is stored as float64,
(n_rows, n_classes), and is made feasible before every use.

A step solves the problem of one row exactly (Keerthi, Sundararajan, Chang, Hsieh, Lin, KDD 2008, section 3): with
h = ||x_i||^2 the new q is the projection of  h q_k + s_k  onto the simplex, divided by h.  The threshold of that
projection is found as Michelot does (J. Optim. Theory Appl. 50, 1986), without sorting, and without the mass on the own
class, which grows with C.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop, register_jitable
from bigsvm.compiled.shared.models import add_weight, ask_weights, model_axpys, model_dots, n_models, weight
from bigsvm.compiled.shared.prefetch import ask_row, prefetch
from bigsvm.compiled.shared.rows import row_norm
from bigsvm.compiled.shared.visiting import row_at

_ROUNDING = 1e-12  # violation, in units of the margin, up to which a row takes no step
_AHEAD = 8  # rows in advance that alpha is prefetched, because rows come in random order
_SMALLEST = 1e-290  # h C below which products underflow, as do the scores of such a row
_RUN = 128  # rows whose terms are added before they join the total
_EVERYBODY = ~np.uint64(0)


@register_jitable
def _slacks(W, bias, y, z):
    """Replace the products z of a row of class y with all w_k by its slacks; returns the largest, at least 0."""
    last = W.shape[0] - 1
    for k in range(n_models(W)):
        z[k] += bias * weight(W, last, k)
    own, best = z[y], 0.0
    for k in range(n_models(W)):
        z[k] = 0.0 if k == y else 1.0 + z[k] - own
        best = max(best, z[k])
    return best


@register_jitable
def _masses(alpha, row, y, cost, q):
    """Fill q with the masses of a row, made feasible; returns the mass that is spent on other classes than y.

    cost : C_i of the row
    """
    spent = 0.0
    for k in range(q.shape[0]):
        q[k] = 0.0 if k == y else max(-alpha[row, k], 0.0)
        spent += q[k]
    if spent > cost:
        for k in range(q.shape[0]):
            q[k] *= cost / spent
        spent = cost
    q[y] = cost - spent
    return spent


@register_jitable
def _project(p, mass):
    """Replace p by its Euclidean projection onto {p >= 0, sum p = mass}."""
    most = p[0]
    for k in range(p.shape[0]):
        most = max(most, p[k])
    level, kept = -np.inf, p.shape[0] + 1
    for k in range(p.shape[0]):
        p[k] -= most
    while True:
        total, count = 0.0, 0
        for k in range(p.shape[0]):
            if p[k] > level:
                total += p[k]
                count += 1
        if count >= kept:  # no entry was left out in this round, so the level is final
            break
        kept = count
        level = (total - mass) / count
    for k in range(p.shape[0]):
        p[k] = max(p[k] - level, 0.0)


@register_jitable
def _redistribute(p, own, mass):
    """Replace p by masses of the other classes than `own`, those of the projection; p[own] is then of no use.

    p[own] comes without the whole mass of the row, which may be so large (h C) that the others vanish beside it.  They
    do not depend on it, unless it is too small for them.
    """
    level, kept = -np.inf, p.shape[0] + 1
    while True:
        total, count = p[own], 1
        for k in range(p.shape[0]):
            if k != own and p[k] > level:
                total += p[k]
                count += 1
        if count >= kept:
            break
        kept = count
        level = total / count
    spent = 0.0
    for k in range(p.shape[0]):
        if k != own:
            spent += max(p[k] - level, 0.0)
    if spent > mass:  # nothing is left for the own class
        p[own] += mass
        _project(p, mass)
        return
    for k in range(p.shape[0]):
        p[k] = max(p[k] - level, 0.0)


def joint_sweep(rows, models, alpha, W, active, sigma, thresholds, order, n, stats, score, work):
    """Visit the rows order[:n] of the block once: the `_sweep` of `dual_cd.py` for this loss, with its arguments.

    stats : float64, (1, 4), filled: largest violation, 0, sums of gap terms and of losses as seen at each visit
    thresholds : float64, (2, 1); a row is shrunk away if all of its mass lies on the class with the largest slack, and
        every other slack is smaller by more than [0, 0]
    work : float64, (2, n_models), work space
    """
    X, y, sample_weight, sqnorm, at = rows
    class_weight, C, bias = models
    last = W.shape[0] - 1
    s, q = work[0], work[1]
    stats[0, 0], stats[0, 1], stats[0, 2], stats[0, 3] = 0.0, 0.0, 0.0, 0.0
    for t in range(n):
        i = order[t]
        row = row_at(at, i)
        if t + 2 < n:
            ask_row(X, order[t + 2])
        if t + 1 < n:
            ask_weights(X, order[t + 1], W)
        if t + _AHEAD < n:
            prefetch(alpha, row_at(at, order[t + _AHEAD]))
        own = np.int64(y[i])
        cost = C * class_weight[own]
        if sample_weight.shape[0]:
            cost *= sample_weight[i]
        if cost == 0.0:
            if active.shape[0]:
                active[row] = 0
            if score.shape[0]:
                score[i] = 0.0
            continue
        model_dots(X, i, W, s, _EVERYBODY)
        best = _slacks(W, bias, own, s)
        spent = _masses(alpha, row, own, cost, q)
        gap, lowest, second, holders = 0.0, best, -np.inf, 0
        for k in range(n_models(W)):
            gap += q[k] * (best - s[k])
            if q[k] > 0.0:
                holders += 1
                lowest = min(lowest, s[k])
            else:
                second = max(second, s[k])
        violation = best - lowest
        stats[0, 0] = max(stats[0, 0], violation)
        stats[0, 2] += gap
        stats[0, 3] += cost * best
        if score.shape[0]:
            score[i] = violation
        if active.shape[0] and holders == 1 and violation == 0.0 and best - second > thresholds[0, 0]:
            active[row] = 0
            continue
        if violation <= _ROUNDING:
            continue
        h = sqnorm[i] + bias * bias
        if h * cost > _SMALLEST:
            for k in range(n_models(W)):
                q[k] = s[k] + h * (-spent if k == own else q[k])
            _redistribute(q, own, h * cost)
            for k in range(n_models(W)):
                q[k] /= h
        else:  # the quadratic term vanishes, so all mass goes to the class with the largest slack
            left = cost
            for k in range(n_models(W)):
                q[k] = left if s[k] == best else 0.0
                left -= q[k]
        spent = 0.0
        for k in range(n_models(W)):
            if k != own:
                spent += q[k]
                q[k], alpha[row, k] = -q[k] - alpha[row, k], -q[k]
        q[own], alpha[row, own] = spent - alpha[row, own], spent
        model_axpys(q, X, i, W)
        if bias != 0.0:
            for k in range(n_models(W)):
                add_weight(W, last, k, q[k] * bias)


@register_jitable
def _add_multiple(s, q, own, cost, t, run, at):
    """Add bracket and loss of a row at t W to run[at] and run[at + 1].  s, q : its slacks at W, and its masses"""
    best = 0.0
    for k in range(s.shape[0]):
        if k != own:
            best = max(best, 1.0 + t * (s[k] - 1.0))
    for k in range(s.shape[0]):
        run[at] += q[k] * (best - (0.0 if k == own else 1.0 + t * (s[k] - 1.0)))
    run[at + 1] += cost * best


def certify_joint_rows(X, y, cost, models, alpha, W, V, scales, sums):
    """Add the terms of a block of rows, as `gap_terms.certify_rows`, with one row of sums for all models.

    models : JointModels;  sums : float64, (1, 11 + 2 n_scales)
    """
    run = np.zeros(sums.shape[1])
    _certify(X, y, cost, models, alpha, W, V, scales, sums, np.empty((2, n_models(W))), run)


@inner_loop
def _certify(X, y, cost, models, alpha, W, V, scales, sums, work, run):
    """`certify_joint_rows` with its work space.  work : float64, (2, n_models);  run : float64, (n_sums,), zeros"""
    s, q = work[0], work[1]
    last, n = W.shape[0] - 1, cost.shape[0]
    for i in range(n):
        if i + 1 < n:
            ask_weights(X, i + 1, W)
            ask_weights(X, i + 1, V)
        c = models.C * cost[i]
        if c > 0.0:
            own = np.int64(y[i])
            model_dots(X, i, W, s, _EVERYBODY)
            best = _slacks(W, models.bias, own, s)
            spent = _masses(alpha, i, own, c, q)
            norm, held, settled = row_norm(X, i) + models.bias, 0, True
            for k in range(n_models(W)):
                run[0] += q[k] * (best - s[k])
                if q[k] > 0.0:
                    held += 1
                    settled = settled and s[k] == best
            run[1] += c * best
            if held > 1 or not settled:  # twice, because a slack is the difference of two scores
                run[8] += 2.0 * c * norm
            run[9] += 2.0 * c * norm
            for j in range(scales.shape[0]):
                _add_multiple(s, q, own, c, scales[j], run, 11 + 2 * j)
            if spent > 0.0:
                run[2] += spent
                run[4] += 1.0
                run[7] += 2.0 * spent * norm
                for k in range(n_models(W)):
                    q[k] = spent if k == own else -q[k]
                model_axpys(q, X, i, V)
                if models.bias != 0.0:
                    for k in range(n_models(W)):
                        add_weight(V, last, k, q[k] * models.bias)
        if i % _RUN == _RUN - 1 or i == n - 1:
            for k in range(sums.shape[1]):
                sums[0, k] += run[k]
                run[k] = 0.0
