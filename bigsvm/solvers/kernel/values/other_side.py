"""Scores f of blocks of rows from support vectors in memory, for proofs and for passes of a fit.

For the rbf kernel f may first be computed from float32 values, with a bound of its error.  It is computed again in
float64 only for rows for which the bound does not show that their term (bracket) of the gap is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from bigsvm.compiled.kernel.values.support import Support
from bigsvm.compiled.shared.rows import CSR, sqnorms
from bigsvm.problem.kernel import Kernel
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.values.data import Rows, of_qp
from bigsvm.solvers.kernel.values.gram import PAIRED, Gram
from bigsvm.store.blocks import Matrix, tile

_UNIT = 2.0**-24  # rounding unit of float32
_EXP = 3e-7  # relative error of exp in float32, including the last rounding of a value
# Share of undecided rows, among those of the first block that are no support vectors, above which float32 values are
# not worth their time.
_MOST_UNDECIDED = 0.5
# Roundings in an exponent of rbf, each of at most one unit of gamma (||x||^2 + ||s||^2):
_MORE = 7  # beside one for each entry of a product: of norms, and of what is computed from them
_OF_WHOLE = 4  # if the distance is exact: of gamma and of one product, each of up to 2 (||x||^2 + ||s||^2)
_OF_PAIRS = 10  # if the distance comes from pairs of whole numbers: those, that of the step, and three of the distance
_EXACT = 2.0**24  # float32 represents all whole numbers up to this
_PIECE = 1 << 16  # numbers that are looked at together
_LARGEST_ERROR = 2.0**-7  # largest relative error with which float32 values decide; up to it e^x - 1 is x to within 1 %


@dataclass
class Bound:
    """A bound for the rbf kernel: |float32 value - K(s, x)| <= (per_norm (||x||^2 + largest) + constant) K(s, x).

    It is derived from the error of the exponent, and holds only if the factor is at most `_LARGEST_ERROR`.

    largest : float    largest ||s||^2
    of_whole : float   replaces `per_norm` for rows of whole numbers, whose products and norms are exact; None if not
        all support vectors are whole numbers
    """

    per_norm: float
    largest: float
    constant: float = _EXP
    of_whole: float | None = None

    def errors(self, sq: np.ndarray, whole: bool) -> np.ndarray:
        """The relative errors for rows with these squared norms.  whole : the rows have only whole numbers"""
        norms = sq + self.largest
        found = self.per_norm * norms
        if whole and self.of_whole is not None:
            # A sum of products is at most half of the norms, so it is exact too.
            found = np.where(norms <= _EXACT, self.of_whole * norms, found)
        return found + self.constant


class Values(Protocol):
    """A source of kernel values: `KernelData`, or `SentValues` on a worker."""

    kernel: Kernel
    gram: Gram
    exact: Gram

    def support(self, X: Matrix, at: np.ndarray, rows: np.ndarray, gram: Gram) -> Support:
        """Rows `at` of X, which are `rows` of the data, as the second argument of kernel values."""


class OtherSide:
    """Support vectors in memory, which are gathered some at a time, in either float type.

    X, at : they are rows `at` of X;  numbers : int64, their numbers in the data;  beta : float64, (len(at),)
    at_once : int   most that are gathered at a time
    kept : int      if they are at most so many, they stay gathered
    """

    def __init__(
        self,
        data: Values,
        X: Matrix,
        at: np.ndarray,
        numbers: np.ndarray,
        beta: np.ndarray,
        at_once: int,
        kept: int,
    ) -> None:
        self._data, self.X, self.at, self.numbers, self.beta = data, X, at, numbers, beta
        self.at_once, self.kept = at_once, kept
        self._kept: dict[str, list[tuple[Support, np.ndarray]]] = {}

    def parts(self, gram: Gram) -> Iterable[tuple[Support, np.ndarray]]:
        """Yield (rows, their beta) in the float type of `gram`."""
        if len(self.beta) > self.kept:
            return self._gathered(gram)
        return self._kept.setdefault(gram.dtype.name, []) or self._keep(gram)

    def _keep(self, gram: Gram) -> list[tuple[Support, np.ndarray]]:
        self._kept[gram.dtype.name] = list(self._gathered(gram))
        return self._kept[gram.dtype.name]

    def _gathered(self, gram: Gram) -> Iterator[tuple[Support, np.ndarray]]:
        for start in range(0, len(self.beta), self.at_once):
            these = slice(start, start + self.at_once)
            support = self._data.support(self.X, self.at[these], self.numbers[these], gram)
            yield support, self.beta[these]

    def add_pairs(self, f: np.ndarray, which: np.ndarray, stopping: Callable[[], bool]) -> bool:
        """Add the kernel sums of support vectors to f of support vectors, at places `which`; False if `stopping`."""
        first, gram = 0, self._data.exact
        for gathered, _ in self.parts(gram):
            for start, stop in tile(gathered.n, PAIRED):
                rest = slice(first + start, None)
                support = gathered.part(start, stop)
                gram.add_pairs(self.X, self.at[rest], support, self.beta[rest], f, which[rest])
                if stopping():
                    return False
            first += gathered.n
        return True

    def bound(self) -> Bound:
        """The bound for float32: an exponent with c roundings is off by at most gamma c u (||x||^2 + ||s||^2)."""
        entries, largest, whole, pairs = 0, 0.0, True, True
        for support, _ in self.parts(self._data.exact):
            pairs = pairs and support.step > 0.0  # a step in float64 holds for float32 too
            whole = whole and not pairs and are_whole(support.S)
            entries = max(entries, support.most_entries)
            largest = max(largest, support.largest_square)
        unit = 1.2 * self._data.kernel.gamma * _UNIT
        per_norm = unit * (_OF_PAIRS if pairs else entries + _MORE)
        return Bound(per_norm, largest, of_whole=unit * _OF_WHOLE if whole else None)


def are_whole(X: Matrix) -> bool:
    """Whether all values of some rows are whole numbers: counts, bytes, zeros and ones."""
    if isinstance(X, CSR):
        first, last = int(X.indptr[0]), int(X.indptr[-1])
        return all(_whole(X.data[at : min(at + _PIECE, last)]) for at in range(first, last, _PIECE))
    step = max(_PIECE // max(X.shape[1], 1), 1)
    return all(_whole(X[at : at + step]) for at in range(0, len(X), step))


def _whole(numbers: np.ndarray) -> bool:
    return numbers.dtype.kind != "f" or bool(np.array_equal(numbers, np.rint(numbers)))


class Scoring:
    """Adds the kernel sums of some support vectors to f of a programme, block by block.

    qp : has f, the box, and the rows that take part; on a worker, only those of its block
    paired : int64   places in the programme whose f is complete already, ascending: those of the support vectors
    b, bound : use float32 values for rows that `bound` decides with this bias; None: float64 for all rows
    settled : bool   it was decided, by the first block, whether float32 values are worth their time
    """

    def __init__(
        self,
        qp: DualQP,
        data: Values,
        side: OtherSide,
        paired: np.ndarray,
        b: float | None = None,
        bound: Bound | None = None,
        settled: bool = False,
    ) -> None:
        self.qp, self.side, self.paired, self.b, self.bound = qp, side, paired, b, bound
        self._data, self._settled = data, settled

    def add(self, rows: Rows) -> None:
        """Add to f of the rows of a block, except those at `paired`."""
        qp, data, side = self.qp, self._data, self.side
        mine, own = of_qp(qp, rows)
        if not len(own):
            return
        f = np.ascontiguousarray(qp.f[mine])[None, :]
        first, last = np.searchsorted(self.paired, [mine.start, mine.stop])
        where = _without(len(own), self.paired[first:last] - mine.start)
        if self.bound is not None and self.b is not None and len(where):
            found = nearly(data, rows, own[where], side)
            left = undecided(qp, mine, found, where, self.b, self.bound, f[0])
            if not self._settled and len(left) > _MOST_UNDECIDED * len(where):
                self.bound = None  # it decides too few rows
            where = left
        self._settled = True
        if len(where):
            again = f[:, where]
            for support, beta in side.parts(data.exact):
                data.exact.add(rows.X, own[where] - rows.offset, support, beta[:, None], again)
            f[0, where] = again[0]
        qp.f[mine] = f[0]


def _without(n: int, places: np.ndarray) -> np.ndarray:
    """0, ..., n - 1 without `places`."""
    left = np.ones(n, bool)
    left[places] = False
    return np.flatnonzero(left)


def _span(rows: Rows, own: np.ndarray) -> Matrix:
    """The rows of a block from the first of `own` to the last."""
    first, last = int(own[0]) - rows.offset, int(own[-1]) + 1 - rows.offset
    X: Matrix = rows.X
    return X._replace(indptr=X.indptr[first : last + 1]) if isinstance(X, CSR) else X[first:last]


def _norms(X: Matrix, which: np.ndarray) -> np.ndarray:
    """||x||^2 of the rows `which`, float64."""
    found = np.empty(len(X.indptr) - 1 if isinstance(X, CSR) else len(X))
    sqnorms(X, found)
    return found[which]


class Nearly(NamedTuple):
    """Sums from float32 values.

    scores : sum of beta_s K(s, x) for each row, which is to be added to f;  size : sum of |beta_s| K(s, x)
    sq : squared norms of the rows;  whole : the rows have only whole numbers
    """

    scores: np.ndarray
    size: np.ndarray
    sq: np.ndarray
    whole: bool = False


def nearly(data: Values, rows: Rows, own: np.ndarray, side: OtherSide) -> Nearly:
    out = np.zeros((2, len(own)))
    for support, beta in side.parts(data.gram):
        data.gram.add(rows.X, own - rows.offset, support, np.stack([beta, np.abs(beta)], axis=1), out)
    if not len(own):
        return Nearly(out[0], out[1], np.empty(0))
    X = _span(rows, own)
    return Nearly(out[0], out[1], _norms(X, own - own[0]), are_whole(X))


def undecided(
    qp: DualQP, mine: slice, found: Nearly, where: np.ndarray, b: float, bound: Bound, f: np.ndarray
) -> np.ndarray:
    """The rows whose bracket may not be 0 for some f within the bound; f of all others is updated.

    where : the rows of the block to which `found` belongs; their beta must be 0
    """
    # The error is relative to the true K; the factor 1.01 makes it relative to the computed values.
    error = bound.errors(found.sq, found.whole)
    slack = np.where(error <= _LARGEST_ERROR, 1.01 * error * found.size, np.inf)
    scores = f[where] + found.scores
    r = -(scores + b)
    upper, lower, epsilon = qp.upper[mine][where], qp.lower[mine][where], qp.epsilon
    decided = ((upper <= 0.0) | (r <= epsilon - slack)) & ((lower >= 0.0) | (r >= slack - epsilon))
    f[where[decided]] = scores[decided]
    return where[~decided]
