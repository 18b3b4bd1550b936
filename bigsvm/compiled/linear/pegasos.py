r"""Mini-batch steps of Pegasos on some rows, for all models at once.

Each step takes the next rows of a random order as its batch A, computes their slacks at the present w, and then sets

    w <- (1 - theta) w + theta (n / |A|) sum_{i in A, s_i > 0} C_i y_i x_i,    theta = 1 / (t + offset)
    w <- min(1, radius / ||w||) w

with s_i = 1 - y_i w.x_i and C_i = C[m] cost_i.  alpha takes the same steps with the unit vectors in place of
y_i x_i, so that w = sum_i alpha_i y_i x_i always.

w and alpha are stored as arrays times one number for each model, `scale`.  So a step that shrinks all of w changes only
this number, and the entries of the violating rows.  A batch that is cut short counts as that fraction of a step.  Then
every row has the same weight, and after whole passes alpha lies in its box without being clipped.

Source: Shalev-Shwartz, Singer, Srebro, ICML 2007, with the step length as printed by Do and Artieres
(docs/mathematics.md 7.5).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop, overload, register_jitable
from bigsvm.compiled.shared.losses import HINGE, gap_term, loss_value
from bigsvm.compiled.shared.many import row_entry, row_span
from bigsvm.compiled.shared.models import add_weight, ask_weights, model_dots, n_models, weight
from bigsvm.compiled.shared.prefetch import ask_row, prefetch
from bigsvm.compiled.shared.rows import CSR
from bigsvm.compiled.shared.visiting import row_at, visiting_order

_AHEAD = 8  # rows in advance that alpha is prefetched, because rows come in random order
_SMALLEST_SCALE = 1e-120  # scale below which it is multiplied into the arrays, so that squares of 1 / scale stay finite

# columns of `stats`
GAP, LOSS = 0, 1


class LabelledRows(NamedTuple):
    """Rows that are visited together.

    X : dense (n_rows, n_features) or CSR
    codes : int32, (n_rows,)     class codes
    cost : float64, (n_rows,)    class weight times sample weight; a row of cost 0 has no loss
    at : int64, (n_rows,), or (0,) for range(n_rows)   number of each row in working order, where its alpha is found
    """

    X: np.ndarray | CSR
    codes: np.ndarray
    cost: np.ndarray
    at: np.ndarray


class Models(NamedTuple):
    """The problem of each model.

    positive : int32, (n_models,)   class code that is +1
    C : float64, (n_models,);  bias : float   the constant feature, 0 for none
    radius : float64, (n_models,)   radius of the ball onto which w is projected; inf for none
    """

    positive: np.ndarray
    C: np.ndarray
    bias: float
    radius: np.ndarray


class ScaledPoint(NamedTuple):
    """The point of each model, w = scale W and its dual variables scale alpha; a visit changes all four arrays.

    W : float64, (n_features + 1,) or (n_features + 1, n_models);  alpha : float64, (n_samples, n_models)
    scale : float64, (n_models,)
    sqnorm : float64, (n_models,)   squared norm of W
    """

    W: np.ndarray
    alpha: np.ndarray
    scale: np.ndarray
    sqnorm: np.ndarray


class StepLength(NamedTuple):
    """The numbers that determine theta.

    n_samples : int   rows of the whole data;  batch : int   rows of a step
    offset : float    added to the number of the step
    seen : int        rows visited since the start of the fit
    """

    n_samples: int
    batch: int
    offset: float
    seen: int


def pegasos_visit(rows, models, point, length, key, stats):
    """Visit every row once, in a random order, one batch after another; returns the number of steps.

    Parameters
    ----------
    rows : `LabelledRows`;  models : `Models`;  point : `ScaledPoint`, changed
    length : `StepLength` before the first of these rows;  key : `VisitingOrder`
    stats : float64, (n_models, 2)   grows by the gap term and the loss of each row at its visit
    """
    n = rows.codes.shape[0]
    order = visiting_order(np.ones(n, np.uint8), *key)
    z, work = np.empty(n_models(point.W)), np.empty((min(length.batch, n), n_models(point.W)))
    return _visit(rows, models, point, length, order, stats, z, work)


@inner_loop
def _visit(rows, models, point, length, order, stats, z, work):
    """`pegasos_visit` in a given order, with its work space.

    order : int64, (n_rows,);  z : float64, (n_models,);  work : float64, (batch, n_models)
    """
    X, codes, cost, at = rows
    positive, C, bias, radius = models
    W, alpha, scale, sqnorm = point
    n_samples, batch, offset, seen = length
    count, last, n = n_models(W), W.shape[0] - 1, order.shape[0]
    everybody = ~np.uint64(0)
    steps = 0
    for first in range(0, n, batch):
        size = min(batch, n - first)
        for q in range(size):
            t = first + q
            i = order[t]
            row = row_at(at, i)
            if t + 2 < n:
                ask_row(X, order[t + 2])
            if t + 1 < n:
                ask_weights(X, order[t + 1], W)
            if t + _AHEAD < n:
                prefetch(alpha, row_at(at, order[t + _AHEAD]))
            model_dots(X, i, W, z, everybody)
            for m in range(count):
                sign = 1.0 if codes[i] == positive[m] else -1.0
                c = C[m] * cost[i]
                s = 1.0 - sign * scale[m] * (z[m] + bias * weight(W, last, m))
                a = min(scale[m] * alpha[row, m], c)
                stats[m, GAP] += gap_term(HINGE, s, a, c)
                stats[m, LOSS] += loss_value(HINGE, s, c)
                work[q, m] = c if s > 0.0 else 0.0
        seen += size
        clock = seen / batch + offset  # t + offset, where all batches were whole
        theta = size / batch / clock
        share = n_samples / batch / clock  # theta n / |A|
        for m in range(count):
            if theta < 1.0:  # theta is 1 only in the first step with offset 0, and w is 0 there
                scale[m] *= 1.0 - theta
        for q in range(size):
            i = order[first + q]
            row = row_at(at, i)
            any_model = False
            for m in range(count):
                z[m] = 0.0
                if work[q, m] > 0.0:
                    step = share * work[q, m] / scale[m]
                    alpha[row, m] += step
                    z[m] = step if codes[i] == positive[m] else -step
                    any_model = True
            if any_model:
                _add_row(z, X, i, bias, W, sqnorm)
        for m in range(count):
            norm = scale[m] * np.sqrt(max(sqnorm[m], 0.0))
            if norm > radius[m]:
                scale[m] *= radius[m] / norm
            if scale[m] < _SMALLEST_SCALE:
                _fold(W, alpha, scale, sqnorm, m)
        steps += 1
    return steps


@register_jitable
def _add_row(step, X, i, bias, W, sqnorm):
    """W[:, m] += step[m] [x_i, bias]; updates the squared norms too."""
    a, b = row_span(X, i)
    for k in range(a, b):
        j, x = row_entry(X, i, k)
        for m in range(n_models(W)):
            old = weight(W, j, m)
            change = step[m] * x
            sqnorm[m] += change * (2.0 * old + change)
            add_weight(W, j, m, change)
    if bias != 0.0:
        last = W.shape[0] - 1
        for m in range(n_models(W)):
            old, change = weight(W, last, m), step[m] * bias
            sqnorm[m] += change * (2.0 * old + change)
            add_weight(W, last, m, change)


def _scale_weight(W, j, m, factor):
    """Multiply W[j] of model m by `factor`.  Compiled only."""
    raise NotImplementedError


@overload(_scale_weight)
def _overload_scale_weight(W, j, m, factor):
    def one(W, j, m, factor):
        W[j] *= factor

    def many(W, j, m, factor):
        W[j, m] *= factor

    return one if W.ndim == 1 else many


@register_jitable
def _fold(W, alpha, scale, sqnorm, m):
    norm = 0.0
    for j in range(W.shape[0]):
        _scale_weight(W, j, m, scale[m])
        norm += weight(W, j, m) ** 2
    for i in range(alpha.shape[0]):
        alpha[i, m] *= scale[m]
    scale[m] = 1.0
    sqnorm[m] = norm


@inner_loop
def fold_scales(W, alpha, scale, sqnorm):
    """Multiply `scale` into W and alpha, set it to 1, and compute the squared norms anew, without rounding errors."""
    for m in range(n_models(W)):
        _fold(W, alpha, scale, sqnorm, m)
