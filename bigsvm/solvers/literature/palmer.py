"""New directions for Rosenbrock's method from the steps along the old ones (docs/mathematics.md 6.4).

Plain NumPy sums, no BLAS: the bits must not depend on the number of threads or on the processor.
"""

from __future__ import annotations

import numpy as np

_ZERO = 1e-14  # steps below this, relative to the longest, count as 0


def new_directions(D: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Orthonormal directions, the first along sum_j steps_j d_j: Palmer's closed form of Gram-Schmidt, in O(n^2).

    With the steps that are not 0 numbered 1 to m, A_j = sum_{i >= j} steps_i d_i and T_j = sum_{i >= j} steps_i^2,

        new_1 = A_1 / sqrt(T_1),   new_j = (steps_{j-1} A_j - T_j d_{j-1}) / sqrt(T_j T_{j-1})

    Directions without a step are kept in their places.

    D : float64, (n, width), orthonormal rows;  steps : float64, (n,).  Returns a new (n, width).

    Source: Palmer, The Computer Journal 12 (1969), 69-71.
    """
    longest = np.abs(steps).max(initial=0.0)
    taken = np.flatnonzero(np.abs(steps) > _ZERO * longest)
    new = D.copy()
    if len(taken) == 0:
        return new
    lam, d = steps[taken] / longest, D[taken]
    A = np.cumsum((lam[:, None] * d)[::-1], axis=0)[::-1]
    T = np.cumsum((lam * lam)[::-1])[::-1]
    new[taken[0]] = A[0] / np.sqrt(T[0])
    scale = np.sqrt(T[1:] * T[:-1])[:, None]
    new[taken[1:]] = (lam[:-1, None] * A[1:] - T[1:, None] * d[:-1]) / scale
    return new


def orthonormalised(D: np.ndarray) -> np.ndarray:
    """The rows of D, (n, width), made orthonormal by modified Gram-Schmidt; they must be so already up to rounding."""
    D = D.copy()
    for k in range(len(D)):
        D[k] /= np.sqrt((D[k] * D[k]).sum())
        rest = D[k + 1 :]
        rest -= (rest * D[k]).sum(axis=1)[:, None] * D[k]
    return D
