r"""The terms of the rows of one block in the duality gap, in P and D, and in w(alpha).

For any w and any alpha in its box, with v = w(alpha) = sum_i alpha_i y_i x_i,

    P(w) - D(alpha) = sum_i [ C_i loss(s_i) + loss*(alpha_i) - alpha_i s_i ] + 1/2 ||w - v||^2,   s_i = 1 - y_i w.x_i

Every bracket is non-negative (the Fenchel-Young inequality), so nothing cancels, and rounding cannot produce a negative
gap.  To derive it, add and subtract w.v.  Rows of cost 0 take no part.  For a regression y_i = 1 and
s_i = target - w.x_i.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop, njit
from bigsvm.compiled.shared.losses import SQUARED_EPSILON_INSENSITIVE, SQUARED_HINGE, bracket_slope
from bigsvm.compiled.shared.models import add_weight, ask_weights, model_axpys, model_dots, n_models, weight
from bigsvm.compiled.shared.rows import row_norm
from bigsvm.compiled.shared.targets import dual_gain, model_cost, row_gap, row_loss, sign_of, target_of
from bigsvm.compiled.shared.vectors.sums import lost_in_sum

# columns of `sums`
GAP, LOSS, LINEAR, ALPHA_DIAG, SUPPORT, SIZE, BALANCE, SPREAD, SLOPES, COSTS, LOST = range(11)
N_SUMS = 11
_RUN = 128  # rows whose terms are added before they join the total: keeps the rounding error of long sums small


def certify_rows(X, y, cost, models, alpha, W, V, scales, sums):
    """Add the terms of a block of rows.

    Parameters
    ----------
    X : dense (n_rows, n_features) or CSR
    y : int32 or float64, shape (n_rows,)       class codes, or targets of a regression
    cost : float64, shape (n_rows,)             class weight times sample weight
    models : DualModels
    alpha : float64, shape (n_rows, n_models)   clipped to its box before use, so always feasible
    W : float64, shape (n_features + 1,) or (n_features + 1, n_models)   the primal point
    V : float64, shape of W                     grows by sum_i alpha_i y_i x_i of this block
    scales : float64, shape (n_scales,)         multiples t of W for which brackets and losses are summed too
    sums : float64, shape (n_models, 11 + 2 n_scales)   grows by the sums over the rows of
        0 brackets   1 losses   2 the linear part of the dual   3 D alpha^2 / 2   4 the number of rows with alpha != 0
        5 |alpha|    6 y alpha, and in 10 what was lost when 6 was rounded: their sum is nearly exact
        and, with r = ||x_i|| + bias, of what bounds the effect of rounding (`problem/linear_rounding.py`):
        7 |alpha| r   8 slopes of brackets times r   9 C_i r (for squared losses C_i r^2)
        and for each t in `scales`: the brackets and the losses of t W
    """
    n = n_models(W)
    run = np.zeros((n, sums.shape[1]))
    _certify(X, y, cost, models, alpha, W, V, scales, sums, np.empty((2, n)), run)


@inner_loop
def _certify(X, y, cost, models, alpha, W, V, scales, sums, work, run):
    """`certify_rows` with its work space.  work : float64, (2, n_models);  run : float64, the shape of sums, zeros"""
    box, positive = models.box, models.positive
    z, step = work[0], work[1]
    last = W.shape[0] - 1
    bias = box.bias
    n = cost.shape[0]
    everybody = ~np.uint64(0)
    squared = box.loss_code == SQUARED_HINGE or box.loss_code == SQUARED_EPSILON_INSENSITIVE
    for i in range(n):
        if i + 1 < n:
            ask_weights(X, i + 1, W)
            ask_weights(X, i + 1, V)
        if cost[i] > 0.0:
            model_dots(X, i, W, z, everybody)
            norm = row_norm(X, i) + bias
            any_alpha = False
            for m in range(n_models(W)):
                sign = sign_of(y, i, positive[m])
                c = model_cost(models.C, m, y, i, i) * cost[i]
                if c == 0.0:  # held out of this model: the row is part of neither its primal nor its dual problem
                    step[m] = 0.0
                    continue
                a = min(max(alpha[i, m], box.lower_factor * c), box.upper_factor * c)
                margin = sign * (z[m] + bias * weight(W, last, m))
                s = target_of(y, i) - margin
                run[m, 0] += row_gap(y, box, s, a, c)
                run[m, 1] += row_loss(y, box, s, c)
                slope = bracket_slope(box.loss_code, box.epsilon, s, a, c)
                if slope != 0.0:
                    run[m, 8] += slope * norm
                run[m, 9] += c * (norm * norm if squared else norm)
                for k in range(scales.shape[0]):
                    s = target_of(y, i) - scales[k] * margin
                    run[m, N_SUMS + 2 * k] += row_gap(y, box, s, a, c)
                    run[m, N_SUMS + 1 + 2 * k] += row_loss(y, box, s, c)
                step[m] = a * sign
                if a != 0.0:
                    run[m, 2] += dual_gain(y, i, box, a)
                    run[m, 3] += 0.5 * box.diag_factor / c * a * a
                    run[m, 4] += 1.0
                    run[m, 5] += abs(a)
                    balance = run[m, 6]
                    run[m, 6] += step[m]
                    run[m, 10] += lost_in_sum(balance, step[m], run[m, 6])
                    run[m, 7] += abs(a) * norm
                    any_alpha = True
            if any_alpha:
                model_axpys(step, X, i, V)
                if bias != 0.0:
                    for m in range(n_models(W)):
                        add_weight(V, last, m, step[m] * bias)
        if i % _RUN == _RUN - 1 or i == n - 1:
            for m in range(n_models(W)):
                balance = sums[m, 6]
                for k in range(sums.shape[1]):
                    sums[m, k] += run[m, k]
                sums[m, 10] += lost_in_sum(balance, run[m, 6], sums[m, 6])
                for k in range(sums.shape[1]):
                    run[m, k] = 0.0


@njit(cache=True, nogil=True)
def distances(W, scale, V, out, without):
    """out[m] = (squared norm of scale W, squared norm of scale W - V, largest |W - V|) for each model, without copies.

    W : float32 or float64, (n_features + 1,) or (n_features + 1, n_models);  V : float64, shape of W
    scale : float64, (n_models,);  out : float64, (n_models, 3), zeros before
    without : int, entries at the end that are left out: 1 for a bias that is not regularised, else 0
    """
    models = n_models(W)
    run = np.zeros((models, 2))
    n = W.shape[0] - without
    for j in range(n):
        for m in range(models):
            v = weight(V, j, m)
            out[m, 2] = max(out[m, 2], abs(np.float64(weight(W, j, m)) - v))
            w = scale[m] * np.float64(weight(W, j, m))
            difference = w - v
            run[m, 0] += w * w
            run[m, 1] += difference * difference
        if j % _RUN == _RUN - 1 or j == n - 1:
            for m in range(models):
                for k in range(2):
                    out[m, k] += run[m, k]
                    run[m, k] = 0.0
