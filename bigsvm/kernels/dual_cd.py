r"""Dual coordinate descent for linear SVM, on one block of rows, for all models at once.

Solves, for each model m with labels y_i in {-1, +1} and row costs C_i = C[m] cost[i],

    min_alpha  1/2 || sum_i alpha_i y_i x_i ||^2 + 1/2 sum_i D_i alpha_i^2 - sum_i alpha_i,   0 <= alpha_i <= U_i

with U_i = upper_factor C_i and D_i = diag_factor / C_i: hinge (1, 0), squared hinge (inf, 1/2).  A bias
weight is the last entry of w, with the constant feature `bias` (0 for none).

Given   X, labels, alpha, w = sum_i alpha_i y_i x_i
        active : uint8, rows not shrunk away
Changed alpha, w, active, thresholds.

Source: Hsieh, Chang, Lin, Keerthi, Sundararajan, ICML 2008, Algorithm 3 (shrinking with thresholds of the
sweep before).  On the model axis a row is shrunk when every model would shrink it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numba.extending import register_jitable

from bigsvm.kernels.losses import gap_term, loss_value
from bigsvm.kernels.models import add_weight, model_axpys, model_dots, n_models, weight
from bigsvm.kernels.rows import CSR


class DualBox(NamedTuple):
    """A loss and a bias form, as the numbers that the dual sees."""

    loss_code: int
    upper_factor: float
    diag_factor: float
    bias: float


SMALL_ROWS = 256
_MIXED_BYTES = 6 << 20  # of values and indices: what caches hold; data of this size is shuffled as a whole


def mixed_runs_of(X):
    """How many runs of SMALL_ROWS rows `dual_cd_sweeps` should mix: a function of shape and entries only."""
    n_rows, entries = (len(X.indptr) - 1, len(X.data)) if isinstance(X, CSR) else (len(X), X.size)
    return max(int(_MIXED_BYTES * n_rows // max(8 * entries * SMALL_ROWS, 1)), 1)


# columns of `stats`, one row a model
PG_MAX, PG_MIN, GAP, LOSS = 0, 1, 2, 3


@register_jitable
def _mix64(z):
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@register_jitable
def _key(seed, epoch, start):
    """Start of a stream of random numbers that is a function of (seed, epoch, start) only."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    state = _mix64(np.uint64(seed) + golden)
    state = _mix64(state ^ (np.uint64(epoch) * golden))
    return _mix64(state ^ (np.uint64(start) * golden))


