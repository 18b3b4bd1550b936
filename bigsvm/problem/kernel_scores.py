"""Sums of kernel values: rows against a block of support vectors, in memory that depends on neither's number."""

from __future__ import annotations

import numpy as np

from bigsvm.kernels.rows import CSR, decision, n_rows_of, sqnorms
from bigsvm.problem.kernel import Kernel
from bigsvm.store.blocks import Matrix, kernel_matrix

LARGEST_COLUMNS = 1 << 20
"""Bytes of support vectors as dense columns; where they would take more, only features that occur have a row."""

_TABLE = 1 << 18  # features up to which a table of them all is quicker than a search


def kernel_scores(X: Matrix, support: Matrix, coef: np.ndarray, kernel: Kernel) -> np.ndarray:
    """sum_s coef[m, s] K(x_i, support_s), float64, (n_rows, n_models); not for precomputed.

    X : dense or CSR rows, as wide as the support vectors or narrower
    support : dense or CSR, (n_support, n_features)
    coef : float64, (n_models, n_support)

    Every sum runs over features, then over support vectors, in ascending order: a row's scores have the same bits
    whatever rows are beside it.
    """
    n_rows, n_support = n_rows_of(X), n_rows_of(support)
    X, support = kernel_matrix(X), kernel_matrix(support)
    x_sq, support_sq = np.empty(n_rows), np.empty(n_support)
    sqnorms(X, x_sq)
    sqnorms(support, support_sq)
    columns, X = _columns_of(support, X) if isinstance(support, CSR) else _dense_columns(support, X)
    products = np.empty((n_rows, n_support))
    decision(X, columns, products)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is infinite, as a linear score would be
        K = kernel.of_products(products, x_sq, support_sq)
        sums = np.empty((n_rows, len(coef)))
        decision(K, np.ascontiguousarray(coef.T), sums)
    return sums


def _dense_columns(support: np.ndarray, X: Matrix) -> tuple[np.ndarray, Matrix]:
    """(support vectors as float64 columns (width, n_support), X with that width)."""
    columns = np.ascontiguousarray(support.T, np.float64)
    return (columns if isinstance(X, CSR) else columns[: X.shape[1]]), X


def _columns_of(support: CSR, X: Matrix) -> tuple[np.ndarray, Matrix]:
    """The same of sparse support vectors.

    Where features are many, the width is that of the features that occur among them, and X loses the others.
    """
    n_support = n_rows_of(support)
    rows, places, values = np.repeat(np.arange(n_support), np.diff(support.indptr)), support.indices, support.data
    if isinstance(X, CSR):
        width = 1 + max(int(places.max(initial=-1)), int(X.indices.max(initial=-1)))
    else:
        width = X.shape[1]
        inside = places < width
        rows, places, values = rows[inside], places[inside], values[inside]
    if 8 * width * n_support > LARGEST_COLUMNS:
        features = np.flatnonzero(np.bincount(places)) if width <= _TABLE else np.unique(places)
        X, places, width = with_features(X, features), np.searchsorted(features, places), len(features)
    columns = np.zeros((width, n_support))
    columns[places, rows] = values
    return columns, X


def with_features(X: Matrix, features: np.ndarray) -> Matrix:
    """X with these features alone (int64, ascending), numbered from 0."""
    if not isinstance(X, CSR):
        return kernel_matrix(np.ascontiguousarray(X[:, features]))
    width = 1 + int(X.indices.max(initial=-1))
    if width <= _TABLE:
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
    return kernel_matrix(CSR(X.data[kept], places[kept].astype(X.indices.dtype), ends[X.indptr]))
