"""Pegasos by mini-batches that are given, a program apart from the package's."""

from __future__ import annotations

import math

import numba
import numpy as np


@numba.njit(cache=True)
def pegasos_pass(Z: np.ndarray, batches: np.ndarray, w: np.ndarray, t: int, lam: float) -> None:
    """One step for each line of `batches`, on w in place; every sum in the order of the rows.

    Z : rows times their labels, (n, d);  batches : rows of each step, (steps, batch);  t : steps done before, plus 1
    """
    d, batch = len(w), batches.shape[1]
    pull = np.empty(d)
    for A in batches:
        t += 1  # the step is 1 / (lambda (t + 1))
        pull[:] = 0.0
        for i in A:
            inner = 0.0
            for k in range(d):
                inner += Z[i, k] * w[k]
            if inner < 1.0:
                for k in range(d):
                    pull[k] += Z[i, k]
        squared = 0.0
        for k in range(d):
            w[k] = (1.0 - 1.0 / t) * w[k] + pull[k] / (lam * t * batch)
            squared += w[k] * w[k]
        shrink = min(1.0, 1.0 / max(math.sqrt(lam * squared), 1e-300))  # back into the ball that holds the optimum
        for k in range(d):
            w[k] *= shrink
