"""Access to the rows of a run for kernel solvers: by number, and block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bigsvm.compiled.kernel.values.support import Support, support_of, unit_rows
from bigsvm.problem.kernel import Kernel
from bigsvm.solvers.context import Context
from bigsvm.solvers.gathered import Gathered, picked_rows
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.values.gram import Gram
from bigsvm.store.blocks import BlockRef, Matrix, RowBlocks, blocks_of, readonly_view

_CHUNK = 1 << 13  # rows of a block, if the rows are in memory; signals are answered between blocks
_AT_ONCE = 4  # blocks whose pages are requested together
MOST_THREADS = 8
"""Most threads, whose tiles the plan counts."""


class Rows(NamedTuple):
    """A block: rows [start, stop) of the data, of which row i is row i - offset of X.

    y : (stop - start,)   class codes or targets;  weight : float64, (stop - start,), or None
    """

    start: int
    stop: int
    X: Matrix
    offset: int
    y: np.ndarray
    weight: np.ndarray | None


def of_qp(qp: DualQP, rows: Rows | BlockRef) -> tuple[slice, np.ndarray]:
    """(positions in the QP, numbers in the data) of a block's rows."""
    if qp.rows is None:
        return slice(rows.start, rows.stop), np.arange(rows.start, rows.stop)
    a, b = np.searchsorted(qp.rows, [rows.start, rows.stop])
    return slice(a, b), qp.rows[a:b]


def own_columns(data: RowBlocks, rows: np.ndarray) -> np.ndarray:
    """For a precomputed kernel: the columns, int64, of the same samples as `rows`, in working order of both."""
    column = np.asarray(rows if data.row_order is None else data.row_order[rows]).astype(np.int64)
    if data.feature_order is not None:
        place = np.empty(data.n_features, np.int64)
        place[data.feature_order] = np.arange(data.n_features)
        column = place[column]
    return column


def diagonal_of(kernel: Kernel, data: RowBlocks, X: Matrix, at: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """K_ii in float64 of rows `at` of X, which are `rows` of the data; (len(at),)."""
    if kernel.name == "rbf":
        return np.ones(len(at))
    if kernel.name == "precomputed":
        column, found = own_columns(data, rows), np.empty(len(at))
        for k, (row, j) in enumerate(zip(at.tolist(), column.tolist(), strict=True)):
            one = picked_rows(X, np.array([row]))
            if isinstance(one, np.ndarray):
                found[k] = one[0, j]
            else:
                here = np.flatnonzero(one.indices == j)
                found[k] = one.data[here[0]] if len(here) else 0.0
        return found
    out = np.empty(len(at))
    for start in range(0, len(at), _CHUNK):
        out[start : start + _CHUNK] = support_of(X, at[start : start + _CHUNK], np.dtype(np.float64)).sq
    return kernel.diagonal(out)


class KernelData:
    """The rows of `ctx.data`, and their kernel values in float32 (`gram`) and float64 (`exact`).

    places : see `KernelState`
    """

    def __init__(self, kernel: Kernel, ctx: Context, places: int = 1) -> None:
        self.kernel, self.ctx, self.places = kernel, ctx, places
        threads = min(ctx.threads, MOST_THREADS)
        d = ctx.data.n_features
        self.gram = Gram(kernel, d, np.float32, threads, ctx.steps)
        self.exact = Gram(kernel, d, np.float64, threads, ctx.steps)

    @property
    def n(self) -> int:
        return self.ctx.data.n_samples

    def whole(self) -> Matrix | None:
        """All rows, if they are in memory; else None."""
        return readonly_view(self.ctx.data.read(self.ctx.refs[0]).X) if self.ctx.resident else None

    def blocks(self, first: int = 0, charge: bool = True) -> Iterator[Rows]:
        """Yield the blocks in order, without those that end before row `first`.  charge : count the bytes read"""
        ctx = self.ctx
        if ctx.resident:
            block = ctx.data.read(ctx.refs[0])
            X, weight = readonly_view(block.X), block.sample_weight
            for start in range(first, self.n, _CHUNK):
                stop = min(start + _CHUNK, self.n)
                yield Rows(start, stop, X, 0, block.y[start:stop], None if weight is None else weight[start:stop])
            return
        refs = [ref for ref in ctx.proof_refs if ref.stop > first]
        for run in range(0, len(refs), _AT_ONCE):
            for block in blocks_of(ctx.data, refs[run : run + _AT_ONCE]):
                if charge:
                    ctx.charge(block.nbytes)
                yield Rows(block.start, block.stop, readonly_view(block.X), block.start, block.y, block.sample_weight)

    def refs(self, first: int = 0) -> list[BlockRef]:
        """Addresses of the blocks of `blocks`, from row `first` on, which must be the start of a block."""
        refs = self.ctx.data.refs(_CHUNK) if self.ctx.resident else self.ctx.proof_refs
        return [ref for ref in refs if ref.start >= first]

    def take(self, rows: np.ndarray, charge: bool = True) -> tuple[Matrix, np.ndarray]:
        """(X, at): the rows, ascending and distinct, are rows `at` of X.  Only blocks that contain some are read."""
        X = self.whole()
        if X is not None:
            return X, rows
        ctx, found = self.ctx, Gathered(rows)
        refs = self.refs_of(rows)
        for run in range(0, len(refs), _AT_ONCE):
            for block in blocks_of(ctx.data, refs[run : run + _AT_ONCE]):
                if charge:
                    ctx.charge(block.nbytes)
                found.add([picked_rows(block.X, found.between(block.start, block.stop))])
        matrix = found.matrix()
        assert matrix is not None
        return matrix, np.arange(len(rows))

    def refs_of(self, rows: np.ndarray) -> list[BlockRef]:
        """The blocks of the data that contain some of `rows`."""
        return [
            ref for ref in self.ctx.refs
            if np.searchsorted(rows, ref.start) < np.searchsorted(rows, ref.stop)
        ]  # fmt: skip

    def column(self, rows: np.ndarray) -> np.ndarray:
        """The columns of rows for a precomputed kernel; otherwise empty."""
        return own_columns(self.ctx.data, rows) if self.kernel.name == "precomputed" else np.empty(0, np.int64)

    def support(self, X: Matrix, at: np.ndarray, rows: np.ndarray, gram: Gram) -> Support:
        """Rows `at` of X, which are `rows` of the data, as the second argument of kernel values."""
        if self.kernel.name == "precomputed":
            return unit_rows(self.column(rows), gram.dtype)
        return gram.support(X, at)

    def diagonal(self, X: Matrix, at: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """K_ii in float64 of rows `at` of X, which are `rows` of the data; (len(at),)."""
        return diagonal_of(self.kernel, self.ctx.data, X, at, rows)

    def close(self) -> None:
        """End the threads."""
        self.gram.close()
        self.exact.close()
