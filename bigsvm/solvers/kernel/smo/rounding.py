"""The violation that rounding alone may cause."""

from __future__ import annotations

import numpy as np

from bigsvm.solvers.kernel.dual_qp import DualQP


def resolution(qp: DualQP, diag: np.ndarray) -> float:
    """A violation that rounding alone may cause: some units in the last place of f, t and beta_i K_ii.

    diag : float64, (n,), K_ii
    """
    largest = max(float(np.abs(values).max(initial=0.0)) for values in (qp.f, qp.target, qp.beta * diag))
    return 16.0 * float(np.finfo(np.float64).eps) * largest
