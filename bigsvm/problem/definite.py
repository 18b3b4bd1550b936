"""Whether kernel values given as data are those of a kernel: what one reading of their rows shows, and what decides it.

One reading, in any order of the rows, tells for nothing: a diagonal value below 0; two rows with K_ij^2 > K_ii K_jj;
and, by a random vector r, whether K r and K' r differ: then K is not symmetric.  Each of the first two refutes that K
is positive semidefinite; that none was found proves nothing.  What proves it is a Cholesky factorisation.

Values were rounded when they were stored, so that nothing smaller than their rounding counts:

    asymmetry      |K_ij - K_ji| <= 2^7 eps max_i K_ii           is forgiven
    eigenvalues    above -max(n, 64) eps max_i K_ii              are not told from 0

with eps of the dtype that they are stored in.  What a gap is proved of is then K with as much added to its diagonal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from bigsvm.compiled.shared.rows import CSR, take_rows
from bigsvm.store.blocks import Matrix, tile

_ASYMMETRY = 2.0**7  # times eps: two triangles may have been computed apart
_FEW_ROWS = 64  # a tolerance by the number of rows is not below that of so many
_FLOAT64 = 8.0  # times n eps in float64, whose rounding is that of the factorisation, too
_PIECE = 1 << 15  # values looked at together
_SEED = 16  # of the random vector
_SUSPECTS = 4  # rows that are compared with their columns, value by value
ROW_BYTES = 8 * (6 + 2 * _SUSPECTS + 10)
"""Bytes of a row of K that a `ValueCheck` holds: sums, suspects, and what is made of one row's values."""


class Pair(NamedTuple):
    """A row and a column of K, by their places, and how far their value is from what it may be."""

    row: int
    column: int
    excess: float


class ValueCheck:
    """What is seen of K, (n, n), row by row.

    dtype : of the values as they are stored.  A row's place is that of its own column.
    """

    def __init__(self, n: int, dtype: np.dtype) -> None:
        self._n = n
        self._eps = float(np.finfo(dtype if dtype.kind == "f" else np.float64).eps)
        self._wide = dtype == np.float64 or dtype.kind != "f"
        rng = np.random.default_rng([_SEED, n])
        self._r = rng.choice([-1.0, 1.0], n) * (1.0 + rng.random(n))
        self._by_rows, self._by_columns = np.zeros(n), np.zeros(n)
        self.diagonal = np.full(n, np.nan)
        self._minor = Pair(0, 0, -np.inf)

    def add(self, X: Matrix, places: np.ndarray) -> None:
        """Rows of K, (len(places), n) dense or CSR, which are those at `places`; each row of K once."""
        for start, stop in _pieces(X):
            piece = take_rows(X, start, stop)
            if isinstance(piece, CSR):
                self._add_sparse(places[start:stop], piece)
            else:
                self._add_dense(places[start:stop], piece.astype(np.float64))

    def _add_dense(self, places: np.ndarray, values: np.ndarray) -> None:
        self._by_rows[places] += np.einsum("ij,j->i", values, self._r)
        self._by_columns += np.einsum("i,ij->j", self._r[places], values)
        at = np.arange(len(places))
        self.diagonal[places] = values[at, places]
        root = np.sqrt(np.maximum(self.diagonal, 0.0))
        excess = np.abs(values) - root[places, None] * root
        excess[at, places] = -np.inf
        excess[:, np.isnan(self.diagonal)] = -np.inf
        k, j = np.unravel_index(int(np.argmax(excess)), excess.shape)
        if excess[k, j] > self._minor.excess:
            self._minor = Pair(int(places[k]), int(j), float(excess[k, j]))

    def _add_sparse(self, places: np.ndarray, piece: CSR) -> None:
        rows, columns, values = _entries(piece)  # what is left out is 0
        own = places[rows]
        self._by_rows += np.bincount(own, values * self._r[columns], self._n)
        self._by_columns += np.bincount(columns, values * self._r[own], self._n)
        self.diagonal[places] = 0.0
        self.diagonal[own[own == columns]] = values[own == columns]
        seen = np.flatnonzero(~np.isnan(self.diagonal[columns]) & (own != columns))
        if len(seen):
            root = np.sqrt(np.maximum(self.diagonal, 0.0))
            excess = np.abs(values[seen]) - root[own[seen]] * root[columns[seen]]
            worst = int(np.argmax(excess))
            if excess[worst] > self._minor.excess:
                self._minor = Pair(int(own[seen[worst]]), int(columns[seen[worst]]), float(excess[worst]))

    @property
    def largest(self) -> float:
        """The largest value of the diagonal, or of its amount."""
        return float(np.max(np.abs(self.diagonal), initial=0.0))

    @property
    def asymmetry(self) -> float:
        """What K_ij and K_ji may differ by."""
        return _ASYMMETRY * self._eps * self.largest

    @property
    def tolerance(self) -> float:
        """What is not told from 0: an eigenvalue of that size below it."""
        return max(self._n, _FEW_ROWS) * self._eps * self.largest * (_FLOAT64 if self._wide else 1.0)

    def suspects(self) -> np.ndarray:
        """Places, ascending, of a few rows that may differ from their columns; none where K r = K' r."""
        with np.errstate(invalid="ignore"):  # of sums that overflow nothing is known
            apart = np.abs(self._by_rows - self._by_columns)
        # Sums of n values of up to twice the diagonal have some rounding of their own.
        floor = 4.0 * self._n * float(np.finfo(np.float64).eps) * self.largest
        worst = np.argsort(-apart, kind="stable")[:_SUSPECTS]
        return np.sort(worst[apart[worst] > max(self.asymmetry, floor)])

    def refutation(self) -> tuple[str, Pair] | None:
        """What shows that K has a negative eigenvalue, as `K[{row}, {column}] ...`, and where."""
        lowest = int(np.argmin(self.diagonal))
        value = float(self.diagonal[lowest])
        if value < -self.tolerance:
            return f"K[{{row}}, {{row}}] = {value:.6g} is below 0", Pair(lowest, lowest, -value)
        if self._minor.excess > self.tolerance:
            return "|K[{row}, {column}]| is above sqrt(K[{row}, {row}] K[{column}, {column}])", self._minor
        return None


