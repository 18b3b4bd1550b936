"""A preconditioner for Newton's equations: the diagonal of the Hessian, after the bias is eliminated.

Every row has the bias feature, so the Hessian couples the bias with every other weight, which a diagonal ignores.  The
arrowhead of R + H is its diagonal D and its last column c.  One step of Gaussian elimination on it removes the bias
from the other equations exactly, as if the rows were centred at their mean weighted by curvature:

    s_j = c_j / D_b,    D'_j = D_j - s_j c_j    (at least 1, by the inequality of Cauchy and Schwarz)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigsvm.problem.problem import Problem
from bigsvm.solvers.weights import columns, regularised


@dataclass
class BiasEliminated:
    """The preconditioner of each model.

    diagonal : float64, shape of w   D', with D_b as its last entry
    slopes : float64, shape of w     s, with 0 as its last entry
    """

    diagonal: np.ndarray
    slopes: np.ndarray

    def take(self, problem: Problem, arrowhead: np.ndarray) -> None:
        """Take over a new Hessian.

        arrowhead : float64, (2 or more, *shape of w)   diagonal of H, and its last column over B; both without R
        """
        np.add(arrowhead[0], regularised(problem, np.ones_like(self.diagonal)), out=self.diagonal)
        diagonal, slopes = columns(self.diagonal), columns(self.slopes)
        bends = diagonal[-1] > 0.0  # a free bias has no curvature if no row has
        diagonal[-1, ~bends] = 1.0
        slopes[...] = np.where(bends, columns(arrowhead[1]) * problem.constant_feature, 0.0)
        slopes[-1] = 0.0
        eliminated = slopes * slopes / diagonal[-1]
        slopes /= diagonal[-1]
        diagonal -= eliminated
        np.maximum(diagonal[:-1], 1.0, out=diagonal[:-1])  # R is 1 there, which rounding may have lost

    def solve(self, residual: np.ndarray) -> None:
        """Replace a residual, float64, shape of w, by the inverse times the residual."""
        z = columns(residual)
        z -= columns(self.slopes) * z[-1]
        z /= columns(self.diagonal)
        z[-1] -= np.einsum("jm,jm->m", columns(self.slopes), z)
