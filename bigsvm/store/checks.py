"""What every block of rows must be before anybody computes with it."""

from __future__ import annotations

import numpy as np

from bigsvm.errors import DataError
from bigsvm.kernels.rows import CSR

_INT32_LIMIT = 2**31


def index_dtype(n_features: int) -> np.dtype:
    """int32 where it reaches: a function of the width alone, so that plans do not depend on the storage."""
    return np.dtype(np.int32 if n_features <= _INT32_LIMIT else np.int64)


VALUE_DTYPES = tuple(np.dtype(name) for name in ("float32", "float64", "int8", "uint8"))
"""Types of X in a block.  Eight bits are kept: a quarter of float32 on disk and in memory."""


def value_dtype(stored: np.dtype, where: str) -> np.dtype:
    """The dtype in which X is given: float64 and 8-bit integers stay (bool is uint8), the rest becomes float32."""
    if stored.kind not in "biuf" or stored.itemsize > 8:
        raise DataError(f"values of type {stored} cannot be used", where, "store numbers, best float32")
    if stored.kind == "b":
        return np.dtype(np.uint8)
    return stored if stored in VALUE_DTYPES else np.dtype(np.float32)


def as_values(
    values: np.ndarray, dtype: np.dtype, where: str, first_row: int, indptr: np.ndarray | None = None
) -> np.ndarray:
    """`values` (as in `check_finite`) as C-contiguous `dtype`; what float32 cannot hold becomes infinite.

    Raises DataError naming the first row with a value that 8 bits cannot hold: it would come out as another.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        out = np.ascontiguousarray(values, dtype)
    if dtype.itemsize > 1 or np.can_cast(values.dtype, dtype):
        return out
    places = np.flatnonzero((out != values).reshape(-1))
    if len(places):
        row = first_row + _row_of(int(places[0]), values, indptr)
        value = values.reshape(-1)[places[0]]
        raise DataError(f"row {row} holds {value}, which {dtype} cannot hold", where, "use float32")
    return out


def check_finite(values: np.ndarray, where: str, first_row: int, indptr: np.ndarray | None = None) -> None:
    """Raise DataError naming the row and column of the first NaN or infinity.

    values : dense (n_rows, n_features), or the data of CSR rows with their `indptr` (from 0)
    """
    # The extremes carry NaN and infinities along, and are vectorised; the search runs on failure only.
    if values.dtype.kind != "f" or values.size == 0 or (np.isfinite(values.min()) and np.isfinite(values.max())):
        return
    place = int(np.flatnonzero(~np.isfinite(values.reshape(-1)))[0])
    bad = values.reshape(-1)[place]
    row = first_row + _row_of(place, values, indptr)
    raise DataError(f"row {row} holds {bad}", where, "values must be finite: repair or drop the row")


def _row_of(place: int, values: np.ndarray, indptr: np.ndarray | None) -> int:
    """The row of a flat position in dense or CSR values."""
    return place // values.shape[1] if indptr is None else int(np.searchsorted(indptr, place, "right")) - 1


def check_csr(X: CSR, n_features: int, where: str, first_row: int) -> None:
    """Raise DataError unless `X` is consistent: indptr from 0 and ascending, indices in range, finite."""
    indptr = X.indptr
    if indptr[0] != 0 or indptr[-1] != len(X.indices) or len(X.indices) != len(X.data):
        raise DataError(f"indptr does not fit the values of rows from {first_row}", where)
    if np.any(indptr[1:] < indptr[:-1]):
        row = int(np.flatnonzero(indptr[1:] < indptr[:-1])[0])
        raise DataError(f"indptr falls at row {first_row + row}", where)
    if len(X.indices) and not (X.indices.min() >= 0 and X.indices.max() < n_features):
        place = int(np.flatnonzero((X.indices < 0) | (X.indices >= n_features))[0])
        row = first_row + int(np.searchsorted(indptr, place, "right")) - 1
        raise DataError(f"row {row} has index {X.indices[place]}, beyond the {n_features} features", where)
    check_finite(X.data, where, first_row, indptr)
