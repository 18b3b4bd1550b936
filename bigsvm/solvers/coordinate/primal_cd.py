"""Primal coordinate descent with Newton steps of Chang, Hsieh and Lin 2008 (`pcd`; docs/mathematics.md 6.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigsvm.compiled.linear.primal_cd import NEWTON_STEP
from bigsvm.compiled.shared.visiting import shuffled
from bigsvm.solvers.base import StartsFrom
from bigsvm.solvers.context import Context
from bigsvm.solvers.coordinate.column_sweeps import ColumnState, ColumnSweeps
from bigsvm.store.blocks import BlockRef
from bigsvm.store.columns.column_blocks import ColumnBlock


@dataclass(frozen=True)
class PrimalCD(ColumnSweeps):
    """Hyperparameters of `pcd`.

    Each step is a Newton step along a column, halved until it decreases the objective enough (sigma = 0.01).  Blocks
    are visited in random order, and columns in random order within a block.

    eps1 : float   rule of --stop paper: ||w_{k+1} - w_k|| < eps1 over a sweep (the paper itself fixes none)
    """

    name: ClassVar[str] = "pcd"
    losses: ClassVar[tuple[str, ...]] = ("squared_hinge", "squared_epsilon_insensitive")
    biases: ClassVar[tuple[str, ...]] = ("augmented", "none", "free")
    starts_from: ClassVar[StartsFrom] = "weights"
    label_sets: ClassVar[bool] = True

    eps1: float = 1e-3

    def search_rule(self) -> tuple[int, float]:
        """One Newton step; there is no eps2."""
        return NEWTON_STEP, 0.0

    def blocks(self, refs: Sequence[BlockRef], state: ColumnState, ctx: Context) -> Sequence[BlockRef]:
        """The blocks in random order; the key is a column number at which no block begins."""
        return [refs[k] for k in shuffled(len(refs), ctx.seed, state.iteration, ctx.data.n_features)]

    def order(self, block: ColumnBlock, state: ColumnState, ctx: Context) -> np.ndarray:
        """The columns of a block in random order, a function of (seed, sweep, block)."""
        return shuffled(block.stop - block.start, ctx.seed, state.iteration, block.start)
