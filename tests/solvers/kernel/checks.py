"""What must hold of a point of the dual with a free bias, one question a function (docs/mathematics.md 10).

They look at a `DualQP` and change nothing; beta = y alpha, and E = f + b is the error of each row.
"""

from __future__ import annotations

import math

import numpy as np

from bigsvm.solvers.kernel.dual_qp import DualQP


def kkt_violations(qp: DualQP, b: float, eps: float) -> np.ndarray:
    """Rows, bool (n,), with y_i E_i < -eps and alpha_i < C_i, or y_i E_i > eps and alpha_i > 0; classification only."""
    r = qp.target * (qp.f + b)
    alpha = qp.target * qp.beta
    return ((r < -eps) & (alpha < qp.upper - qp.lower)) | ((r > eps) & (alpha > 0.0))


def imbalance(qp: DualQP) -> float:
    """|sum_i beta_i|, the sum taken exactly: 0 but for the rounding of the steps."""
    return abs(math.fsum(qp.beta))


def outside_box(qp: DualQP) -> float:
    """How far the furthest beta is outside of its box; 0 where all are in it."""
    beyond = np.maximum(qp.lower - qp.beta, qp.beta - qp.upper)
    return float(np.max(beyond, initial=0.0))
