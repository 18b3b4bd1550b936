"""Rows of the data side by side in a tile, and out of it again: as floats, as bytes or as pairs of whole numbers.

A tile is made for rows S of the other side: what lies in it is what products with these rows are quickest with.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from bigsvm.compiled.kernel.values.differences import may_cancel
from bigsvm.compiled.kernel.values.lanes import fused
from bigsvm.compiled.kernel.values.ones import are_ones, clear_ones, lay_out_ones
from bigsvm.compiled.kernel.values.own_lines import zeros_on_own_lines
from bigsvm.compiled.kernel.values.placed import is_placed, place
from bigsvm.compiled.kernel.values.tile import GROUP, LANES, PLACES_AHEAD, ROWS_AHEAD
from bigsvm.compiled.kernel.values.whole import AHEAD, clear_whole, is_whole, lay_out_whole
from bigsvm.compiled.shared.compile import overload, register_jitable
from bigsvm.compiled.shared.prefetch import ask_place, ask_row


class TileWorkspace(NamedTuple):
    """Where one thread works; its tile is made for rows of one width.

    tile : (n_features or more, LANES), S's type   zeros, and left as zeros for CSR
    x_sq : (LANES,), a : (GROUP, LANES), S's type   squared norms of the tile's rows; products, then values
    sums : float64, (n_models or more, LANES);  pairs : int32, (AHEAD, LANES), products of pairs of whole numbers
    """

    tile: np.ndarray
    x_sq: np.ndarray
    a: np.ndarray
    sums: np.ndarray
    pairs: np.ndarray

    @classmethod
    def zeros(cls, n_features: int, dtype: np.dtype | type, n_models: int) -> TileWorkspace:
        """Of a tile for n_features."""
        shapes = (n_features, LANES), (LANES,), (GROUP, LANES), (n_models, LANES), (AHEAD, LANES)
        return cls(*zeros_on_own_lines(shapes, (dtype, dtype, dtype, np.float64, np.int32)))


@register_jitable
def _lay_out_four(X, rows, first, t, tile, sq):
    """Four dense rows at once: one alone would wait for each cache line, and for each addition before the next."""
    a, b, c, e = X[rows[first]], X[rows[first + 1]], X[rows[first + 2]], X[rows[first + 3]]
    s0 = s1 = s2 = s3 = 0.0
    for j in range(len(a)):
        column = tile[j]
        column[t], column[t + 1], column[t + 2], column[t + 3] = a[j], b[j], c[j], e[j]
        x0, x1, x2, x3 = np.float64(a[j]), np.float64(b[j]), np.float64(c[j]), np.float64(e[j])
        s0 = fused(x0, x0, s0)
        s1 = fused(x1, x1, s1)
        s2 = fused(x2, x2, s2)
        s3 = fused(x3, x3, s3)
    sq[t], sq[t + 1], sq[t + 2], sq[t + 3] = s0, s1, s2, s3


def _lay_out(X, rows, first, here, tile, sq):
    """Put rows[first : first + here] of X side by side into the tile, and their squared norms into sq."""
    raise NotImplementedError


@overload(_lay_out)
def _overload_lay_out(X, rows, first, here, tile, sq):
    if isinstance(X, types.Array):

        def dense(X, rows, first, here, tile, sq):
            whole = here - here % 4
            for t in range(0, whole, 4):
                _lay_out_four(X, rows, first + t, t, tile, sq)
            for t in range(whole, here):
                row, total = X[rows[first + t]], 0.0
                for j in range(len(row)):
                    tile[j, t] = row[j]
                    total = fused(np.float64(row[j]), np.float64(row[j]), total)
                sq[t] = total

        return dense

    if is_placed(X):
        return _lay_out_placed(isinstance(X.types[0], types.Array))

    def sparse(X, rows, first, here, tile, sq):
        for t in range(here):
            if first + t + PLACES_AHEAD < len(rows):
                ask_place(X, rows[first + t + PLACES_AHEAD])
            if first + t + ROWS_AHEAD < len(rows):
                ask_row(X, rows[first + t + ROWS_AHEAD])
            row, total = rows[first + t], 0.0
            for p in range(X.indptr[row], X.indptr[row + 1]):
                value = X.data[p]
                tile[X.indices[p], t] = value
                total = fused(np.float64(value), np.float64(value), total)
            sq[t] = total

    return sparse


def _lay_out_placed(is_dense):
    """The same of `Placed` rows: norms are those of whole rows."""

    def dense(X, rows, first, here, tile, sq):
        width = X.X.shape[1]
        for t in range(here):
            row, total = X.X[rows[first + t]], 0.0
            for j in range(width):
                total = fused(np.float64(row[j]), np.float64(row[j]), total)
            sq[t] = total
            for p in range(len(X.features)):
                if X.features[p] < width:
                    tile[p, t] = row[X.features[p]]

    def sparse(X, rows, first, here, tile, sq):
        for t in range(here):
            row, total = rows[first + t], 0.0
            for k in range(X.X.indptr[row], X.X.indptr[row + 1]):
                value = X.X.data[k]
                total = fused(np.float64(value), np.float64(value), total)
                p = place(X.X.indices[k], X.features, X.table)
                if p >= 0:
                    tile[p, t] = value
            sq[t] = total

    return dense if is_dense else sparse


def _clear(X, row, t, tile):
    """Take a row of X out of the tile: what a sparse row left would count for the next."""
    raise NotImplementedError


@overload(_clear)
def _overload_clear(X, row, t, tile):
    if isinstance(X, types.Array):
        return lambda X, row, t, tile: None

    if is_placed(X):
        if isinstance(X.types[0], types.Array):
            return lambda X, row, t, tile: None

        def placed(X, row, t, tile):
            for k in range(X.X.indptr[row], X.X.indptr[row + 1]):
                p = place(X.X.indices[k], X.features, X.table)
                if p >= 0:
                    tile[p, t] = 0

        return placed

    def sparse(X, row, t, tile):
        for p in range(X.indptr[row], X.indptr[row + 1]):
            tile[X.indices[p], t] = 0

    return sparse


@register_jitable
def largest_of(squares, n):
    """Of the first n of them; 0 of none."""
    found = squares.dtype.type(0)
    for i in range(n):
        found = max(found, squares[i])
    return found


def take_in(X, rows, first, here, support, few_ones, workspace, gamma, largest_of_support):
    """Lay out rows[first : first + here] of X: (whether as bytes, the largest of their squared norms, whether pairs of
    theirs may want differences).

    few_ones : rows of S may be counted
    gamma : of an rbf kernel, else 0: what is made of rows of whole numbers are products, and not distances
    """
    raise NotImplementedError


@overload(take_in)
def _overload_take_in(X, rows, first, here, support, few_ones, workspace, gamma, largest_of_support):
    if is_whole(support.types[0]):

        def pairs(X, rows, first, here, support, few_ones, workspace, gamma, largest_of_support):
            lay_out_whole(X, rows, first, here, support.step, workspace.tile, gamma > 0)
            workspace.x_sq[:] = 0  # the distances that come of products with the tile have the norms already
            return False, workspace.x_sq.dtype.type(0), False

        return pairs

    def numbers(X, rows, first, here, support, few_ones, workspace, gamma, largest_of_support):
        tile, x_sq = workspace.tile, workspace.x_sq
        counts = few_ones and are_ones(X, rows, first, here)
        if counts:
            lay_out_ones(X, rows, first, here, tile, x_sq)
        else:
            _lay_out(X, rows, first, here, tile, x_sq)
        largest = largest_of(x_sq, here)
        near = may_cancel(gamma, largest, largest_of_support)
        if counts and near:  # differences are those of a tile of floats
            _clear_all(X, rows, first, here, counts, tile)
            _lay_out(X, rows, first, here, tile, x_sq)
            counts = False
        return counts, largest, near

    return numbers


def take_out(X, rows, first, here, support, counts, tile):
    """Clear the tile of what was laid out."""
    raise NotImplementedError


@overload(take_out)
def _overload_take_out(X, rows, first, here, support, counts, tile):
    if is_whole(support.types[0]):

        def pairs(X, rows, first, here, support, counts, tile):
            for t in range(here):
                clear_whole(X, rows[first + t], t, tile)

        return pairs
    return lambda X, rows, first, here, support, counts, tile: _clear_all(X, rows, first, here, counts, tile)


@register_jitable
def _clear_all(X, rows, first, here, counts, tile):
    for t in range(here):
        if counts:
            clear_ones(X, rows[first + t], t, tile)
        else:
            _clear(X, rows[first + t], t, tile)
