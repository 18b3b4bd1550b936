"""The rows of what is in memory, for `ingest`: arrays, frames, sparse matrices."""

from __future__ import annotations

import dataclasses
from typing import Any

import scipy.sparse

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError, UsageError
from bigsvm.store.frames.columns import names_of_columns, told_of_weights
from bigsvm.store.frames.values import plain_rows, unmasked
from bigsvm.store.ingest.collections.lazy import is_lazy
from bigsvm.store.ingest.sources.row_source import RowSource, array_source, csr_source
from bigsvm.store.ingest.sources.sequential import InMemory, Sequential
from bigsvm.store.labels import as_labels, check_weights


def memory_source(X: Any, y: Any, weights: Any, dtype: str | None) -> RowSource:
    """The rows of arrays, of frames, whose columns have names, of SciPy's sparse matrices, or of CSR tuples."""
    if y is None:
        raise UsageError("arrays need labels", hint="call ingest((X, y), path)")
    labels = sequential_of(y, "y")
    kept = None if weights is None else sequential_of(weights, "sample_weight")
    if scipy.sparse.issparse(X):
        S = X.tocsr()
        parts = (InMemory(S.data, "X"), InMemory(S.indices, "X"), InMemory(S.indptr, "X"))
        return csr_source(parts, S.shape[1], labels, kept, dtype)
    if isinstance(X, CSR):
        parts = (InMemory(X.data, "X"), InMemory(X.indices, "X"), InMemory(X.indptr, "X"))
        return csr_source(parts, None, labels, kept, dtype)
    rows = array_source(sequential_of(X, "X"), labels, kept, dtype)
    told = told_of_weights(names_of_columns(X), in_memory=True)
    return dataclasses.replace(rows, feature_names=names_of_columns(X), warnings=told)


def sequential_of(array: Any, where: str) -> Sequential:
    """An array of the caller.  Raises DataError for Python objects that are no labels."""
    if is_lazy(array) and not isinstance(array, list):  # labels beside a matrix in memory are small
        array = array.compute() if hasattr(array, "compute") else array
    known = plain_rows(array, where) if where == "X" else unmasked(array, where)
    if known.dtype == object and where == "y" and known.ndim == 1:
        known = as_labels(known, where)
    elif known.dtype.kind in "OSU" and where == "sample_weight" and known.ndim == 1:
        known = check_weights(known, where)
    elif known.dtype == object:
        raise DataError("the array holds Python objects", where, "use numbers, or strings as labels")
    return InMemory(known, where)
