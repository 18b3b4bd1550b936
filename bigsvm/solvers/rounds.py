"""The one block-round engine: K groups of blocks at a time, shared out, run anywhere, combined in order.

K = 1 is block minimisation (Yu, Hsieh, Chang, Lin, KDD 2010): each group sees the weights that the one
before it left.  K > 1 gives every group of a round the same weights and adds the K changes; the task makes
its local problem K times as stiff, which is the safe "adding" rule of CoCoA+ (Ma et al., ICML 2015).
K belongs to the mathematics: K groups a round give the same bits on one thread, on four, or on a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import Context
from bigsvm.store.blocks import Block, BlockGroup, RowBlocks
from bigsvm.store.join import read_group
from bigsvm.store.read_ahead import ReadAhead


class Share(NamedTuple):
    """What goes to a worker: all that a block task needs."""

    data: RowBlocks
    group: BlockGroup
    problem: Problem
    local: dict[str, np.ndarray]  # this group's slices of per-row vectors
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


def rows_of(share: Share) -> Block:
    """The rows of a share, read ahead where the task runs in the process that reads ahead."""
    if isinstance(share.data, ReadAhead):
        return share.data.read_group(share.group)
    return read_group(share.data, share.group)


def run_rounds(
    task: Callable[[Share], Update],
    groups: Sequence[BlockGroup],
    make_share: Callable[[RowBlocks, BlockGroup, np.ndarray, bool, float], Share],
    w: np.ndarray,
    ctx: Context,
) -> Iterator[tuple[BlockGroup, Update]]:
    """Visit `groups` in their order, `ctx.parallel` a round, changing `w` in place; yields updates in order."""
    K = ctx.parallel
    data: RowBlocks = ctx.data
    read_ahead = None
    if ctx.mapper.in_process and not ctx.resident:
        read_ahead = ReadAhead(ctx.data, groups, ctx.read_depth)
        data = read_ahead
    try:
        for first in range(0, len(groups), K):
            together = groups[first : first + K]
            alone = K == 1
            shares = [make_share(data, group, w, alone, float(K)) for group in together]
            updates = list(ctx.mapper.map(task, shares))
            if alone:
                if updates[0].w is not w:
                    w[...] = updates[0].w
            else:
                for update in updates:
                    w += update.w
            for group, update in zip(together, updates, strict=True):
                ctx.charge(update.bytes_read)
                if read_ahead is not None:
                    read_ahead.done(group)
                yield group, update
    finally:
        if read_ahead is not None:
            ctx.io_wait_s += read_ahead.waited_s
            read_ahead.__exit__(None, None, None)
