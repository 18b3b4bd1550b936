"""Partitions of dask arrays and Delayed blocks: their checks and conversion to rows, here or on their workers."""

from __future__ import annotations

import socket
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse

from bigsvm.compiled.cache.stamp import difference
from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import DataError, UsageError
from bigsvm.store.blocks import Matrix
from bigsvm.store.checks import as_values, check_finite
from bigsvm.store.frames.values import unmasked
from bigsvm.store.ingest.collections.made_rows import ChunkPlace, is_seen, make_rows
from bigsvm.store.ingest.sources.row_source import ascending_csr, stored_dtype
from bigsvm.store.labels import ONE_A_ROW, fixed_width

WHERE = "dask collection"


class ArrayParts(NamedTuple):
    """The common properties of the partitions.

    beside : for labels and for weights: the index of their collection in a partition; or whether they are given
        elsewhere
    layout, dtype, n_features : of all rows;  asked : the dtype that the user wants, None for that of the rows
    """

    beside: tuple[int | bool, ...]
    layout: Literal["csr", "dense"] = "dense"
    dtype: np.dtype = np.dtype(np.float32)
    n_features: int = 0
    asked: str | None = None

    def own(self, values: tuple[Any, ...], which: int) -> np.ndarray | None:
        """Labels (0) or weights (1) that are a part of the partition."""
        place = self.beside[which]
        return None if isinstance(place, bool) else plain(values[place])

    def split(self, values: tuple[Any, ...], number: int) -> tuple[Any, Any, Any]:
        """(X, labels, weights) of a partition; labels and weights are None if they are not a part of it."""
        X, labels, weights = values[0], self.own(values, 0), self.own(values, 1)
        if isinstance(X, tuple) and not isinstance(X, CSR):
            if len(X) not in (2, 3) or any(self.beside_given):
                raise DataError(
                    f"partition {number} is a tuple of {len(X)}",
                    WHERE,
                    "each Delayed must give X, (X, y) or (X, y, weights)",
                )
            X, labels, weights = X[0], plain(X[1]), plain(X[2]) if len(X) == 3 else None
        elif not self.beside_given[0]:
            raise UsageError(f"partition {number} has no labels", WHERE, "pass y, or return (X, y) from each Delayed")
        if hasattr(X, "tocsr"):
            X = scipy.sparse.csr_matrix(X.tocsr())
        elif hasattr(X, "iloc"):
            raise UsageError("Delayed objects must not give frames", WHERE, "use dask.dataframe.from_delayed()")
        else:
            X = unmasked(X, f"{WHERE}, partition {number}")
        if X.ndim != 2:
            raise DataError(f"X of partition {number} has shape {X.shape}", WHERE, "X must have two dimensions")
        return X, labels, weights

    def check_alike(self, X: Any, number: int) -> None:
        """Raise DataError unless a partition has the layout, width and dtype of the first."""
        if scipy.sparse.issparse(X) != (self.layout == "csr"):
            raise DataError(
                f"partition {number} is {'dense' if self.layout == 'csr' else 'sparse'}, the first is not", WHERE
            )
        if X.shape[1] != self.n_features:
            raise DataError(f"partition {number} has {X.shape[1]} columns, but the first has {self.n_features}", WHERE)
        if self.asked is None and not np.can_cast(stored_dtype(X.dtype, None, WHERE), self.dtype, "safe"):
            what = f"partition {number} has dtype {X.dtype}, but those before it {self.dtype}"
            raise DataError(what, WHERE, "use dtype='float64' (--dtype), or astype() on the collection")

    def matrix(self, X: Any, row: int) -> Matrix:
        """Convert rows to the store's dtype.  row : number of the first row.  Raises DataError naming a bad row."""
        if scipy.sparse.issparse(X):
            return ascending_csr(X.data, X.indices, X.indptr, self.n_features, self.dtype, WHERE, row)
        values = as_values(X, self.dtype, WHERE, row)
        check_finite(values, WHERE, row)
        return values

    @property
    def beside_given(self) -> tuple[bool, ...]:
        """For labels and for weights: whether they are given apart from the rows."""
        return tuple(place is not False for place in self.beside)


class Told(NamedTuple):
    """The information that a worker needs to convert a partition.

    row : number of its first row;  versions : of bigsvm and its libraries, in the calling process
    """

    place: ChunkPlace
    arrays: ArrayParts
    number: int
    row: int
    versions: dict[str, str]


class MadePart(NamedTuple):
    """The converted rows of a partition: `MadeRows`, or plain arrays if the worker does not see the store."""

    X: Any
    labels: np.ndarray
    weights: np.ndarray | None


def rows_in(values: tuple[Any, ...]) -> int:
    """Number of rows of a partition; 0 if `make_part` will raise an error."""
    X: Any = values[0]
    if isinstance(X, tuple) and not isinstance(X, CSR):
        X = next(iter(X), None)
    shape: Any = getattr(X, "shape", ())
    return int(shape[0]) if len(shape) else 0


def make_part(values: tuple[Any, ...], told: Told) -> MadePart:
    """Task: convert a partition to rows, on its worker.

    Raises DataError as reading it here would; UsageError if the worker has other versions, which might encode or hash
    rows otherwise.
    """
    if what := difference(told.versions):
        where = socket.gethostname()
        raise UsageError(f"a worker on {where} {what}", WHERE, "install the same versions there, or stop that worker")
    arrays, number, row = told.arrays, told.number, told.row
    X, labels, weights = arrays.split(values, number)
    arrays.check_alike(X, number)
    check_lengths(X.shape[0], labels, weights, number)
    matrix = np.asarray(arrays.matrix(X, row))
    labels = beside_rows(labels, 0, row)
    weights = None if weights is None else beside_rows(weights, 1, row)
    if not is_seen(told.place) or not len(matrix):
        return MadePart(matrix, labels, weights)
    return MadePart(make_rows(told.place, matrix, labels, weights, row, WHERE), labels, weights)


def check_lengths(n: int, labels: Any, weights: Any, number: int) -> None:
    """Raise DataError unless a partition has as many labels and weights as rows."""
    for what, given in (("labels", labels), ("weights", weights)):
        if given is not None and np.shape(given) != (n,):
            raise DataError(f"partition {number} has {n} rows and {what} of shape {np.shape(given)}", WHERE, ONE_A_ROW)


def beside_rows(given: Any, which: int, row: int) -> np.ndarray:
    """Labels (0) or weights (1) of the rows from `row` on as a plain array; categories of a frame as text."""
    values = unmasked(given, ("y", "sample_weight")[which], row)
    if values.dtype != object or not all(isinstance(value, str) for value in values):
        return values
    return fixed_width(values.tolist(), WHERE)


def plain(values: Any) -> np.ndarray | None:
    """Labels or weights of a partition as an array; also from pandas."""
    if values is None:
        return None
    if hasattr(values, "iloc"):
        if getattr(values, "ndim", 1) != 1:
            raise DataError(
                f"labels or weights have shape {values.shape}",
                WHERE,
                "there must be one for each row, such as a column of the frame",
            )
        missing = np.flatnonzero(values.isna().to_numpy())
        if len(missing):
            raise DataError(
                f"a label or weight is missing in row {missing[0]} of a partition", WHERE, "drop the row, or fill it in"
            )
        return values.to_numpy()
    return unmasked(values, WHERE)
