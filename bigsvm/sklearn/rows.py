"""What estimators are given: arrays of any kind that scikit-learn takes, or rows on disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.base import is_classifier
from sklearn.utils.validation import _check_sample_weight, validate_data

from bigsvm.errors import DataError
from bigsvm.sklearn.parts import check_room
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.checks import check_whole, check_whole_columns, is_frame, unmasked
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.collections.lazy import is_lazy
from bigsvm.store.labels import Task, as_targets

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


def open_source(
    X: Any, task: Task = "auto", labelled: bool = True, like: Mapping[str, Any] | None = None
) -> RowBlocks:  # fmt: skip
    """The rows that X names, made `like` those of a model; an open store as it is."""
    if not isinstance(X, str | os.PathLike):
        like = None  # it was said how when it was opened; where that is not the model's way, the model refuses it
    return open_store(X, task=task, labelled=labelled, like=like)


def checked_X(estimator: Any, X: Any, y: Any = "no_validation", reset: bool = True, **options: Any) -> Any:
    """X, or (X, y) where y is given, as scikit-learn checks them: C-contiguous, or CSR with each entry once.

    options : of `sklearn.utils.validation.validate_data`
    """
    if is_lazy(X) and hasattr(X, "compute"):  # NumPy makes nothing of sparse blocks
        check_room(estimator, X)
        X = X.compute()
    try:
        if isinstance(X, np.ma.MaskedArray):  # scikit-learn would take what lies under the mask
            unmasked(X, "X")
        if options.get("dtype") is not None:  # which are all real numbers: scikit-learn would round
            _refuse_rounded(X)
    except DataError as error:
        raise ValueError(str(error)) from error
    options = {"accept_sparse": "csr", "accept_large_sparse": True, "order": "C", **options}
    try:
        checked = validate_data(estimator, X, y, reset=reset, **options)
    except ValueError as error:
        if is_classifier(estimator) and str(error).startswith("y should be a 1d array"):
            what = "bigsvm.fit(X, Y) trains a linear model of each label, all on one reading of the rows"
            raise ValueError(
                f"{error} Of rows with several labels {what}; OneVsRestClassifier takes them, too"
            ) from None
        raise
    if isinstance(y, str) and y == "no_validation":
        return _canonical(checked)
    return _canonical(checked[0]), as_real(checked[1]) if options.get("y_numeric") else checked[1]


def as_real(y: np.ndarray) -> np.ndarray:
    """Targets, float64 where they are whole numbers.  Raises ValueError naming the row of one that float64 rounds."""
    if y.dtype.kind not in "iu":
        return y
    try:
        return as_targets(y, "y")
    except DataError as error:
        raise ValueError(str(error)) from error


def _refuse_rounded(X: Any) -> None:
    """Raise DataError naming the first row with a whole number beyond 2^53, as rows in files are refused."""
    if scipy.sparse.issparse(X):
        if X.dtype.kind in "iu":
            rows = X.tocsr()  # as scikit-learn makes it, too
            check_whole(rows.data, "X", indptr=rows.indptr)
    elif is_frame(X):
        check_whole_columns(X)
    elif isinstance(X, np.ndarray | list | tuple):
        try:
            values = np.asarray(X)
        except ValueError:  # rows of several lengths, of which scikit-learn says more
            return
        check_whole(values, "X")


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
    if given.size and given.dtype.kind in "biuf" and not np.any((given > 0) | np.isnan(given)):
        raise ValueError("Invalid input - all samples have zero or negative weights.")
    one = isinstance(sample_weight, Real)  # which weighs all rows
    return np.maximum(_check_sample_weight(sample_weight if one else given, X, dtype=np.float64), 0.0)
