"""Cyclic coordinate descent with exact searches, a baseline of Liu, Liu and Gu (`cd`; docs/mathematics.md 6.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigsvm.compiled.linear.primal_cd import EXACT, GLOBAL_NEWTON
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import StartsFrom
from bigsvm.solvers.context import Context
from bigsvm.solvers.coordinate.column_sweeps import ColumnState, ColumnSweeps
from bigsvm.solvers.primal.search_options import check_search, weights_named
from bigsvm.store.blocks import BlockRef
from bigsvm.store.columns.column_blocks import ColumnBlock


@dataclass(frozen=True)
class CoordinateDescent(ColumnSweeps):
    """Hyperparameters of `cd`.

    Columns are visited in the order of the user's features, the bias last.  Features of wide sparse rows that stream
    may have been renumbered by frequency.  Then blocks follow that order, and only columns within a block the user's.

    start : str         'zeros', or 'ones' as in the paper
    line_search : str   'exact', or 'newton' as in the paper, which ends at |phi'| < eps2
    eps1 : float        rule of --stop paper: ||w_{k+1} - w_k|| < eps1 over a sweep
    eps2 : float        see `line_search`
    """

    name: ClassVar[str] = "cd"
    losses: ClassVar[tuple[str, ...]] = ("squared_hinge",)
    biases: ClassVar[tuple[str, ...]] = ("augmented", "none", "free")
    starts_from: ClassVar[StartsFrom] = "weights"
    label_sets: ClassVar[bool] = True

    start: str = "zeros"
    line_search: str = "exact"
    eps1: float = 0.1
    eps2: float = 0.1

    def __post_init__(self) -> None:
        check_search(self.start, self.line_search, self.eps1, self.eps2)

    def search_rule(self) -> tuple[int, float]:
        """The rule chosen by `line_search`, and eps2."""
        return EXACT if self.line_search == "exact" else GLOBAL_NEWTON, self.eps2

    def first_weights(self, problem: Problem, n_features: int) -> np.ndarray:
        """The start point chosen by `start`."""
        return weights_named(self.start, problem, n_features)

    def blocks(self, refs: Sequence[BlockRef], state: ColumnState, ctx: Context) -> Sequence[BlockRef]:
        """The blocks in their order."""
        return refs

    def order(self, block: ColumnBlock, state: ColumnState, ctx: Context) -> np.ndarray:
        """The columns of a block by the user's feature number."""
        if ctx.data.feature_order is None:
            return np.arange(block.stop - block.start)
        return np.argsort(ctx.data.feature_order[block.start : block.stop])
