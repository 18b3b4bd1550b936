"""Mean and standard deviation of every column, in one pass over the rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from bigsvm.csr import CSR
from bigsvm.errors import DataError
from bigsvm.store.blocks import Matrix

_DENSE_BYTES = 1 << 21  # bytes of float64 that are summed together


class Moments(NamedTuple):
    """mean, std : float64, (n_features,)   std is 1 for a constant column"""

    mean: np.ndarray
    std: np.ndarray


def dense_rows(n_features: int) -> int:
    """Rows in a block of dense rows; depends only on the width, because the last digits of sums depend on it."""
    return max(1, min(65536, _DENSE_BYTES // (8 * max(n_features, 1))))


def column_moments(blocks: Iterable[Matrix], n_features: int, where: str) -> Moments:
    """Moments of the columns over all rows, unweighted; the standard deviation divides by n (ddof = 0).

    The first stored value of each column is subtracted before summation, so that no digits cancel if the column is far
    from 0. Entries of sparse rows are added one by one, so the result does not depend on how the rows are cut into
    blocks.

    Raises DataError naming a column whose squares overflow float64.
    """
    n, count = 0, np.zeros(n_features, np.int64)
    first, total, squares = (np.zeros(n_features) for _ in range(3))
    for X in blocks:
        n += len(X.indptr) - 1 if isinstance(X, CSR) else len(X)
        with np.errstate(over="ignore", invalid="ignore"):  # reported below, with the column
            if isinstance(X, CSR):
                _add_sparse(X, count, first, total, squares)
            else:
                _add_dense(X, count, first, total, squares)
    with np.errstate(over="ignore", invalid="ignore"):
        some = np.maximum(count, 1)
        apart = total / some
        mean = first + apart
        spread = np.maximum(squares - total * apart, 0.0)  # squared deviations of the stored values from their mean
        # Rows that store nothing in a column are zeros.
        spread += mean * mean * count * ((n - count) / max(n, 1))
        variance = spread / max(n, 1)
        mean = mean * (count / max(n, 1))
    bad = ~(np.isfinite(variance) & np.isfinite(mean))
    if bad.any():
        raise DataError(
            f"the variance of feature {int(np.argmax(bad))} (from 0) overflows float64",
            where,
            "divide the column by a large number",
        )
    # As in scikit-learn: a variance that may be due to rounding alone counts as 0.
    eps = np.finfo(np.float64).eps
    varies = variance > n * eps * variance + (n * mean * eps) ** 2
    return Moments(mean, np.sqrt(np.where(varies, variance, 1.0)))


def _add_sparse(X: CSR, count: np.ndarray, first: np.ndarray, total: np.ndarray, squares: np.ndarray) -> None:
    values, columns = X.data.astype(np.float64, copy=False), X.indices
    fresh = np.flatnonzero(count.take(columns) == 0)
    if len(fresh):
        names, places = np.unique(columns[fresh], return_index=True)
        first[names] = values[fresh[places]]
    np.add.at(count, columns, 1)
    away = values - first.take(columns)
    np.add.at(total, columns, away)
    np.add.at(squares, columns, away * away)


def _add_dense(X: np.ndarray, count: np.ndarray, first: np.ndarray, total: np.ndarray, squares: np.ndarray) -> None:
    if len(X) and count[0] == 0:
        first[:] = X[0]
    away = np.subtract(X, first)
    count += len(X)
    total += away.sum(axis=0)
    away *= away
    squares += away.sum(axis=0)
