"""Where columns lie, how many bytes they take, and addresses of blocks of them made when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from bigsvm.compiled.shared.columns import cut_columns
from bigsvm.store.blocks import BlockRef, frozen

COLUMN_BYTES = 8  # of a CSR column beside its entries: its pointer


class Columns:
    """What follows from where each column's entries lie: sizes and addresses.

    indptr : CSR: int64, shape (n_features + 1,); dense: None
    """

    def __init__(self, n_samples: int, n_features: int, dtype: np.dtype, indptr: np.ndarray | None) -> None:
        self.layout: Any = "dense" if indptr is None else "csr"
        self.n_samples, self.n_features = n_samples, n_features
        self.dtype, self.index_dtype = dtype, np.dtype(np.int32) if indptr is None else row_dtype(n_samples)
        self.indptr = indptr

    @property
    def nbytes(self) -> int:
        return self.size(0, self.n_features)

    def refs(self, block_bytes: int) -> Sequence[BlockRef]:
        """Addresses, made when they are asked for; what is kept is 8 bytes a block."""
        if self.indptr is None:
            columns = max(block_bytes // max(self.size(0, 1), 1), 1)
            edges = np.append(np.arange(0, self.n_features, columns), self.n_features)
        else:
            edges = column_runs(self.indptr, self.entry_bytes, COLUMN_BYTES, block_bytes)
        return ColumnRefs(self, edges)

    def size(self, start: int, stop: int) -> int:
        entries = self.first(stop) - self.first(start)
        return entries * self.entry_bytes + (0 if self.indptr is None else COLUMN_BYTES * (stop - start))

    @property
    def entry_bytes(self) -> int:
        return self.dtype.itemsize + (0 if self.indptr is None else self.index_dtype.itemsize)

    def first(self, column: Any) -> Any:
        """First entry of a column, or of each of several."""
        if self.indptr is None:
            return column * self.n_samples
        return self.indptr[column] if isinstance(column, np.ndarray) else int(self.indptr[column])

    def check(self, ref: BlockRef) -> None:
        if ref.axis != "cols" or not 0 <= ref.start < ref.stop <= self.n_features:
            raise ValueError(f"{ref} is no address of columns of {self.n_features}")


class ColumnRefs(Sequence[BlockRef]):
    """The blocks of columns edges[k] to edges[k + 1] - 1."""

    def __init__(self, columns: Columns, edges: np.ndarray) -> None:
        self._columns, self._edges = columns, edges

    def __len__(self) -> int:
        return len(self._edges) - 1

    @overload
    def __getitem__(self, number: int) -> BlockRef: ...
    @overload
    def __getitem__(self, number: slice) -> list[BlockRef]: ...
    def __getitem__(self, number: int | slice) -> BlockRef | list[BlockRef]:
        if isinstance(number, slice):
            return [self[k] for k in range(len(self))[number]]
        number = range(len(self))[number]
        start, stop = self._edges[number : number + 2].tolist()
        return BlockRef(start, stop, self._columns.size(start, stop), "cols")


def row_dtype(n_samples: int) -> np.dtype:
    """Of row numbers: int32 where they fit."""
    return np.dtype(np.int32 if n_samples < 2**31 else np.int64)


def column_runs(indptr: np.ndarray, entry_bytes: int, column_bytes: int, limit: int) -> np.ndarray:
    """First column of each run of columns of at most `limit` bytes or of one column, and the end: int64."""
    view = frozen(indptr)
    count = cut_columns(view, entry_bytes, column_bytes, limit, np.empty(0, np.int64))
    edges = np.empty(count + 1, np.int64)
    cut_columns(view, entry_bytes, column_bytes, limit, edges)
    return edges
