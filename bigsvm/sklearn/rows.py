"""What estimators are given: arrays of any kind that scikit-learn takes, or rows on disk."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils.validation import _check_sample_weight, validate_data

from bigsvm.compiled.shared.rows import CSR
from bigsvm.store.blocks import RowBlocks, blocks_of, row_bytes
from bigsvm.store.formats.opener import open_store
from bigsvm.store.labels import Task
from bigsvm.units import MIB

FLOATS = (np.float64, np.float32)
SMALL = (*FLOATS, np.int8, np.uint8, np.bool_)
"""Types of X that are not converted: 8 bits stay 8 bits."""


def is_source(X: Any) -> bool:
    """Whether X names rows on disk, or is an open store, and not an array."""
    return isinstance(X, str | os.PathLike) or all(hasattr(type(X), name) for name in ("refs", "read"))


def alone(X: Any, y: Any, sample_weight: Any) -> Any:
    """X.  Raises ValueError where labels or weights stand beside a store, which has its own."""
    if y is not None or sample_weight is not None:
        what = "y" if y is not None else "sample_weight"
        raise ValueError(
            f"{what} beside a store, which has its own: fit(X) alone; bigsvm.open_store(X, label=, weight=) names them"
        )
    return X


def open_source(X: Any, task: Task = "auto", labelled: bool = True) -> RowBlocks:
    """The rows that X names; an open store as it is."""
    return open_store(X, task=task, labelled=labelled)


def checked_X(estimator: Any, X: Any, y: Any = "no_validation", reset: bool = True, **options: Any) -> Any:
    """X, or (X, y) where y is given, as scikit-learn checks them: C-contiguous, or CSR with each entry once.

    options : of `sklearn.utils.validation.validate_data`
    """
    options = {"accept_sparse": "csr", "accept_large_sparse": True, "order": "C", **options}
    checked = validate_data(estimator, X, y, reset=reset, **options)
    if isinstance(y, str) and y == "no_validation":
        return _canonical(checked)
    return _canonical(checked[0]), checked[1]


def _canonical(X: Any) -> Any:
    """CSR whose rows ascend and name a column once, as scikit-learn takes them: repeated entries are summed."""
    if not scipy.sparse.issparse(X) or X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X


def row_weights(sample_weight: Any, X: Any) -> np.ndarray | None:
    """Weights of rows, float64; None for ones.  As in scikit-learn's SVMs, a row whose weight is not positive takes no
    part.  Raises ValueError where none is left."""
    if sample_weight is None:
        return None
    given = np.asarray(sample_weight)
    if given.size and given.dtype.kind in "biuf" and not np.any(given > 0):
        raise ValueError("Invalid input - all samples have zero or negative weights.")
    return np.maximum(_check_sample_weight(given, X, dtype=np.float64), 0.0)


def scale_gamma(rows: RowBlocks) -> float:
    """1 / (n_features * variance of all entries of X), scikit-learn's gamma='scale'; 1 where nothing varies.

    Reads the rows once.  Means of blocks, and sums of squares about them, are joined as by Chan, Golub and LeVeque
    (1983).  Raises ValueError where the variance is beyond float64.
    """
    n, mean, spread = 0, 0.0, 0.0
    refs = rows.refs(max(1, min(rows.n_samples, int(MIB // max(row_bytes(rows), 1)))))
    for block in blocks_of(rows, refs):
        n_new = block.n_rows * rows.n_features
        values = block.X.data if isinstance(block.X, CSR) else block.X.ravel()
        mean_new = float(values.sum(dtype=np.float64)) / n_new
        zeros = n_new - len(values)
        with np.errstate(over="ignore", invalid="ignore"):
            about = np.sum((values.astype(np.float64) - mean_new) ** 2)
        spread_new = float(about) + zeros * mean_new**2
        apart, total = mean_new - mean, n + n_new
        spread += spread_new + apart**2 * n * n_new / total
        mean += apart * n_new / total
        n = total
    if not np.isfinite(spread):
        raise ValueError(
            "gamma='scale': the variance of X is beyond float64: scale the features, or give gamma a number"
        )
    return n / (rows.n_features * spread) if spread != 0 else 1.0
