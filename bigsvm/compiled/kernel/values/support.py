"""The rows S of kernel values K(s, x): copies of some rows of the data in one type, with their squared norms."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsvm.compiled.kernel.values.lanes import fused
from bigsvm.compiled.kernel.values.tile import GROUP, PLACES_AHEAD, ROWS_AHEAD
from bigsvm.compiled.kernel.values.whole import pairs_of_csr, pairs_of_dense
from bigsvm.compiled.shared.compile import njit
from bigsvm.compiled.shared.prefetch import ask_place, ask_row
from bigsvm.compiled.shared.rows import CSR

_loop = njit(cache=True, nogil=True, error_model="numpy", _nrt=False)


class Support(NamedTuple):
    """Copies of n rows, in one of two forms.

    *Floats*, with step 0:
    S : dense or CSR, float32 or float64, (n, n_features); dense rows are followed by rows of zeros, up to a multiple of
        GROUP rows
    sq : the type of S, (n,), squared norms

    *Whole numbers* times a step > 0 (`whole.py`): S has a pair of them in each int32, so half as many columns, and sq
    is int32, in units of the squared step.
    """

    S: np.ndarray | CSR
    sq: np.ndarray
    step: float = 0.0

    @property
    def n(self) -> int:
        return len(self.sq)

    def part(self, start: int, stop: int) -> Support:
        """Rows [start, stop) as views; start must be a multiple of GROUP."""
        if isinstance(self.S, CSR):
            return Support(self.S._replace(indptr=self.S.indptr[start : stop + 1]), self.sq[start:stop], self.step)
        return Support(self.S[start : start + -(-(stop - start) // GROUP) * GROUP], self.sq[start:stop], self.step)

    @property
    def most_entries(self) -> int:
        """The largest number of entries in a row; a pair counts as two."""
        found = int(np.diff(self.S.indptr).max(initial=0)) if isinstance(self.S, CSR) else self.S.shape[1]
        return 2 * found if self.step else found

    @property
    def largest_square(self) -> float:
        """The largest squared norm of a row, in the units of the data."""
        return float(self.sq.max(initial=0)) * (self.step**2 or 1.0)


@_loop
def gather_csr(X, rows, out_data, out_indices, out_indptr, out_sq):
    """Copy rows of a CSR matrix one after another, with squared norms summed in float64.

    rows : int64, (n,);  out_indptr : int64, (n + 1,), filled by the caller from the lengths of the rows
    out_data, out_indices : (out_indptr[n],), filled;  out_sq : (n,), filled
    """
    for i in range(len(rows)):
        if i + PLACES_AHEAD < len(rows):
            ask_place(X, rows[i + PLACES_AHEAD])
        if i + ROWS_AHEAD < len(rows):
            ask_row(X, rows[i + ROWS_AHEAD])
        q, total = out_indptr[i], 0.0
        for p in range(X.indptr[rows[i]], X.indptr[rows[i] + 1]):
            value = X.data[p]
            out_data[q] = value
            out_indices[q] = X.indices[p]
            total = fused(np.float64(value), np.float64(value), total)
            q += 1
        out_sq[i] = total


@_loop
def gather_dense(X, rows, out, out_sq):
    """Copy rows of a dense matrix to the first rows of `out`, with squared norms summed in float64.

    rows : int64, (n,);  out : (n or more, n_features);  out_sq : (n,), filled
    """
    for i in range(len(rows)):
        total = 0.0
        for j in range(X.shape[1]):
            value = X[rows[i], j]
            out[i, j] = value
            total = fused(np.float64(value), np.float64(value), total)
        out_sq[i] = total


@_loop
def move_rows_down(data, indices, indptr, rows):
    """Move the rows `rows` of a CSR matrix to its beginning, in place; int64, ascending."""
    q = indptr[0]
    for i in range(len(rows)):
        start, stop = indptr[rows[i]], indptr[rows[i] + 1]
        indptr[i] = q
        for p in range(start, stop):
            data[q] = data[p]
            indices[q] = indices[p]
            q += 1
    indptr[len(rows)] = q


def support_of(X: np.ndarray | CSR, rows: np.ndarray, dtype: np.dtype | type) -> Support:
    """A copy of some rows of X (as `readonly_view` gives it) in `dtype`."""
    n = len(rows)
    sq = np.empty(n, dtype)
    if isinstance(X, CSR):
        indptr = np.zeros(n + 1, np.int64)
        np.cumsum(X.indptr[rows + 1] - X.indptr[rows], out=indptr[1:])
        data, indices = np.empty(indptr[-1], dtype), np.empty(indptr[-1], X.indices.dtype)
        gather_csr(X, rows, data, indices, indptr, sq)
        return Support(CSR(data, indices, indptr), sq)
    S = np.zeros((-(-n // GROUP) * GROUP, X.shape[1]), dtype)
    gather_dense(X, rows, S, sq)
    return Support(S, sq)


def whole_support_of(X: np.ndarray | CSR, rows: np.ndarray, step: float) -> Support:
    """A copy of some rows of X, whose numbers are whole multiples of `step`, as pairs of whole numbers."""
    n = len(rows)
    sq = np.empty(n, np.int32)
    if isinstance(X, CSR):
        most = int((X.indptr[rows + 1] - X.indptr[rows]).sum())
        data, indices, indptr = np.empty(most, np.int32), np.empty(most, X.indices.dtype), np.zeros(n + 1, np.int64)
        used = pairs_of_csr(X, rows, step, data, indices, indptr, sq)
        return Support(CSR(data[:used], indices[:used], indptr), sq, step)
    S = np.zeros((-(-n // GROUP) * GROUP, -(-X.shape[1] // 2)), np.int32)
    pairs_of_dense(X, rows, step, S, sq)
    return Support(S, sq, step)


def unit_rows(columns: np.ndarray, dtype: np.dtype) -> Support:
    """Rows with a single 1 each, row i in column columns[i].

    The products of a row of a precomputed matrix with them are its values in these columns, so the linear kernel serves
    for a precomputed one.
    """
    n = len(columns)
    # The type of feature numbers is that of other sparse rows, so that no further loops need to be compiled.
    few = n == 0 or columns.max() <= np.iinfo(np.int32).max
    indices = columns.astype(np.int32 if few else np.int64)
    return Support(CSR(np.ones(n, dtype), indices, np.arange(n + 1)), np.ones(n, dtype))
