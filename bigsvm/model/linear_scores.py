"""Products of rows with the weights of linear models: compiled, or in NumPy for a few rows.

For a few rows it takes longer to load numba's code than to compute their scores, and a thousand times as long to
compile it.  Both ways add the same products in the same order, so a score has the same bits.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.rows import CSR, decision, n_rows_of
from bigsvm.model.plain_products import plain_products
from bigsvm.store.blocks import Matrix, readonly_view

COMPILED_FROM = 1 << 16
"""Number of products from which compiled code is used; NumPy takes a few milliseconds and half a MiB for fewer."""


def products(X: Matrix, W: np.ndarray) -> np.ndarray:
    """X W in float64, shape (n_rows, n_models); each sum is taken from the first feature to the last.

    X : rows that have no feature beyond W's
    W : float64, shape (n_features, n_models), C-contiguous
    """
    n_rows, n_models = n_rows_of(X), W.shape[1]
    if n_products(X, n_models) < COMPILED_FROM:
        return plain_products(X, W)
    out = np.empty((n_rows, n_models))
    decision(readonly_view(X), W, out)
    return out


def n_products(X: Matrix, n_models: int) -> int:
    """Number of products of entries and weights; an empty row counts as one entry."""
    entries = int(X.indptr[-1] - X.indptr[0]) if isinstance(X, CSR) else X.size
    return max(entries, n_rows_of(X)) * n_models
