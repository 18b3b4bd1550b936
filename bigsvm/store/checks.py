"""Checks and conversions of rows before anything is computed with them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from bigsvm.csr import CSR
from bigsvm.errors import DataError

P = ParamSpec("P")
T = TypeVar("T")

_ROW = re.compile(r"(?<![\w'])row ([0-9]+)(?!\w)")
_INT32_LIMIT = 2**31


def naming_lines(work: Callable[P, T]) -> Callable[P, T]:
    """A function on an open store (or a method of one) whose errors of rows name the file of the row and its line.

    Where a store reads several files as one sequence, the number of a row says neither.
    """

    @functools.wraps(work)
    def named(*args: P.args, **options: P.kwargs) -> T:
        try:
            return work(*args, **options)
        except DataError as error:
            store: Any = next((one for one in (*args, *options.values()) if hasattr(one, "line_of")), None)
            if store is None or store.line_of is None:
                raise
            raise at_its_line(error, store.uri, store.line_of) from error.__cause__

    return named


def at_its_line(error: DataError, uri: str, line_of: Callable[[int], tuple[str, int]]) -> DataError:
    """The error with the file and the line of the row that it is about; as it is, if that is not known.

    uri : the name by which it says where
    """
    found = _ROW.search(error.what)
    if found is None or not (error.where == uri or error.where.startswith(f"{uri}, column ")):
        return error
    path, line = line_of(int(found[1]))
    what = f"{error.what[: found.end()]} of all files{error.what[found.end() :]}"
    return type(error)(what, f"{path}, line {line}{error.where[len(uri) :]}", error.hint)


def index_dtype(n_features: int) -> np.dtype:
    """int32 if that is enough, else int64: a function of the width alone, so that plans do not depend on storage."""
    return np.dtype(np.int32 if n_features <= _INT32_LIMIT else np.int64)


LARGEST_WHOLE = 2**53
"""Up to here float64 holds every whole number."""
_PIECE = 1 << 20
"""Entries checked at a time, so that the memory of a check does not grow with the data."""

VALUE_DTYPES = tuple(np.dtype(name) for name in ("float32", "float64", "int8", "uint8"))
"""Types of X in a block.  8-bit types stay as they are, which takes a quarter of float32 on disk and in memory."""


def value_dtype(stored: np.dtype, where: str) -> np.dtype:
    """The dtype of X in blocks for a stored dtype.

    float32, float64 and 8-bit integers stay; bool becomes uint8; 16-bit numbers become float32; integers of 32 and 64
    bits become float64, because float32 would round those beyond 2^24.  Raises DataError for other types.
    """
    if stored.kind not in "biuf" or stored.itemsize > 8:
        raise DataError(f"values of type {stored} cannot be used", where, "store numbers, best float32")
    if stored.kind == "b":
        return np.dtype(np.uint8)
    if stored.kind in "iu" and stored.itemsize > 2:
        return np.dtype(np.float64)
    plain = stored.newbyteorder("=")
    return plain if plain in VALUE_DTYPES else np.dtype(np.float32)


def as_values(
    values: np.ndarray, dtype: np.dtype, where: str, first_row: int, indptr: np.ndarray | None = None
) -> np.ndarray:
    """`values` (as in `check_finite`) as C-contiguous `dtype`; values too large for float32 become infinite.

    Raises DataError naming the first row whose value would change: one that 8 bits cannot hold, or a whole number
    beyond 2^53 as float64.
    """
    if values.dtype == dtype:  # the usual case for tables of many columns
        return np.ascontiguousarray(values)
    if dtype == np.float64:
        check_whole(values, where, first_row, indptr)
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


def check_whole(values: np.ndarray, where: str, first_row: int = 0, indptr: np.ndarray | None = None) -> None:
    """Raise DataError naming the first row with a whole number beyond 2^53; values as in `check_finite`."""
    if values.dtype.kind not in "iu" or values.itemsize < 8 or values.size == 0:
        return
    if are_kept(values):
        return
    flat = values.reshape(-1)
    place = int(np.flatnonzero((flat > LARGEST_WHOLE) | (flat < -LARGEST_WHOLE))[0])
    row = first_row + _row_of(place, values, indptr)
    raise DataError(f"row {row} holds {flat[place]}, beyond 2^53, where float64 rounds", where, "scale the column")


def are_kept(values: np.ndarray) -> bool:
    """Whether float64 holds all of these whole numbers."""
    return values.size == 0 or bool(values.max() <= LARGEST_WHOLE and values.min() >= -LARGEST_WHOLE)


def check_finite(X: np.ndarray | CSR, where: str, first_row: int, names: Sequence[str] | None = None) -> None:
    """Raise DataError naming the row and column of the first NaN or infinity.

    X : dense (n_rows, n_features), a column (n_rows,), or CSR rows whose indptr begins at 0
    names : of the columns; without names the message has the number of the column, counted from 0
    """
    values, indptr = (X.data, X.indptr) if isinstance(X, CSR) else (X, None)
    # min and max are NaN or infinite if any value is, and are vectorised; the search runs only after a failure.
    if values.dtype.kind != "f" or values.size == 0 or (np.isfinite(values.min()) and np.isfinite(values.max())):
        return
    place = int(np.flatnonzero(~np.isfinite(values.reshape(-1)))[0])
    told = f"row {first_row + _row_of(place, values, indptr)} holds {values.reshape(-1)[place]}"
    if isinstance(X, CSR) or X.ndim > 1:
        column = int(X.indices[place]) if isinstance(X, CSR) else place % X.shape[1]
        told += f" in column {column if names is None else repr(names[column])}"
    raise DataError(told, where, "values must be finite: repair or drop the row")


def _row_of(place: int, values: np.ndarray, indptr: np.ndarray | None) -> int:
    """The row of a position in flattened dense values, or in the values of CSR."""
    if indptr is not None:
        return int(np.searchsorted(indptr, place, "right")) - 1
    return place if values.ndim == 1 else place // values.shape[1]


def check_csr(X: CSR, n_features: int, where: str, first_row: int) -> None:
    """Raise DataError unless indptr starts at 0 and ascends, indices are in range, no row has a column twice, and all
    values are finite.

    A repeated column would be ambiguous: products would add its entries, but squared norms would add their squares, and
    a kernel computed from both would not be positive semidefinite.
    """
    indptr = X.indptr
    check_indptr(indptr, len(X.indices), len(X.data), where, first_row)
    if len(X.indices) and not (X.indices.min() >= 0 and X.indices.max() < n_features):
        place = int(np.flatnonzero((X.indices < 0) | (X.indices >= n_features))[0])
        row = first_row + int(np.searchsorted(indptr, place, "right")) - 1
        index = X.indices[place]
        what = "which is negative" if index < 0 else f"beyond the {n_features} features"
        raise DataError(f"row {row} has index {index}, {what}", where)
    check_finite(X, where, first_row)
    unsorted = first_fall(X)
    if unsorted >= 0:
        _refuse_repeated(X, int(np.searchsorted(indptr, unsorted, "right")) - 1, where, first_row)


def check_indptr(indptr: np.ndarray, n_indices: int, n_values: int, where: str, first_row: int = 0) -> None:
    """Raise DataError unless indptr starts at 0, ascends, and ends at the number of indices and of values.

    SciPy's own loops trust it: they would read beyond the arrays.
    """
    if len(indptr) == 0 or indptr[0] != 0 or indptr[-1] != n_indices or n_indices != n_values:
        raise DataError(f"indptr does not fit the values of rows from {first_row} on", where, "write the matrix again")
    if np.any(indptr[1:] < indptr[:-1]):
        row = int(np.flatnonzero(indptr[1:] < indptr[:-1])[0])
        raise DataError(f"indptr falls at row {first_row + row}", where, "write the matrix again")


def first_fall(X: CSR) -> int:
    """The position of the first index that is not above the one before it in its row; -1 if all rows ascend."""
    indices, indptr = X.indices, X.indptr
    for start in range(1, len(indices), _PIECE):
        stop = min(start + _PIECE, len(indices))
        falls = indices[start:stop] <= indices[start - 1 : stop - 1]
        rows = indptr[np.searchsorted(indptr, start, "left") : np.searchsorted(indptr, stop, "left")]
        falls[rows - start] = False  # the first index of a row may be below the last one of the row before
        place = int(np.argmax(falls))
        if falls[place]:
            return start + place
    return -1


def _refuse_repeated(X: CSR, row: int, where: str, first_row: int) -> None:
    """Raise DataError naming the first row, from `row` on, that has a column twice; indices may be unsorted."""
    indptr, n_rows = X.indptr, len(X.indptr) - 1
    while row < n_rows:
        stop = max(int(np.searchsorted(indptr, indptr[row] + _PIECE, "right")) - 1, row + 1)
        a, b = int(indptr[row]), int(indptr[stop])
        rows = np.repeat(np.arange(row, stop), np.diff(indptr[row : stop + 1]))
        order = np.lexsort((X.indices[a:b], rows))
        sorted_indices, rows = X.indices[a:b][order], rows[order]
        twice = np.flatnonzero((sorted_indices[1:] == sorted_indices[:-1]) & (rows[1:] == rows[:-1]))
        if len(twice):
            place = int(twice[0])
            raise DataError(
                f"row {first_row + rows[place]} has column {sorted_indices[place]} twice", where,
                "add its entries up first: scipy's sum_duplicates() does",
            )  # fmt: skip
        row = stop
