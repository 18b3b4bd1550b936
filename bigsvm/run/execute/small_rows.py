"""A few rows of the kind that a store has: what compiled code is compiled with, before any of the store is read."""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.rows import CSR
from bigsvm.store.blocks import Matrix, RowBlocks
from bigsvm.store.formats.array_rows import ArrayRows

_LARGEST = 5  # values are below: few enough for the products of whole rows in 8 bits, which a precomputed kernel has


def kind_of(store: RowBlocks) -> tuple[str | bool, ...]:
    """What decides the types of a store's blocks."""
    return store.layout, store.dtype.name, store.index_dtype.name, store.has_weights


def small_rows(store: RowBlocks, n: int, width: int, n_classes: int, square: bool = False) -> ArrayRows:
    """Noisy rows of the store's kind.  The first feature tells most labels or targets, not all: a model of these rows
    has some beyond its margin, some on it and some that violate it.

    n_classes : 0 for targets
    square : the values of a linear kernel between the rows, instead of the rows
    """
    rng = np.random.default_rng(0)
    values = rng.integers(0, _LARGEST, (n, width)).astype(np.float64)
    if not square and store.dtype.kind == "f":
        values = rng.standard_normal((n, width))
    score = values[:, 0] + 0.5 * rng.standard_normal(n)
    y = np.argsort(np.argsort(score)) * n_classes // n if n_classes else score
    return rows_like(store, values @ values.T if square else values, y, n_classes)


def rows_like(
    store: RowBlocks, values: np.ndarray, y: np.ndarray, n_classes: int, last_feature: int | None = None
) -> ArrayRows:
    """Dense `values` (n_rows, n_features), with class codes or targets y, in the store's layout and types.

    last_feature : of sparse rows the number of the last column, with none between
    """
    n, n_features = values.shape
    dense = np.ascontiguousarray(values.astype(store.dtype))
    X: Matrix = dense
    if store.layout == "csr":
        columns = np.arange(n_features, dtype=store.index_dtype)
        if last_feature is not None:
            columns[-1], n_features = last_feature, last_feature + 1
        X = CSR(dense.ravel(), np.tile(columns, n), np.arange(n + 1) * len(columns))
    return ArrayRows(
        X,
        y,
        np.ones(n) if store.has_weights else None,
        classes=np.arange(n_classes) if n_classes else None,
        n_features=n_features,
        task="classification" if n_classes else "regression",
        indices=store.index_dtype,
    )
