"""Products of rows with the weights of linear models in NumPy alone, to the bits of compiled code."""

from __future__ import annotations

import numpy as np

from bigsvm.csr import CSR
from bigsvm.store.blocks import Matrix


def plain_products(X: Matrix, W: np.ndarray) -> np.ndarray:
    """X W in float64, shape (n_rows, n_models), each sum taken from the first feature to the last.

    Holds a product for each entry and model: callers give it a few rows at a time.
    """
    return _sparse(X, W) if isinstance(X, CSR) else _dense(X, W)


def _dense(X: np.ndarray, W: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):  # as compiled code, which says nothing of inf and nan
        return _sums(X.astype(np.float64)[:, :, None] * W[None])


def _sparse(X: CSR, W: np.ndarray) -> np.ndarray:
    out = np.empty((len(X.indptr) - 1, W.shape[1]))
    for i, (start, stop) in enumerate(zip(X.indptr[:-1], X.indptr[1:], strict=True)):
        with np.errstate(all="ignore"):
            terms = X.data[start:stop].astype(np.float64)[:, None] * W[X.indices[start:stop]]
            out[i] = _sums(terms[None])[0]
    return out


def _sums(terms: np.ndarray) -> np.ndarray:
    """Sums over axis 1, each term added to the sum of all before it: `np.sum` adds in pairs, to other bits."""
    if terms.shape[1] == 0:
        return np.zeros((terms.shape[0], terms.shape[2]))
    return np.add.accumulate(terms, axis=1)[:, -1] + 0.0  # a sum that begins with 0.0 is never -0.0
