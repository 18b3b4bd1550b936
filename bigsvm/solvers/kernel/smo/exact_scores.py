"""Correction of f of a few rows, from its definition and in float64, before a proof is made.

f of a row is a sum over many steps, each times a float32 kernel value.  If C is large, the rounding of these values
comes near the violation that is asked for.  Then a proof, which computes f of all rows anew, finds a larger violation;
the fit goes on, and needs a second proof.  Only a few rows decide the violation.  Their f is computed here anew, at a
tenth of the cost of a proof.
"""

from __future__ import annotations

import numpy as np

from bigsvm.solvers.kernel.smo.member import Member
from bigsvm.solvers.kernel.values.gram import Gram
from bigsvm.solvers.kernel.values.other_side import OtherSide
from bigsvm.solvers.kernel.values.row_buffer import kept_rows, support_rows

_SAMPLE = 64
"""Rows from which the error of f of the others is estimated."""
_SPREAD = 4.0  # bound of the error, over its root mean square in the sample: enough for some thousand rows
_NEAR = 2.0  # rows that are this near to violating, in multiples of the target, may decide the violation


def correct_scores(member: Member) -> None:
    """Compute f of the rows that decide the violation anew, if the violation only seems to be as small as asked.

    This is done once for an open model, and only if all rows are in memory and its kernel values are float32.
    """
    qp, work, data = member.qp, member.work, member.rows.data
    if work.corrected or not member.ctx.resident or member.rows.gram is data.exact or qp.violation() > qp.eps:
        return
    near = np.flatnonzero(member.violations(np.arange(qp.n), work.middle) > -_NEAR * qp.eps)
    if not len(near):
        return
    side = support_of_model(member)
    sample = near[:: -(-len(near) // _SAMPLE)]
    off = _SPREAD * float(np.sqrt(np.mean((scores_anew(member, side, sample, data.exact) - qp.f[sample]) ** 2)))
    if qp.violation() + 2.0 * off > qp.eps:
        qp.f[near] = scores_anew(member, side, near, data.exact)
        work.corrected = True


def support_of_model(member: Member) -> OtherSide:
    """The support vectors of a model whose rows are all in memory, with their beta."""
    qp, data = member.qp, member.rows.data
    X, support = data.whole(), np.flatnonzero(qp.beta)
    assert X is not None
    numbers = member.numbers(support)
    ctx = member.ctx
    return OtherSide(data, X, numbers, numbers, qp.beta[support], support_rows(ctx), kept_rows(ctx))


def scores_anew(member: Member, side: OtherSide, where: np.ndarray, gram: Gram) -> np.ndarray:
    """K beta - t at positions `where` of the QP, float64, from kernel values in the dtype of `gram`."""
    counts = member.rows.counts
    f = -member.qp.target[where][None, :]
    for support, beta in side.parts(gram):
        gram.add(side.X, member.numbers(where), support, beta[:, None], f)
    counts.asked += len(where) * len(side.beta)
    counts.values += len(where) * len(side.beta)
    found: np.ndarray = f[0]
    return found
