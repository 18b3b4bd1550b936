"""Whether a precomputed matrix K is symmetric and positive semidefinite.

One pass over the rows of K, in any order, can refute it: by a diagonal value below 0, or by two rows with
K_ij^2 > K_ii K_jj.  It also compares K r with K' r for a random vector r; if they differ, K is not symmetric.  If the
pass finds nothing, that proves nothing.  A Cholesky factorisation does.

The values were rounded when they were stored, so differences below their rounding do not count:

    asymmetry      |K_ij - K_ji| <= 2^7 eps max_i K_ii           is accepted
    eigenvalues    above -max(n, 64) eps max_i K_ii              count as 0

with eps of the stored dtype.  A gap is then proved for K with that tolerance added to its diagonal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bigsvm.compiled.shared.rows import CSR, take_rows
from bigsvm.store.blocks import Matrix, tile

_ASYMMETRY = 2.0**7  # multiple of eps; the two triangles may have been computed separately
_FEW_ROWS = 64  # fewer rows count as this many in the tolerance
_FLOAT64 = 8.0  # factor on the tolerance for float64, since the factorisation has the same rounding
_PIECE = 1 << 15  # values that are looked at together
_SEED = 16  # seed of the random vector
_SUSPECTS = 4  # rows that are compared with their columns value by value
ROW_BYTES = 8 * (6 + 2 * _SUSPECTS + 10)
"""Bytes of a row of K that a `ValueCheck` holds: sums, suspects, and what is made of one row's values."""


class Pair(NamedTuple):
    """The place of a value of K, and by how much the value is out of its range."""

    row: int
    column: int
    excess: float


class ValueCheck:
    """The checks of one pass over the rows of K, (n, n).

    n : int   rows and columns;  dtype : dtype of the stored values

    The place of a row is the number of the column that belongs to the same row of the data.
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
        """Add rows of K, (len(places), n), dense or CSR, which are at `places`.  Each row must be added once."""
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
        rows, columns, values = _entries(piece)  # values that are not stored are 0
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
        """The largest absolute value of the diagonal."""
        return float(np.max(np.abs(self.diagonal), initial=0.0))

    @property
    def asymmetry(self) -> float:
        """The largest accepted |K_ij - K_ji|."""
        return _ASYMMETRY * self._eps * self.largest

    @property
    def tolerance(self) -> float:
        """An eigenvalue counts as 0 if it is not below minus this."""
        return max(self._n, _FEW_ROWS) * self._eps * self.largest * (_FLOAT64 if self._wide else 1.0)

    def suspects(self) -> np.ndarray:
        """Places, ascending, of a few rows that may differ from their columns; none if K r = K' r."""
        with np.errstate(invalid="ignore"):  # sums that overflow tell nothing
            apart = np.abs(self._by_rows - self._by_columns)
        # The rounding of a sum of n values, each up to twice the largest of the diagonal.
        floor = 4.0 * self._n * float(np.finfo(np.float64).eps) * self.largest
        worst = np.argsort(-apart, kind="stable")[:_SUSPECTS]
        return np.sort(worst[apart[worst] > max(self.asymmetry, floor)])

    def refutation(self) -> tuple[str, Pair] | None:
        """A sentence that shows K to have a negative eigenvalue, with {row} and {column} left open, and the place."""
        lowest = int(np.argmin(self.diagonal))
        value = float(self.diagonal[lowest])
        if value < -self.tolerance:
            return f"K[{{row}}, {{row}}] = {value:.6g} is below 0", Pair(lowest, lowest, -value)
        if self._minor.excess > self.tolerance:
            return "|K[{row}, {column}]| is above sqrt(K[{row}, {row}] K[{column}, {column}])", self._minor
        return None


class Lines:
    """Some rows of K and the columns at the same places, to be compared value by value.

    places : int64, ascending
    """

    def __init__(self, n: int, places: np.ndarray) -> None:
        self._places = places
        self._rows, self._columns = np.zeros((len(places), n)), np.zeros((len(places), n))

    def add(self, X: Matrix, places: np.ndarray) -> None:
        """Add rows of K; see `ValueCheck.add`."""
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
        """(K_ij, K_ji) of a pair that `furthest` returned."""
        k = int(np.searchsorted(self._places, pair.row))
        return float(self._rows[k, pair.column]), float(self._columns[k, pair.column])


def _entries(X: Matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(row, column, value in float64) of all stored values of some rows."""
    if isinstance(X, CSR):
        rows = np.repeat(np.arange(len(X.indptr) - 1), np.diff(X.indptr))
        first, last = int(X.indptr[0]), int(X.indptr[-1])
        return rows, np.asarray(X.indices[first:last]), X.data[first:last].astype(np.float64)
    n, width = X.shape
    return np.repeat(np.arange(n), width), np.tile(np.arange(width), n), X.astype(np.float64).ravel()


def _pieces(X: Matrix) -> Iterator[tuple[int, int]]:
    """Ranges of rows with about `_PIECE` values each, at least one row."""
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
    """Bytes of the factorisation: K in float64, which is overwritten by its factor."""
    return 8 * n * n


def put_rows(whole: np.ndarray, X: Matrix, places: np.ndarray) -> None:
    """Write rows of K into `whole`, float64, (n, n), at their places."""
    for start, stop in _pieces(X):
        rows, columns, values = _entries(take_rows(X, start, stop))
        whole[places[start:stop]] = 0.0
        whole[places[start:stop][rows], columns] = values


def is_definite(whole: np.ndarray, tolerance: float) -> bool:
    """Whether no eigenvalue of a symmetric matrix, float64, (n, n), lies below -tolerance.  `whole` is overwritten.

    The Cholesky factorisation of K + tolerance I either succeeds, or meets a pivot below 0.  With tolerance 0 the
    diagonal of K is 0, and only a matrix of zeros is positive semidefinite.
    """
    from scipy.linalg import lapack  # only here: loading it takes a twentieth of a small fit

    if tolerance == 0.0:
        return not whole.any()
    np.einsum("ii->i", whole)[:] += tolerance
    _, info = lapack.dpotrf(whole.T, lower=1, clean=0, overwrite_a=1)
    return int(info) == 0
