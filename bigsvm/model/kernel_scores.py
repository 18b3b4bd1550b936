"""Sums of kernel values: rows against a block of support vectors, in memory that depends on neither's number."""

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
"""Bytes that a block of support vectors takes in float64, and the features that occur in it as a tile's rows."""

TABLE = 1 << 18
"""Features up to which a table of them all is quicker than a search."""

_ROWS = 1 << 10  # rows whose scores are on their way at one time


class KernelSums:
    """sum_s coef[m, s] K(x_i, s) of the rows of X, one block of support vectors after another.

    X : dense or CSR rows, as wide as the support vectors or narrower
    n_features : of the support vectors
    sums : float64, (n_rows, n_models), zeros at first

    Each value depends on its two rows alone, and a row's sum is taken in the order of the support vectors: it has the
    same bits whatever rows are beside it and wherever blocks begin.
    """

    def __init__(self, X: Matrix, n_features: int, kernel: Kernel, n_models: int) -> None:
        self.sums = np.zeros((n_rows_of(X), n_models))
        self._X, self._n_features, self._function = readonly_view(X), n_features, KernelFunction(*kernel.parameters)
        self._room = TileWorkspace.zeros(0, np.float64, n_models)
        with_table = isinstance(self._X, CSR) and n_features <= TABLE
        self._table = np.full(n_features if with_table else 0, -1, np.int32)

    def add(self, support: Matrix, coef: np.ndarray) -> None:
        """Add what a block of support vectors gives, dense or CSR; coef : float64, (n_support, n_models)."""
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
        """At least so many rows of zeros; what dense rows left is written over by the next."""
        if len(self._room.tile) < n_rows or not isinstance(self._X, CSR):
            self._room = self._room._replace(tile=zeros_on_own_lines([(n_rows, LANES)], [np.float64])[0])


def sums_bytes(n_models: int) -> int:
    """Bytes of scores on their way, besides a block of support vectors and its tile."""
    return 32 * _ROWS * n_models + (1 << 16)


def tile_bytes(n_features: int) -> int:
    """Bytes of a tile with so many features."""
    return 8 * LANES * n_features


def _renumbered(support: CSR, n_features: int) -> tuple[CSR, np.ndarray]:
    """The same rows with the features that occur numbered from 0, int32, and those features, int64 ascending."""
    if n_features <= TABLE:
        features = np.flatnonzero(np.bincount(support.indices, minlength=1))
    else:
        features = np.unique(support.indices).astype(np.int64)
    places = np.searchsorted(features, support.indices).astype(np.int32)
    return CSR(support.data, places, support.indptr), features


def with_features(X: Matrix, features: np.ndarray) -> Matrix:
    """X with these features alone (int64, ascending), numbered from 0."""
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
