"""How the rows of one shard are read where they are, and what they prove."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from bigsvm.problem.certificate import RowsTerms
from bigsvm.problem.deferred import DeferredCertificate
from bigsvm.problem.problem import Problem
from bigsvm.store.blocks import BlockRef, RowBlocks, blocks_of
from bigsvm.store.state.vectors import RowVector
from bigsvm.tasks import Mapper, PassLeft, SerialMapper, ShardSum, asked_to_leave


@dataclass
class ShardReading:
    """What passes over the rows of a shard are lent in place of a `Context`: its blocks, and who works on them.

    mapper : of this process
    stopping : whether the run was asked to stop; on a worker, whether the caller has left the task
    bytes_read : since this was made
    """

    data: RowBlocks
    proof_refs: Sequence[BlockRef]
    mapper: Mapper = field(default_factory=SerialMapper)
    pass_workers: int = 1
    stopping: Callable[[], bool] = asked_to_leave
    bytes_read: int = 0
    resident: bool = False

    def charge(self, nbytes: int) -> None:
        """Count what was read."""
        self.bytes_read += nbytes

    def uncharge(self, to: int) -> None:
        """Forget what was read since `bytes_read` was `to`."""
        self.bytes_read = to


def rows_within(data: RowBlocks, block_rows: int, blocks: range) -> range:
    """Working rows of a shard whose blocks are `data.refs(block_rows)[blocks]`."""
    return range(*(min(block * block_rows, data.n_samples) for block in (blocks.start, blocks.stop)))


class ShardVector:
    """The rows of one shard in a row vector: `values`, of which the first is working row `first`."""

    def __init__(self, values: np.ndarray, first: int) -> None:
        self.values, self._first = values, first

    def between(self, start: int, stop: int) -> np.ndarray:
        """Working rows [start, stop), a view."""
        return self.values[start - self._first : stop - self._first]

    def get(self, where: BlockRef | np.ndarray) -> np.ndarray:
        """The rows of a block, a view; or those of some numbers within the shard, a copy."""
        if isinstance(where, np.ndarray):
            return self.values[where]
        return self.between(where.start, where.stop)


def proof_of(
    problem: Problem, w: np.ndarray, alpha: ShardVector, rescaled: bool, shortened: bool = False
) -> DeferredCertificate:
    """Of the point (w, alpha), as the rows of a shard see it."""
    return DeferredCertificate(problem, w, cast(RowVector, alpha), rescaled, shortened)


def proved(
    reading: ShardReading, problem: Problem, w: np.ndarray, alpha: ShardVector, rescaled: bool, shortened: bool
) -> ShardSum:
    """The terms of all rows of a shard, as `terms_of` takes them.  Raises PassLeft if the run is to stop.

    rescaled, shortened : as in `DeferredCertificate`
    """
    proof, nbytes = proof_of(problem, w, alpha, rescaled, shortened), 0
    for ref, block in zip(reading.proof_refs, blocks_of(reading.data, reading.proof_refs), strict=True):
        proof.add(block, ref)
        nbytes += block.nbytes
        if reading.stopping():
            raise PassLeft
    sums, n_rows, v = proof.found()
    return ShardSum(((sums, n_rows, nbytes),), (v,))


def terms_of(each: Iterable[tuple[np.ndarray, int, int]], v: np.ndarray) -> list[RowsTerms]:
    """What shards have proved, as an `Accumulator` takes it: in their order, with the sum v of all in the first.

    each : sums, rows and bytes read of every shard
    """
    nothing = np.zeros(1)
    return [RowsTerms(sums, nothing if k else v, n_rows, nbytes, None) for k, (sums, n_rows, nbytes) in enumerate(each)]
