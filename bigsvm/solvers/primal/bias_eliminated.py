"""An inverse of a Hessian, roughly: its diagonal, once the bias is eliminated.

Every row has the bias, so the Hessian couples it with every feature, which a diagonal ignores.  One step of Gauss'
elimination on the arrowhead of R + H, its diagonal D and its last column c, takes the bias out of the other weights
exactly, as if rows were centred at their mean weighted by curvature:

    s_j = c_j / D_b,    D'_j = D_j - s_j c_j    (at least 1, by the inequality of Cauchy and Schwarz)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigsvm.problem.problem import Problem
from bigsvm.solvers.weights import columns, regularised


@dataclass
class BiasEliminated:
    """Of each model.

    diagonal : float64, shape of w   D', and D_b at its end
    slopes : float64, shape of w     s, and 0 at its end
    """

    diagonal: np.ndarray
    slopes: np.ndarray

    def take(self, problem: Problem, arrowhead: np.ndarray) -> None:
        """Become that of a new Hessian.

        arrowhead : float64, (2 or more, *shape of w)   diagonal and last column over B of H, without R
        """
        np.add(arrowhead[0], regularised(problem, np.ones_like(self.diagonal)), out=self.diagonal)
        diagonal, slopes = columns(self.diagonal), columns(self.slopes)
        bends = diagonal[-1] > 0.0  # a free bias has no curvature where no row has
        diagonal[-1, ~bends] = 1.0
        slopes[...] = np.where(bends, columns(arrowhead[1]) * problem.constant_feature, 0.0)
        slopes[-1] = 0.0
        eliminated = slopes * slopes / diagonal[-1]
        slopes /= diagonal[-1]
        diagonal -= eliminated
        np.maximum(diagonal[:-1], 1.0, out=diagonal[:-1])  # R is 1 there, and rounding may have eaten it

    def solve(self, residual: np.ndarray) -> None:
        """Put the inverse times a residual, float64 and of the shape of w, in its place."""
        z = columns(residual)
        z -= columns(self.slopes) * z[-1]
        z /= columns(self.diagonal)
        z[-1] -= np.einsum("jm,jm->m", columns(self.slopes), z)
