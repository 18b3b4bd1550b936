"""Functions for the weights of one model, W of shape (n_weights,), or of several, (n_weights, n_models) in C order.

A loop that calls them is compiled separately for each of these shapes.  For one model, loops over models have the
constant length 1, and the compiler removes them.
"""

from __future__ import annotations

from numba import types

from bigsvm.compiled.shared.compile import overload
from bigsvm.compiled.shared.many import (
    few,
    many_axpys,
    many_dots,
    prefetch_rare,
    prefetch_weights,
    some_dots,
    sparse_rows,
)
from bigsvm.compiled.shared.rows import row_axpy, row_dot


def n_models(W):
    """Number of models in W: 1 for shape (n_weights,), else W.shape[1]."""
    return 1 if W.ndim == 1 else W.shape[1]


def weight(W, j, m):
    """W[j] of model m."""
    return W[j] if W.ndim == 1 else W[j, m]


def add_weight(W, j, m, value):
    """Add `value` to W[j] of model m."""
    if W.ndim == 1:
        W[j] += value
    else:
        W[j, m] += value


def model_dots(X, i, W, out, live):
    """out[m] = X[i] . W[:, m] for the models m whose bit is set in `live`, uint64, and possibly for others.

    The weight of the bias is not included.  out : float64, (n_models,).  Compiled only.
    """
    raise NotImplementedError


def model_axpys(a, X, i, W):
    """W[:, m] += a[m] X[i] for all models m, without the weight of the bias.  Compiled only."""
    raise NotImplementedError


def ask_weights(X, i, W):
    """Prefetch the weights of row i, unless they are those of one model and fit in a cache.  Compiled only.

    The product of a row is followed by a branch that no processor can predict, so each row would wait for the slowest
    of its weights.
    """
    raise NotImplementedError


def _one(W):
    return isinstance(W, types.Array) and W.ndim == 1


@overload(n_models)
def _n_models(W):
    return (lambda W: 1) if _one(W) else (lambda W: W.shape[1])


@overload(weight)
def _weight(W, j, m):
    return (lambda W, j, m: W[j]) if _one(W) else (lambda W, j, m: W[j, m])


@overload(add_weight)
def _add_weight(W, j, m, value):
    def one(W, j, m, value):
        W[j] += value

    def many(W, j, m, value):
        W[j, m] += value

    return one if _one(W) else many


@overload(model_dots)
def _model_dots(X, i, W, out, live):
    def one(X, i, W, out, live):
        out[0] = row_dot(X, i, W)

    def many(X, i, W, out, live):
        if few(live):
            some_dots(X, i, W, out, live)
        else:
            many_dots(X, i, W, out)

    return one if _one(W) else many


@overload(model_axpys)
def _model_axpys(a, X, i, W):
    def one(a, X, i, W):
        row_axpy(a[0], X, i, W)

    def many(a, X, i, W):
        many_axpys(a, X, i, W)

    return one if _one(W) else many


_CACHED = 3 << 19  # bytes of the weights of one model up to which a core's cache holds them without prefetching
# (2 MiB of L2, hinge, 14 M entries in memory: w of 1.2 MB took 0.45 s, with prefetching 0.50; w of 12 MB took 0.90 s,
# with prefetching 0.65.  Cores with 512 KiB gain from a smaller bound; no bit depends on it.)


@overload(ask_weights)
def _ask_weights(X, i, W):
    def one(X, i, W):
        if W.size * W.itemsize > _CACHED:
            prefetch_rare(X, i, W)

    if not _one(W):
        return lambda X, i, W: prefetch_weights(X, i, W)
    return one if sparse_rows(X) else (lambda X, i, W: None)
