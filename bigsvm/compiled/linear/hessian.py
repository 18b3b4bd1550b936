"""Sums of outer products of rows, and the solution of the symmetric system that they make.

Own code instead of a library's: the bits must not depend on the number of threads, nor on which processor a
BLAS was tuned for.  All loops run over contiguous rows of the upper triangle and take eight rank-one updates at
a time, which the compiler turns into vector instructions.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload, register_jitable

from bigsvm.compiled.shared.compile import inner_loop, njit
from bigsvm.compiled.shared.rows import CSR

PANEL = 32  # rows that are widened together
_WIDE = 8
_TILE = 96  # columns of H, even


@register_jitable
def _eight(h, A, r, j):
    """h A of eight rows at column j."""
    return (
        h[r] * A[r, j], h[r + 1] * A[r + 1, j], h[r + 2] * A[r + 2, j], h[r + 3] * A[r + 3, j],
        h[r + 4] * A[r + 4, j], h[r + 5] * A[r + 5, j], h[r + 6] * A[r + 6, j], h[r + 7] * A[r + 7, j],
    )  # fmt: skip


@inner_loop
def _add_panel(A, h, n, H):
    """H[j, k >= j] += sum over the first n rows of h[r] A[r, j] A[r, k]; n is a multiple of 8, rows padded by h = 0.

    Two rows of H at a time, and as many columns as stay in the first cache with their part of A.
    """
    width = A.shape[1]
    for first in range(0, width, _TILE):
        stop = min(first + _TILE, width)
        for j in range(0, stop - 1, 2):
            begin = max(j, first)
            for r in range(0, n, _WIDE):
                a0, a1, a2, a3, a4, a5, a6, a7 = _eight(h, A, r, j)
                b0, b1, b2, b3, b4, b5, b6, b7 = _eight(h, A, r, j + 1)
                size = (abs(a0) + abs(a1) + abs(a2) + abs(a3)) + (abs(a4) + abs(a5) + abs(a6) + abs(a7))
                size += (abs(b0) + abs(b1) + abs(b2) + abs(b3)) + (abs(b4) + abs(b5) + abs(b6) + abs(b7))
                if size == 0.0:
                    continue
                for k in range(begin, stop):
                    x0, x1, x2, x3 = A[r, k], A[r + 1, k], A[r + 2, k], A[r + 3, k]
                    x4, x5, x6, x7 = A[r + 4, k], A[r + 5, k], A[r + 6, k], A[r + 7, k]
                    H[j, k] += ((a0 * x0 + a1 * x1) + (a2 * x2 + a3 * x3)) + ((a4 * x4 + a5 * x5) + (a6 * x6 + a7 * x7))
                    H[j + 1, k] += (
                        (b0 * x0 + b1 * x1) + (b2 * x2 + b3 * x3)
                    ) + ((b4 * x4 + b5 * x5) + (b6 * x6 + b7 * x7))  # fmt: skip
        if stop % 2:  # the last row of an odd number
            j = stop - 1
            for r in range(0, n, _WIDE):
                a0, a1, a2, a3, a4, a5, a6, a7 = _eight(h, A, r, j)
                H[j, j] += (
                    (a0 * A[r, j] + a1 * A[r + 1, j]) + (a2 * A[r + 2, j] + a3 * A[r + 3, j])
                ) + ((a4 * A[r + 4, j] + a5 * A[r + 5, j]) + (a6 * A[r + 6, j] + a7 * A[r + 7, j]))  # fmt: skip


@register_jitable
def _dense_hessian(X, h, bias, H, A, weights):
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
                _add_panel(A, weights, held, H)
                held = 0
    if held > 0:
        padded = (held + _WIDE - 1) // _WIDE * _WIDE
        for r in range(held, padded):
            weights[r] = 0.0
            A[r, :] = 0.0
        _add_panel(A, weights, padded, H)


@register_jitable
def _csr_hessian(X, h, bias, H, A, weights):
    last = H.shape[0] - 1
    for i in range(X.indptr.shape[0] - 1):
        if h[i] != 0.0:
            for a in range(X.indptr[i], X.indptr[i + 1]):
                j, x = X.indices[a], h[i] * np.float64(X.data[a])
                for b in range(X.indptr[i], X.indptr[i + 1]):
                    k = X.indices[b]
                    if k >= j:
                        H[j, k] += x * np.float64(X.data[b])
                H[j, last] += x * bias
            H[last, last] += h[i] * bias * bias


def _add_outer(X, h, bias, H, A, weights):
    raise NotImplementedError


@overload(_add_outer)
def _overload_add_outer(X, h, bias, H, A, weights):
    if isinstance(X, types.Array):
        return lambda X, h, bias, H, A, weights: _dense_hessian(X, h, bias, H, A, weights)
    if isinstance(X, types.BaseNamedTuple) and X.instance_class is CSR:
        return lambda X, h, bias, H, A, weights: _csr_hessian(X, h, bias, H, A, weights)
    return None


@njit(cache=True, nogil=True)
def add_hessian(X, h, bias, H):
    """Upper triangle of H += sum_i h[i] [x_i, bias] [x_i, bias]'; what is below the diagonal means nothing.

    h : float64, (n_rows,), rows of 0 are skipped;  H : float64, (n_features + 1, n_features + 1)
    """
    width = H.shape[0]
    A, weights = np.empty((PANEL, width)), np.empty(PANEL)
    _add_outer(X, h, bias, H, A, weights)


@register_jitable
def _take_eight(U, f, i, begin, stop):
    """Rows i and i + 1 of U, columns begin to stop, less what eight rows of the factor from f on are in them."""
    a0, a1, a2, a3 = U[f, i], U[f + 1, i], U[f + 2, i], U[f + 3, i]
    a4, a5, a6, a7 = U[f + 4, i], U[f + 5, i], U[f + 6, i], U[f + 7, i]
    b0, b1, b2, b3 = U[f, i + 1], U[f + 1, i + 1], U[f + 2, i + 1], U[f + 3, i + 1]
    b4, b5, b6, b7 = U[f + 4, i + 1], U[f + 5, i + 1], U[f + 6, i + 1], U[f + 7, i + 1]
    for j in range(begin, stop):
        x0, x1, x2, x3 = U[f, j], U[f + 1, j], U[f + 2, j], U[f + 3, j]
        x4, x5, x6, x7 = U[f + 4, j], U[f + 5, j], U[f + 6, j], U[f + 7, j]
        U[i, j] -= ((a0 * x0 + a1 * x1) + (a2 * x2 + a3 * x3)) + ((a4 * x4 + a5 * x5) + (a6 * x6 + a7 * x7))
        U[i + 1, j] -= ((b0 * x0 + b1 * x1) + (b2 * x2 + b3 * x3)) + ((b4 * x4 + b5 * x5) + (b6 * x6 + b7 * x7))


@register_jitable
def _take_eight_of_one(U, f, i):
    """The same for the diagonal entry of row i alone."""
    total = 0.0
    for r in range(f, f + _WIDE):
        total += U[r, i] * U[r, i]
    U[i, i] -= total


@inner_loop
def _factor(U, smallest):
    """U'U = U in place from the upper triangle; a pivot that rounding has eaten is made infinite, its entry 0."""
    n = U.shape[0]
    for first in range(0, n, _WIDE):
        stop = min(first + _WIDE, n)
        for k in range(first, stop):
            for r in range(first, k):
                for j in range(k, n):
                    U[k, j] -= U[r, k] * U[r, j]
            pivot = U[k, k]
            if pivot > smallest:
                root = np.sqrt(pivot)
                for j in range(k, n):
                    U[k, j] /= root
            else:
                for j in range(k, n):
                    U[k, j] = 0.0
                U[k, k] = np.inf
        if stop - first == _WIDE:
            for tile in range(stop, n, _TILE):
                last = min(tile + _TILE, n)
                for i in range(stop, last - (last - stop) % 2, 2):
                    _take_eight(U, first, i, max(i, tile), last)
                if (last - stop) % 2:
                    _take_eight_of_one(U, first, last - 1)


