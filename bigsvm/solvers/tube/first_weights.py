"""Weights near those of the hinge loss, for rows in memory: a few Newton steps for the squared hinge loss on all rows.

They do not depend on the scales of columns, as the weights after some epochs of `dcd` do, and they know rare features
and far rows, as the solution of a sample does not.  Working sets begin there (docs/measurements.md 5).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bigsvm.compiled.linear.hessian import triangle_size
from bigsvm.problem.problem import Problem
from bigsvm.solvers.context import Context
from bigsvm.solvers.newton_ws.subproblem import Subproblem
from bigsvm.solvers.newton_ws.working_newton import FirstHessian, downhill, nearly
from bigsvm.solvers.tube.classes import on_all_rows
from bigsvm.solvers.tube.in_memory import bytes_of_copies
from bigsvm.store.blocks import Block
from bigsvm.tasks import PassLeft

_ARRAYS = 16  # float64 numbers of each row


def put_first_weights(W: np.ndarray, problem: Problem, ctx: Context) -> bool:
    """Put the weights of each model into W, float64, (n_features + 1, n_models); False if memory lacks.

    If --max-time is over meanwhile, the model at work gets the weights that were reached.  Models after it keep theirs;
    if these are 0, they get those after one step along the gradient.

    The matrices of the steps are not counted: a working set takes as much.  Raises PassLeft if the run is to stop.
    """
    block, several = ctx.data.read(ctx.refs[0]), problem.n_models > 1
    nbytes = 8 * (_ARRAYS * block.n_rows + several * (block.n_rows + triangle_size(len(W))))
    room = ctx.budget.try_reserve("first weights", nbytes + bytes_of_copies(problem, block))
    if room is None:
        return False
    first = FirstHessian() if several else None
    try:
        for m in range(problem.n_models):
            W[:, m] = _weights_of(problem, m, block, ctx, lambda part: nearly(part, first))
    except PassLeft as left:
        if ctx.stopping():
            raise
        if left.reached is not None:
            W[:, m] = left.reached
        _put_downhill(W, problem, block, ctx)
    finally:
        room.release()
    return True


def put_downhill(W: np.ndarray, problem: Problem, ctx: Context) -> None:
    """Put the weights after one step along the gradient into W for each model that has w = 0, if memory has room."""
    block = ctx.data.read(ctx.refs[0])
    room = ctx.budget.try_reserve("first weights", 8 * _ARRAYS * block.n_rows + bytes_of_copies(problem, block))
    if room is not None:
        _put_downhill(W, problem, block, ctx)
        room.release()


def _put_downhill(W: np.ndarray, problem: Problem, block: Block, ctx: Context) -> None:
    for m in np.flatnonzero(~W.any(axis=0)).tolist():
        W[:, m] = _weights_of(problem, m, block, ctx, downhill)


def _weights_of(
    problem: Problem, m: int, block: Block, ctx: Context, weights: Callable[[Subproblem], np.ndarray]
) -> np.ndarray:
    part, kept = on_all_rows(problem, m, block, ctx)
    return weights(part) if len(kept) else np.zeros(len(part.lean))
