"""Scores for the proof of a running kernel fit, computed anew from beta and the rows and from nothing else.

The score f(x_i) = sum_s beta_s K(x_s, x_i) of each row is computed from the support vectors, in float64.  With the rbf
kernel, the scores of rows that are not support vectors are first computed in float32, with a bound on the error.  If
the bracket of a row is 0 for every score within the bound, the row adds nothing to P, D and the gap, and is finished.
The others, which are near their margin, are computed again in float64.  So P, D and the gap are those of float64.

K of two support vectors that are in memory together is computed once, for the scores of both.  The scores of other rows
are computed by tasks on workers, if there are any.
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
from bigsvm.solvers.kernel.values.row_buffer import RowBuffer, kept_rows, support_rows
from bigsvm.solvers.kernel.values.sent_scores import add_to_all
from bigsvm.store.blocks import tile

_AT_ONCE = 1 << 12  # support vectors whose K_ii are computed together


class Programme(NamedTuple):
    """A programme whose scores are computed anew.

    b : the bias at which the gap will be computed; None if it is not known yet
    exact : compute all scores in float64
    """

    qp: DualQP
    b: float | None
    exact: bool


def scores_of(programmes: Sequence[Programme], data: KernelData) -> list[Unsure]:
    """Compute f = K beta - t of each programme anew, in float64 for all rows whose bracket at bias b is not surely 0.

    Returns, for each programme, the sums that bound the effect of rounding in f.  Programmes whose support vectors fit
    in memory together share a reading; the bits are those of each programme alone.

    Raises ProofLeft if the run is to stop.
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
    """Split the programmes, in order, into groups whose support vectors together are at most `capacity` rows."""
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
    """As `scores_of`, for programmes whose support vectors are all in the row buffer.

    support : for each programme the places of its support vectors
    """
    kept = kept_rows(data.ctx)
    if sum(map(len, support)) > kept:  # the parts of all programmes are in memory together
        kept = 0
    parts = []
    for one, which in zip(programmes, support, strict=True):
        np.negative(one.qp.target, out=one.qp.f)
        b = one.b if not one.exact and data.kernel.name == "rbf" else None
        parts.append(_part(one.qp, which, data, row_buffer, b, kept))
    if not add_to_all([part for part, _ in parts], data):
        raise ProofLeft
    return [unsure for _, unsure in parts]


def _alone(one: Programme, data: KernelData, row_buffer: RowBuffer) -> Unsure:
    """As `scores_of`, for one programme, with as many support vectors at a time as there is room for."""
    qp, unsure = one.qp, Unsure()
    np.negative(qp.target, out=qp.f)
    support = np.empty(min(row_buffer.capacity, qp.n), np.int64)
    found, start = next_nonzero(qp.beta, 0, support)
    whole = next_nonzero(qp.beta, start, np.empty(1, np.int64))[0] == 0
    approximate = not one.exact and one.b is not None and data.kernel.name == "rbf" and whole
    while found:
        which = support[:found]
        taken = row_buffer.load(_numbers(qp, which), charge=True)
        if taken < found:  # rows are longer than planned, so the others are loaded the next time
            start, approximate = int(which[taken]), False
            which = which[:taken]
        part, of_these = _part(qp, which, data, row_buffer, one.b if approximate else None, kept_rows(data.ctx))
        if not add_to_all([part], data):
            raise ProofLeft
        unsure.add(of_these)
        found, start = next_nonzero(qp.beta, start, support)
    return unsure


def _numbers(qp: DualQP, which: np.ndarray) -> np.ndarray:
    return which if qp.rows is None else qp.rows[which]


def _part(
    qp: DualQP, which: np.ndarray, data: KernelData, row_buffer: RowBuffer, b: float | None, kept: int
) -> tuple[Scoring, Unsure]:
    """The input for the scores of all rows from some support vectors in memory.

    The scores of the support vectors themselves are computed here.

    which : places of the support vectors, ascending
    b : if it is not None, `which` are all support vectors, and scores may be computed in float32 where the bound
        decides at this bias
    kept : most support vectors whose copies stay in memory
    """
    numbers, unsure = _numbers(qp, which), Unsure()
    for first, last in tile(len(which), _AT_ONCE):
        these, some = which[first:last], numbers[first:last]
        diagonal = data.diagonal(row_buffer.X, row_buffer.at(some), some)
        unsure.add(unsure_of(qp.beta[these], qp.lower[these], qp.upper[these], qp.target[these], diagonal))
    at, at_once = row_buffer.at(numbers), support_rows(data.ctx)
    side = OtherSide(data, row_buffer.X, at, numbers, qp.beta[which], at_once, kept)
    # Values of a precomputed kernel are read, not computed, so pairs would save nothing.
    paired = which if data.kernel.name != "precomputed" else which[:0]
    if len(paired) and not side.add_pairs(qp.f, paired, data.ctx.stopping):
        raise ProofLeft
    return Scoring(qp, data, side, paired, b, None if b is None else side.bound()), unsure
