"""Support vectors that are sent to workers, once for each reading of the rows.

f of a row is a sum over support vectors in their order, whoever computes it and however the rows are cut into blocks,
so workers give the same bits as this process.  They are sent only to other processes, and only if there is enough work;
threads of this process share the tiles of a block instead (`gram.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from bigsvm.compiled.kernel.values.step import Steps
from bigsvm.compiled.kernel.values.support import Support, unit_rows
from bigsvm.problem.kernel import Kernel
from bigsvm.solvers.context import Context
from bigsvm.solvers.gathered import picked_rows
from bigsvm.solvers.kernel.values.data import KernelData, Rows
from bigsvm.solvers.kernel.values.gram import Gram
from bigsvm.store.blocks import BlockRef, Matrix, RowBlocks, blocks_of, bytes_per_row, readonly_view, row_bytes

WORTH_SENDING = 1 << 28
"""Multiplications from which a scan is sent to workers: some tenths of a second of one core."""
_BESIDE = 16  # multiplications that computing a kernel value from a product counts as


class SentRows(NamedTuple):
    """Support vectors, in the form that is sent to workers.

    data : the rows whose f is computed
    X : the support vectors, in the stored dtype
    numbers : int64   their columns for a precomputed kernel, otherwise their places in X
    at_once : int     most that are gathered at a time;  steps : see `Gram`
    """

    data: RowBlocks
    kernel: Kernel
    X: Matrix
    numbers: np.ndarray
    at_once: int
    steps: Steps | None

    def values(self) -> SentValues:
        """A source of kernel values for them."""
        return SentValues(self.kernel, self.data.n_features, self.steps)

    def block(self, ref: BlockRef) -> tuple[Rows, int]:
        """(a block of the data, bytes read)."""
        (block,) = blocks_of(self.data, (ref,))
        rows = Rows(block.start, block.stop, readonly_view(block.X), block.start, block.y, block.sample_weight)
        return rows, block.nbytes


class SentValues:
    """A source of kernel values on a worker, with one thread."""

    def __init__(self, kernel: Kernel, n_features: int, steps: Steps | None) -> None:
        self.kernel = kernel
        self.gram = Gram(kernel, n_features, np.float32, 1, steps)
        self.exact = Gram(kernel, n_features, np.float64, 1, steps)

    def support(self, X: Matrix, at: np.ndarray, rows: np.ndarray, gram: Gram) -> Support:
        """See `KernelData.support`; for a precomputed kernel, `rows` are columns."""
        if self.kernel.name == "precomputed":
            return unit_rows(rows, gram.dtype)
        return gram.support(X, at)


def is_worth_sending(ctx: Context, products: float) -> bool:
    """Whether there are workers in other processes, and enough work for them.

    products : number of rows times number of support vectors
    """
    entries = bytes_per_row(ctx.data, 1)
    return not ctx.mapper.in_process and products * (entries + _BESIDE) >= WORTH_SENDING


@contextmanager
def sent_rows(data: KernelData, X: Matrix, at: np.ndarray, numbers: np.ndarray, at_once: int) -> Iterator[Any]:
    """A copy, for sending, of rows `at` of X, which are `numbers` of the data; None if it does not fit in memory."""
    nbytes = int(len(at) * (row_bytes(data.ctx.data) + 16))
    room = data.ctx.budget.try_reserve("support vectors that are sent", nbytes)
    if room is None:
        yield None
        return
    with room:
        columns = data.column(numbers) if data.kernel.name == "precomputed" else np.arange(len(at))
        yield SentRows(data.ctx.data, data.kernel, picked_rows(X, at), columns, at_once, data.ctx.steps)


class FoundScores(NamedTuple):
    """The result of a task: f of the rows of a block in each programme."""

    f: tuple[np.ndarray, ...]
    bytes_read: int
