"""What a fit takes over from an earlier model: weights as they are, duals inside the new box.

Rows that the model knew keep their alpha, clipped to the box of the new costs; new rows start at 0.  With a free bias
the heavier side is scaled until sum y alpha = 0 (`solvers/kernel/signed.py`).  Any such point is feasible, so that
nothing here can touch a claim: proofs are made of the rows, as always.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsvm.errors import DataError, Interrupted
from bigsvm.model.linear_model import LinearModel
from bigsvm.problem.certificate import Certificate
from bigsvm.problem.problem import Problem, zero_weights
from bigsvm.run.proof.linear_prover import LinearProver
from bigsvm.run.proof.prover import ProofLeft, Prover
from bigsvm.run.start.earlier import Earlier, Match
from bigsvm.solvers.base import Context, Solver
from bigsvm.solvers.weights import columns
from bigsvm.store.blocks import Block, BlockGroup, BlockRef, RowBlocks, tile
from bigsvm.store.state.vectors import RowVector

_PIECE = 1 << 16  # rows


def take_over(
    earlier: Earlier, solver: Solver, problem: Problem, state: Any, prover: Prover, ctx: Context
) -> Certificate | None:
    """Put a solver that has done nothing yet where an earlier model ended.

    Of linear duals one pass clips alpha, rebuilds w from it, and proves what the earlier weights and this alpha are
    worth on these rows: its certificate is returned.  Kernel solvers clip when they read the labels.

    Raises
    ------
    DataError : alpha holds what is no number. Interrupted : the run is to stop; nothing was done that is kept.
    """
    weights = None
    if isinstance(earlier.model, LinearModel):
        weights = earlier_weights(earlier.model, earlier.matches, problem, ctx.data)
    vectors = solver.start_at(state, weights)
    if earlier.alpha is None:
        return None
    place(earlier.alpha, earlier.matches, vectors, ctx.data, earlier.path)
    if not isinstance(prover, LinearProver):
        return None

    def clip_rows(block: Block, where: BlockRef | BlockGroup) -> None:
        first = 0
        for vector in vectors:
            models = slice(first, first + vector.values.shape[1])
            first = models.stop
            alpha = vector.get(where)
            clip(problem, models, *problem.y_and_cost(block)[1:], alpha)
            import os
            if os.environ.get("NEWROWS"):
                from bigsvm.problem.certificate import _alpha_of_margins
                from bigsvm.store.blocks import readonly_view
                refs = where.refs if isinstance(where, BlockGroup) else (where,)
                at = np.concatenate([np.arange(r.start, r.stop) for r in refs])
                if ctx.data.row_order is not None: at = ctx.data.row_order[at]
                new = at >= earlier.alpha.shape[1]
                y, cost = problem.y_and_cost(block)
                point = solver.points(state)[0]
                alpha[new] = _alpha_of_margins(point.problem, readonly_view(block.X), y, cost, point.w.astype(np.float64))[new]
            vector.put(where, alpha)

    try:
        return prover.prove_start(clip_rows)
    except ProofLeft:
        raise Interrupted("stopped before training began", hint="the same command goes on") from None


def earlier_weights(
    model: LinearModel, matches: tuple[Match | None, ...], problem: Problem, data: RowBlocks
) -> np.ndarray:
    """w of each model in the working order of features, shaped as `zero_weights`; 0 for features that are new."""
    w = zero_weights(data.n_features, problem.n_models)
    order = slice(None) if data.feature_order is None else data.feature_order
    whole = np.zeros(data.n_features)
    for m, match in enumerate(matches):
        if match is None:
            continue
        whole[: model.n_features] = match.sign * model.coef[match.model]
        columns(w)[:-1, m] = whole[order]
        if problem.constant_feature:
            columns(w)[-1, m] = match.sign * model.intercept[match.model] / problem.constant_feature
    return w


def place(
    alpha: np.ndarray, matches: tuple[Match | None, ...], vectors: list[RowVector], data: RowBlocks, where: str
) -> None:
    """Alpha of an earlier model, (n_models, n_rows) in store order, into the working order of the rows.

    vectors : (n_samples, n_models) each, of the models in order; all 0
    """
    m = 0
    for vector in vectors:
        for column in range(vector.values.shape[1]):
            match, m = matches[m], m + 1
            if match is None:
                continue
            for start, stop in tile(alpha.shape[1], _PIECE):
                values = alpha[match.model, start:stop]
                if not np.isfinite(values).all():
                    raise DataError("alpha.npy holds what is no number", where)
                rows = slice(start, stop) if data.working_row is None else data.working_row[start:stop]
                vector.values[rows, column] = values


def clip(problem: Problem, models: slice, cost: np.ndarray, alpha: np.ndarray) -> None:
    """Bring alpha of some rows into the box of the problem, in place.

    cost : float64, (n_rows,);  alpha : float64, (n_rows, number of `models`)
    """
    loss, C = problem.loss, cost[:, None] * problem.C[None, models]
    if loss.smooth:
        np.clip(alpha, -np.inf if loss.regression else 0.0, np.inf, out=alpha)
    else:
        np.clip(alpha, loss.lower_factor * C, loss.upper_factor * C, out=alpha)
    alpha[cost == 0.0] = 0.0
