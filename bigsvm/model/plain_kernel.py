"""Scores of kernel models in NumPy alone, for a few rows that are not worth a compiler.

Values are those of `kernel_scores.py` except for rounding, because sums are taken in another order.  For rbf, a squared
distance whose terms nearly cancel is computed from differences, by the same rule
(`compiled/kernel/values/differences.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from bigsvm.csr import CSR
from bigsvm.files.file_array import FileArray
from bigsvm.problem.kernel import Kernel
from bigsvm.store.blocks import Matrix, tile

_VALUES = 1 << 20  # limit of the float64 values in one temporary array
_KEPT = 1 << 23  # limit of the support vectors' values that are kept in float64 between calls
_CANCELS = 4096.0  # ratio of the terms to the exponent from which rounding shows, and differences are used
_VANISHES = 750.0  # exponent beyond which exp underflows to 0 in float64
_SLACK = 1e-9  # generous bound of the relative error of products


class PlainKernel:
    """sum_s dual_coef[m, s] K(x_i, s) for any rows.

    support : dense or CSR;  dual_coef : float64, (n_models, n_support)

    Small support vectors are kept in float64, with their norms, between calls.
    """

    def __init__(self, kernel: Kernel, support: FileArray | Matrix, dual_coef: FileArray | np.ndarray) -> None:
        self._kernel, self._support, self._dual_coef = kernel, support, dual_coef
        n_values = len(support.data) if isinstance(support, CSR) else support.size
        self._kept = list(self._blocks()) if n_values <= _KEPT else None

    def sums(self, X: Matrix) -> np.ndarray:
        """The sums for rows, dense or CSR, float64, (n_rows, n_models); sparse rows may be narrower than the model."""
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            sums = np.zeros((_n_rows(X), len(self._dual_coef)))
            for block, coef in self._kept or self._blocks():
                for start, stop in _runs(X, len(coef) + block.width):
                    sums[start:stop] += block.values(self._kernel, _rows(X, start, stop)) @ coef
            return sums

    def _blocks(self) -> Iterator[tuple[_Dense | _Sparse, np.ndarray]]:
        support = self._support
        for first, last in _runs(support):
            block = _Sparse(support, first, last) if isinstance(support, CSR) else _Dense(support[first:last])
            yield block, np.ascontiguousarray(self._dual_coef[:, first:last].T)


def given_sums(X: Matrix, rows: np.ndarray, dual_coef: np.ndarray) -> np.ndarray:
    """The sums for rows of precomputed kernel values; rows : int64, ascending, the columns of the support vectors."""
    out = np.zeros((_n_rows(X), len(dual_coef)))
    for start, stop in _runs(X, len(rows)):
        block = _rows(X, start, stop)
        out[start:stop] = _columns(block, rows) @ dual_coef.T
    return out


class _Dense:
    """A block of dense support vectors; `values` gives K, float64, (n_rows, n_support)."""

    def __init__(self, S: np.ndarray) -> None:
        self._S = S.astype(np.float64)
        self._square = np.einsum("ij,ij->i", self._S, self._S)
        self.width = S.shape[1]

    def values(self, kernel: Kernel, X: Matrix) -> np.ndarray:
        dense = _columns(X, np.arange(self.width)) if isinstance(X, CSR) else X.astype(np.float64)
        x_sq = np.einsum("ij,ij->i", dense, dense)

        def distance(i: int, near: np.ndarray) -> np.ndarray:
            found = np.empty(len(near))
            for a, b in tile(len(near), max(_VALUES // max(self.width, 1), 1)):
                apart = dense[i] - self._S[near[a:b]]
                found[a:b] = np.einsum("ij,ij->i", apart, apart)
            return found

        return _values(kernel, dense @ self._S.T, x_sq, self._square, distance)


class _Sparse:
    """A block of sparse support vectors; only the features that occur in it are read from rows."""

    def __init__(self, support: CSR, first: int, last: int) -> None:
        indptr = np.asarray(support.indptr[first : last + 1])
        a, b = int(indptr[0]), int(indptr[-1])
        self._data, self._indptr = support.data[a:b].astype(np.float64), indptr - a
        self._features, self._places = np.unique(support.indices[a:b], return_inverse=True)
        self._filled = np.flatnonzero(np.diff(self._indptr))
        self._square = self._summed((self._data * self._data)[None])[0]
        self.width = len(self._features) + len(self._data)

    def values(self, kernel: Kernel, X: Matrix) -> np.ndarray:
        known = _columns(X, self._features)
        x_sq = _squares(X)

        def distance(i: int, near: np.ndarray) -> np.ndarray:
            row = _rows(X, i, i + 1)
            indices, values = (row.indices, row.data) if isinstance(row, CSR) else (np.arange(row.shape[1]), row[0])
            mine = dict(zip(indices.tolist(), values.astype(np.float64).tolist(), strict=True))
            found = np.empty(len(near))
            for k, s in enumerate(near):
                a, b = self._indptr[s], self._indptr[s + 1]
                rest = mine.copy()
                names = self._features[self._places[a:b]].tolist()
                apart = np.array([rest.pop(name, 0.0) for name in names]) - self._data[a:b]
                others = np.fromiter(rest.values(), np.float64, len(rest))
                found[k] = apart @ apart + others @ others
            return found

        products = self._summed(known[:, self._places] * self._data)
        return _values(kernel, products, x_sq, self._square, distance)

    def _summed(self, terms: np.ndarray) -> np.ndarray:
        """Sums over the entries of each support vector, (n_rows, n_support)."""
        out = np.zeros((len(terms), len(self._indptr) - 1))
        if len(self._filled):
            out[:, self._filled] = np.add.reduceat(terms, self._indptr[self._filled], axis=1)
        return out


def _values(
    kernel: Kernel,
    products: np.ndarray,
    x_sq: np.ndarray,
    s_sq: np.ndarray,
    distance: Callable[[int, np.ndarray], np.ndarray],
) -> np.ndarray:
    """K from products and squared norms.  distance(i, near) : exact squared distances of row i to these vectors"""
    if kernel.name != "rbf":
        return kernel.of_products(products, x_sq, s_sq)
    terms = kernel.gamma * (x_sq[:, None] + s_sq[None, :])
    exponents = np.maximum(terms - 2.0 * kernel.gamma * products, 0.0)
    again = (terms > _CANCELS) & ~(exponents - _SLACK * terms > _VANISHES)
    for i in np.flatnonzero(again.any(axis=1)):
        near = np.flatnonzero(again[i])
        exponents[i, near] = kernel.gamma * distance(int(i), near)
    return np.exp(-exponents)


def _n_rows(X: FileArray | Matrix) -> int:
    return len(X.indptr) - 1 if isinstance(X, CSR) else len(X)


def _rows(X: Matrix, start: int, stop: int) -> Matrix:
    if isinstance(X, CSR):
        a, b = X.indptr[start], X.indptr[stop]
        return CSR(X.data[a:b], X.indices[a:b], X.indptr[start : stop + 1] - a)
    return X[start:stop]


def _runs(X: FileArray | Matrix, a_row: int = 0) -> Iterator[tuple[int, int]]:
    """Runs of rows [start, stop) with about _VALUES values each; a_row : further values that a row takes."""
    n = _n_rows(X)
    if isinstance(X, CSR):
        a_row += -(-len(X.data) // max(n, 1))
    else:
        a_row += X.shape[1]
    yield from tile(n, max(_VALUES // max(a_row, 1), 1))


def _squares(X: Matrix) -> np.ndarray:
    """Squared norms of the rows, float64."""
    if not isinstance(X, CSR):
        wide = X.astype(np.float64)
        return np.einsum("ij,ij->i", wide, wide)
    wide, out = X.data.astype(np.float64), np.zeros(_n_rows(X))
    filled = np.flatnonzero(np.diff(X.indptr))
    if len(filled):
        out[filled] = np.add.reduceat(wide * wide, X.indptr[filled])
    return out


def _columns(X: Matrix, features: np.ndarray) -> np.ndarray:
    """The columns of these features (ascending), dense float64, (n_rows, len(features)); 0 for features beyond X."""
    if not isinstance(X, CSR):
        return X[:, features].astype(np.float64)
    out = np.zeros((_n_rows(X), len(features)))
    places = np.minimum(np.searchsorted(features, X.indices), max(len(features) - 1, 0))
    kept = features[places] == X.indices if len(features) else np.zeros(len(X.indices), bool)
    rows = np.repeat(np.arange(len(out)), np.diff(X.indptr))
    out[rows[kept], places[kept]] = X.data[kept]
    return out
