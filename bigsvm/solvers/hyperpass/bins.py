"""One reading an iteration: rows sorted by where they will cross while products are taken (docs/mathematics.md 7.3).

While p is computed, each row that comes to its hyperplane at t = s / p is added to the bin of t.  Once the exact step
is known, whole bins have crossed or not; only rows of the bin that holds the step, and rows near their hyperplane,
are read again, with the few rows that the next direction wants.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bigsvm.compiled.linear.hyperpass import foresee
from bigsvm.compiled.linear.primal import add_rows
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import Context
from bigsvm.solvers.gathered import Gathered, picked_rows
from bigsvm.solvers.primal.row_pass import BinnedSums, Bins
from bigsvm.solvers.primal.row_state import RowState
from bigsvm.store.blocks import BlockRef, readonly_view
from bigsvm.store.state.vectors import RowVector
from bigsvm.tasks import PassLeft

N_BINS = 64
_FIRST, _LAST = 0.02, 20.0  # edges, in steps of the last iteration
_MOST = 0.2  # of the rows; of the blocks half
_AT_MOST = 1 << 16  # rows: their numbers are in memory
_REFS = 2  # blocks for each row that is wanted, or a reading of some is one of all


def new_bins(problem: Problem, width: int, steps: np.ndarray, reach: np.ndarray) -> BinnedSums:
    """Empty bins around the steps of the last iteration."""
    edges = np.outer(steps, np.geomspace(_FIRST, _LAST, N_BINS - 1))
    return BinnedSums(Bins(edges, reach.copy()), np.zeros((problem.n_models, N_BINS, width)))


def foreseen(binned: BinnedSums, rows: RowState, lengths: np.ndarray, V: np.ndarray, signs: RowVector) -> None:
    """Move V, (n_features + 1, n_models), over the whole bins; `signs` remembers which rows violate if that is all."""
    for m, length in enumerate(lengths):
        whole = binned.whole(m, length)
        V[:, m] += binned.sums[m, :whole].sum(axis=0)
        for piece in rows.pieces():
            foresee(
                rows.s.values[piece, m], rows.p.values[piece, m], rows.cost.values[piece, 0], binned.bins.edges[m],
                whole, binned.bins.reach[m], signs.values[piece, m],
            )  # fmt: skip


def can_read_some(ctx: Context, wanted: int) -> bool:
    """Whether a few rows cost less than a reading of all."""
    return ctx.resident or len(ctx.refs) >= _REFS * wanted


def read_again(
    ctx: Context, problem: Problem, rows: RowState, signs: RowVector, V: np.ndarray, gather: Gathered
) -> tuple[np.ndarray, int] | None:
    """V with the rows put right that crossed otherwise than foreseen, and how many were read; None if they are many.

    gather : takes the rows that it names, in the same reading
    """
    found, n_wrong = [], 0
    for piece in rows.pieces():
        found.append(
            np.flatnonzero(((rows.s.values[piece] > 0.0) != (signs.values[piece] != 0)).any(axis=1)) + piece.start
        )
        n_wrong += len(found[-1])
        if n_wrong > min(_MOST * len(rows.s.values), _AT_MOST):
            return None
    wrong = np.concatenate(found)
    V, wanted = V.copy(), np.union1d(wrong, gather.wanted)
    touched = list(_touched(ctx, wanted))
    if not ctx.resident and 2 * len(touched) > len(ctx.refs):
        return None
    before, release = ctx.bytes_read, ctx.data.release
    for ref in touched:
        block = ctx.data.read(ref)
        X, first = readonly_view(block.X), block.start
        some = wrong[slice(*np.searchsorted(wrong, [ref.start, ref.stop]))]
        if len(some):
            change = (rows.s.values[some] > 0.0).astype(float) - signs.values[some]
            lean, codes = np.zeros(V.shape if V.shape[1] > 1 else len(V)), rows.y.values[some, 0]
            alpha = change * (rows.cost.values[some] * problem.C)
            picked = readonly_view(picked_rows(X, some - first))
            add_rows(picked, codes, problem.positive, alpha, problem.constant_feature, lean)
            V += problem.summed(lean).reshape(V.shape)
        near = gather.between(ref.start, ref.stop)
        if len(near):
            gather.add([picked_rows(X, near)])
        ctx.charge(block.nbytes)
        release(ref)
        if ctx.stopping():
            ctx.uncharge(before)
            raise PassLeft
    return V, len(wanted)


def _touched(ctx: Context, wanted: np.ndarray) -> Iterator[BlockRef]:
    """The blocks that hold wanted rows."""
    if ctx.resident:
        if len(wanted):
            yield from ctx.refs
        return
    for number in np.unique(wanted // ctx.refs[0].n_rows).tolist():  # all but the last have as many
        yield ctx.refs[number]
