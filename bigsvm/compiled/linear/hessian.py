"""Hessians, which are sums of outer products of rows, and the solution of symmetric systems by Cholesky.

These loops take the place of a BLAS, because the bits must not depend on the number of threads or on the processor for
which a BLAS was tuned.  They run over contiguous rows of the upper triangle and make eight rank-one updates at a time,
which the compiler turns into vector instructions.

A symmetric matrix is given as a square array, float64, (n, n), or as its upper *triangle* alone, row by row, in half
the memory: float64, (triangle_size(n),).  Both give the same bits.  Entries of a square array below the diagonal are
neither read nor defined.
"""

from __future__ import annotations

import numpy as np
from numba import types

from bigsvm.compiled.shared.compile import inner_loop, njit, overload, part_of_loop, register_jitable
from bigsvm.compiled.shared.rows import CSR

PANEL = 32  # rows that are copied to float64 together
_WIDE = 8  # rank-one updates that are made at a time
_TILE = 96  # columns of H that are updated together; even
# A pivot below this part of a diagonal entry is what rounding has left of 0.  The entry is that of the pivot's own
# column and not the largest, because columns may differ in scale by 1e8, and entries of H by the square of that.  It
# counts as at least 1, the part of the regulariser (which the weight of a free bias lacks), and as at most the largest.
_EATEN = 1e-15
LEFT = 1e-3
"""A sum from which rows were taken is made anew once a diagonal entry is below this part of the largest that it has
been: rounding is relative to the largest."""


def triangle_size(n: int) -> int:
    """The number of entries in the upper triangle of a matrix with n rows."""
    return n * (n + 1) // 2


@register_jitable
def n_of(H):
    """The number of rows of a symmetric matrix in either form."""
    if H.ndim == 2:
        return H.shape[0]
    n = np.int64(np.sqrt(2.0 * H.shape[0]))
    while n * (n + 1) // 2 > H.shape[0]:
        n -= 1
    return n


