"""Products of all rows with some directions, stored by direction: one reading of the data serves many searches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsvm.compiled.linear.primal import add_rows, signed_margins
from bigsvm.compiled.shared.rows import take_rows
from bigsvm.problem.problem import Problem
from bigsvm.solvers.context import Context
from bigsvm.solvers.primal.row_pass import Weights, pass_runs
from bigsvm.solvers.primal.row_state import RowState
from bigsvm.store.blocks import BlockRef, RowBlocks, blocks_of, readonly_view, tile
from bigsvm.store.join import parts_for
from bigsvm.tasks import SerialMapper, over_shares
from bigsvm.units import KIB

_TILE = 128 * KIB  # bytes of products that are transposed at a time


class RotationShare(NamedTuple):
    """The input of a task: a run of blocks, and the arrays for its rows; see `rotate`.

    W : float64, (n_features + 1, n_directions)   directions as columns
    out : float64, (n_directions, n_rows)         view that receives the products
    rows : (s, cost, y) of the rows, which are written; None without w
    """

    data: RowBlocks
    refs: tuple[BlockRef, ...]
    problem: Problem
    W: np.ndarray
    out: np.ndarray
    w: np.ndarray | None
    weights: Weights | None
    rows: tuple[np.ndarray, np.ndarray, np.ndarray] | None  # s, cost, y


class RotationSums(NamedTuple):
    """The result of a task.  V : float64, shape of w, the sum of alpha_i y_i [x_i, bias]; None without w"""

    V: np.ndarray | None
    bytes_read: int


def rotation_task(share: RotationShare) -> RotationSums:
    """Task: write the products of some rows, and, if w is given, their slacks; V of these rows."""
    problem, bias = share.problem, share.problem.constant_feature
    V = None if share.w is None else np.zeros(share.w.shape)
    n_directions = share.W.shape[1]
    plus = np.zeros(n_directions, np.int32)  # every row counts as positive: the searches know the signs
    tile_rows = max(_TILE // (8 * n_directions), 1)
    first = bytes_read = 0
    for block in parts_for(blocks_of(share.data, share.refs), problem.n_models):
        X = readonly_view(block.X)
        if V is not None:
            assert share.w is not None
            assert share.rows is not None
            assert share.weights is not None
            s, cost, y = (array[first : first + block.n_rows] for array in share.rows)
            block_y, block_cost = problem.y_and_cost(block)
            y[:, 0], cost[:, 0] = block_y, block_cost
            signed_margins(X, block_y, problem.positive, share.w, bias, 1.0, -1.0, s)
            alpha = share.weights.alpha(s, block_cost[:, None] * problem.C)
            add_rows(X, block_y, problem.positive, alpha, bias, V)
        for start, stop in tile(block.n_rows, tile_rows):
            out, codes = np.empty((stop - start, n_directions)), np.zeros(stop - start, np.int32)
            signed_margins(readonly_view(take_rows(X, start, stop)), codes, plus, share.W, bias, 0.0, 1.0, out)
            share.out[:, first + start : first + stop] = out.T
        first += block.n_rows
        bytes_read += block.nbytes
    return RotationSums(V, bytes_read)


def rotate(
    ctx: Context,
    problem: Problem,
    D: np.ndarray,
    out: np.ndarray,
    rows: RowState | None = None,
    w: np.ndarray | None = None,
    weights: Weights | None = None,
) -> np.ndarray:
    """Read all rows once: out[k, i] = x_i . d_k + bias d_k,last; with w also slacks, costs, y, and V of `weights`.

    The products are in this process, so the rows are read here even if other work is done by other processes.

    D : float64, (n_directions, n_features + 1);  out : float64, (at least n_directions, n_samples)
    Returns V, float64, shape of w ((0,) without w).  Raises PassLeft if the run is to stop.
    """
    W = np.ascontiguousarray(D.T)

    def share(run: tuple[BlockRef, ...]) -> RotationShare:
        start, stop = run[0].start, run[-1].stop
        parts = None
        if rows is not None:
            s, cost, y = (v.between(start, stop) for v in (rows.s, rows.cost, rows.y))
            parts = s, cost, y
        return RotationShare(ctx.data, run, problem, W, out[: len(D), start:stop], w, weights, parts)

    V = np.zeros(0 if w is None else w.shape)
    mapper = ctx.mapper if ctx.mapper.in_process else SerialMapper()
    for _, sums in over_shares(
        mapper, rotation_task, pass_runs(ctx), share, ctx.pass_workers, account=ctx, may_leave=True
    ):
        if sums.V is not None:
            V += sums.V
    return V
