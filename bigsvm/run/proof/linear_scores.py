"""Scores of a running fit with the linear kernel, by way of w = sum_s beta_s x_s.

Of rows far from the origin x_s.x_i loses the digits in which rows differ, and sum_s beta_s x_s.x_i does not get them
back.  w has them: sum_s beta_s is 0, and what rounding leaves in w moves all scores by nearly the same, which the bias
takes up.  So w and the bias are proved together, and the model must be this w to the bit.
"""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.linear.primal import add_rows, signed_margins
from bigsvm.compiled.shared.rows import CSR
from bigsvm.problem.rounding import UnsureWeights
from bigsvm.run.proof.prover import ProofLeft
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.values.data import KernelData, Rows, of_qp
from bigsvm.store.blocks import Matrix

_ONE_MODEL = np.zeros(1, np.int32)


def linear_scores_of(qp: DualQP, data: KernelData) -> tuple[np.ndarray, UnsureWeights]:
    """qp.f = X w - t anew, and w, float64, (n_features,), in the order of the data's features.

    Gives back, too, what decides how much rounding of w and of its scores is worth.
    Two readings of the rows.  Raises ProofLeft where the run is to stop.
    """
    unsure = UnsureWeights()
    w = np.zeros(data.ctx.data.n_features + 1)  # the last entry is a bias, of which there is none here
    for rows in data.blocks():
        mine, own = of_qp(qp, rows)
        if np.any(qp.beta[mine]):
            coefficients = np.zeros((rows.stop - rows.start, 1))
            coefficients[own - rows.start, 0] = qp.beta[mine]
            add_rows(_matrix(rows), np.zeros(len(coefficients)), _ONE_MODEL, coefficients, 0.0, w)
        _go_on(data)
    for rows in data.blocks():
        mine, own = of_qp(qp, rows)
        if len(own):
            scores = np.empty((rows.stop - rows.start, 1))
            signed_margins(_matrix(rows), np.zeros(len(scores)), _ONE_MODEL, w, 0.0, 0.0, 1.0, scores)
            beta, diagonal = qp.beta[mine], data.diagonal(rows.X, own - rows.offset, own)
            unsure.add(beta, qp.lower[mine], qp.upper[mine], diagonal)
            np.subtract(scores[own - rows.start, 0], qp.target[mine], out=qp.f[mine])
        _go_on(data)
    return w[:-1], unsure


def _matrix(rows: Rows) -> Matrix:
    """A block's own rows of its X.  The loops take y as targets, whose sign is 1."""
    first, last = rows.start - rows.offset, rows.stop - rows.offset
    if isinstance(rows.X, CSR):
        return rows.X._replace(indptr=rows.X.indptr[first : last + 1])
    return rows.X[first:last]


def _go_on(data: KernelData) -> None:
    if data.ctx.stopping():
        raise ProofLeft
