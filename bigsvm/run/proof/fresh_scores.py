"""Scores of a running kernel fit, made anew from beta and the rows: nothing of the solver is believed but beta.

f(x_i) = sum_s beta_s K(x_s, x_i) of every row is computed from its support vectors: in float64, or, of rows that are
none, first in float32 with a bound on its error (rbf).  A row whose bracket is 0 wherever f lies within the bound needs
no more: it adds nothing to P, D and gap.  Those that the bound leaves undecided, near their margin, are computed again
in float64.  So P, D and gap are those of float64.  Of two support vectors that are in memory together K is computed
once, for the scores of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bigsvm.compiled.kernel.dual_qp import next_nonzero
from bigsvm.compiled.kernel.support import Support
from bigsvm.compiled.shared.rows import CSR, sqnorms
from bigsvm.problem.rounding import Unsure, unsure_of
from bigsvm.run.proof.prover import ProofLeft
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.values.data import KernelData, Rows, of_qp
from bigsvm.solvers.kernel.values.gram import PAIRED, Gram
from bigsvm.solvers.kernel.values.row_buffer import RowBuffer, support_rows
from bigsvm.store.blocks import Matrix, tile

_UNIT = 2.0**-24  # of float32
_EXP = 3e-7  # relative error of exp in float32, and of one value's last rounding
_AT_ONCE = 1 << 12  # support vectors whose K_ii is looked up together
_MOST_UNDECIDED = 0.5  # of a block's rows that are no support vectors, with which float32 values go on
_MORE = 7  # roundings of a product's terms, of norms and of what is made of them
_LARGEST_ERROR = 2.0**-7  # relative, of float32 values that decide anything: e^x - 1 is x to within 1 %


@dataclass
class _Bound:
    """|float32 value - K(s, x)| <= (per_norm (||x||^2 + largest) + constant) K(s, x), of an rbf kernel.

    That is the error of an exponent: it bounds a value's where it is below `_LARGEST_ERROR`, and nothing else.
    """

    per_norm: float
    largest: float
    constant: float = _EXP


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
        parts.append(_Part(one.qp, which, data, row_buffer, b, few))
    for rows in data.blocks():
        for part in parts:
            part.add(rows)
        if data.ctx.stopping():
            raise ProofLeft
    return [part.unsure for part in parts]


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
        part = _Part(qp, which, data, row_buffer, one.b if approximate else None, True)
        for rows in data.blocks():
            part.add(rows)
            if data.ctx.stopping():
                raise ProofLeft
        unsure.add(part.unsure)
        found, start = next_nonzero(qp.beta, start, support)
    return unsure


def _numbers(qp: DualQP, which: np.ndarray) -> np.ndarray:
    return which if qp.rows is None else qp.rows[which]


class _Part:
    """What some support vectors, which are in memory, make of the scores of a programme.

    which : places of the support vectors, ascending
    b : makes all of f, in float32 where the bound decides at this bias: `which` are all support vectors then
    few : they may be kept gathered
    """

    def __init__(
        self, qp: DualQP, which: np.ndarray, data: KernelData, row_buffer: RowBuffer, b: float | None, few: bool
    ) -> None:
        self._qp, self._data, self._b, self.unsure = qp, data, b, Unsure()
        numbers = _numbers(qp, which)
        for first, last in tile(len(which), _AT_ONCE):
            these, some = which[first:last], numbers[first:last]
            diagonal = data.diagonal(row_buffer.X, row_buffer.at(some), some)
            self.unsure.add(unsure_of(qp.beta[these], qp.lower[these], qp.upper[these], qp.target[these], diagonal))
        self._side = _OtherSide(data, row_buffer, numbers, qp.beta[which], few)
        # Values of a precomputed kernel are read, not computed: nothing is saved.
        self._paired = which if data.kernel.name != "precomputed" else which[:0]
        if len(self._paired):
            self._side.add_pairs(qp.f, self._paired)
        self._bound = None if b is None else self._side.bound()

    def add(self, rows: Rows) -> None:
        """Add to f of a block's rows, but for those that have it already: the support vectors."""
        qp, data, side = self._qp, self._data, self._side
        mine, own = of_qp(qp, rows)
        if not len(own):
            return
        f = np.ascontiguousarray(qp.f[mine])[None, :]
        first, last = np.searchsorted(self._paired, [mine.start, mine.stop])
        where = _without(len(own), self._paired[first:last] - mine.start)
        if self._bound is not None and self._b is not None and len(where):
            found = _nearly(data, rows, own[where], side)
            undecided = _undecided(qp, mine, found, where, self._b, self._bound, f[0])
            if len(undecided) > _MOST_UNDECIDED * len(where):
                self._bound = None  # it decides too little to be worth its values
            where = undecided
        if len(where):
            again = f[:, where]
            for support, beta in side.parts(data.exact):
                data.exact.add(rows.X, own[where] - rows.offset, support, beta[:, None], again)
            f[0, where] = again[0]
        qp.f[mine] = f[0]


