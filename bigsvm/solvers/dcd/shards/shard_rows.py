"""The rows of a shard, and their blocks in the order in which a round visits them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from bigsvm.compiled.shared.visiting import shuffled
from bigsvm.problem.problem import Problem
from bigsvm.solvers.dcd.shards.round_messages import Round
from bigsvm.solvers.dcd.shards.shard_state import ShardState
from bigsvm.solvers.shard_reading import rows_within
from bigsvm.store.addresses import in_groups
from bigsvm.store.blocks import Block, BlockGroup, RowBlocks
from bigsvm.store.join import part, read_group

_ORDER = 1 << 60  # in the key of the order of a shard's blocks, where other keys have a first row


class ShardRows(NamedTuple):
    """The rows of a shard, and how to work on them; the same in every round.

    number, n_shards : this shard, and how many there are
    block_rows, blocks : its consecutive blocks are `data.refs(block_rows)[blocks]`
    group_blocks : blocks that are read and worked on together
    row_buffer_bytes, row_buffer_packed, row_buffer_sweeps : size, coding, and sweeps in a pass, of its row buffer
    leaps : passes may begin with a step of momentum (`dcd/momentum.py`)
    """

    data: RowBlocks
    problem: Problem
    number: int
    n_shards: int
    block_rows: int
    blocks: range
    group_blocks: int
    seed: int
    row_buffer_bytes: int
    row_buffer_packed: bool
    row_buffer_sweeps: int
    leaps: bool = False

    @property
    def first(self) -> int:
        """The number of the shard's first row in working order."""
        return rows_within(self.data, self.block_rows, self.blocks).start

    @property
    def n_rows(self) -> int:
        return len(rows_within(self.data, self.block_rows, self.blocks))

    def new_state(self) -> ShardState:
        """The state before the first round: alpha = 0, an empty row buffer."""
        return ShardState(self, np.zeros((self.n_rows, self.problem.n_models)), np.ones(self.n_rows, np.uint8))

    def told(self, tree: dict[str, Any]) -> Round:
        """The round that `Round.tree` saved."""
        return Round(**tree)

    def blocks_of(self, told: Round) -> Iterator[tuple[Block, np.ndarray]]:
        """Blocks of the rows of a round, with the number of each row within the shard.

        A group of blocks on the border of two rounds is read in both, since none stays in memory between rounds.  While
        a group is worked on, the next one is already requested from the disk.
        """
        wanted = list(self._groups_of(told))
        for group, _, _ in wanted[:1]:
            _request(self.data, group)
        for number, (group, a, b) in enumerate(wanted):
            for following, _, _ in wanted[number + 1 : number + 2]:
                _request(self.data, following)
            at = np.concatenate([np.arange(ref.start, ref.stop) for ref in group.refs])[a:b] - self.first
            block = _read(self.data, group)
            yield part(block, block.start + a, block.start + b), at

    def _groups_of(self, told: Round) -> Iterator[tuple[BlockGroup, int, int]]:
        """The groups of blocks of a round, each with the range [a, b) of its rows that belong to the round."""
        order = shuffled(len(self.blocks), self.seed, told.sweep, _ORDER + self.number) + self.blocks.start
        begin, end = (self.n_rows * t // told.parts for t in (told.part, told.part + 1))
        if begin == end:
            return
        together = max(min(self.group_blocks, (end - begin) // self.block_rows), 1)
        start = 0
        for group in in_groups(self.data.refs(self.block_rows), order, together):
            stop = start + group.n_rows
            if stop > begin and start < end:
                yield group, max(begin - start, 0), min(end, stop) - start
            start = stop
            if start >= end:
                return


def _request(data: RowBlocks, group: BlockGroup) -> None:
    for ref in group.refs:
        data.will_need(ref)


def _read(data: RowBlocks, group: BlockGroup) -> Block:
    block = read_group(data, group)
    if len(group.refs) > 1:  # the block is a copy, so the pages of the store may go
        for ref in group.refs:
            data.release(ref)
    return block
