"""Lay out rows of the data side by side in a tile, as floats, bytes or pairs of whole numbers, and clear it again.

The form of the tile is the one with which products with the rows S are fastest: bytes if both sides are rows of ones
(`ones.py`), pairs if S holds whole numbers (`whole.py`), floats otherwise.
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
    """The work space of one thread, for rows with a given number of features.

    tile : the type of S, (n_features or more, LANES)   rows of the data as columns.  It is all zeros before and after
        rows of CSR; dense rows overwrite all of it
    x_sq : the type of S, (LANES,)   squared norms of the tile's rows
    a : the type of S, (GROUP, LANES)   products of a group of rows of S with the tile, then kernel values
    sums : float64, (n_models or more, LANES)   scores of the tile's rows
    pairs : int32, (AHEAD, LANES)    products of whole numbers
    """

    tile: np.ndarray
    x_sq: np.ndarray
    a: np.ndarray
    sums: np.ndarray
    pairs: np.ndarray

    @classmethod
    def zeros(cls, n_features: int, dtype: np.dtype | type, n_models: int) -> TileWorkspace:
        """An empty work space for rows with n_features, and values of `dtype`."""
        shapes = (n_features, LANES), (LANES,), (GROUP, LANES), (n_models, LANES), (AHEAD, LANES)
        return cls(*zeros_on_own_lines(shapes, (dtype, dtype, dtype, np.float64, np.int32)))


@register_jitable
def _lay_out_four(X, rows, first, t, tile, sq):
    """Lay out four dense rows at once: a single row would wait for each cache line, and for each addition."""
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
    """Write rows[first : first + here] of X to the tile as columns, and their squared norms to sq."""
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
    """`_lay_out` for `Placed` rows.  Squared norms are those of all features, not only of those in the tile."""

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
    """Set the entries of a row of X in column t of the tile to 0, since the next sparse row does not overwrite them."""
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
    """The largest of the first n squares, in their type; 0 if n is 0."""
    found = squares.dtype.type(0)
    for i in range(n):
        found = max(found, squares[i])
    return found


def take_in(X, rows, first, here, support, few_ones, workspace, gamma, largest_of_support):
    """Lay out rows[first : first + here] of X in the form that suits S.

    support : `Support`;  workspace : `TileWorkspace`, whose tile and x_sq are filled
    few_ones : bool   the result of `has_few_ones` for S
    gamma : float   gamma of an rbf kernel, 0 for other kernels, which need products instead of distances
    largest_of_support : the largest squared norm of S

    Returns (whether the tile holds bytes, the largest squared norm of the rows, whether some distances may have to be
    summed from differences).
    """
    raise NotImplementedError


@overload(take_in)
def _overload_take_in(X, rows, first, here, support, few_ones, workspace, gamma, largest_of_support):
    if is_whole(support.types[0]):

        def pairs(X, rows, first, here, support, few_ones, workspace, gamma, largest_of_support):
            lay_out_whole(X, rows, first, here, support.step, workspace.tile, gamma > 0)
            workspace.x_sq[:] = 0  # products with this tile include the norms already
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
        if counts and near:  # differences are taken from a tile of floats
            _clear_all(X, rows, first, here, counts, tile)
            _lay_out(X, rows, first, here, tile, x_sq)
            counts = False
        return counts, largest, near

    return numbers


def take_out(X, rows, first, here, support, counts, tile):
    """Clear what `take_in` has laid out.  counts : its first result"""
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
