"""Several blocks as one, and parts of a block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bigsvm.compiled.shared.rows import CSR
from bigsvm.store.blocks import Block, BlockGroup, RowBlocks

_OF_MODELS = 1 << 20  # bytes of an array with a number for each row of a part and each model
_TOGETHER = 64  # rows that compiled loops may work on side by side: a part has whole groups of them


def join_blocks(parts: Sequence[Block]) -> Block:
    """One block of all rows of `parts`, in their order; copies.

    It starts where the first part starts; its row numbers mean something only if the parts follow one another.
    """
    X: Any
    first = parts[0].X
    if isinstance(first, CSR):
        matrices = [part.X for part in parts]
        lengths = np.concatenate([np.diff(matrix.indptr) for matrix in matrices])  # type: ignore[union-attr]
        X = CSR(
            np.concatenate([matrix.data for matrix in matrices]),
            np.concatenate([matrix.indices for matrix in matrices]),  # type: ignore[union-attr]
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        )
    else:
        X = np.concatenate([np.asarray(part.X) for part in parts])
    weights = [part.sample_weight for part in parts]
    norms = [part.sqnorm for part in parts if part.sqnorm is not None]
    return Block(
        parts[0].start,
        parts[0].start + sum(part.n_rows for part in parts),
        X,
        np.concatenate([part.y for part in parts]),
        None if any(weight is None for weight in weights) else np.concatenate([w for w in weights if w is not None]),
        np.concatenate(norms) if len(norms) == len(parts) else None,
    )


def read_group(data: RowBlocks, group: BlockGroup) -> Block:
    """The rows of a group: the block itself where there is one, else a copy of all of them."""
    parts = [data.read(ref) for ref in group.refs]
    return parts[0] if len(parts) == 1 else join_blocks(parts)


def part(block: Block, start: int, stop: int) -> Block:
    """Rows [start, stop) of a block, as views."""
    a, b = start - block.start, stop - block.start
    X: Any
    if isinstance(block.X, CSR):
        k0, k1 = block.X.indptr[a], block.X.indptr[b]
        X = CSR(block.X.data[k0:k1], block.X.indices[k0:k1], block.X.indptr[a : b + 1] - k0)
    else:
        X = block.X[a:b]
    weight = None if block.sample_weight is None else block.sample_weight[a:b]
    sqnorm = None if block.sqnorm is None else block.sqnorm[a:b]
    return Block(start, stop, X, block.y[a:b], weight, sqnorm)


def parts_for(blocks: Iterable[Block], n_models: int) -> Iterator[Block]:
    """The blocks in parts, so short that arrays of (rows, models) stay small where rows are short and models many.

    A block has a certain number of bytes.  With 3 features and 20 models, a single such array would have ten times as
    many.
    """
    rows = max(_OF_MODELS // (8 * n_models) // _TOGETHER, 1) * _TOGETHER
    for block in blocks:
        if block.n_rows <= rows:
            yield block
            continue
        for start in range(block.start, block.stop, rows):
            yield part(block, start, min(start + rows, block.stop))
