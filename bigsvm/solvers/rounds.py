"""The one block-round engine: K blocks at a time, shared out, run anywhere, combined in block order.

K = 1 is block minimisation (Yu, Hsieh, Chang, Lin, KDD 2010): each block sees the weights that the one
before it left.  K > 1 gives every block of a round the same weights and adds the K changes; the task makes
its local problem K times as stiff, which is the safe "adding" rule of CoCoA+ (Ma et al., ICML 2015).
K belongs to the mathematics: K blocks a round give the same bits on one thread, on four, or on a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import Context
from bigsvm.store.blocks import BlockRef, RowBlocks
from bigsvm.store.read_ahead import ReadAhead


class Share(NamedTuple):
    """What goes to a worker: all that a block task needs."""

    data: RowBlocks
    ref: BlockRef
    problem: Problem
    local: dict[str, np.ndarray]  # this block's slices of per-row vectors
    w: np.ndarray
    alone: bool  # the only block of its round: w may change in place and comes back as it is
    sigma: float  # stiffness of the local problem, = K
    params: tuple[float, ...]  # the solver's own numbers for this step
    key: tuple[int, int]  # (seed, epoch)


class Update(NamedTuple):
    """What comes back: changed slices, the new w (alone) or its change, and what was measured."""

    local: dict[str, np.ndarray]
    w: np.ndarray
    stats: np.ndarray
    visits: int
    last_visits: int  # of the last sweep alone
    sweeps: int
    settled: int
    bytes_read: int


def run_rounds(
    task: Callable[[Share], Update],
    refs: Sequence[BlockRef],
    make_share: Callable[[RowBlocks, BlockRef, np.ndarray, bool, float], Share],
    w: np.ndarray,
    ctx: Context,
) -> Iterator[tuple[BlockRef, Update]]:
    """Visit `refs` in their order, `ctx.parallel` a round, changing `w` in place; yields updates in order."""
    K = ctx.parallel
    data: RowBlocks = ctx.data
    read_ahead = None
    if ctx.mapper.in_process and not ctx.resident:
        read_ahead = ReadAhead(ctx.data, refs, ctx.read_depth)
        data = read_ahead
    try:
        for first in range(0, len(refs), K):
            group = refs[first : first + K]
            alone = K == 1
            shares = [make_share(data, ref, w, alone, float(K)) for ref in group]
            updates = list(ctx.mapper.map(task, shares))
            if alone:
                if updates[0].w is not w:
                    w[...] = updates[0].w
            else:
                for update in updates:
                    w += update.w
            for ref, update in zip(group, updates, strict=True):
                ctx.charge(update.bytes_read)
                if read_ahead is not None:
                    read_ahead.done(ref)
                yield ref, update
    finally:
        if read_ahead is not None:
            read_ahead.__exit__(None, None, None)
