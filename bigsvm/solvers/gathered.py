"""A few rows by number, taken out of the blocks of a pass and kept together, sparse where the data are."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bigsvm.compiled.shared.rows import CSR, n_rows_of
from bigsvm.store.blocks import Matrix, readonly_view


class Gathered:
    """Rows `wanted` (int64, working row numbers, ascending and distinct), once a pass has added them all.

    Memory is that of the rows, and of as many again while they are put together.
    """

    def __init__(self, wanted: np.ndarray) -> None:
        self.wanted = wanted
        self.parts: list[Matrix] = []

    def between(self, start: int, stop: int) -> np.ndarray:
        """The wanted rows among rows [start, stop), counted from `start`."""
        a, b = np.searchsorted(self.wanted, [start, stop])
        return self.wanted[a:b] - start

    def add(self, parts: Iterable[Matrix]) -> None:
        """The next rows, in order."""
        self.parts.extend(parts)

    def matrix(self) -> Matrix | None:
        """All rows as one matrix for kernels; None where none was wanted."""
        return readonly_view(stacked(self.parts)) if self.parts else None


def picked_rows(X: Matrix, numbers: np.ndarray) -> Matrix:
    """Copies of some rows of a dense or CSR matrix, in the order of `numbers`."""
    if not isinstance(X, CSR):
        return X[numbers]
    lengths = X.indptr[numbers + 1] - X.indptr[numbers]
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    entries = np.arange(indptr[-1]) + np.repeat(X.indptr[numbers] - indptr[:-1], lengths)
    return CSR(X.data[entries], X.indices[entries], indptr)


def stacked(parts: list[Matrix]) -> Matrix:
    """Matrices of one kind below one another."""
    first = parts[0]
    if not isinstance(first, CSR):
        return np.concatenate([part for part in parts if not isinstance(part, CSR)])
    sparse = [part for part in parts if isinstance(part, CSR)]
    ends = np.cumsum([0, *(len(part.data) for part in sparse)])
    return CSR(
        np.concatenate([part.data for part in sparse]),
        np.concatenate([part.indices for part in sparse]),
        np.concatenate([[0], *(part.indptr[1:] + end for part, end in zip(sparse, ends[:-1], strict=True))]),
    )


def n_rows(X: Matrix | None) -> int:
    """Rows of a matrix, 0 for none."""
    return 0 if X is None else int(n_rows_of(X))
