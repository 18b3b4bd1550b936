"""One reading an iteration: rows sorted by where they will cross while products are taken (docs/mathematics.md 7.3).

While p is computed, each row that comes to its hyperplane at t = s / p is added to the bin of t.  Once the exact step
is known, whole bins have crossed or not; only rows of the bin that holds the step, and rows near their hyperplane,
are read again, with the few rows that the next direction wants.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.linear.hyperpass import foresee
from bigsvm.problem.problem import Problem
from bigsvm.solvers.primal.row_pass import BinnedSums, Bins
from bigsvm.solvers.primal.row_state import RowState
from bigsvm.store.state.vectors import RowVector

N_BINS = 64
_FIRST, _LAST = 0.02, 20.0  # edges, in steps of the last iteration


def new_bins(problem: Problem, width: int, steps: np.ndarray, reach: np.ndarray) -> BinnedSums:
    """Empty bins around the steps of the last iteration."""
    edges = np.outer(steps, np.geomspace(_FIRST, _LAST, N_BINS - 1))
    return BinnedSums(Bins(edges, reach.copy()), np.zeros((problem.n_models, N_BINS, width)))


def foreseen(binned: BinnedSums, lengths: np.ndarray, V: np.ndarray) -> None:
    """Move V, (n_features + 1, n_models), over the whole bins."""
    for m, length in enumerate(lengths):
        V[:, m] += binned.sums[m, : binned.bins.whole(m, length)].sum(axis=0)


def foresee_signs(bins: Bins, rows: RowState, lengths: np.ndarray, signs: RowVector) -> None:
    """`signs` remember which rows violate if the whole bins have crossed and no other rows."""
    for m, length in enumerate(lengths):
        for piece in rows.pieces():
            foresee(
                rows.s.values[piece, m], rows.p.values[piece, m], rows.cost.values[piece, 0], bins.edges[m],
                bins.whole(m, length), bins.reach[m], signs.values[piece, m],
            )  # fmt: skip
