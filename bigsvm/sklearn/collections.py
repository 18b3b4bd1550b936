"""Dask arrays given to the linear estimators: their rows lie in the scratch folder for as long as a fit reads them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bigsvm.run.start.lazy_rows import rows_on_disk
from bigsvm.sklearn.estimator import errors_of_scikit_learn
from bigsvm.sklearn.rows import open_source
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.ingest.collections.lazy import is_lazy


def is_large(X: Any, y: Any) -> bool:
    """Whether X is a dask array with labels beside it; frames, which bring names of columns, are read into memory."""
    if y is None or len(getattr(y, "shape", (1,))) != 1 or not is_lazy(X):
        return False
    return hasattr(X, "compute") and len(getattr(X, "shape", ())) == 2 and not hasattr(X, "columns")


@contextmanager
def on_disk(estimator: Any, X: Any, y: Any, sample_weight: Any, regression: bool) -> Iterator[RowBlocks]:
    """The rows as an open store, within `memory=` of the estimator, and gone when the block ends.

    sample_weight : rows whose weight is not positive take no part, as of arrays

    Raises ValueError for what cannot be fitted, as the estimators do.
    """
    given = {"memory": estimator.memory, "threads": estimator.threads}
    weights = None if sample_weight is None else np.maximum(np.asarray(sample_weight, np.float64), 0.0)
    opened = {"y": y, "sample_weight": weights}
    options = {name: value for name, value in given.items() if value is not None}
    with errors_of_scikit_learn(), rows_on_disk(X, options, opened, regression) as (path, _):
        yield open_source(path, "regression" if regression else "classification")
