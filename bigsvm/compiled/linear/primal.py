"""What a pass of a primal solver computes: margins of rows and weighted sums of rows, for any kind of matrix."""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop
from bigsvm.compiled.shared.models import add_weight, ask_weights, model_axpys, model_dots, n_models, weight
from bigsvm.compiled.shared.targets import sign_of, target_of


def signed_margins(X, y, positive, W, bias, start, factor, out):
    """out[i, m] = start target_i + factor y_i (x_i.w + bias w_last) for model m with the weights w = W[:, m].

    With (start, factor) = (1, -1) these are slacks; with (0, 1) and a direction in W they are products z_i.d.

    X : dense or CSR
    y : int32 (n_rows,), class codes, whose target counts as 1; or float64 targets, whose y_i counts as 1
    positive : int32 (n_models,), the class code that is +1 for each model;  bias : the constant feature, 0 for none
    W : float64, (n_features + 1,) or (n_features + 1, n_models);  out : float64, (n_rows, n_models), filled
    """
    _signed_margins(X, y, positive, W, bias, start, factor, out, np.empty(n_models(W)))


@inner_loop
def _signed_margins(X, y, positive, W, bias, start, factor, out, z):
    last, n = W.shape[0] - 1, y.shape[0]
    for i in range(n):
        if i + 1 < n:
            ask_weights(X, i + 1, W)
        model_dots(X, i, W, z, ~np.uint64(0))
        for m in range(n_models(W)):
            sign = factor * sign_of(y, i, positive[m])
            out[i, m] = start * target_of(y, i) + sign * (z[m] + bias * weight(W, last, m))


def add_rows(X, y, positive, coefficients, bias, V):
    """V[:, m] += sum_i coefficients[i, m] y_i [x_i, bias]; rows whose coefficients are all 0 are not read.

    X, y, positive, bias : as for `signed_margins`;  coefficients : float64, (n_rows, n_models)
    V : float64, (n_features + 1,) or (n_features + 1, n_models)
    """
    _add_rows(X, y, positive, coefficients, bias, V, np.empty(n_models(V)))


@inner_loop
def _add_rows(X, y, positive, coefficients, bias, V, step):
    last = V.shape[0] - 1
    for i in range(y.shape[0]):
        any_row = False
        for m in range(n_models(V)):
            step[m] = coefficients[i, m] * sign_of(y, i, positive[m])
            any_row = any_row or step[m] != 0.0
        if any_row:
            model_axpys(step, X, i, V)
            if bias != 0.0:
                for m in range(n_models(V)):
                    add_weight(V, last, m, step[m] * bias)
