"""Rows that a working set holds: as they were read, or coded if memory is scarce, and then decoded piece by piece."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bigsvm.compiled.shared.coded import CodedRows, decode, encode, picked
from bigsvm.csr import CSR
from bigsvm.solvers.gathered import n_rows, picked_rows
from bigsvm.store.blocks import Matrix, readonly_view

Held = Matrix | CodedRows
DECODED = 1 << 15  # entries that a thread decodes at a time
DECODED_BYTES = 1 << 20  # bytes reserved for the decoded entries of both threads, and of rows that have more


def n_held(X: Held) -> int:
    """The number of rows."""
    return X.n_rows if isinstance(X, CodedRows) else n_rows(X)


def coded(X: Held) -> Held:
    """The rows in fewer bytes, if possible."""
    return X if isinstance(X, CodedRows) else encode(X)


def bytes_held(X: Held) -> int:
    """Bytes of all arrays of the rows."""
    if isinstance(X, CodedRows):
        return X.nbytes
    return sum(array.nbytes for array in X) if isinstance(X, CSR) else X.nbytes


def picked_held(X: Held, rows: np.ndarray) -> Held:
    """Copies of some rows, in the order of `rows`."""
    return picked(X, rows) if isinstance(X, CodedRows) else picked_rows(X, rows)


def pieces(X: Held) -> Iterator[tuple[slice, Matrix]]:
    """(range of rows, the rows as a matrix): coded rows are decoded a few at a time, others come all at once."""
    if not isinstance(X, CodedRows):
        yield slice(0, n_rows(X)), readonly_view(X)
        return
    n = X.n_rows
    step = max(DECODED * n // max(int(X.indptr[-1]), 1), 1)
    for start in range(0, n, step):
        stop = min(start + step, n)
        yield slice(start, stop), readonly_view(decode(X, start, stop))
