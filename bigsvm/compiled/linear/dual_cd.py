r"""Dual coordinate descent for linear SVM, on one block of rows, for all models at once.

Solves, for each model m with labels y_i in {-1, +1} and row costs C_i = C[m] class_weight[code_i] sample_weight_i,

    min_alpha  1/2 || sum_i alpha_i y_i x_i ||^2 + 1/2 sum_i D_i alpha_i^2 - sum_i alpha_i,   0 <= alpha_i <= U_i

with U_i = upper_factor C_i and D_i = diag_factor / C_i: hinge (1, 0), squared hinge (inf, 1/2).  A bias
weight is the last entry of w, with the constant feature `bias` (0 for none).  For a regression with targets t_i it
solves

    min_alpha  1/2 || sum_i alpha_i x_i ||^2 + 1/2 sum_i D_i alpha_i^2 - sum_i (t_i alpha_i - epsilon |alpha_i|)

with -U_i <= alpha_i <= U_i: epsilon-insensitive (1, 0), squared epsilon-insensitive (inf, 1/2).

Given   X, y, alpha, w = sum_i alpha_i y_i x_i
        active : uint8, or uint64 with a bit for each model: rows that have not been shrunk away
Changed alpha, w, active, thresholds.

Each model shrinks rows by itself.  A row is left out once every model has shrunk it, and costs less once most have.
There are at most 64 models.  If the loss couples all models, the step is that of `joint.py`, and `stats` has one row.

Sources: Hsieh, Chang, Lin, Keerthi, Sundararajan, ICML 2008, Algorithm 3 (shrinking by thresholds of the previous
sweep); for targets Ho and Lin, JMLR 13, 2012, Algorithm 4.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigsvm.compiled.linear.joint import joint_sweep
from bigsvm.compiled.linear.stiff import stiff_axpys, stiff_sqnorm
from bigsvm.compiled.shared.compile import inner_loop, njit, overload, register_jitable
from bigsvm.compiled.shared.losses import JointModels
from bigsvm.compiled.shared.models import add_weight, ask_weights, model_axpys, model_dots, n_models, weight
from bigsvm.compiled.shared.prefetch import ask_place, ask_row, prefetch
from bigsvm.compiled.shared.targets import (
    best_alpha,
    class_cost,
    model_cost,
    model_moves,
    projected_gradient,
    rest_model,
    row_gap,
    row_loss,
    sign_of,
    target_of,
)
from bigsvm.compiled.shared.visiting import RUN_ROWS, WITH_REPLACEMENT, fill_order, row_at

_ROUNDING = 1e-12  # projected gradient, relative to targets below 1, up to which it is rounding and no step is made
_AHEAD = 8  # rows in advance that alpha is prefetched, because rows come in random order
_ROWS_AHEAD = 4  # the same for the rows themselves
_PLACES_AHEAD = 14  # the same for the addresses of rows and of their alpha

# columns of `stats`, one row a model
PG_MAX, PG_MIN, GAP, LOSS = 0, 1, 2, 3


class BlockRows(NamedTuple):
    """Rows that are visited together.

    X : dense (n_rows, n_features), CSR, or rows that are packed
    y : integers or float64, (n_rows,)        class codes, or targets of a regression
    sample_weight : float64, (n_rows,) or (0,) for ones; a row whose weight is 0 takes no part
    sqnorm : float64, (n_rows,)               squared norms of the rows, bias not included
    at : int64, (n_rows,), or (0,) for range(n_rows)   number of each row in working order, where its alpha is found
    """

    X: Any
    y: np.ndarray
    sample_weight: np.ndarray
    sqnorm: np.ndarray
    at: np.ndarray


class Stiffness(NamedTuple):
    """How much the steps of a shard are damped, because its change of w is added to those of other shards.

    features : float32, (n_features,), a factor for each feature, at least 1; or (0,) for ones
    bias : the factor of the bias, which the rows of all shards change; 0 if it must not move
    """

    features: np.ndarray
    bias: float


EXACT = Stiffness(np.empty(0, np.float32), 1.0)
"""No damping: no other shard changes w."""


class Limits(NamedTuple):
    """Limits at which sweeps over one block end.

    n_sweeps : most sweeps; 1 if the caller visits other blocks before this one again
    whole : the block has all rows; then the thresholds of shrinking are renewed, and the limits below hold
    eps : sweeps end when the projected gradients of the active rows lie within this of one another and of 0
    target : sweeps end when the relative gap of every model, as seen at the visits, is at most this
    floor : float64, (n_models,)   proved lower bounds of the primal value.  The losses of rows that were shrunk away
        are not seen, and without this bound the relative gap would look too large
    """

    n_sweeps: int
    whole: bool
    eps: float
    target: float
    floor: np.ndarray


def _sweep(rows, models, alpha, W, active, sigma, thresholds, order, n, stats, score, work):
    """Visit the rows order[:n] of the block once, and take the step of each.

    Adds to `stats`, fills `score`, clears bits of `active` for rows that are shrunk away.

    work : float64, shape (2, n_models), work space;  other arguments as for `dual_cd_sweeps` and `dual_cd_visit`
    """
    X, y, sample_weight, sqnorm, at = rows
    class_weight, positive, C, box = models
    last = W.shape[0] - 1
    bias = box.bias
    bias_step, stiff = bias * sigma.bias, sigma.features.shape[0] > 0
    z, step = work[0], work[1]
    everybody = ~np.uint64(0)
    for t in range(n):
        i = order[t]
        row = row_at(at, i)
        if t + _PLACES_AHEAD < n:
            ahead = order[t + _PLACES_AHEAD]
            ask_place(X, ahead)
            if at.shape[0]:
                prefetch(at, ahead)
        if t + _ROWS_AHEAD < n:
            ask_row(X, order[t + _ROWS_AHEAD])
        if t + 1 < n:
            ask_weights(X, order[t + 1], W)
        if t + _AHEAD < n:
            ahead = order[t + _AHEAD]
            prefetch(alpha, row_at(at, ahead))
            prefetch(y, ahead)
            prefetch(sqnorm, ahead)
            if score.shape[0]:
                prefetch(score, ahead)
        cost = class_cost(class_weight, y, i)
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
        h = sqnorm[i] + sigma.bias * (bias * bias)
        norm_due = stiff  # it is computed only for rows that move
        moved = False
        violation = 0.0
        for m in range(n_models(W)):
            step[m] = 0.0
            bit = np.uint64(1) << np.uint64(m)
            if not live & bit:
                continue
            sign = sign_of(y, i, positive[m])
            c = model_cost(C, m, y, i, row) * cost
            if c == 0.0:  # held out of this model, whose alpha stays as it is
                live ^= bit
                continue
            lower, upper = box.lower_factor * c, box.upper_factor * c
            diag = box.diag_factor / c
            a = alpha[row, m]
            margin = sign * (z[m] + bias * weight(W, last, m))
            s = target_of(y, i) - margin
            # alpha may be outside of its box before the visit (momentum).  Then the nearest bound counts for the gap.
            stats[m, 2] += row_gap(y, box, s, min(max(a, lower), upper), c)
            stats[m, 3] += row_loss(y, box, s, c)
            G = margin - target_of(y, i) + diag * a
            PG, shrunk = projected_gradient(y, box, G, a, lower, upper, thresholds[0, m], thresholds[1, m])
            if shrunk:
                live ^= bit
                continue
            stats[m, 0] = max(stats[m, 0], PG)
            stats[m, 1] = min(stats[m, 1], PG)
            violation = max(violation, abs(PG))
            if abs(PG) > _ROUNDING * min(1.0, abs(target_of(y, i))) or a < lower or a > upper:
                if norm_due:
                    h, norm_due = stiff_sqnorm(X, i, sigma.features) + sigma.bias * (bias * bias), False
                new = best_alpha(y, box, G, h + diag, a, lower, upper)
                if new != a:
                    alpha[row, m] = new
                    step[m] = (new - a) * sign
                    moved = True
        if score.shape[0]:
            score[i] = violation
        if active.shape[0]:
            active[row] = live
        if moved:
            if stiff:
                stiff_axpys(step, X, i, sigma.features, W)
            else:
                model_axpys(step, X, i, W)
            if bias != 0.0:
                for m in range(n_models(W)):
                    add_weight(W, last, m, step[m] * bias_step)


def sweep(rows, models, alpha, W, active, sigma, thresholds, order, n, stats, score, work):
    """Visit the rows order[:n] of the block once: `_sweep`, or `joint_sweep` for JointModels.  Compiled only."""
    raise NotImplementedError


@overload(sweep, error_model="numpy", _nrt=False)
def _sweep_of(rows, models, alpha, W, active, sigma, thresholds, order, n, stats, score, work):
    return joint_sweep if models.instance_class is JointModels else _sweep


@register_jitable
def _clear(stats, C, everybody):
    """Reset the statistics of the models that are still trained, or of all models."""
    for m in range(stats.shape[0]):
        if everybody or model_moves(C, m):
            stats[m, 0], stats[m, 1], stats[m, 2], stats[m, 3] = -np.inf, np.inf, 0.0, 0.0


class _Workspace(NamedTuple):
    """Arrays for visits of n_rows rows, whose content before a call is not used.

    order : int64, (n_rows,)                   filled with the rows visited, in their order
    runs : int64, (ceil(n_rows / RUN_ROWS),)   work space
    idle : uint8, (ceil(n_rows / RUN_ROWS),)   0, for the runs that have active rows; (0,) if a block is visited once
    score : float32, (n_rows,) or (0,)         filled, for rows visited, with the largest violation before the step
    work : float64, (2, n_models)              work space
    """

    order: np.ndarray
    runs: np.ndarray
    idle: np.ndarray
    score: np.ndarray
    work: np.ndarray


def _workspace(order: np.ndarray, score: np.ndarray, W: np.ndarray, again: bool) -> _Workspace:
    """again : the rows are swept more than once, and none becomes active between two sweeps"""
    runs = -(-len(order) // RUN_ROWS)
    idle = np.zeros(runs if again else 0, np.uint8)
    return _Workspace(order, np.empty(runs, np.int64), idle, score, np.empty((2, n_models(W))))


def dual_cd_sweeps(rows, models, alpha, W, active, sigma, thresholds, key, limits, stats):
    """Sweeps over the active rows of a block, as many as `limits` allow.

    Returns (sweeps done, row visits, rows visited by the last sweep, settled).

    Parameters
    ----------
    rows : BlockRows, all of them: `at` is empty
    models : DualModels, or JointModels
    alpha : float64, shape (n_rows, n_models)   may lie outside of its box; it does not once its row was visited
    W : float32 or float64, shape (n_features + 1,) for one model or (n_features + 1, n_models)
    active : uint8 or uint64, shape (n_rows,)   bit m: the row has not been shrunk away by model m
    sigma : Stiffness   w changes by this factor times sum_i (change of alpha_i) y_i x_i, feature by feature
    thresholds : float64, shape (2, n_models)   shrinking: a row with alpha = 0 leaves if its gradient is above [0],
        one at its upper bound if it is below [1]
    key : VisitingOrder;  limits : Limits
    stats : float64, shape (n_models, 4), filled with statistics of the last sweep: largest and smallest projected
        gradient, sums of the gap terms and of the losses, each as seen at the visit of the row

    `settled` is 1 if eps was met on the active rows, 2 if the target was met, else 0.

    A model whose own gap falls to the target is not trained any more, and keeps its gap and its loss in `stats`.  It is
    marked in the array `models.C`, which changes.
    """
    workspace = _workspace(np.empty(len(active), np.int64), np.empty(0, np.float32), W, again=True)
    return _sweeps(rows, models, alpha, W, active, active, sigma, thresholds, key, limits, stats, workspace)


@inner_loop
def _sweeps(rows, models, alpha, W, among, active, sigma, thresholds, key, limits, stats, workspace):
    """`dual_cd_sweeps` over the rows that are not 0 in `among`, which is `active` or an array that does not change."""
    order, runs, idle, score, work = workspace
    visits = 0
    n = 0
    for number in range(limits.n_sweeps):
        n = fill_order(
            order.shape[0], rows.at, among, idle, order, runs, key.mixed_runs, key.seed, key.epoch + number, key.start
        )  # fmt: skip
        _clear(stats, models.C, number == 0)
        sweep(rows, models, alpha, W, active, sigma, thresholds, order, n, stats, score, work)
        visits += n
        if not limits.whole:
            break
        reached = True
        for m in range(stats.shape[0]):
            norm = 0.0
            for k in range(m, n_models(W), stats.shape[0]):  # all models, if one loss couples them
                for j in range(W.shape[0]):
                    norm += np.float64(weight(W, j, k)) ** 2
            if stats[m, 2] <= limits.target * max(0.5 * norm + stats[m, 3], limits.floor[m]):
                if model_moves(models.C, m) and stats.shape[0] > 1:
                    stats[m, 0], stats[m, 1] = -np.inf, np.inf  # it has no say in when rows come back
                rest_model(models.C, m)
            else:
                reached = False
        if reached:
            return number + 1, visits, n, 2
        if widest_spread(stats) <= limits.eps:
            return number + 1, visits, n, 1
        if key.mixed_runs != WITH_REPLACEMENT:  # else not all rows were visited
            next_thresholds(stats, thresholds)
    return limits.n_sweeps, visits, n, 0


def dual_cd_visit(rows, models, alpha, W, streams, sigma, key, order, stats, score):
    """One step for each row of a block, in a random order; returns the number of rows visited.

    It works as `dual_cd_sweeps` without shrinking.  `alpha` may be that of all rows, with `rows.at` for the block.

    streams : uint8, by number in working order, 0 for rows to leave out, which are in the row buffer; (0,) for none
    order : int64, shape (n_rows,)    filled with the rows visited, in their order
    score : float32, shape (n_rows,) or (0,)  filled, for rows visited, with the largest violation before the step
    """
    thresholds = np.empty((2, n_models(W)))
    thresholds[0], thresholds[1] = np.inf, -np.inf
    _, visited, *_ = _sweeps(
        rows, models, alpha, W, streams, streams[:0], sigma, thresholds, key, _ONCE, stats,
        _workspace(order, score, W, again=False),
    )  # fmt: skip
    return visited


_ONCE = Limits(1, False, 0.0, 0.0, np.empty(0))
"""A single sweep over a part of the rows."""


@register_jitable
def widest_spread(stats):
    """Largest minus smallest of the projected gradients and 0, the largest difference over the models; 0 without rows.

    The optimum has projected gradients of 0, so gradients that are equal to one another do not say that it is near: of
    two equal rows with opposite labels both are -2 in every sweep.  LIBLINEAR, too, compares each of the two with eps.

    Outside of loops it runs as Python: few models need no compiled code, and that of the loops has other options.
    """
    spread = 0.0
    for m in range(stats.shape[0]):
        spread = max(spread, max(stats[m, 0], 0.0) - min(stats[m, 1], 0.0))
    return spread


@njit(cache=True, nogil=True)
def next_thresholds(stats, thresholds):
    """Set the thresholds of shrinking for the next sweep, from the projected gradients of this one."""
    for m in range(stats.shape[0]):
        thresholds[0, m] = stats[m, 0] if stats[m, 0] > 0.0 else np.inf
        thresholds[1, m] = stats[m, 1] if stats[m, 1] < 0.0 else -np.inf
