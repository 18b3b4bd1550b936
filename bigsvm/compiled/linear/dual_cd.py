r"""Dual coordinate descent for linear SVM, on one block of rows, for all models at once.

Solves, for each model m with labels y_i in {-1, +1} and row costs C_i = C[m] class_weight[code_i] sample_weight_i,

    min_alpha  1/2 || sum_i alpha_i y_i x_i ||^2 + 1/2 sum_i D_i alpha_i^2 - sum_i alpha_i,   0 <= alpha_i <= U_i

with U_i = upper_factor C_i and D_i = diag_factor / C_i: hinge (1, 0), squared hinge (inf, 1/2).  A bias
weight is the last entry of w, with the constant feature `bias` (0 for none).

Given   X, labels, alpha, w = sum_i alpha_i y_i x_i
        active : uint8, or uint64 with a bit for each model: rows that have not been shrunk away
Changed alpha, w, active, thresholds.

Source: Hsieh, Chang, Lin, Keerthi, Sundararajan, ICML 2008, Algorithm 3 (shrinking with thresholds of the
sweep before), each model for itself: a row is left out when every model has shrunk it, and costs less when most
have.  At most 64 models.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop, njit
from bigsvm.compiled.shared.losses import gap_term, loss_value
from bigsvm.compiled.shared.models import add_weight, ask_weights, model_axpys, model_dots, n_models, weight
from bigsvm.compiled.shared.prefetch import ask_row, prefetch
from bigsvm.compiled.shared.visiting import RUN_ROWS, WITH_REPLACEMENT, fill_order, row_at

_AHEAD = 8  # rows: their alpha lies anywhere in memory

# columns of `stats`, one row a model
PG_MAX, PG_MIN, GAP, LOSS = 0, 1, 2, 3


@inner_loop
def _sweep(
    X, codes, class_weight, sample_weight, positive, C, sqnorm, alpha, at, W, active, box, sigma, thresholds,
    order, n, stats, score, z, step,
):  # fmt: skip
    """Visit local rows order[:n] once; fills stats and score, may clear entries of active.

    z, step : float64, shape (n_models,)   work space
    """
    models = n_models(W)
    last = W.shape[0] - 1
    loss_code, upper_factor, diag_factor, bias = box
    everybody = ~np.uint64(0)
    for m in range(models):
        stats[m, 0], stats[m, 1], stats[m, 2], stats[m, 3] = -np.inf, np.inf, 0.0, 0.0
    for t in range(n):
        i = order[t]
        row = row_at(at, i)
        if t + 2 < n:
            ask_row(X, order[t + 2])
        if t + 1 < n:
            ask_weights(X, order[t + 1], W)
        if t + _AHEAD < n:
            prefetch(alpha, row_at(at, order[t + _AHEAD]))
        cost = class_weight[codes[i]]
        if sample_weight.shape[0]:
            cost *= sample_weight[i]
        if cost == 0.0:
            if active.shape[0]:
                active[row] = 0
            if score.shape[0]:
                score[i] = 0.0
            continue
        live = np.uint64(active[row]) if active.shape[0] else everybody
        model_dots(X, i, W, z, live)
        h = sigma * (sqnorm[i] + bias * bias)
        moved = False
        violation = 0.0
        for m in range(models):
            step[m] = 0.0
            bit = np.uint64(1) << np.uint64(m)
            if not live & bit:
                continue
            sign = 1.0 if codes[i] == positive[m] else -1.0
            c = C[m] * cost
            upper = upper_factor * c
            diag = diag_factor / c
            a = alpha[row, m]
            margin = sign * (z[m] + bias * weight(W, last, m))
            s = 1.0 - margin
            # alpha may start outside of its box (momentum): what is seen of the gap is then of its nearest end.
            stats[m, 2] += gap_term(loss_code, s, min(max(a, 0.0), upper), c)
            stats[m, 3] += loss_value(loss_code, s, c)
            G = margin - 1.0 + diag * a
            PG = G
            if a == 0.0:
                if thresholds[0, m] < G:
                    live ^= bit
                    continue
                PG = min(G, 0.0)
            elif a == upper:
                if thresholds[1, m] > G:
                    live ^= bit
                    continue
                PG = max(G, 0.0)
            stats[m, 0] = max(stats[m, 0], PG)
            stats[m, 1] = min(stats[m, 1], PG)
            violation = max(violation, abs(PG))
            if abs(PG) > 1e-12 or a < 0.0 or a > upper:
                H = h + diag
                # A zero row of the hinge has H = 0 and G = -1: its best alpha is the upper bound.
                new = min(max(a - G / H, 0.0), upper) if H > 0.0 else upper
                if new != a:
                    alpha[row, m] = new
                    step[m] = sigma * (new - a) * sign
                    moved = True
        if score.shape[0]:
            score[i] = violation
        if active.shape[0]:
            active[row] = live
        if moved:
            model_axpys(step, X, i, W)
            if bias != 0.0:
                for m in range(models):
                    add_weight(W, last, m, step[m] * bias)


@njit(cache=True, nogil=True)
def dual_cd_sweeps(
    X, codes, class_weight, sample_weight, positive, C, sqnorm, alpha, W, active, box, sigma, thresholds,
    n_sweeps, whole, mixed_runs, seed, epoch, start, eps, target, floor, stats,
):  # fmt: skip
    """Up to `n_sweeps` sweeps over the active rows of a block; returns
    (sweeps done, row visits, rows visited by the last sweep, settled).

    Parameters
    ----------
    X : dense (n_rows, n_features) or CSR
    codes : integers, shape (n_rows,)       class code of each row
    class_weight : float64, shape (n_classes,)
    sample_weight : float64, shape (n_rows,) or (0,) for ones; a row whose weight is 0 takes no part
    positive : int32, shape (n_models,)     class code that is +1 for each model
    C : float64, shape (n_models,)
    sqnorm : float64, shape (n_rows,)       squared norms of the rows, bias not included
    alpha : float64, shape (n_rows, n_models)   may lie outside of its box; it does not once its row was visited
    W : float32 or float64, shape (n_features + 1,) for one model or (n_features + 1, n_models)
    active : uint8 or uint64, shape (n_rows,)   bit m: the row has not been shrunk away by model m
    box : DualBox
    sigma : float   stiffness of the local problem, 1 for the exact one; w changes by sigma times the sum
    thresholds : float64, shape (2, n_models)   shrinking: a bound row leaves above [0] or below [1]
    n_sweeps : int   sweeps at most; 1 where the caller sees other blocks before this one again
    whole : bool     these are all the rows: thresholds are renewed and the ends below hold
    mixed_runs : int  see `visiting.fill_order`; WITH_REPLACEMENT: nothing is shrunk
    seed, epoch, start : int   key of the visiting order; epoch counts up with each sweep
    eps : float      sweeps end when no projected gradient of the active rows spreads wider
    target : float   sweeps end when the stale relative gap of every model falls to this
    floor : float64, shape (n_models,)   proved lower bounds of the primal, so that rows shrunk away at their
            upper bound, whose losses are not seen, do not make the relative gap look large
    stats : float64, shape (n_models, 4), filled: largest and smallest projected gradient, gap and loss as
            seen at each row's visit, of the last sweep

    `settled` is 1 when eps was met on the active rows, 2 when target was met, else 0.
    """
    models = n_models(W)
    rows = active.shape[0]
    order, runs = np.empty(rows, np.int64), np.empty(-(-rows // RUN_ROWS), np.int64)
    at, score = np.empty(0, np.int64), np.empty(0, np.float32)
    z, step = np.empty(models), np.empty(models)
    visits = 0
    n = 0
    for sweep in range(n_sweeps):
        n = fill_order(rows, at, active, order, runs, mixed_runs, seed, epoch + sweep, start)
        _sweep(
            X, codes, class_weight, sample_weight, positive, C, sqnorm, alpha, at, W, active, box, sigma, thresholds,
            order, n, stats, score, z, step,
        )  # fmt: skip
        visits += n
        if not whole:
            break
        if widest_spread(stats) <= eps:
            return sweep + 1, visits, n, 1
        if mixed_runs != WITH_REPLACEMENT:  # else the rows seen do not speak for the others
            next_thresholds(stats, thresholds)
        reached = True
        for m in range(models):
            norm = 0.0
            for j in range(W.shape[0]):
                norm += np.float64(weight(W, j, m)) ** 2
            reached = reached and stats[m, 2] <= target * max(0.5 * norm + stats[m, 3], floor[m])
        if reached:
            return sweep + 1, visits, n, 2
    return n_sweeps, visits, n, 0


@njit(cache=True, nogil=True)
def dual_cd_visit(
    X, codes, class_weight, sample_weight, positive, C, sqnorm, alpha, at, W, streams, box, sigma, mixed_runs,
    seed, epoch, start, order, stats, score,
):  # fmt: skip
    """One step for each row of X, in a random order; returns how many were visited.

    As `dual_cd_sweeps` without shrinking, and alpha may be that of all rows:

    at : int64, shape (n_rows,)       working row of each row of X, where its alpha lies
    streams : uint8, by working row, or (0,) for all ones   rows that are kept elsewhere (the arena) have 0
    order : int64, shape (n_rows,)    filled with the rows visited
    score : float32, shape (n_rows,) or (0,)  filled where visited: the row's largest violation before its step
    """
    rows, models = at.shape[0], n_models(W)
    runs = np.empty(-(-rows // RUN_ROWS), np.int64)
    thresholds = np.empty((2, models))
    thresholds[0, :], thresholds[1, :] = np.inf, -np.inf
    n = fill_order(rows, at, streams, order, runs, mixed_runs, seed, epoch, start)
    _sweep(
        X, codes, class_weight, sample_weight, positive, C, sqnorm, alpha, at, W, streams[:0], box, sigma, thresholds,
        order, n, stats, score, np.empty(models), np.empty(models),
    )  # fmt: skip
    return n


@njit(cache=True, nogil=True)
def widest_spread(stats):
    """Largest over the models of (largest - smallest projected gradient); -inf when no row was active."""
    spread = -np.inf
    for m in range(stats.shape[0]):
        spread = max(spread, stats[m, 0] - stats[m, 1])
    return spread


@njit(cache=True, nogil=True)
def next_thresholds(stats, thresholds):
    """Shrinking thresholds of the next sweep from the projected gradients of this one, in place."""
    for m in range(stats.shape[0]):
        thresholds[0, m] = stats[m, 0] if stats[m, 0] > 0.0 else np.inf
        thresholds[1, m] = stats[m, 1] if stats[m, 1] < 0.0 else -np.inf
