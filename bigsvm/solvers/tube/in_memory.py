"""The epsilon-insensitive loss by an interior-point method, for a regression in which other steps take long.

Tables as they come have columns of different scales, and dual coordinate descent may then need 100,000 epochs.  With a
large C it may need thousands on columns of one scale.  An interior-point method needs about ten iterations, whatever
the scales and C are.  Sweeps (with a free bias: pairs of `smo`) go first, and end where they have cost about as much as
a solution.
"""

from __future__ import annotations

import itertools

import numpy as np

from bigsvm.compiled.linear.hessian import triangle_size
from bigsvm.compiled.shared.rows import n_rows_of, take_rows
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import DataShape, Need
from bigsvm.solvers.context import Context
from bigsvm.solvers.gathered import picked_rows
from bigsvm.solvers.newton_ws.held_rows import Held
from bigsvm.solvers.newton_ws.interior import ROW_ARRAYS, PathRows, follow
from bigsvm.solvers.newton_ws.subproblem import SLICES
from bigsvm.solvers.tube.tube import (
    BALANCINGS,
    FINAL,
    Tube,
    balancing,
    constant_of,
    evened,
    exact_sum,
    flat_bias,
    is_balanced,
    targets_and_costs,
    tube_of,
)
from bigsvm.store.blocks import Block, Matrix, readonly_view
from bigsvm.tasks import PassLeft

_ARRAYS = ROW_ARRAYS + 8  # float64 numbers of each of the two rows that stand for a row
_LEAST_PIECES = 32  # pieces of the rows: the addresses of the entries of one take less than `_COPIED` - 1 of the rows
_PIECE = 1 << 28  # multiplications with a piece in an iteration, at most: a signal waits for that long
_CONSISTENT = 2  # steps that bring w(alpha) to w
_COPIED = 1.25  # room for rows that are copied, over that of all rows


def bytes_to_solve(problem: Problem, block: Block, ctx: Context) -> int:
    """The memory that `solve_model` takes beside the rows, all of which are in `block`."""
    triangles = (SLICES + 1) * 8 * triangle_size(ctx.data.n_features + 1)
    return 2 * 8 * _ARRAYS * ctx.data.n_samples + triangles + bytes_of_copies(problem, block)


def bytes_of_copies(problem: Problem, block: Block) -> int:
    """The memory of copies of the rows that count, if there are any that do not: else 0."""
    with_rows = block.X.nbytes if isinstance(block.X, np.ndarray) else sum(part.nbytes for part in block.X)
    weights = problem.class_weight, block.sample_weight
    left_out = problem.axis is not None or any(w is not None and not np.all(w > 0.0) for w in weights)
    return int(_COPIED * with_rows) if left_out else 0


def needs_in_memory(shape: DataShape) -> list[Need]:
    """The memory of `solve_model` beside the rows, in bytes, for a plan."""
    nbytes = 2 * 8 * _ARRAYS * shape.n_samples + (SLICES + 1) * 8 * triangle_size(shape.n_features + 1)
    if shape.weighted or shape.folded:
        nbytes += int(_COPIED * (shape.nnz * shape.entry_bytes + 8 * shape.n_samples))
    return [Need("interior-point method", nbytes)]


def solve_model(
    problem: Problem, m: int, block: Block, ctx: Context, consistent: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """w, float64 (n_features + 1,), and alpha, float64 (n_rows,), of one of the models.

    consistent : with a free bias w(alpha) is to be w, as nearly as float64 allows

    Raises PassLeft if the run is to stop, within `tasks.leaving_when`.  It has `reached`, the point that was reached,
    of the same form as the result.
    """
    (t, C), width = targets_and_costs(problem, m, block, 0), ctx.data.n_features + 1
    kept, alpha = np.flatnonzero(C > 0.0), np.zeros(len(C))
    parts = parts_of(readonly_view(block.X), kept if len(kept) < len(C) else None, width)
    if len(kept) < len(C):  # the method needs costs above 0
        t, C = t[kept], C[kept]
    constant, start = constant_of(problem, float(C.sum())) if len(t) else 0.0, np.zeros(width)
    tube = tube_of(problem, parts, t, C, width, constant, ctx.threads)
    if len(t) and (flat := flat_bias(float(t.min()), float(t.max()), problem)) is not None:
        start[-1] = flat / (problem.constant_feature or 1.0)
        return start, alpha
    if tube.free and len(t):  # targets far from 0 are no hindrance: the bias begins among them
        start[-1] = float(np.mean(t)) / constant
        t = t - np.mean(t)
        tube.spread = float(np.abs(t).mean()) / constant
    mu = (float(np.abs(t).mean()) if len(t) else 0.0) or 1.0
    rows = PathRows(tube)

    def as_asked(w: np.ndarray, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        alpha[kept] = found
        if tube.free:
            w[-1] *= constant / problem.constant_feature
        return w, alpha

    try:
        w, _ = follow(tube, rows, start, 0.0, mu, FINAL * ctx.tol)
        return as_asked(w, _balanced(tube, w, tube.difference(rows.alpha), consistent))
    except PassLeft as left:
        w = start if left.reached is None else left.reached
        left.reached = as_asked(w, _evened(tube, tube.difference(rows.alpha)))
        raise


def _evened(tube: Tube, alpha: np.ndarray) -> np.ndarray:
    """With a free bias alpha whose sum is 0 up to rounding, because entries of one sign are scaled; else alpha."""
    total, size = exact_sum(alpha), exact_sum(np.abs(alpha))
    return evened(alpha, total, size) if tube.free and not is_balanced(total, size) else alpha


def _balanced(tube: Tube, w: np.ndarray, alpha: np.ndarray, consistent: bool) -> np.ndarray:
    """With a free bias alpha whose sum is 0 up to rounding, else alpha itself.  consistent : as in `solve_model`"""
    for turn in range(BALANCINGS if tube.free else 0):
        h, total = tube.inner(alpha), exact_sum(alpha)
        enough = is_balanced(total, exact_sum(np.abs(alpha))) and not (consistent and turn < _CONSISTENT)
        if enough or not h.any():
            break
        H = tube.triangles()
        tube.add_hessian(h, H)
        wanted = w - tube.summed(alpha) if consistent else np.zeros(len(w))
        wanted[-1] = -tube.bias * total
        alpha = tube.moved(alpha, balancing(tube, H, wanted))
    return _evened(tube, alpha)


def parts_of(X: Matrix, kept: np.ndarray | None, width: int) -> list[Held]:
    """The rows of X, or copies of those that are kept, in an even number of pieces.

    Signals are answered between two pieces.  Copying takes room for the addresses of the entries of one piece.
    """
    n = n_rows_of(X) if kept is None else len(kept)
    pieces = max(_LEAST_PIECES, 2 * (n * width * width // _PIECE))
    ends = [n * k // pieces for k in range(pieces + 1)]
    if kept is None:
        return [take_rows(X, a, b) for a, b in itertools.pairwise(ends)]
    return [picked_rows(X, kept[a:b]) for a, b in itertools.pairwise(ends)]
