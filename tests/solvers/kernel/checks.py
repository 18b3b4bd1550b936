"""What must hold of a point of the dual with a free bias, one question a function (docs/mathematics.md 10).

They look at a `Part` and change nothing; beta = y alpha, and E = f + b is the error of each row.
"""

from __future__ import annotations

import math

import numpy as np

from bigsvm.solvers.kernel.part import Part


def kkt_violations(part: Part, b: float, eps: float) -> np.ndarray:
    """Rows, bool (n,), with y_i E_i < -eps and alpha_i < C_i, or y_i E_i > eps and alpha_i > 0; classification only."""
    r = part.target * (part.f + b)
    alpha = part.target * part.beta
    return ((r < -eps) & (alpha < part.upper - part.lower)) | ((r > eps) & (alpha > 0.0))


def imbalance(part: Part) -> float:
    """|sum_i beta_i|, the sum taken exactly: 0 but for the rounding of the steps."""
    return abs(math.fsum(part.beta))


def outside_box(part: Part) -> float:
    """How far the furthest beta is outside of its box; 0 where all are in it."""
    beyond = np.maximum(part.lower - part.beta, part.beta - part.upper)
    return float(np.max(beyond, initial=0.0))
