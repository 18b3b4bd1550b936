"""Products of rows with the weights of linear models in NumPy, with the same bits as the compiled code."""

from __future__ import annotations

import numpy as np

from bigsvm.csr import CSR
from bigsvm.store.blocks import Matrix


def plain_products(X: Matrix, W: np.ndarray) -> np.ndarray:
    """X W in float64, shape (n_rows, n_models); each sum is taken from the first feature to the last.

    It holds a product for each entry and model at once, so callers pass a few rows at a time.
    """
    return _sparse(X, W) if isinstance(X, CSR) else _dense(X, W)


def _dense(X: np.ndarray, W: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):  # like compiled code, which does not warn of inf and nan
        return _sums(X.astype(np.float64)[:, :, None] * W[None])


def _sparse(X: CSR, W: np.ndarray) -> np.ndarray:
    out = np.empty((len(X.indptr) - 1, W.shape[1]))
    for i, (start, stop) in enumerate(zip(X.indptr[:-1], X.indptr[1:], strict=True)):
        with np.errstate(all="ignore"):
            terms = X.data[start:stop].astype(np.float64)[:, None] * W[X.indices[start:stop]]
            out[i] = _sums(terms[None])[0]
    return out


def _sums(terms: np.ndarray) -> np.ndarray:
    """Sums over axis 1, strictly from left to right.  (`np.sum` adds pairwise, which gives other bits.)"""
    if terms.shape[1] == 0:
        return np.zeros((terms.shape[0], terms.shape[2]))
    return np.add.accumulate(terms, axis=1)[:, -1] + 0.0  # a compiled sum starts at 0.0, so it is never -0.0
