"""What rounding of w, of its scores and of P is worth in the proofs of linear models (docs/mathematics.md 2.8).

A score w.x_i is known to eps ||w|| ||x_i||, and v = sum_i alpha_i y_i x_i to eps sum_i |alpha_i| ||x_i||.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bigsvm.problem.rounding import EPS, SHARE, room_of

_LOST = SHARE * SHARE
_SUMS = 2.0**-50  # of sums in float64, relative


class LinearRounding(NamedTuple):
    """What rounding may be worth in proofs of w and alpha, float64, (n_models,) each.

    gap : in sum of brackets and 1/2 ||w - v||^2;  primal : in P
    """

    gap: np.ndarray
    primal: np.ndarray

    def added(self, gap: np.ndarray, primal: np.ndarray) -> np.ndarray:
        """What is added to a gap; 0 where it is lost in the gap or in P.

        That of P counts twice: a primal value of one proof may meet the dual value of another, which is that proof's P
        less its gap.
        """
        size = np.abs(primal)
        own = np.where(self.gap > SHARE * np.maximum(gap, SHARE * size), self.gap, 0.0)
        return own + np.where(self.primal > _LOST * size, 2.0 * self.primal, 0.0)

    def taken(self, gap: np.ndarray, primal: np.ndarray) -> np.ndarray:
        """What is taken off P - gap, that it be a dual value; 0 where it is lost in it.

        It may meet a P that is far smaller than its own: there the rounding of this P counts, however small it is
        beside this gap.
        """
        off = self.gap + 2.0 * self.primal + _SUMS * np.abs(primal)
        return np.where(off > _LOST * np.abs(primal - gap), off, 0.0)


def linear_rounding(
    w: np.ndarray, apart: np.ndarray, brackets: np.ndarray, losses: np.ndarray, spread: np.ndarray, slopes: np.ndarray,
    costs: np.ndarray, squared: bool,
) -> LinearRounding:  # fmt: skip
    """Each row's score is off by e ||x_i||, e = eps ||w||, and v by d = eps sum_i |alpha_i| ||x_i||.

    Where squares overflow (values beyond 1e154) nothing is told of it, and 0 counted.

    Parameters
    ----------
    w, apart : float64, (n_models,)   ||w||, the bias included, and ||w - v||
    brackets, losses : likewise       sums of the gap's brackets and of C_i loss_i
    spread, slopes, costs : likewise  sums of |alpha_i|, of the brackets' slopes and of C_i, each times ||x_i||; of
        squared losses, whose brackets are squares C_i (s_i - t_i)^2, C_i times ||x_i||^2 and no slopes
    """
    e = EPS * w
    with np.errstate(over="ignore", invalid="ignore"):
        if squared:
            most = e * e * costs
            scores = 2.0 * np.sqrt(most * brackets) + most
            value = 2.0 * np.sqrt(most * losses) + most
        else:
            scores, value = e * slopes, e * costs
        found = scores + rounding_of_norm(apart, spread), value
    return LinearRounding(*(_finite(part) for part in found))


@dataclass
class UnsureWeights:
    """Sums over rows of a dual point beta, whose v = sum_i beta_i x_i is the model, or nearly; float64 or (n_models,).

    A score w.x_i + b is known to eps (||w|| ||x_i|| + |b|): b meets no row, however long the row is.

    spread : |beta_i| ||x_i||;  inside : room ||x_i||, of rows inside their box, as `Unsure` has it;  room : itself
    costs : C_i ||x_i||;  weight : C_i;  largest : the largest ||x_i||
    """

    spread: np.ndarray | float = 0.0
    inside: np.ndarray | float = 0.0
    room: np.ndarray | float = 0.0
    costs: np.ndarray | float = 0.0
    weight: np.ndarray | float = 0.0
    largest: np.ndarray | float = 0.0

    def add(self, beta: np.ndarray, lower: np.ndarray, upper: np.ndarray, diagonal: np.ndarray) -> None:
        """Some rows more, float64, (n_rows,) each.  diagonal : their x_i.x_i"""
        norm, room, C = np.sqrt(np.abs(diagonal)), room_of(beta, lower, upper), np.maximum(upper, -lower)
        self.spread += float(np.abs(beta) @ norm)
        self.inside += float(room @ norm)
        self.room += float(room.sum())
        self.costs += float(C @ norm)
        self.weight += float(C.sum())
        self.largest = max(self.largest, float(norm.max(initial=0.0)))

    def rounding(
        self, w: np.ndarray | float, b: np.ndarray | float, ends: np.ndarray | float, apart: np.ndarray | float = 0.0
    ) -> LinearRounding:
        """Of a gap that w, b and beta prove.

        w, apart : ||w|| and ||w - v||;  b : the bias, which costs nothing;  ends : as `unsure_costs` has them
        """
        size = np.abs(b)
        with np.errstate(over="ignore", invalid="ignore"):
            scores = EPS * (w * (self.inside + self.largest * ends) + size * (self.room + ends))
            gap = scores + rounding_of_norm(np.asarray(apart), np.asarray(self.spread))
            primal = EPS * (w * self.costs + size * self.weight)
        return LinearRounding(_finite(gap), _finite(primal))


def rounding_of_norm(norm: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """What rounding of v is worth in 1/2 ||v||^2, or in 1/2 ||w - v||^2.  spread : as `linear_rounding` has it"""
    d = EPS * spread
    return np.asarray(d * (norm + 0.5 * d))


def _finite(found: np.ndarray | float) -> np.ndarray:
    """Float64, at least (1,), 0 where squares have overflowed."""
    return np.atleast_1d(np.where(np.isfinite(found), found, 0.0))