@inner_loop
def _solve(U, x):
    n = U.shape[0]
    for k in range(n):
        x[k] /= U[k, k]
        for j in range(k + 1, n):
            x[j] -= U[k, j] * x[k]
    for k in range(n - 1, -1, -1):
        total = x[k]
        for j in range(k + 1, n):
            total -= U[k, j] * x[j]
        x[k] = total / U[k, k]


@njit(cache=True, nogil=True)
def factor_symmetric(H, U):
    """U'U = H, the upper triangle of a positive semidefinite float64 (n, n); directions in which H is flat get none.

    U : float64, (n, n), the result: its upper triangle
    """
    n = H.shape[0]
    largest = 0.0
    for j in range(n):
        largest = max(largest, H[j, j])
        for k in range(j, n):
            U[j, k] = H[j, k]
    _factor(U, 1e-15 * largest)


@njit(cache=True, nogil=True)
def solve_factored(H, U, g, x):
    """x = H^-1 g, once refined, by the factor that `factor_symmetric` gave; g and x are float64, (n,)."""
    n = H.shape[0]
    for j in range(n):  # not `x[:] = g`: compiling what it would say of differing shapes takes seconds
        x[j] = g[j]
    _solve(U, x)
    residual = g.copy()
    for j in range(n):
        residual[j] -= H[j, j] * x[j]
        for k in range(j + 1, n):
            residual[j] -= H[j, k] * x[k]
            residual[k] -= H[j, k] * x[j]
    _solve(U, residual)
    x += residual


@njit(cache=True, nogil=True)
def solve_symmetric(H, g, U, x):
    """x = H^-1 g by Cholesky, once refined; directions in which H is flat get 0.

    H : float64, (n, n), upper triangle, positive semidefinite;  g : float64, (n,)
    U : float64, (n, n), work space;  x : float64, (n,), the result
    """
    factor_symmetric(H, U)
    solve_factored(H, U, g, x)
