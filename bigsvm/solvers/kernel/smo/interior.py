"""The hand-over of a linear regression from `smo` to the interior-point method (`solvers/tube`).

Steps of two rows take long on columns of different scales, and with a large C: some 10,000 for each row.  So `smo` goes
first, and hands over when it has asked for many times as many kernel values as a solution costs.  Its proofs have
w = w(alpha), so alpha is made to give the w of the solution; columns of 1e6 leave too few digits of that, and then the
fit may end as stalled (`interior-point` proves w and alpha apart).
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.linear.primal import add_rows, signed_margins
from bigsvm.solvers.context import Context
from bigsvm.solvers.kernel.signed import make_feasible
from bigsvm.solvers.kernel.state import KernelState, make_qp
from bigsvm.solvers.tube.in_memory import bytes_to_solve, solve_model
from bigsvm.store.blocks import Block, readonly_view
from bigsvm.tasks import PassLeft, leaving_when

# A solution multiplies each entry of the rows about `_ITERATIONS` (d / 2 + `_VISITS`) times; of few rows it takes as
# long as `_LEAST` kernel values.
_ITERATIONS, _VISITS, _LEAST = 15.0, 12.0, 1e6
_PATIENCE = 10.0  # solutions that the steps before it may cost: easy fits need fewer
_ONE_MODEL = np.zeros(1, np.int32)  # of one class, so that the loops are those of classes: no row has a sign


def enough(ctx: Context) -> float:
    """The kernel values that steps may ask for before the method takes over."""
    return _PATIENCE * (_ITERATIONS * ctx.data.n_samples * (0.5 * ctx.data.n_features + _VISITS) + _LEAST)


def solve(state: KernelState, waiting: np.ndarray, ctx: Context) -> int:
    """Put the solutions of the models `waiting`, of which none is open, into the state; these models are then done.

    Returns 0; or, if the method has no room, the bytes that memory lacks, and then nothing is changed.
    Raises PassLeft if the run is to stop, or if a checkpoint is due between two models.  Models that are solved by then
    stay done, and the next call has the others.  When --max-time is over, the others stay as they are.
    """
    block = ctx.data.read(ctx.refs[0])
    nbytes = bytes_to_solve(state.problem, block, ctx)
    room = ctx.budget.try_reserve("interior-point method", nbytes)
    if room is None:
        return nbytes - ctx.budget.free
    with room, leaving_when(lambda: ctx.stopping() or ctx.expired()):
        for turn, m in enumerate(waiting.tolist()):
            if turn:  # where checkpoints are due all the time, each call solves one model
                if ctx.expired():
                    break
                if ctx.pause():
                    raise PassLeft
            try:
                _, state.alpha.values[:, m] = solve_model(state.problem, m, block, ctx, consistent=True)
            except PassLeft:
                if ctx.stopping():
                    raise
                break
            _take(state, m, block, ctx.data.n_features + 1)
    return 0


def _take(state: KernelState, m: int, block: Block, width: int) -> None:
    """Make beta of a model, which is in `state.alpha`, feasible, and compute its f = K beta - t by its weights."""
    qp = make_qp(state, m)
    make_feasible(state, qp, m)
    X, beta = readonly_view(block.X), np.ascontiguousarray(state.alpha.values[:, [m]])
    w, scores = np.zeros(width), np.empty((len(beta), 1))
    add_rows(X, np.zeros(len(beta), np.int32), _ONE_MODEL, beta, 0.0, w)
    signed_margins(X, np.zeros(len(beta), np.int32), _ONE_MODEL, w, 0.0, 0.0, 1.0, scores)
    np.subtract(scores[slice(None) if qp.rows is None else qp.rows, 0], qp.target, out=qp.f)
    state.gap[m], state.primal[m], _, state.bias[m], state.epsilon[m] = qp.gap_at_best_bias()
    state.violation[m] = qp.violation()
    state.done[m], state.final[m], state.own_end[m] = True, False, False
    state.now_scored(m)
