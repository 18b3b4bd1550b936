"""The block-round engine: K groups of blocks at a time, shared out, run anywhere, combined in order.

Every group of a round gets the same weights, and the K changes are added; the task makes its local problem K
times as stiff, which is the safe "adding" rule of CoCoA+ (Ma et al., ICML 2015).  K belongs to the mathematics:
K groups a round give the same bits on one thread, on four, or on a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import Context
from bigsvm.store.blocks import Block, BlockGroup, RowBlocks
from bigsvm.store.join import read_group
from bigsvm.tasks import over_shares


class Share(NamedTuple):
    """What goes to a worker: all that a block task needs."""

    data: RowBlocks
    group: BlockGroup
    problem: Problem
    local: dict[str, np.ndarray]  # this group's slices of per-row vectors
    w: np.ndarray
    sigma: float  # stiffness of the local problem, = K
    key: tuple[int, int]  # (seed, epoch)


class Update(NamedTuple):
    """What comes back: changed slices, the change of w, and what was measured."""

    local: dict[str, np.ndarray]
    w: np.ndarray
    stats: np.ndarray
    visits: int
    bytes_read: int


def rows_of(share: Share) -> Block:
    """The rows of a share; their pages are asked for together, and let go once they are copied."""
    data = share.data
    for ref in share.group.refs:
        data.will_need(ref)
    block = read_group(data, share.group)
    if len(share.group.refs) > 1:
        for ref in share.group.refs:
            data.release(ref)
    return block


def run_rounds(
    task: Callable[[Share], Update],
    groups: Sequence[BlockGroup],
    make_share: Callable[[RowBlocks, BlockGroup, np.ndarray, float], Share],
    w: np.ndarray,
    ctx: Context,
) -> Iterator[tuple[BlockGroup, Update]]:
    """Visit `groups` in their order, `ctx.parallel` a round, changing `w` in place; yields updates in order."""
    K = ctx.parallel

    def share(group: BlockGroup) -> Share:
        return make_share(ctx.data, group, w, float(K))

    for first in range(0, len(groups), K):
        # All of a round first: `share` sends out w as the round before left it.
        found = list(over_shares(ctx.mapper, task, groups[first : first + K], share, account=ctx))
        for _, update in found:
            w += update.w
        yield from found
