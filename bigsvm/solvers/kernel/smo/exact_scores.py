"""f of a few rows from the definition, in float64: what sums of very many float32 values may have drifted from.

A row's f is a sum of steps, each times a float32 value.  Where C is large, their rounding comes near to the violation
that is asked for: a proof computes f of all rows anew, finds a larger violation, and the fit goes on, to another proof.
The rows that decide the violation are few, and theirs is found here for a tenth of a proof.
"""

from __future__ import annotations

import numpy as np

from bigsvm.solvers.kernel.smo.member import Member
from bigsvm.solvers.kernel.values.gram import Gram
from bigsvm.solvers.kernel.values.other_side import OtherSide
from bigsvm.solvers.kernel.values.row_buffer import support_rows

_SAMPLE = 64
"""Rows whose f says how far those of others may be off."""
_SPREAD = 4.0  # times the root mean square of the sample: none of some thousand rows is farther off
_NEAR = 2.0  # times the violation asked for: rows as near to violating may decide it


def correct_scores(member: Member) -> None:
    """f of the rows that decide the violation anew, where it is as small as asked but may not be in truth.

    Once for a model in work, where all rows are in memory and its values are of float32; else it changes nothing.
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
    """The support vectors of a model whose rows are in memory."""
    qp, data = member.qp, member.rows.data
    X, support = data.whole(), np.flatnonzero(qp.beta)
    assert X is not None
    numbers = member.numbers(support)
    return OtherSide(data, X, numbers, numbers, qp.beta[support], support_rows(member.ctx))


def scores_anew(member: Member, side: OtherSide, where: np.ndarray, gram: Gram) -> np.ndarray:
    """K beta - t at positions of the QP, of values in `gram`'s float type."""
    counts = member.rows.counts
    f = -member.qp.target[where][None, :]
    for support, beta in side.parts(gram):
        gram.add(side.X, member.numbers(where), support, beta[:, None], f)
    counts.asked += len(where) * len(side.beta)
    counts.values += len(where) * len(side.beta)
    found: np.ndarray = f[0]
    return found
