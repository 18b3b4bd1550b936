"""Opening the support vectors in a model's files, and checking them.  Needs only NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np

from bigsvm.csr import CSR
from bigsvm.errors import DataError
from bigsvm.files.file_array import FileArray
from bigsvm.model.model_files import is_finite, open_array
from bigsvm.store.checks import VALUE_DTYPES, check_csr

DENSE, SPARSE = ("support.npy",), ("support_data.npy", "support_indices.npy", "support_indptr.npy")
_PIECE_ROWS = 4096  # rows that are checked at a time
_PIECE_ENTRIES = 1 << 18


def open_support(folder: Path, digests: dict[str, Any], n_support: int, n_features: int) -> FileArray | CSR:
    """The support vectors of a model, which stay in their files; their values are checked once.

    Raises DataError if a file is missing or damaged, or holds no valid rows; KeyError if a digest is missing.
    """
    if DENSE[0] in digests:
        X = open_array(folder / DENSE[0], digests[DENSE[0]])
        _check(X.dtype in VALUE_DTYPES and X.shape == (n_support, n_features), X, folder / DENSE[0])
        if not is_finite(X):
            raise DataError("has values that are not finite", str(folder / DENSE[0]))
        return X
    data, indices, indptr = (open_array(folder / name, digests[name]) for name in SPARSE)
    _check(data.dtype in VALUE_DTYPES and data.ndim == 1, data, folder / SPARSE[0])
    _check(indices.dtype in (np.int32, np.int64) and indices.shape == data.shape, indices, folder / SPARSE[1])
    _check(indptr.dtype == np.int64 and indptr.shape == (n_support + 1,), indptr, folder / SPARSE[2])
    where = str(folder)
    if indptr[0] != 0 or indptr[-1] != len(data):
        raise DataError("the row pointers (indptr) of the support vectors do not fit their values", where)
    for piece in indptr_pieces(indptr):
        if np.any(np.diff(piece) < 0):
            raise DataError("the row pointers (indptr) of the support vectors are not ascending", where)
    for first, last in _row_pieces(indptr):
        pointers = indptr[first : last + 1]
        a, b = pointers[0], pointers[-1]
        rows = CSR(data[a:b], indices[a:b], pointers - a)
        check_csr(rows, n_features, where, first)
        # Indices must ascend within a row, and may fall only where the next row begins.
        falls = np.flatnonzero(np.diff(rows.indices) <= 0) + 1
        if not np.all(np.isin(falls, rows.indptr)):
            raise DataError(f"the features of support vectors from {first} are not in ascending order", where)
    return CSR(*(cast(np.ndarray, part) for part in (data, indices, indptr)))


def _check(sound: bool, array: FileArray, path: Path) -> None:
    if not sound:
        raise DataError(f"shape {array.shape} and dtype {array.dtype} are not those of support vectors", str(path))


def indptr_pieces(indptr: np.ndarray | FileArray) -> Iterator[np.ndarray]:
    """Overlapping pieces of the row pointers: each ends with the element that begins the next."""
    for at in range(0, len(indptr) - 1, _PIECE_ROWS):
        yield np.asarray(indptr[at : at + _PIECE_ROWS + 1])


def _row_pieces(indptr: FileArray) -> Iterator[tuple[int, int]]:
    """Runs [first, last) of rows with at most _PIECE_ENTRIES entries together, or of a single row."""
    first, n = 0, len(indptr) - 1
    while first < n:
        most = int(indptr[first]) + _PIECE_ENTRIES
        window = indptr[first + 1 : first + 1 + _PIECE_ROWS]
        last = first + max(1, int(np.searchsorted(window, most, "right")))
        yield first, last
        first = last
