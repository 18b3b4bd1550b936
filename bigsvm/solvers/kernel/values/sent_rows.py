"""Support vectors that go to workers: published once for each reading of the rows.

A row's f is a sum over support vectors in their order, whoever makes it and however rows are cut into blocks: what
workers find has the bits of this process.  Only a mapper of other processes is sent anything; threads share the tiles
of a block instead (`gram.py`), and a scan that is short stays here, too.
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
"""Products of two numbers from which a scan is sent to workers: some tenths of a second of one core."""
_BESIDE = 16  # products that what makes a kernel value of a row's products is worth


class SentRows(NamedTuple):
    """Support vectors as workers have them.

    data : whose rows are scored;  X : the support vectors, in the type that they are stored in
    numbers : of a precomputed kernel their columns, else their places in X
    at_once : gathered at one time;  steps : of the data's numbers
    """

    data: RowBlocks
    kernel: Kernel
    X: Matrix
    numbers: np.ndarray
    at_once: int
    steps: Steps | None

    def values(self) -> SentValues:
        """What makes kernel values with them."""
        return SentValues(self.kernel, self.data.n_features, self.steps)

    def block(self, ref: BlockRef) -> tuple[Rows, int]:
        """Rows of the data, read here, and their bytes."""
        (block,) = blocks_of(self.data, (ref,))
        rows = Rows(block.start, block.stop, readonly_view(block.X), block.start, block.y, block.sample_weight)
        return rows, block.nbytes


class SentValues:
    """Kernel values on a worker, on one thread."""

    def __init__(self, kernel: Kernel, n_features: int, steps: Steps | None) -> None:
        self.kernel = kernel
        self.gram = Gram(kernel, n_features, np.float32, 1, steps)
        self.exact = Gram(kernel, n_features, np.float64, 1, steps)

    def support(self, X: Matrix, at: np.ndarray, rows: np.ndarray, gram: Gram) -> Support:
        """As `KernelData.support`; `rows` are columns where the kernel is precomputed."""
        if self.kernel.name == "precomputed":
            return unit_rows(rows, gram.dtype)
        return gram.support(X, at)


def is_worth_sending(ctx: Context, products: float) -> bool:
    """Whether there are workers in other processes, and enough for them to do.

    products : rows times support vectors
    """
    entries = bytes_per_row(ctx.data, 1)
    return not ctx.mapper.in_process and products * (entries + _BESIDE) >= WORTH_SENDING


@contextmanager
def sent_rows(data: KernelData, X: Matrix, at: np.ndarray, numbers: np.ndarray, at_once: int) -> Iterator[Any]:
    """Publish rows `at` of X, which are `numbers` of the data; None where a copy of them does not fit the memory."""
    nbytes = int(len(at) * (row_bytes(data.ctx.data) + 16))
    room = data.ctx.budget.try_reserve("support vectors that are sent", nbytes)
    if room is None:
        yield None
        return
    with room:
        columns = data.column(numbers) if data.kernel.name == "precomputed" else np.arange(len(at))
        yield SentRows(data.ctx.data, data.kernel, picked_rows(X, at), columns, at_once, data.ctx.steps)


class FoundScores(NamedTuple):
    """f of the block's rows in each programme."""

    f: tuple[np.ndarray, ...]
    bytes_read: int
