"""The rows that estimators accept: arrays of any kind that scikit-learn takes, or rows on disk."""

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
from bigsvm.python_api.told import for_python
from bigsvm.sklearn.parts import check_room
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.checks import check_indptr, check_whole
from bigsvm.store.formats.opener import open_store
from bigsvm.store.frames.columns import check_whole_columns, check_whole_labels, is_arrow, is_frame
from bigsvm.store.frames.values import changed_in_text, named_numbers, refuse_times, refuse_unread, unmasked
from bigsvm.store.ingest.collections.lazy import is_lazy
from bigsvm.store.labels import Task, as_targets

FLOATS = (np.float64, np.float32)
SMALL = (*FLOATS, np.int8, np.uint8, np.bool_)
"""Types of X that are not converted: 8 bits stay 8 bits."""


def is_source(X: Any) -> bool:
    """Whether X names rows on disk, or is an open store, and not an array."""
    return isinstance(X, str | os.PathLike) or all(hasattr(type(X), name) for name in ("refs", "read"))


def alone(X: Any, y: Any, sample_weight: Any) -> Any:
    """X, which is a store.  Raises ValueError if labels or weights are given too: a store has its own."""
    if y is not None or sample_weight is not None:
        what = "y" if y is not None else "sample_weight"
        raise ValueError(
            f"{what} beside a store, which has its own: call fit(X), or name the store's columns with "
            "bigsvm.open_store(X, label=, weight=)"
        )
    return X


def open_source(
    X: Any, task: Task = "auto", labelled: bool = True, like: Mapping[str, Any] | None = None
) -> RowBlocks:  # fmt: skip
    """Open the rows that X names.  An open store is returned as it is.

    like : the recipe of a model's rows (scaling, encoding), which is applied to these rows too
    """
    if not isinstance(X, str | os.PathLike):
        like = None  # an open store has its own recipe; if it is not that of the model, the model refuses the rows
    return open_store(X, task=task, labelled=labelled, like=like)


def checked_X(estimator: Any, X: Any, y: Any = "no_validation", reset: bool = True, **options: Any) -> Any:
    """X, or (X, y) where y is given, as scikit-learn checks them: C-contiguous, or CSR with each entry once.

    options : of `sklearn.utils.validation.validate_data`
    """
    if is_lazy(X) and hasattr(X, "compute"):  # np.asarray could not convert sparse blocks
        check_room(estimator, X)
        X = X.compute()
    refuse_hidden(X=X, y=y)
    try:
        refuse_unread(X)
        if scipy.sparse.issparse(X) and X.format in ("csr", "csc"):
            check_indptr(X.indptr, len(X.indices), len(X.data), "X")
        check_whole_labels(y)
        if options.get("dtype") is not None:  # which are all real numbers: scikit-learn would round
            if is_arrow(X):
                X = named_numbers(X)
            else:
                refuse_times(X)
            _refuse_rounded(X)
    except DataError as error:
        raise for_python(error, estimators=True) from error.__cause__
    options = {"accept_sparse": "csr", "accept_large_sparse": True, "order": "C", **options}
    try:
        checked = validate_data(estimator, X, y, reset=reset, **options)
    except ValueError as error:
        if is_classifier(estimator) and str(error).startswith("y should be a 1d array"):
            what = "bigsvm.fit(X, Y) trains a linear model for each label, all on the same reading of the rows"
            raise ValueError(f"{error} For rows with several labels {what}; so does OneVsRestClassifier") from None
        raise
    if isinstance(y, str) and y == "no_validation":
        return _canonical(checked)
    return _canonical(checked[0]), as_real(checked[1]) if options.get("y_numeric") else checked[1]


def refuse_hidden(**given: Any) -> None:
    """Raise ValueError naming the argument and the row of a value that NumPy or scikit-learn would hide.

    They use a masked value as it is, and make text of all that stands in a list of text, such as NaN.
    """
    try:
        for name, values in given.items():
            if isinstance(values, np.ma.MaskedArray):
                unmasked(values, name)
            elif (place := changed_in_text(values)) is not None:
                what = f"{name}: place {place} of a list of text holds {repr(values[place])[:80]}, which NumPy changes"
                hint = "fill in what is missing, and convert all of them to text, or all to numbers"
                raise ValueError(f"{what} ({hint})")
    except DataError as error:
        raise ValueError(str(error)) from error


def as_real(y: np.ndarray) -> np.ndarray:
    """Targets, float64 where they are whole numbers.

    Raises ValueError naming the row of one that float64 rounds, or of a time, which NumPy would take for a number.
    """
    if y.dtype.kind not in "iumM":
        return y
    try:
        return as_targets(y, "y")
    except DataError as error:
        raise for_python(error, estimators=True) from error.__cause__


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
        if values.ndim == 2:  # of other shapes scikit-learn says more
            check_whole(values, "X")


def _canonical(X: Any) -> Any:
    """CSR with sorted rows and no repeated entries: these are summed, as scikit-learn's solvers do."""
    if not scipy.sparse.issparse(X) or X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X


def row_weights(sample_weight: Any, X: Any) -> np.ndarray | None:
    """The weights of rows, float64; None if all are 1.

    As in scikit-learn's SVMs, rows whose weight is not positive are left out: they get weight 0.  Raises ValueError if
    no row is left.
    """
    if sample_weight is None:
        return None
    given = np.asarray(sample_weight)
    if given.size and given.dtype.kind in "biuf" and not np.any((given > 0) | np.isnan(given)):
        raise ValueError("Invalid input - all samples have zero or negative weights.")
    one = isinstance(sample_weight, Real)  # the weight of all rows
    return np.maximum(_check_sample_weight(sample_weight if one else given, X, dtype=np.float64), 0.0)