def triangle_diagonal(n: int) -> np.ndarray:
    """Places of the diagonal entries in the triangle of a matrix with n rows, int64, (n,)."""
    j = np.arange(n)
    return np.asarray(j * n - j * (j - 1) // 2)


def _entries(H):
    """The entries of a square array or of a triangle as a one-dimensional array, which is no copy.

    Only this form is given to the loops below: so they are compiled once, and not for each of the two.
    """
    if not H.flags.c_contiguous:
        raise ValueError("a symmetric matrix must be contiguous")
    return H.reshape(H.size)


@overload(_entries)
def _overload_entries(H):
    return lambda H: H.reshape(H.size)


@register_jitable
def _is_half(H, n):
    """Whether the entries, from `_entries`, are those of a triangle of a matrix with n rows."""
    return H.shape[0] != n * n


@register_jitable
def _row(j, n, half):
    """The place of H[j, 0] in `numbers`, from which H[j, k] is k places away; in a triangle it may be another entry.

    It is unsigned, so that compiled code need not test for negative places.
    """
    return np.uint64(j * (n - 1) - j * (j - 1) // 2) if half else np.uint64(j * n)


@register_jitable
def _col(k):
    return np.uint64(k)


@register_jitable
def _eight(h, A, r, j):
    """h[r] A[r, j] for eight rows from r on."""
    return (
        h[r] * A[r, j], h[r + 1] * A[r + 1, j], h[r + 2] * A[r + 2, j], h[r + 3] * A[r + 3, j],
        h[r + 4] * A[r + 4, j], h[r + 5] * A[r + 5, j], h[r + 6] * A[r + 6, j], h[r + 7] * A[r + 7, j],
    )  # fmt: skip


@register_jitable
def _eight_times(h, A, r, j):
    """The sum of h[r] A[r, j]^2 over eight rows from r on, which they add to the diagonal entry of column j."""
    a0, a1, a2, a3, a4, a5, a6, a7 = _eight(h, A, r, j)
    return ((a0 * A[r, j] + a1 * A[r + 1, j]) + (a2 * A[r + 2, j] + a3 * A[r + 3, j])) + (
        (a4 * A[r + 4, j] + a5 * A[r + 5, j]) + (a6 * A[r + 6, j] + a7 * A[r + 7, j])
    )


@part_of_loop
def _add_panel(A, h, n, H, half):
    """H[j, k] += sum of h[r] A[r, j] A[r, k] over the rows r < n, for k >= j.

    n is a multiple of 8; the caller pads with rows whose h is 0.  Two rows of H are updated at a time, over as many
    columns as stay in the L1 cache together with their part of A.

    A : float64, (PANEL, width);  h : float64, (PANEL,);  H : the entries, from `_entries`
    """
    width = A.shape[1]
    for first in range(0, width, _TILE):
        stop = min(first + _TILE, width)
        for j in range(0, stop - 1, 2):
            upper, lower = _row(j, width, half), _row(j + 1, width, half)
            for r in range(0, n, _WIDE):
                a0, a1, a2, a3, a4, a5, a6, a7 = _eight(h, A, r, j)
                b0, b1, b2, b3, b4, b5, b6, b7 = _eight(h, A, r, j + 1)
                size = (abs(a0) + abs(a1) + abs(a2) + abs(a3)) + (abs(a4) + abs(a5) + abs(a6) + abs(a7))
                size += (abs(b0) + abs(b1) + abs(b2) + abs(b3)) + (abs(b4) + abs(b5) + abs(b6) + abs(b7))
                if size == 0.0:
                    continue
                if j >= first:
                    H[upper + _col(j)] += _eight_times(h, A, r, j)
                for k in range(max(j + 1, first), stop):
                    x0, x1, x2, x3 = A[r, k], A[r + 1, k], A[r + 2, k], A[r + 3, k]
                    x4, x5, x6, x7 = A[r + 4, k], A[r + 5, k], A[r + 6, k], A[r + 7, k]
                    H[upper + _col(k)] += (
                        (a0 * x0 + a1 * x1) + (a2 * x2 + a3 * x3)
                    ) + ((a4 * x4 + a5 * x5) + (a6 * x6 + a7 * x7))  # fmt: skip
                    H[lower + _col(k)] += (
                        (b0 * x0 + b1 * x1) + (b2 * x2 + b3 * x3)
                    ) + ((b4 * x4 + b5 * x5) + (b6 * x6 + b7 * x7))  # fmt: skip
        if stop % 2:  # the last row of an odd number
            j = stop - 1
            for r in range(0, n, _WIDE):
                H[_row(j, width, half) + _col(j)] += _eight_times(h, A, r, j)


@register_jitable
def _dense_hessian(X, h, bias, H, half, A, weights):
    d = X.shape[1]
    held = 0
    for i in range(X.shape[0]):
        if h[i] != 0.0:
            for j in range(d):
                A[held, j] = X[i, j]
            A[held, d] = bias
            weights[held] = h[i]
            held += 1
            if held == A.shape[0]:
                _add_panel(A, weights, held, H, half)
                held = 0
    if held > 0:
        padded = (held + _WIDE - 1) // _WIDE * _WIDE
        for r in range(held, padded):
            weights[r] = 0.0
            A[r, :] = 0.0
        _add_panel(A, weights, padded, H, half)


@register_jitable
def _add_outer_of_any(indices, data, h, bias, H, n, half):
    """H += h [x, bias] [x, bias]' for a sparse row x, whose columns may stand in any order, without the last entry."""
    last = _col(n - 1)
    for a in range(indices.shape[0]):
        j, x = indices[a], h * np.float64(data[a])
        row = _row(np.int64(j), n, half)
        for b in range(indices.shape[0]):
            k = indices[b]
            if k >= j:
                H[row + _col(k)] += x * np.float64(data[b])
        H[row + last] += x * bias


@register_jitable
def _add_outer_of_ascending(indices, x, h, bias, H, n, half):
    """The same for a row with ascending columns, and the same bits: four rows of H at a time, a third of the time.

    x : float64, the entries
    """
    m, last = indices.shape[0], _col(n - 1)
    for a in range(0, m - m % 4, 4):
        r0, r1 = _row(np.int64(indices[a]), n, half), _row(np.int64(indices[a + 1]), n, half)
        r2, r3 = _row(np.int64(indices[a + 2]), n, half), _row(np.int64(indices[a + 3]), n, half)
        x0, x1, x2, x3 = h * x[a], h * x[a + 1], h * x[a + 2], h * x[a + 3]
        for b in range(a, a + 4):
            k = _col(indices[b])
            H[r0 + k] += x0 * x[b]
            if b > a:
                H[r1 + k] += x1 * x[b]
            if b > a + 1:
                H[r2 + k] += x2 * x[b]
        H[r3 + _col(indices[a + 3])] += x3 * x[a + 3]
        for b in range(a + 4, m):
            k = _col(indices[b])
            # All are read before one is written: the compiler does not know that they are different entries.
            h0, h1, h2, h3 = H[r0 + k], H[r1 + k], H[r2 + k], H[r3 + k]
            H[r0 + k], H[r1 + k] = h0 + x0 * x[b], h1 + x1 * x[b]
            H[r2 + k], H[r3 + k] = h2 + x2 * x[b], h3 + x3 * x[b]
        H[r0 + last] += x0 * bias
        H[r1 + last] += x1 * bias
        H[r2 + last] += x2 * bias
        H[r3 + last] += x3 * bias
    for a in range(m - m % 4, m):
        row, scaled = _row(np.int64(indices[a]), n, half), h * x[a]
        for b in range(a, m):
            H[row + _col(indices[b])] += scaled * x[b]
        H[row + last] += scaled * bias


@register_jitable
def _csr_hessian(X, h, bias, H, half, A, weights):
    n = A.shape[1]
    corner = _row(n - 1, n, half) + _col(n - 1)
    x = A[0]
    for i in range(X.indptr.shape[0] - 1):
        if h[i] != 0.0:
            start, stop = X.indptr[i], X.indptr[i + 1]
            ascending = True
            for a in range(start + 1, stop):
                ascending &= X.indices[a - 1] < X.indices[a]
            if ascending:  # so there are no more entries than columns
                for a in range(start, stop):
                    x[a - start] = X.data[a]
                _add_outer_of_ascending(X.indices[start:stop], x, h[i], bias, H, n, half)
            else:
                _add_outer_of_any(X.indices[start:stop], X.data[start:stop], h[i], bias, H, n, half)
            H[corner] += h[i] * bias * bias


def _add_outer(X, h, bias, H, half, A, weights):
    raise NotImplementedError


@overload(_add_outer)
def _overload_add_outer(X, h, bias, H, half, A, weights):
    if isinstance(X, types.Array):
        return lambda X, h, bias, H, half, A, weights: _dense_hessian(X, h, bias, H, half, A, weights)
    if isinstance(X, types.BaseNamedTuple) and X.instance_class is CSR:
        return lambda X, h, bias, H, half, A, weights: _csr_hessian(X, h, bias, H, half, A, weights)
    return None


def add_hessian(X, h, bias, H):
    """H += sum_i h[i] [x_i, bias] [x_i, bias]'; only the upper triangle changes.

    X : dense or CSR;  h : float64, (n_rows,); rows with h = 0 are skipped
    H : float64, (n_features + 1, n_features + 1), or its triangle
    """
    _add_hessian(X, h, bias, _entries(H), n_of(H))


@njit(cache=True, nogil=True)
def _add_hessian(X, h, bias, H, width):
    A, weights = np.empty((PANEL, width)), np.empty(PANEL)
    _add_outer(X, h, bias, H, _is_half(H, width), A, weights)


@register_jitable
def _take_eight(U, f, i, tile, stop, n, half):
    """Subtract from rows i and i + 1 of U, in columns [tile, stop), the products of rows f to f + 7 of the factor."""
    f0, f1, f2, f3 = _row(f, n, half), _row(f + 1, n, half), _row(f + 2, n, half), _row(f + 3, n, half)
    f4, f5, f6, f7 = _row(f + 4, n, half), _row(f + 5, n, half), _row(f + 6, n, half), _row(f + 7, n, half)
    upper, lower, a, b = _row(i, n, half), _row(i + 1, n, half), _col(i), _col(i + 1)
    a0, a1, a2, a3 = U[f0 + a], U[f1 + a], U[f2 + a], U[f3 + a]
    a4, a5, a6, a7 = U[f4 + a], U[f5 + a], U[f6 + a], U[f7 + a]
    b0, b1, b2, b3 = U[f0 + b], U[f1 + b], U[f2 + b], U[f3 + b]
    b4, b5, b6, b7 = U[f4 + b], U[f5 + b], U[f6 + b], U[f7 + b]
    if i >= tile:
        U[upper + a] -= ((a0 * a0 + a1 * a1) + (a2 * a2 + a3 * a3)) + ((a4 * a4 + a5 * a5) + (a6 * a6 + a7 * a7))
    for column in range(max(i + 1, tile), stop):
        j = _col(column)
        x0, x1, x2, x3 = U[f0 + j], U[f1 + j], U[f2 + j], U[f3 + j]
        x4, x5, x6, x7 = U[f4 + j], U[f5 + j], U[f6 + j], U[f7 + j]
        U[upper + j] -= ((a0 * x0 + a1 * x1) + (a2 * x2 + a3 * x3)) + ((a4 * x4 + a5 * x5) + (a6 * x6 + a7 * x7))
        U[lower + j] -= ((b0 * x0 + b1 * x1) + (b2 * x2 + b3 * x3)) + ((b4 * x4 + b5 * x5) + (b6 * x6 + b7 * x7))


@register_jitable
def _take_eight_of_one(U, f, i, n, half):
    """As `_take_eight`, for the diagonal entry of row i alone."""
    total = 0.0
    for r in range(f, f + _WIDE):
        x = U[_row(r, n, half) + _col(i)]
        total += x * x
    U[_row(i, n, half) + _col(i)] -= total


@part_of_loop
def _factor(U, n, half, smallest):
    """Replace the upper triangle of U by its Cholesky factor.

    If a pivot is no more than rounding, it becomes infinite and the rest of its row 0, so that its variable is 0 in
    every solution.

    smallest : float64, (n,)   pivots up to this size count as rounding
    """
    for first in range(0, n, _WIDE):
        stop = min(first + _WIDE, n)
        for k in range(first, stop):
            row = _row(k, n, half)
            for r in range(first, k):
                above = _row(r, n, half)
                x = U[above + _col(k)]
                for j in range(k, n):
                    U[row + _col(j)] -= x * U[above + _col(j)]
            pivot = U[row + _col(k)]
            if pivot > smallest[k]:
                root = np.sqrt(pivot)
                for j in range(k, n):
                    U[row + _col(j)] /= root
            else:
                for j in range(k, n):
                    U[row + _col(j)] = 0.0
                U[row + _col(k)] = np.inf
        if stop - first == _WIDE:
            for tile in range(stop, n, _TILE):
                last = min(tile + _TILE, n)
                for i in range(stop, last - (last - stop) % 2, 2):
                    _take_eight(U, first, i, tile, last, n, half)
                if (last - stop) % 2:
                    _take_eight_of_one(U, first, last - 1, n, half)


@part_of_loop
def _solve(U, half, x):
    n = x.shape[0]
    for k in range(n):
        row = _row(k, n, half)
        x[k] /= U[row + _col(k)]
        for j in range(k + 1, n):
            x[j] -= U[row + _col(j)] * x[k]
    for k in range(n - 1, -1, -1):
        row = _row(k, n, half)
        total = x[k]
        for j in range(k + 1, n):
            total -= U[row + _col(j)] * x[j]
        x[k] = total / U[row + _col(k)]


@inner_loop
def _subtract_product(H, x, out):
    """out -= H x."""
    n = x.shape[0]
    half = _is_half(H, n)
    for j in range(n):
        row = _row(j, n, half)
        out[j] -= H[row + _col(j)] * x[j]
        for k in range(j + 1, n):
            h = H[row + _col(k)]
            out[j] -= h * x[k]
            out[k] -= h * x[j]


@njit(cache=True, nogil=True)
def _factor_symmetric(H, U, n):
    half = _is_half(H, n)
    largest = 0.0
    smallest = np.empty(n)
    for j in range(n):
        row = _row(j, n, half)
        largest = max(largest, H[row + _col(j)])
        for k in range(j, n):
            U[row + _col(k)] = H[row + _col(k)]
    for j in range(n):
        smallest[j] = _EATEN * min(largest, max(H[_row(j, n, half) + _col(j)], 1.0))
    _factor(U, n, half, smallest)


@njit(cache=True, nogil=True)
def _solve_factored(H, U, g, x):
    n = g.shape[0]
    half = _is_half(H, n)
    for j in range(n):  # not `x[:] = g`, whose message for different shapes takes seconds to compile
        x[j] = g[j]
    _solve(U, half, x)
    residual = g.copy()
    _subtract_product(H, x, residual)
    _solve(U, half, residual)
    x += residual


@register_jitable
def factor_symmetric(H, U):
    """Fill the upper triangle of U with the Cholesky factor of H = U'U.

    H : float64, (n, n), positive semidefinite, or its triangle;  U : in the same form, filled
    """
    _factor_symmetric(_entries(H), _entries(U), n_of(H))


@register_jitable
def solve_factored(H, U, g, x):
    """x = H^-1 g, from the factor U of `factor_symmetric`, with one step of iterative refinement.

    g : float64, (n,);  x : float64, (n,), filled
    """
    _solve_factored(_entries(H), _entries(U), g, x)


def times_symmetric(H: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The product H x.  H : float64, (triangle_size(n),), a triangle;  x : float64, (n,)"""
    out = np.zeros(len(x))
    _subtract_product(H, x, out)
    return -out


@register_jitable
def solve_symmetric(H, g, U, x):
    """x = H^-1 g by Cholesky, with one step of iterative refinement.  Variables whose pivot is only rounding get 0.

    H : float64, (n, n), positive semidefinite, of which the upper triangle is read;  g : float64, (n,)
    U : float64, (n, n), work space;  x : float64, (n,), filled
    """
    factor_symmetric(H, U)
    solve_factored(H, U, g, x)
