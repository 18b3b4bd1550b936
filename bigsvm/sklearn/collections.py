"""Fits of dask arrays and frames: their rows are written to the scratch folder for the duration of a fit."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse

from bigsvm.compiled.shared.rows import CSR
from bigsvm.run.start.lazy_rows import rows_on_disk
from bigsvm.sklearn.estimator import errors_of_scikit_learn, level_of_the_user, take_width
from bigsvm.sklearn.rows import open_source
from bigsvm.store.blocks import RowBlocks, row_bytes
from bigsvm.store.frames.columns import told_of_weights
from bigsvm.store.ingest.collections.lazy import is_lazy
from bigsvm.units import MIB


def is_large(X: Any, y: Any) -> bool:
    """Whether X is a dask array or dataframe, and y its labels."""
    if y is None or len(getattr(y, "shape", (1,))) != 1 or not is_lazy(X):
        return False
    return hasattr(X, "compute") and len(getattr(X, "shape", ())) == 2


@contextmanager
def on_disk(estimator: Any, X: Any, y: Any, sample_weight: Any, regression: bool) -> Iterator[RowBlocks]:
    """Write the rows to disk, within `memory=` of the estimator, and open them as a store; deleted at the end.

    sample_weight : rows whose weight is not positive are left out, as for arrays

    Raises ValueError, as the estimators do, if the rows cannot be fitted.
    """
    weights = None if sample_weight is None else np.maximum(np.asarray(sample_weight, np.float64), 0.0)
    opened: dict[str, Any] = {"y": y, "sample_weight": weights}
    names = _columns_of(X)
    for text in told_of_weights(names, in_memory=True):
        warnings.warn(text, UserWarning, stacklevel=level_of_the_user())
    if names:
        opened["columns"] = tuple(map(str, names))  # so that a column called weight is a feature
    given = {"memory": estimator.memory, "threads": estimator.threads}
    options = {name: value for name, value in given.items() if value is not None}
    with errors_of_scikit_learn(), rows_on_disk(X, options, opened, regression) as (path, _):
        yield open_source(path, "regression" if regression else "classification")


def take_names(estimator: Any, rows: RowBlocks, X: Any) -> None:
    """Set the attributes that scikit-learn's `validate_data` sets.  X : the array or frame that was written to disk"""
    take_width(estimator, rows)
    names = _columns_of(X)
    if names and all(isinstance(name, str) for name in names):
        estimator.feature_names_in_ = np.asarray(names, dtype=object)


def _columns_of(X: Any) -> list[Any]:
    """The names of the columns of a frame; empty for an array.

    Raises ValueError naming a column that is not numeric, as scikit-learn's estimators do.
    """
    if not hasattr(X, "columns"):
        return []
    for name, kind in X.dtypes.items():
        if getattr(kind, "kind", "O") not in "biuf":
            what = f"column {name!r} of type {kind} is not numeric"
            raise ValueError(f"{what}: drop it, or ingest the frame, which makes features of text: bigsvm.ingest")
    return list(X.columns)


def rows_at(rows: RowBlocks, numbers: np.ndarray) -> Any:
    """Rows of a store by their numbers, in that order: dense, or SciPy CSR."""
    order = np.argsort(numbers)
    wanted, parts = numbers[order], []
    for ref in rows.refs(max(int(MIB / row_bytes(rows)), 1)):
        a, b = np.searchsorted(wanted, [ref.start, ref.stop])
        if a < b:
            X = rows.read(ref).X
            whole = scipy.sparse.csr_matrix(tuple(X), (ref.n_rows, rows.n_features)) if isinstance(X, CSR) else X
            parts.append(whole[wanted[a:b] - ref.start])
    back = np.argsort(order)
    if rows.layout == "csr":
        return scipy.sparse.vstack(parts, format="csr")[back]
    return np.concatenate([np.asarray(part) for part in parts])[back]
