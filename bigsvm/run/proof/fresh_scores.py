"""Scores of a running kernel fit, made anew from beta and the rows: nothing of the solver is believed but beta.

f(x_i) = sum_s beta_s K(x_s, x_i) of every row is computed from its support vectors: in float64, or, of rows that are
none, first in float32 with a bound on its error (rbf).  A row whose bracket is 0 wherever f lies within the bound needs
no more: it adds nothing to P, D and gap.  Those that the bound leaves undecided, near their margin, are computed again
in float64.  So P, D and gap are those of float64.  Of two support vectors that are in memory together K is computed
once, for the scores of both; what they make of other rows is shared out among workers where there are some.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bigsvm.compiled.kernel.dual_qp import next_nonzero
from bigsvm.problem.rounding import Unsure, unsure_of
from bigsvm.run.proof.prover import ProofLeft
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.values.data import KernelData
from bigsvm.solvers.kernel.values.other_side import OtherSide, Scoring
from bigsvm.solvers.kernel.values.row_buffer import RowBuffer, support_rows
from bigsvm.solvers.kernel.values.sent_scores import add_to_all
from bigsvm.store.blocks import tile

_AT_ONCE = 1 << 12  # support vectors whose K_ii is looked up together


class Programme(NamedTuple):
    """Whose scores are made anew.

    b : the bias at which a gap is wanted, None where it is not known;  exact : all in float64
    """

    qp: DualQP
    b: float | None
    exact: bool


def scores_of(programmes: Sequence[Programme], data: KernelData) -> list[Unsure]:
    """f = K beta - t of each programme anew: to float64 wherever the brackets of its gap at bias b are not surely 0.

    Gives back what decides how much rounding of f is worth.  Programmes whose support vectors are in memory together
    share a reading, to the bits of each alone.  Raises ProofLeft where the run is to stop.
    """
    row_buffer, found = RowBuffer(data), []
    for some in _together(programmes, row_buffer.capacity):
        if len(some) == 1:
            found.append(_alone(some[0], data, row_buffer))
            continue
        support = [np.flatnonzero(one.qp.beta) for one in some]
        numbers = np.unique(np.concatenate([_numbers(one.qp, which) for one, which in zip(some, support, strict=True)]))
        if row_buffer.load(numbers, charge=True) == len(numbers):
            found += _on_one_reading(some, support, data, row_buffer)
        else:  # longer rows than planned
            found += [_alone(one, data, row_buffer) for one in some]
    return found


def _together(programmes: Sequence[Programme], capacity: int) -> Iterator[Sequence[Programme]]:
    """Programmes in order, as many at a time as have no more support vectors than there is room for."""
    some: list[Programme] = []
    numbers = np.empty(0, np.int64)
    for one in programmes:
        more = np.union1d(numbers, _numbers(one.qp, np.flatnonzero(one.qp.beta)))
        if some and len(more) > capacity:
            yield some
            some, more = [], _numbers(one.qp, np.flatnonzero(one.qp.beta))
        some.append(one)
        numbers = more
    if some:
        yield some


def _on_one_reading(
    programmes: Sequence[Programme], support: Sequence[np.ndarray], data: KernelData, row_buffer: RowBuffer
) -> list[Unsure]:
    """Of programmes whose support vectors are in the row buffer, in places `support`."""
    few = sum(map(len, support)) <= support_rows(data.ctx)
    parts = []
    for one, which in zip(programmes, support, strict=True):
        np.negative(one.qp.target, out=one.qp.f)
        b = one.b if not one.exact and data.kernel.name == "rbf" else None
        parts.append(_part(one.qp, which, data, row_buffer, b, few))
    if not add_to_all([part for part, _ in parts], data):
        raise ProofLeft
    return [unsure for _, unsure in parts]


def _alone(one: Programme, data: KernelData, row_buffer: RowBuffer) -> Unsure:
    """Of one programme, of as many support vectors at a time as there is room for."""
    qp, unsure = one.qp, Unsure()
    np.negative(qp.target, out=qp.f)
    support = np.empty(min(row_buffer.capacity, qp.n), np.int64)
    found, start = next_nonzero(qp.beta, 0, support)
    whole = next_nonzero(qp.beta, start, np.empty(1, np.int64))[0] == 0
    approximate = not one.exact and one.b is not None and data.kernel.name == "rbf" and whole
    while found:
        which = support[:found]
        taken = row_buffer.load(_numbers(qp, which), charge=True)
        if taken < found:  # longer rows than planned: the others come with the next
            start, approximate = int(which[taken]), False
            which = which[:taken]
        part, of_these = _part(qp, which, data, row_buffer, one.b if approximate else None, True)
        if not add_to_all([part], data):
            raise ProofLeft
        unsure.add(of_these)
        found, start = next_nonzero(qp.beta, start, support)
    return unsure


def _numbers(qp: DualQP, which: np.ndarray) -> np.ndarray:
    return which if qp.rows is None else qp.rows[which]


def _part(
    qp: DualQP, which: np.ndarray, data: KernelData, row_buffer: RowBuffer, b: float | None, few: bool
) -> tuple[Scoring, Unsure]:
    """What some support vectors, which are in memory, make of the scores of a programme; that of their own is added.

    which : places of the support vectors, ascending
    b : makes all of f, in float32 where the bound decides at this bias: `which` are all support vectors then
    few : they may be kept gathered
    """
    numbers, unsure = _numbers(qp, which), Unsure()
    for first, last in tile(len(which), _AT_ONCE):
        these, some = which[first:last], numbers[first:last]
        diagonal = data.diagonal(row_buffer.X, row_buffer.at(some), some)
        unsure.add(unsure_of(qp.beta[these], qp.lower[these], qp.upper[these], qp.target[these], diagonal))
    side = OtherSide(data, row_buffer.X, row_buffer.at(numbers), numbers, qp.beta[which], support_rows(data.ctx), few)
    # Values of a precomputed kernel are read, not computed: nothing is saved.
    paired = which if data.kernel.name != "precomputed" else which[:0]
    if len(paired) and not side.add_pairs(qp.f, paired, data.ctx.stopping):
        raise ProofLeft
    return Scoring(qp, data, side, paired, b, None if b is None else side.bound()), unsure