class Lines:
    """Some rows of K and the columns of the same numbers, to be compared value by value.

    places : int64, ascending
    """

    def __init__(self, n: int, places: np.ndarray) -> None:
        self._places = places
        self._rows, self._columns = np.zeros((len(places), n)), np.zeros((len(places), n))

    def add(self, X: Matrix, places: np.ndarray) -> None:
        """Rows of K, as for `ValueCheck.add`."""
        for start, stop in _pieces(X):
            rows, columns, values = _entries(take_rows(X, start, stop))
            own = places[start:stop][rows]
            for k, place in enumerate(self._places.tolist()):
                mine, its = own == place, columns == place
                self._rows[k, columns[mine]] = values[mine]
                self._columns[k, own[its]] = values[its]

    def furthest(self) -> Pair:
        """The two values K_ij and K_ji that differ most."""
        apart = np.abs(self._rows - self._columns)
        k, j = np.unravel_index(int(np.argmax(apart)), apart.shape)
        return Pair(int(self._places[k]), int(j), float(apart[k, j]))

    def values(self, pair: Pair) -> tuple[float, float]:
        """(K_ij, K_ji) of a pair that `furthest` gave."""
        k = int(np.searchsorted(self._places, pair.row))
        return float(self._rows[k, pair.column]), float(self._columns[k, pair.column])


def _entries(X: Matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(row, column, value in float64) of what is stored of some rows."""
    if isinstance(X, CSR):
        rows = np.repeat(np.arange(len(X.indptr) - 1), np.diff(X.indptr))
        first, last = int(X.indptr[0]), int(X.indptr[-1])
        return rows, np.asarray(X.indices[first:last]), X.data[first:last].astype(np.float64)
    n, width = X.shape
    return np.repeat(np.arange(n), width), np.tile(np.arange(width), n), X.astype(np.float64).ravel()


def _pieces(X: Matrix) -> Iterator[tuple[int, int]]:
    """Runs of rows with some `_PIECE` values, or single rows."""
    if not isinstance(X, CSR):
        yield from tile(len(X), max(_PIECE // max(X.shape[1], 1), 1))
        return
    start, n = 0, len(X.indptr) - 1
    while start < n:
        stop = int(np.searchsorted(X.indptr, X.indptr[start] + _PIECE, "right")) - 1
        stop = min(max(stop, start + 1), n)
        yield start, stop
        start = stop


def whole_bytes(n: int) -> int:
    """Bytes that deciding takes: K in float64, factorised in place."""
    return 8 * n * n


def put_rows(whole: np.ndarray, X: Matrix, places: np.ndarray) -> None:
    """Rows of K into `whole`, (n, n) float64, at their places."""
    for start, stop in _pieces(X):
        rows, columns, values = _entries(take_rows(X, start, stop))
        whole[places[start:stop]] = 0.0
        whole[places[start:stop][rows], columns] = values


def is_definite(whole: np.ndarray, tolerance: float) -> bool:
    """Whether no eigenvalue of a symmetric matrix, (n, n) float64, lies below -tolerance; its values are lost.

    A matrix of zeros has none.  Cholesky's factorisation of K + tolerance I goes through or meets a pivot below 0.
    """
    if tolerance == 0.0:
        return not whole.any()
    np.einsum("ii->i", whole)[:] += tolerance
    _, info = lapack.dpotrf(whole.T, lower=1, clean=0, overwrite_a=1)
    return int(info) == 0
