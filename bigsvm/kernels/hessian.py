"""Sums of outer products of rows, and the solution of the symmetric system that they make.

Own code instead of a library's: the bits must not depend on the number of threads, nor on which processor a
BLAS was tuned for.  All loops run over contiguous rows of the upper triangle and take eight rank-one updates at
a time, which the compiler turns into vector instructions.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.extending import overload, register_jitable

from bigsvm.kernels.compile import inner_loop
from bigsvm.kernels.rows import CSR

PANEL = 32  # rows that are widened together
_WIDE = 8


@inner_loop
def _add_panel(A, h, n, H):
    """H[j, k >= j] += sum over the first n rows of h[r] A[r, j] A[r, k]; n is a multiple of 8, rows padded by h = 0."""
    width = A.shape[1]
    for j in range(width):
        for r in range(0, n, _WIDE):
            c0, c1, c2, c3 = h[r] * A[r, j], h[r + 1] * A[r + 1, j], h[r + 2] * A[r + 2, j], h[r + 3] * A[r + 3, j]
            c4, c5, c6, c7 = (
                h[r + 4] * A[r + 4, j],
                h[r + 5] * A[r + 5, j],
                h[r + 6] * A[r + 6, j],
                h[r + 7] * A[r + 7, j],
            )
            if (abs(c0) + abs(c1) + abs(c2) + abs(c3)) + (abs(c4) + abs(c5) + abs(c6) + abs(c7)) == 0.0:
                continue
            for k in range(j, width):
                H[j, k] += (
                    (c0 * A[r, k] + c1 * A[r + 1, k]) + (c2 * A[r + 2, k] + c3 * A[r + 3, k])
                ) + ((c4 * A[r + 4, k] + c5 * A[r + 5, k]) + (c6 * A[r + 6, k] + c7 * A[r + 7, k]))  # fmt: skip


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
    """Upper triangle of H += sum_i h[i] [x_i, bias] [x_i, bias]'.

    h : float64, (n_rows,), rows of 0 are skipped;  H : float64, (n_features + 1, n_features + 1)
    """
    width = H.shape[0]
    A, weights = np.empty((PANEL, width)), np.empty(PANEL)
    _add_outer(X, h, bias, H, A, weights)


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
            f = first
            for i in range(stop, n):
                c0, c1, c2, c3 = U[f, i], U[f + 1, i], U[f + 2, i], U[f + 3, i]
                c4, c5, c6, c7 = U[f + 4, i], U[f + 5, i], U[f + 6, i], U[f + 7, i]
                for j in range(i, n):
                    U[i, j] -= (
                        (c0 * U[f, j] + c1 * U[f + 1, j]) + (c2 * U[f + 2, j] + c3 * U[f + 3, j])
                    ) + ((c4 * U[f + 4, j] + c5 * U[f + 5, j]) + (c6 * U[f + 6, j] + c7 * U[f + 7, j]))  # fmt: skip


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
def solve_symmetric(H, g, U, x):
    """x = H^-1 g by Cholesky, once refined; directions in which H is flat get 0.

    H : float64, (n, n), upper triangle, positive semidefinite;  g : float64, (n,)
    U : float64, (n, n), work space;  x : float64, (n,), the result
    """
    n = H.shape[0]
    largest = 0.0
    for j in range(n):
        largest = max(largest, H[j, j])
        for k in range(j, n):
            U[j, k] = H[j, k]
    _factor(U, 1e-15 * largest)
    x[:] = g
    _solve(U, x)
    residual = g.copy()
    for j in range(n):
        residual[j] -= H[j, j] * x[j]
        for k in range(j + 1, n):
            residual[j] -= H[j, k] * x[k]
            residual[k] -= H[j, k] * x[j]
    _solve(U, residual)
    x += residual
