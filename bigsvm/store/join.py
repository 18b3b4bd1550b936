"""Several blocks as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigsvm.compiled.shared.rows import CSR
from bigsvm.store.blocks import Block, BlockGroup, RowBlocks


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
