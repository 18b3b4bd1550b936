"""Scores for the proof of a running fit with the linear kernel, computed as w.x_i with w = sum_s beta_s x_s.

If rows are far from the origin, x_s.x_i loses the digits in which the rows differ, and sum_s beta_s x_s.x_i does not
restore them.  w has these digits, because sum_s beta_s = 0.  Its remaining rounding error changes all scores by nearly
the same amount, which the bias absorbs.  So w and the bias are proved together, and the model must have exactly this w.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bigsvm.compiled.linear.primal import add_rows, signed_margins
from bigsvm.compiled.shared.rows import CSR
from bigsvm.problem.linear_rounding import UnsureWeights
from bigsvm.run.proof.prover import ProofLeft
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.values.data import KernelData, Rows, of_qp
from bigsvm.store.blocks import Matrix

_ONE_MODEL = np.zeros(1, np.int32)  # of one class, so that the loops are those of classes: no row has a sign


def linear_scores_of(qps: Sequence[DualQP], data: KernelData, w: np.ndarray) -> list[UnsureWeights]:
    """Compute w and f = X w - t of each programme anew, in two readings of the rows for all of them.

    w : float64, (n_programmes, n_features + 1), filled, with features in working order; the last entry, the place of
        the bias, stays 0

    Returns, for each programme, the sums that bound the effect of rounding in w and in its scores.

    Raises ProofLeft if the run is to stop.
    """
    unsure = [UnsureWeights() for _ in qps]
    w[:] = 0.0
    for rows in data.blocks():
        for k, qp in enumerate(qps):
            mine, own = of_qp(qp, rows)
            if np.any(qp.beta[mine]):
                coefficients = np.zeros((rows.stop - rows.start, 1))
                coefficients[own - rows.start, 0] = qp.beta[mine]
                add_rows(_matrix(rows), np.zeros(len(coefficients), np.int32), _ONE_MODEL, coefficients, 0.0, w[k])
        _go_on(data)
    for rows in data.blocks():
        for k, qp in enumerate(qps):
            mine, own = of_qp(qp, rows)
            if len(own):
                scores = np.empty((rows.stop - rows.start, 1))
                signed_margins(_matrix(rows), np.zeros(len(scores), np.int32), _ONE_MODEL, w[k], 0.0, 0.0, 1.0, scores)
                beta, diagonal = qp.beta[mine], data.diagonal(rows.X, own - rows.offset, own)
                unsure[k].add(beta, qp.lower[mine], qp.upper[mine], diagonal)
                np.subtract(scores[own - rows.start, 0], qp.target[mine], out=qp.f[mine])
        _go_on(data)
    return unsure


def _matrix(rows: Rows) -> Matrix:
    """The matrix of a block's own rows, as a view; `rows.X` may hold more."""
    first, last = rows.start - rows.offset, rows.stop - rows.offset
    if isinstance(rows.X, CSR):
        return rows.X._replace(indptr=rows.X.indptr[first : last + 1])
    return rows.X[first:last]


def _go_on(data: KernelData) -> None:
    if data.ctx.stopping():
        raise ProofLeft
