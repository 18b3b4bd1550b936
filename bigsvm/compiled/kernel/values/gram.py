"""Kernel values between rows of the data X and some rows S, added to scores or written to an array.

LANES rows of X at a time are laid out feature by feature, as a tile (`tile.py`).  Then a few vector operations give the
products of a row of S with all of them.  To update scores, a value is computed, multiplied by its coefficient and added
to a float64 sum; it is not stored.

Values have the type of S (float32 or float64).  Sums are float64 and are added up in the order of S.  A value depends
on its two rows alone, so it has the same bits wherever it is computed.  The functions accept every combination: X dense
or CSR of any type, S dense or CSR.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from bigsvm.compiled.kernel.values.differences import cancelling, differ
from bigsvm.compiled.kernel.values.expo import exp_of
from bigsvm.compiled.kernel.values.lanes import add_group_lanes, add_lanes, dot_lanes, fused, rbf_lanes, write_lanes
from bigsvm.compiled.kernel.values.layout import largest_of, take_in, take_out
from bigsvm.compiled.kernel.values.ones import has_few_ones, ones_times_tile
from bigsvm.compiled.kernel.values.tile import GROUP, LANES, dense_rows_times_tile, sparse_row_times_tile
from bigsvm.compiled.kernel.values.whole import AHEAD, dense_pairs_times_tile, finish_pairs, is_whole, pairs_times_tile
from bigsvm.compiled.shared.compile import njit, overload, register_jitable
from bigsvm.compiled.shared.prefetch import prefetch

LINEAR, RBF, POLY, SIGMOID, PRECOMPUTED = range(5)
# A product may be fused with a sum, but no sum is taken in another order.
_vectors = njit(cache=True, nogil=True, error_model="numpy", _nrt=False, fastmath={"contract", "nnan", "nsz"})
_GROUPS_AHEAD = 2  # groups of rows of S in advance that the place of their values is prefetched


class KernelFunction(NamedTuple):
    """A kernel function: the `Kernel.parameters` of `problem/kernel.py`.

    code : int      LINEAR, RBF, POLY, SIGMOID or PRECOMPUTED
    gamma : float   used by rbf, poly and sigmoid
    degree : int    used by poly;  coef0 : float, used by poly and sigmoid
    """

    code: int
    gamma: float
    degree: int
    coef0: float


def _products(support, k, n, counts, relative, workspace):
    """a[r, :] = products of row k + r of S with the tile's rows, for r < min(GROUP, n - k), where a is `workspace.a`.

    k : a multiple of GROUP;  n : rows of S
    counts : bool     the tile holds bytes (`ones.py`)
    relative : bool   if S holds whole numbers (`whole.py`), subtract half of both squared norms from each product,
        which gives minus half the squared distance; no effect otherwise
    """
    raise NotImplementedError


@overload(_products, forceinline=True)
def _overload_products(support, k, n, counts, relative, workspace):
    if is_whole(support.types[0]):
        return _products_of_pairs(isinstance(support.types[0], types.Array))
    if isinstance(support.types[0], types.Array):
        return lambda support, k, n, counts, relative, workspace: dense_rows_times_tile(
            support.S, k, workspace.tile, 0, workspace.a
        )

    def sparse(support, k, n, counts, relative, workspace):
        S, tile, a = support.S, workspace.tile, workspace.a
        if counts:
            for r in range(min(GROUP, n - k)):
                ones_times_tile(S.indices, S.indptr[k + r], S.indptr[k + r + 1], tile, a[r])
        else:
            for r in range(min(GROUP, n - k)):
                sparse_row_times_tile(S.data, S.indices, S.indptr[k + r], S.indptr[k + r + 1], tile, 0, a[r])

    return sparse


def _products_of_pairs(is_dense):
    def dense(support, k, n, counts, relative, workspace):
        a, place = workspace.a, k % AHEAD
        if place == 0:
            whole_groups = -(-(n - k) // GROUP) * GROUP
            dense_pairs_times_tile(support.S, k, min(AHEAD, whole_groups), workspace.tile, workspace.pairs)
        factor = a.dtype.type(0.5 * support.step * support.step)
        for r in range(min(GROUP, n - k)):
            norm = support.sq[k + r] if relative else np.int32(0)
            finish_pairs(workspace.pairs, place + r, workspace.tile, norm, factor, a[r])

    def sparse(support, k, n, counts, relative, workspace):
        S, tile, a = support.S, workspace.tile, workspace.a
        factor = a.dtype.type(0.5 * support.step * support.step)
        for r in range(min(GROUP, n - k)):
            norm = support.sq[k + r] if relative else np.int32(0)
            pairs_times_tile(S.data, S.indices, S.indptr[k + r], S.indptr[k + r + 1], tile, norm, factor, a[r])

    return dense if is_dense else sparse


def _own_square(support, k):
    """The squared norm of row k of S as `rbf_lanes` needs it: 0 if `_products` has subtracted it already."""
    raise NotImplementedError


@overload(_own_square)
def _overload_own_square(support, k):
    if is_whole(support.types[0]):
        return lambda support, k: 0
    return lambda support, k: support.sq[k]


@register_jitable
def _poly(a, r, gamma, degree, coef0, one):
    for t in range(LANES):
        base = gamma * a[r, t] + coef0
        value, power, left = one, base, degree
        while left > 0:
            if left & 1:
                value *= power
            power *= power
            left >>= 1
        a[r, t] = value


@register_jitable
def _sigmoid(a, r, gamma, coef0, one, two):
    for t in range(LANES):
        z = gamma * a[r, t] + coef0
        e = exp_of(-two * abs(z))
        value = (one - e) / (one + e)
        a[r, t] = value if z >= 0 else -value


@register_jitable
def _values(code, gamma, degree, coef0, a, r):
    """Replace the products a[r, :] by values of the linear, poly or sigmoid kernel; `_rbf` is for the rbf kernel."""
    kind = a.dtype.type
    if code == POLY:
        _poly(a, r, kind(gamma), degree, kind(coef0), kind(1))
    elif code == SIGMOID:
        _sigmoid(a, r, kind(gamma), kind(coef0), kind(1), kind(2))


@register_jitable
def _rbf(X, rows, first, here, support, k, gamma, workspace, r, largest):
    """Replace the products workspace.a[r, :] by exp(-gamma ||x - s_k||^2), from differences where they would cancel.

    It is called for tiles for which `may_cancel` is true.  For all others the loops below call `rbf_lanes` themselves:
    a call of this function for each row, with some fifty arguments, made every value cost half as much again.

    here : rows in the tile, from rows[first] on;  largest : the largest of workspace.x_sq
    """
    a, x_sq, s_sq = workspace.a, workspace.x_sq, support.sq[k]
    lanes = cancelling(a, r, gamma, x_sq, s_sq, here, largest)
    rbf_lanes(a, r, x_sq.dtype.type(gamma), x_sq, s_sq)
    if lanes != 0:
        differ(X, rows, first, here, support.S, k, lanes, gamma, workspace.tile, a, r)


@register_jitable
def _add_group(coef, k, k_end, a, sums, n_models):
    """sums[m, t] += sum_r coef[k + r, m] a[r, t], in the order of r, over the rows of the group before k_end."""
    for m in range(n_models):
        if k + GROUP <= k_end and coef[k, m] * coef[k + 1, m] * coef[k + 2, m] * coef[k + 3, m] != 0.0:
            add_group_lanes(coef, k, a, sums, m)
        else:
            for r in range(min(GROUP, k_end - k)):
                if coef[k + r, m] != 0.0:
                    add_lanes(coef[k + r, m], a, r, sums, m)


@_vectors
def add_kernel_rows(X, rows, support, coef, kernel, workspace, out, at):
    """Scores of many rows: out[m, at + i] += sum_s coef[s, m] K(S_s, X[rows[i]]), added up in the order of s.

    X : dense or CSR of any dtype, or `Placed`;  rows : int64, (n,), rows of X
    support : `Support` of k rows S;  coef : float64, (k, n_models)
    kernel : `KernelFunction`;  workspace : `TileWorkspace` for the width of X, changed
    out : float64, (n_models, at + n or more), changed;  at : int, the first column to change
    """
    s_sq = support.sq
    code, gamma, degree, coef0 = kernel
    tile, x_sq, a, sums, _ = workspace
    kind, gamma_of_rbf = a.dtype.type, gamma if code == RBF else 0.0
    largest_of_support, few_ones = largest_of(s_sq, len(s_sq)), has_few_ones(support.S, len(s_sq))
    n, k_end, n_models = len(rows), len(s_sq), coef.shape[1]
    for first in range(0, n, LANES):
        here = min(LANES, n - first)
        counts, largest, near = take_in(
            X, rows, first, here, support, few_ones, workspace, gamma_of_rbf, largest_of_support
        )
        for m in range(n_models):
            for t in range(here):
                sums[m, t] = out[m, at + first + t]
        for k in range(0, k_end, GROUP):
            _products(support, k, k_end, counts, code == RBF, workspace)
            for r in range(min(GROUP, k_end - k)):
                if code != RBF:
                    _values(code, gamma, degree, coef0, a, r)
                elif not near:
                    rbf_lanes(a, r, kind(gamma), x_sq, kind(_own_square(support, k + r)))
                else:
                    _rbf(X, rows, first, here, support, k + r, gamma, workspace, r, largest)
            _add_group(coef, k, k_end, a, sums, n_models)
        for m in range(n_models):
            for t in range(here):
                out[m, at + first + t] = sums[m, t]
        take_out(X, rows, first, here, support, counts, tile)


@_vectors
def add_kernel_pairs(X, rows, after, support, coef, coef_of_rows, kernel, workspace, out, into, sums_of_support):
    """Scores of the rows of one list by themselves; the value of each pair is computed once and used for both rows.

    S is a part of the list, and `rows` names a later or overlapping part: rows[0] stands `after` places behind the
    first row of S.  A pair within one tile is computed for each of its rows.

    out[into[i]] += sum_s coef[s] K(S_s, X[rows[i]])          over the rows of S up to the end of row i's tile
    sums_of_support[s] += sum_i coef_of_rows[i] K(S_s, X[rows[i]])     over the rows in tiles after that of row s

    X : dense or CSR of any dtype;  rows, into : int64, (n,);  after : int, a multiple of LANES
    support : `Support` of k rows; k is a multiple of LANES unless the list ends with S
    coef : float64, (k,), of the rows of S;  coef_of_rows : float64, (n,)
    kernel : `KernelFunction`;  workspace : `TileWorkspace` for two models, changed
    out : float64, (largest of `into` + 1 or more,), changed;  sums_of_support : float64, (k,), changed
    """
    s_sq = support.sq
    code, gamma, degree, coef0 = kernel
    tile, x_sq, a, sums, _ = workspace
    kind, gamma_of_rbf = a.dtype.type, gamma if code == RBF else 0.0
    largest_of_support, few_ones = largest_of(s_sq, len(s_sq)), has_few_ones(support.S, len(s_sq))
    n = len(rows)
    for first in range(0, n, LANES):
        here = min(LANES, n - first)
        behind = min(len(s_sq), after + first)
        k_end = min(len(s_sq), after + first + here)
        counts, largest, near = take_in(
            X, rows, first, here, support, few_ones, workspace, gamma_of_rbf, largest_of_support
        )
        for t in range(LANES):
            sums[0, t] = out[into[first + t]] if t < here else 0.0
            sums[1, t] = coef_of_rows[first + t] if t < here else 0.0
        for k in range(0, k_end, GROUP):
            _products(support, k, k_end, counts, code == RBF, workspace)
            for r in range(min(GROUP, k_end - k)):
                if code != RBF:
                    _values(code, gamma, degree, coef0, a, r)
                elif not near:
                    rbf_lanes(a, r, kind(gamma), x_sq, kind(_own_square(support, k + r)))
                else:
                    _rbf(X, rows, first, here, support, k + r, gamma, workspace, r, largest)
                add_lanes(coef[k + r], a, r, sums, 0)
                if k + r < behind:
                    for t in range(here, LANES):  # what lies there need not be a number
                        a[r, t] = 0
                    sums_of_support[k + r] += dot_lanes(a, r, sums, 1)
        for t in range(here):
            out[into[first + t]] = sums[0, t]
        take_out(X, rows, first, here, support, counts, tile)


@_vectors
def write_kernel_rows(X, rows, support, kernel, workspace, out, at):
    """out[s, at + i] = K(S_s, X[rows[i]]).

    out : the type of S, (k, at + n or more);  other arguments as for `add_kernel_rows`
    """
    s_sq = support.sq
    code, gamma, degree, coef0 = kernel
    tile, x_sq, a = workspace.tile, workspace.x_sq, workspace.a
    kind, gamma_of_rbf = a.dtype.type, gamma if code == RBF else 0.0
    largest_of_support, few_ones = largest_of(s_sq, len(s_sq)), has_few_ones(support.S, len(s_sq))
    n, k_end = len(rows), len(s_sq)
    for first in range(0, n, LANES):
        here = min(LANES, n - first)
        counts, largest, near = take_in(
            X, rows, first, here, support, few_ones, workspace, gamma_of_rbf, largest_of_support
        )
        for k in range(0, k_end, GROUP):
            for r in range(k + _GROUPS_AHEAD * GROUP, min(k + (_GROUPS_AHEAD + 1) * GROUP, k_end)):
                row = out[r]
                for t in range(at + first, at + first + here, 64 // row.itemsize):
                    prefetch(row, t)
            _products(support, k, k_end, counts, code == RBF, workspace)
            for r in range(min(GROUP, k_end - k)):
                if code != RBF:
                    _values(code, gamma, degree, coef0, a, r)
                elif not near:
                    rbf_lanes(a, r, kind(gamma), x_sq, kind(_own_square(support, k + r)))
                else:
                    _rbf(X, rows, first, here, support, k + r, gamma, workspace, r, largest)
                if here == LANES:
                    write_lanes(a, r, out, k + r, at + first)
                else:
                    for t in range(here):
                        out[k + r, at + first + t] = a[r, t]
        take_out(X, rows, first, here, support, counts, tile)


@_vectors
def add_stored_rows(stored, where, coef, out):
    """out[i] += sum_s coef[s] stored[where[s], i], in the order of s: `add_kernel_rows` from stored values.

    It gives the same bits.

    stored : float32 or float64, (n_stored, n), kernel values, a row of them for each support vector
    where : int64, (k,), rows of `stored`;  coef : float64, (k,);  out : float64, (n,), changed
    """
    for s in range(len(where)):
        row, by = stored[where[s]], coef[s]
        if by != 0.0:
            for i in range(len(out)):
                out[i] = fused(by, np.float64(row[i]), out[i])
