"""A warm start: weights are taken as they are, dual variables are clipped to the new box.

Rows that the model knew keep their alpha, clipped to the bounds of the new costs.  New rows start at 0 with a kernel;
for linear models their alpha follows from the earlier weights (`solvers/dcd/dual_cd_start.py`).  With a free bias the
heavier side is scaled down until sum y alpha = 0 (`solvers/kernel/signed.py`).  Every such point is feasible, and
proofs are always computed from the rows, so a warm start cannot invalidate a certificate.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigsvm.errors import DataError, Interrupted
from bigsvm.files.file_array import FileArray
from bigsvm.model.linear_model import LinearModel
from bigsvm.problem.certificate import Certificate
from bigsvm.problem.problem import Problem, zero_weights
from bigsvm.run.proof.linear_prover import LinearProver
from bigsvm.run.proof.prover import ProofLeft, Prover
from bigsvm.run.start.earlier import Earlier, Match
from bigsvm.solvers.base import Solver
from bigsvm.solvers.context import Context
from bigsvm.solvers.weights import columns
from bigsvm.store.blocks import RowBlocks, tile
from bigsvm.store.state.vectors import RowVector

_PIECE = 1 << 16  # rows


class Start(NamedTuple):
    """The start of a solver: the certificate of the starting point, and the row visits that it took."""

    certificate: Certificate
    visits: int


def take_over(
    earlier: Earlier, solver: Solver, problem: Problem, state: Any, prover: Prover, ctx: Context
) -> Start | None:
    """Move a solver that has done nothing yet to the point where an earlier model ended.

    For dual variables of linear models one pass clips alpha, rebuilds w from it, and proves the gap of the earlier
    weights with this alpha on these rows.  Kernel solvers clip when they read the labels; then None is returned.

    Raises
    ------
    DataError : alpha has values that are not finite.
    Interrupted : the run was told to stop; nothing has been changed on disk.
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

    start = solver.linear_start(state, earlier.alpha.shape[1], weights is not None, ctx)
    try:
        certificate = prover.prove_start(start.take)
    except ProofLeft:
        raise _left() from None
    visits = start.settle(certificate)
    if visits is None:
        raise _left()
    return Start(certificate, visits)


def _left() -> Interrupted:
    return Interrupted("stopped before training began", hint="repeat the same command to continue")


def earlier_weights(
    model: LinearModel, matches: tuple[Match | None, ...], problem: Problem, data: RowBlocks
) -> np.ndarray:
    """w of each model in the working order of features, with the shape of `zero_weights`; 0 for new features."""
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
    alpha: FileArray | np.ndarray,
    matches: tuple[Match | None, ...],
    vectors: list[RowVector],
    data: RowBlocks,
    where: str,
) -> None:
    """Copy the alpha of an earlier model, (n_models, n_rows) in store order, to the working order of the rows.

    vectors : (n_samples, n_models) each, of the models in order; all zero before
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
                    raise DataError("alpha.npy has values that are not finite", where)
                rows = slice(start, stop) if data.working_row is None else data.working_row[start:stop]
                vector.values[rows, column] = values