class _OtherSide:
    """Support vectors that are in memory, gathered some at a time in the float type that is wanted."""

    def __init__(
        self, data: KernelData, row_buffer: RowBuffer, numbers: np.ndarray, beta: np.ndarray, few: bool = True
    ) -> None:
        self._data, self._row_buffer, self._numbers, self._beta = data, row_buffer, numbers, beta
        self._at, self._at_once = row_buffer.at(numbers), support_rows(data.ctx)
        self._keeps = few and len(beta) <= self._at_once
        self._kept: dict[str, list[tuple[Support, np.ndarray]]] = {}

    def parts(self, gram: Gram) -> Iterable[tuple[Support, np.ndarray]]:
        """(rows, their beta) in `gram`'s type; few rows are gathered once."""
        if not self._keeps:
            return self._gathered(gram)
        return self._kept.setdefault(gram.dtype.name, []) or self._keep(gram)

    def _keep(self, gram: Gram) -> list[tuple[Support, np.ndarray]]:
        self._kept[gram.dtype.name] = list(self._gathered(gram))
        return self._kept[gram.dtype.name]

    def _gathered(self, gram: Gram) -> Iterator[tuple[Support, np.ndarray]]:
        for start in range(0, len(self._beta), self._at_once):
            these = slice(start, start + self._at_once)
            support = self._data.support(self._row_buffer.X, self._at[these], self._numbers[these], gram)
            yield support, self._beta[these]

    def add_pairs(self, f: np.ndarray, which: np.ndarray) -> None:
        """Add to f of the support vectors, in places `which`, what they make of one another."""
        first, gram = 0, self._data.exact
        for gathered, _ in self.parts(gram):
            for start, stop in tile(gathered.n, PAIRED):
                rest = slice(first + start, None)
                support = gathered.part(start, stop)
                gram.add_pairs(self._row_buffer.X, self._at[rest], support, self._beta[rest], f, which[rest])
                if self._data.ctx.stopping():
                    raise ProofLeft
            first += gathered.n

    def bound(self) -> _Bound:
        """Of float32 values: an exponent is off by at most gamma c u (||x||^2 + ||s||^2), c counting the roundings."""
        entries, largest = 0, 0.0
        for support, _ in self.parts(self._data.exact):
            S = support.S
            entries = max(entries, int(np.diff(S.indptr).max(initial=0)) if isinstance(S, CSR) else S.shape[1])
            largest = max(largest, float(support.sq.max(initial=0.0)))
        return _Bound(1.2 * self._data.kernel.gamma * (entries + _MORE) * _UNIT, largest)


def _without(n: int, places: np.ndarray) -> np.ndarray:
    """0, ..., n - 1 without some of them."""
    left = np.ones(n, bool)
    left[places] = False
    return np.flatnonzero(left)


def _norms(rows: Rows, own: np.ndarray) -> np.ndarray:
    """||x||^2 of some rows of a block."""
    first, last = int(own[0]) - rows.offset, int(own[-1]) + 1 - rows.offset
    X: Matrix = rows.X
    if isinstance(X, CSR):
        mine: Matrix = X._replace(indptr=X.indptr[first : last + 1])
    else:
        mine = X[first:last]
    found = np.empty(last - first)
    sqnorms(mine, found)
    return found[own - rows.offset - first]


class _Nearly(NamedTuple):
    """f + t in float32 values of some rows, the sum of |beta_s| K(s, x) beside it, and their squared norms."""

    scores: np.ndarray
    size: np.ndarray
    sq: np.ndarray


def _nearly(data: KernelData, rows: Rows, own: np.ndarray, side: _OtherSide) -> _Nearly:
    out = np.zeros((2, len(own)))
    for support, beta in side.parts(data.gram):
        data.gram.add(rows.X, own - rows.offset, support, np.stack([beta, np.abs(beta)], axis=1), out)
    return _Nearly(out[0], out[1], _norms(rows, own) if len(own) else np.empty(0))


def _undecided(
    qp: DualQP, mine: slice, found: _Nearly, where: np.ndarray, b: float, bound: _Bound, f: np.ndarray
) -> np.ndarray:
    """Rows whose bracket might not be 0 for some f within the bound; adds to f of the others.

    where : rows of the block that `found` is of, whose beta is 0
    """
    # Of the true K; the factor makes it one of the values that were computed.
    error = bound.per_norm * (found.sq + bound.largest) + bound.constant
    slack = np.where(error <= _LARGEST_ERROR, 1.01 * error * found.size, np.inf)
    scores = f[where] + found.scores
    r = -(scores + b)
    upper, lower, epsilon = qp.upper[mine][where], qp.lower[mine][where], qp.epsilon
    decided = ((upper <= 0.0) | (r <= epsilon - slack)) & ((lower >= 0.0) | (r >= slack - epsilon))
    f[where[decided]] = scores[decided]
    return where[~decided]
