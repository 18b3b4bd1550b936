"""Sums of kernel values of rows with blocks of support vectors, in memory that depends on the number of neither."""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.kernel.values.gram import KernelFunction, add_kernel_rows
from bigsvm.compiled.kernel.values.layout import TileWorkspace
from bigsvm.compiled.kernel.values.own_lines import zeros_on_own_lines
from bigsvm.compiled.kernel.values.placed import Placed
from bigsvm.compiled.kernel.values.support import support_of
from bigsvm.compiled.kernel.values.tile import LANES
from bigsvm.compiled.shared.rows import CSR, n_rows_of
from bigsvm.problem.kernel import Kernel
from bigsvm.store.blocks import Matrix, readonly_view, tile

LARGEST_BLOCK = 1 << 21
"""Limit of the bytes of a block of support vectors in float64, and of a tile with its features."""

TABLE = 1 << 18
"""Number of features up to which a lookup table is faster than a binary search."""

_ROWS = 1 << 10  # rows whose scores are computed at a time


class KernelSums:
    """sum_s coef[m, s] K(x_i, s) for the rows of X, added up block by block over the support vectors.

    X : dense or CSR rows, with as many features as the support vectors, or fewer
    n_features : number of features of the support vectors
    sums : float64, (n_rows, n_models); starts at zero

    A kernel value depends only on its two rows, and the terms of a sum are added in the order of the support vectors.
    So a score has the same bits whatever other rows are scored with it, and wherever blocks begin.
    """

    def __init__(self, X: Matrix, n_features: int, kernel: Kernel, n_models: int) -> None:
        self.sums = np.zeros((n_rows_of(X), n_models))
        self._X, self._n_features, self._function = readonly_view(X), n_features, KernelFunction(*kernel.parameters)
        self._room = TileWorkspace.zeros(0, np.float64, n_models)
        with_table = isinstance(self._X, CSR) and n_features <= TABLE
        self._table = np.full(n_features if with_table else 0, -1, np.int32)

    def add(self, support: Matrix, coef: np.ndarray) -> None:
        """Add the terms of a block of support vectors, dense or CSR; coef : float64, (n_support, n_models)."""
        X: Matrix | Placed = self._X
        features = np.empty(0, np.int64)
        if isinstance(support, CSR):
            support, features = _renumbered(support, self._n_features)
            self._make_tile(len(features))
            if len(self._table):
                self._table[features] = np.arange(len(features))
            X = Placed(self._X, features, self._table)
        else:
            self._make_tile(support.shape[1])
        other_side = support_of(readonly_view(support), np.arange(n_rows_of(support)), np.float64)
        for start, stop in tile(len(self.sums), _ROWS):
            out = np.array(self.sums[start:stop].T, order="C")
            add_kernel_rows(X, np.arange(start, stop), other_side, coef, self._function, self._room, out, 0)
            self.sums[start:stop] = out.T
        if len(self._table):
            self._table[features] = -1

    def _make_tile(self, n_rows: int) -> None:
        """Make room for `n_rows` rows in the tile.  Dense rows overwrite it, so only a new tile must be zero."""
        if len(self._room.tile) < n_rows or not isinstance(self._X, CSR):
            self._room = self._room._replace(tile=zeros_on_own_lines([(n_rows, LANES)], [np.float64])[0])


def sums_bytes(n_models: int) -> int:
    """Bytes of the scores being computed, without the block of support vectors and its tile."""
    return 32 * _ROWS * n_models + (1 << 16)


def tile_bytes(n_features: int) -> int:
    """Bytes of a tile with `n_features` features."""
    return 8 * LANES * n_features


def _renumbered(support: CSR, n_features: int) -> tuple[CSR, np.ndarray]:
    """The same rows with the features that occur renumbered from 0, int32; and these features, int64, ascending."""
    if n_features <= TABLE:
        features = np.flatnonzero(np.bincount(support.indices, minlength=1))
    else:
        features = np.unique(support.indices).astype(np.int64)
    places = np.searchsorted(features, support.indices).astype(np.int32)
    return CSR(support.data, places, support.indptr), features


def with_features(X: Matrix, features: np.ndarray) -> Matrix:
    """X with only these features (int64, ascending), renumbered from 0."""
    if not isinstance(X, CSR):
        return readonly_view(np.ascontiguousarray(X[:, features]))
    width = 1 + int(X.indices.max(initial=-1))
    if width <= TABLE:
        table = np.full(width, -1, np.int32)
        inside = features[: np.searchsorted(features, width)]
        table[inside] = np.arange(len(inside))
        places = table[X.indices]
        kept = places >= 0
    else:
        places = np.searchsorted(features, X.indices)
        kept = places < len(features)
        kept[kept] = features[places[kept]] == X.indices[kept]
    ends = np.concatenate(([0], np.cumsum(kept, dtype=np.int64)))
    return readonly_view(CSR(X.data[kept], places[kept].astype(X.indices.dtype), ends[X.indptr]))
