"""Free rows, and Newton's step on a face of the box, which moves only these (`rosen.py`; docs/mathematics.md 9)."""

from __future__ import annotations

import numpy as np

from bigsvm.compiled.shared.compile import inner_loop, register_jitable

_RIDGE = 1e-12


@register_jitable
def is_free(beta, lower, upper):
    """Whether a row is strictly inside its box and not 0."""
    return lower < beta < upper and beta != 0.0


@inner_loop
def newton_direction(K, largest, beta, lower, upper, r, e, square):
    """Fill e with the step to the minimum over the free rows J: [K_JJ 1; 1' 0] [e; nu] = [r; 0], by Cholesky.

    A ridge of 1e-12 times the largest K_ii is added to K_JJ.  Where K_JJ is flat, the step is then long and ends at a
    bound.

    K : float, (m, m) or larger;  largest : float, the largest K_ii
    beta, lower, upper, r : float64, (m,);  e : float64, (m,), filled, 0 for rows that are not free
    square : float64, (m + 2, m), work space for the factor and two right-hand sides

    Returns
    -------
    multiplications : int
    """
    m, n, ridge = beta.shape[0], 0, _RIDGE * largest
    for i in range(m):
        if is_free(beta[i], lower[i], upper[i]):
            e[n] = i  # at first e holds the numbers of the free rows
            for k in range(n + 1):
                total = K[i, int(e[k])] + (ridge if k == n else 0.0)
                for c in range(k):
                    total -= square[n, c] * square[k, c]
                square[n, k] = np.sqrt(max(total, ridge)) if k == n else total / square[k, k]
            square[m, n], square[m + 1, n] = r[i], 1.0
            n += 1
    for side in range(m, m + 2):
        for k in range(n):
            for c in range(k):
                square[side, k] -= square[k, c] * square[side, c]
            square[side, k] /= square[k, k]
        for k in range(n - 1, -1, -1):
            for c in range(k + 1, n):
                square[side, k] -= square[c, k] * square[side, c]
            square[side, k] /= square[k, k]
    of_r = of_ones = 0.0
    for k in range(n):
        of_r += square[m, k]
        of_ones += square[m + 1, k]
    k = 0
    for i in range(m):
        e[i] = 0.0
        if is_free(beta[i], lower[i], upper[i]):
            e[i] = square[m, k] - of_r / of_ones * square[m + 1, k]
            k += 1
    return n * n * n // 6 + 2 * n * n
