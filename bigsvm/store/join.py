"""Several blocks as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
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


_COLUMNS_TOGETHER = 16  # a cache line of float32: filling each row's line at once is some five times as fast


def rows_of_columns(columns: Iterable[np.ndarray], shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """Dense rows, (n_rows, n_columns) in `dtype`, of columns that are asked for one after the other, each (n_rows,)."""
    out, waiting = np.empty(shape, dtype), iter(columns)
    for start in range(0, shape[1], _COLUMNS_TOGETHER):
        some = list(islice(waiting, _COLUMNS_TOGETHER))
        out[:, start : start + len(some)] = np.stack(some).T
    return out


def read_group(data: RowBlocks, group: BlockGroup) -> Block:
    """The rows of a group: the block itself where there is one, else a copy of all of them."""
    parts = [data.read(ref) for ref in group.refs]
    return parts[0] if len(parts) == 1 else join_blocks(parts)