@register_jitable
def _shuffle(order, first, stop, state):
    """Fisher-Yates on order[first:stop] with splitmix64; returns the stream's new state."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    for t in range(stop - 1, first, -1):
        state += golden
        r = _mix64(state) >> np.uint64(32)
        u = first + np.int64((r * np.uint64(t - first + 1)) >> np.uint64(32))
        order[t], order[u] = order[u], order[t]
    return state


@register_jitable
def _visiting_order(active, order, small, mixed_runs, seed, epoch, start):
    """Fill `order` with the active rows in a random order that is kind to caches; returns how many.

    Runs of SMALL_ROWS rows are drawn in random order, and `mixed_runs` of them at a time are shuffled together:
    the rows in work lie in a few MiB, and still meet others in every sweep.  `small` is work space for the
    order of the runs.
    """
    state = _key(seed, epoch, start)
    runs = small.shape[0]
    for b in range(runs):
        small[b] = b
    state = _shuffle(small, 0, runs, state)
    n = 0
    mixed = 0
    for b in range(runs):
        a = small[b] * SMALL_ROWS
        for i in range(a, min(a + SMALL_ROWS, active.shape[0])):
            if active[i] != 0:
                order[n] = i
                n += 1
        if b % mixed_runs == mixed_runs - 1 or b == runs - 1:
            state = _shuffle(order, mixed, n, state)
            mixed = n
    return n


@njit(cache=True)
def shuffled(n, seed, epoch, start):
    """The visiting order of n rows whose first is `start`, in sweep `epoch`: int64, shape (n,)."""
    order = np.arange(n)
    _shuffle(order, 0, n, _key(seed, epoch, start))
    return order


@njit(cache=True)
def visiting_order(active, mixed_runs, seed, epoch, start):
    """The rows that sweep `epoch` visits, in order: int64, shape (number of active rows,)."""
    order = np.empty(active.shape[0], np.int64)
    small = np.empty(-(-active.shape[0] // SMALL_ROWS), np.int64)
    return order[: _visiting_order(active, order, small, mixed_runs, seed, epoch, start)]


@register_jitable
def _sweep(X, codes, positive, cost, C, sqnorm, alpha, W, active, box, sigma, thresholds, order, n, stats):
    """Visit rows order[:n] once; fills stats, may clear entries of active."""
    models = n_models(W)
    last = W.shape[0] - 1
    z = np.empty(models)
    step = np.empty(models)
    loss_code, upper_factor, diag_factor, bias = box
    for m in range(models):
        stats[m, 0], stats[m, 1], stats[m, 2], stats[m, 3] = -np.inf, np.inf, 0.0, 0.0
    for t in range(n):
        i = order[t]
        if cost[i] == 0.0:
            active[i] = 0
            continue
        model_dots(X, i, W, z)
        h = sigma * (sqnorm[i] + bias * bias)
        keep = False
        moved = False
        for m in range(models):
            step[m] = 0.0
            sign = 1.0 if codes[i] == positive[m] else -1.0
            c = C[m] * cost[i]
            upper = upper_factor * c
            diag = diag_factor / c
            a = alpha[i, m]
            margin = sign * (z[m] + bias * weight(W, last, m))
            s = 1.0 - margin
            stats[m, 2] += gap_term(loss_code, s, a, c)
            stats[m, 3] += loss_value(loss_code, s, c)
            G = margin - 1.0 + diag * a
            PG = G
            if a == 0.0:
                if thresholds[0, m] < G:
                    continue
                PG = min(G, 0.0)
            elif a == upper:
                if thresholds[1, m] > G:
                    continue
                PG = max(G, 0.0)
            keep = True
            stats[m, 0] = max(stats[m, 0], PG)
            stats[m, 1] = min(stats[m, 1], PG)
            if abs(PG) > 1e-12:
                H = h + diag
                # A zero row of the hinge has H = 0 and G = -1: its best alpha is the upper bound.
                new = min(max(a - G / H, 0.0), upper) if H > 0.0 else upper
                if new != a:
                    alpha[i, m] = new
                    step[m] = sigma * (new - a) * sign
                    moved = True
        if not keep:
            active[i] = 0
        if moved:
            model_axpys(step, X, i, W)
            if bias != 0.0:
                for m in range(models):
                    add_weight(W, last, m, step[m] * bias)


@njit(cache=True, nogil=True)
def dual_cd_sweeps(
    X, codes, positive, cost, C, sqnorm, alpha, W, active, box, sigma, thresholds, n_sweeps, whole, mixed_runs,
    seed, epoch, start, eps, target, floor, stats,
):  # fmt: skip
    """Up to `n_sweeps` sweeps over the active rows of a block; returns
    (sweeps done, row visits, rows visited by the last sweep, settled).

    Parameters
    ----------
    X : dense (n_rows, n_features) or CSR, float32 or float64
    codes : int32, shape (n_rows,)          class code of each row
    positive : int32, shape (n_models,)     class code that is +1 for each model
    cost : float64, shape (n_rows,)         class weight times sample weight; rows of 0 take no part
    C : float64, shape (n_models,)
    sqnorm : float64, shape (n_rows,)       squared norms of the rows, bias not included
    alpha : float64, shape (n_rows, n_models)
    W : float64, shape (n_features + 1,) for one model or (n_features + 1, n_models)
    active : uint8, shape (n_rows,)
    box : DualBox
    sigma : float   stiffness of the local problem, 1 for the exact one; w changes by sigma times the sum
    thresholds : float64, shape (2, n_models)   shrinking: a bound row leaves above [0] or below [1]
    n_sweeps : int   sweeps at most; 1 where the caller sees other blocks before this one again
    whole : bool     these are all the rows: thresholds are renewed and the ends below hold
    mixed_runs : int  runs of SMALL_ROWS rows that are shuffled together, see `mixed_runs_of`
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
    order = np.empty(active.shape[0], np.int64)
    small = np.empty(-(-active.shape[0] // SMALL_ROWS), np.int64)
    visits = 0
    n = 0
    for sweep in range(n_sweeps):
        n = _visiting_order(active, order, small, mixed_runs, seed, epoch + sweep, start)
        _sweep(X, codes, positive, cost, C, sqnorm, alpha, W, active, box, sigma, thresholds, order, n, stats)
        visits += n
        if not whole:
            break
        if widest_spread(stats) <= eps:
            return sweep + 1, visits, n, 1
        next_thresholds(stats, thresholds)
        reached = True
        for m in range(models):
            norm = 0.0
            for j in range(W.shape[0]):
                norm += weight(W, j, m) ** 2
            reached = reached and stats[m, 2] <= target * max(0.5 * norm + stats[m, 3], floor[m])
        if reached:
            return sweep + 1, visits, n, 2
    return n_sweeps, visits, n, 0


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
