"""The order in which a pass takes its blocks: a function of the seed and the number of the pass, never of timing."""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.visiting import shuffled
from bigsvm.solvers.context import Context
from bigsvm.store.addresses import Groups, in_groups

_BLOCK_ORDER = 1 << 62  # in place of a first row, in the key of the order of blocks


def groups_in_order(ctx: Context) -> Groups:
    """Groups of blocks that follow one another."""
    return in_groups(ctx.refs, np.arange(len(ctx.refs)), ctx.group_blocks)


def groups_at_random(ctx: Context, number: int) -> Groups:
    """Groups of blocks from anywhere, drawn anew for each `number`, that of the pass (see `BlockGroup`)."""
    order = shuffled(len(ctx.refs), ctx.seed, number, _BLOCK_ORDER)
    return in_groups(ctx.refs, order, ctx.group_blocks)
