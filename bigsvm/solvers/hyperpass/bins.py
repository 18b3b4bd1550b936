"""Bins by which `hyperpass` needs only one reading of the rows in an iteration (docs/mathematics.md 7.3).

A row crosses its hyperplane at the step length t = s / p.  While p is computed, the row is added to the bin of t.  Once
the exact step is known, the rows of each other bin have either all crossed or all not.  Only rows in the bin of the
step, and rows near their hyperplane, must be read again, together with the few rows that the next direction needs.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.linear.hyperpass import foresee
from bigsvm.problem.problem import Problem
from bigsvm.solvers.primal.row_pass import BinnedSums, Bins
from bigsvm.solvers.primal.row_state import RowState
from bigsvm.store.state.vectors import RowVector

N_BINS = 64
_FIRST, _LAST = 0.02, 20.0  # first and last edge, in units of the last step


def new_bins(problem: Problem, width: int, steps: np.ndarray, reach: np.ndarray) -> BinnedSums:
    """Empty bins around the last steps, (n_models,).  width : length of w;  reach : as in `Bins`"""
    edges = np.outer(steps, np.geomspace(_FIRST, _LAST, N_BINS - 1))
    return BinnedSums(Bins(edges, reach.copy()), np.zeros((problem.n_models, N_BINS, width)))


def foreseen(binned: BinnedSums, lengths: np.ndarray, V: np.ndarray) -> None:
    """Add to V, (n_features + 1, n_models), the changes by rows of the bins that a step of `lengths` has crossed."""
    for m, length in enumerate(lengths):
        V[:, m] += binned.sums[m, : binned.bins.whole(m, length)].sum(axis=0)


def foresee_signs(bins: Bins, rows: RowState, lengths: np.ndarray, signs: RowVector) -> None:
    """Set `signs` to the rows that violate if exactly the rows of whole bins have crossed."""
    for m, length in enumerate(lengths):
        for piece in rows.long_pieces():
            foresee(
                rows.s.values[piece, m], rows.p.values[piece, m], rows.cost.values[piece, 0], bins.edges[m],
                bins.whole(m, length), bins.reach[m], signs.values[piece, m],
            )  # fmt: skip
