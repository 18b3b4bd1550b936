"""How much rounding may change the gap and P of linear models (docs/mathematics.md 2.8).

The rounding error of a score w.x_i is at most eps ||w|| ||x_i||, and that of v = sum_i alpha_i y_i x_i at most
eps sum_i |alpha_i| ||x_i||.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bigsvm.problem.rounding import EPS, SHARE, room_of

_LOST = SHARE * SHARE
_SUMS = 2.0**-50  # relative rounding error of sums in float64


class LinearRounding(NamedTuple):
    """Bounds of the rounding errors in a proof of w and alpha, float64, (n_models,) each.

    gap : error of the sum of brackets and 1/2 ||w - v||^2;  primal : error of P
    """

    gap: np.ndarray
    primal: np.ndarray

    def added(self, gap: np.ndarray, primal: np.ndarray) -> np.ndarray:
        """What is added to a gap; 0 if the errors are negligible against the gap or P.

        The error of P counts twice, because the primal value of one proof may be combined with the dual value of
        another, which is P minus the gap of that proof.
        """
        size = np.abs(primal)
        own = np.where(self.gap > SHARE * np.maximum(gap, SHARE * size), self.gap, 0.0)
        return own + np.where(self.primal > _LOST * size, 2.0 * self.primal, 0.0)

    def taken(self, gap: np.ndarray, primal: np.ndarray) -> np.ndarray:
        """What is subtracted from P - gap to make it a dual value; 0 if it is negligible against P - gap.

        The dual value may later be combined with a much smaller P of another proof.  Then the error of this P matters,
        however small it is against this gap.
        """
        off = self.gap + 2.0 * self.primal + _SUMS * np.abs(primal)
        return np.where(off > _LOST * np.abs(primal - gap), off, 0.0)


def linear_rounding(
    w: np.ndarray, apart: np.ndarray, brackets: np.ndarray, losses: np.ndarray, spread: np.ndarray, slopes: np.ndarray,
    costs: np.ndarray, squared: bool,
) -> LinearRounding:  # fmt: skip
    """Bounds from sums over the rows: score i is off by e ||x_i|| with e = eps ||w||, v by eps sum_i |alpha_i| ||x_i||.

    If squares (values beyond 1e154) or costs overflow, no bound is known, and infinity is returned.

    Parameters
    ----------
    w, apart : float64, (n_models,)               ||w|| with the bias included, and ||w - v||
    brackets, losses : float64, (n_models,)       sums of the brackets of the gap, and of C_i loss_i
    spread, slopes, costs : float64, (n_models,)  sums of |alpha_i| ||x_i||, of slope of bracket i times ||x_i||, and of
        C_i ||x_i||.  For squared losses, whose brackets are C_i (s_i - t_i)^2, `costs` is the sum of C_i ||x_i||^2 and
        `slopes` is not used
    squared : bool                                whether the loss is squared
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
    return LinearRounding(*(_known(part) for part in found))


@dataclass
class UnsureWeights:
    """Sums over the rows of a dual point beta from which rounding is bounded; float or float64, (n_models,), each.

    The model is v = sum_i beta_i x_i, or nearly so.  The error of a score w.x_i + b is at most
    eps (||w|| ||x_i|| + |b|).

    spread : sum of |beta_i| ||x_i||
    inside, room : sums of room_i ||x_i|| and of room_i, over rows inside their box (`rounding.room_of`)
    costs, weight : sums of C_i ||x_i|| and of C_i
    largest : the largest ||x_i||
    """

    spread: np.ndarray | float = 0.0
    inside: np.ndarray | float = 0.0
    room: np.ndarray | float = 0.0
    costs: np.ndarray | float = 0.0
    weight: np.ndarray | float = 0.0
    largest: np.ndarray | float = 0.0

    def add(self, beta: np.ndarray, lower: np.ndarray, upper: np.ndarray, diagonal: np.ndarray) -> None:
        """Add some rows; all arrays are float64, (n_rows,).  diagonal : x_i.x_i"""
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
        """Bounds for a proof of (w, b, beta).

        w, apart : ||w|| and ||w - v||;  b : the free bias;  ends : see `unsure_costs`
        """
        size = np.abs(b)
        with np.errstate(over="ignore", invalid="ignore"):
            scores = EPS * (w * (self.inside + self.largest * ends) + size * (self.room + ends))
            gap = scores + rounding_of_norm(np.asarray(apart), np.asarray(self.spread))
            primal = EPS * (w * self.costs + size * self.weight)
        return LinearRounding(_known(gap), _known(primal))


def rounding_of_norm(norm: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """How much rounding of v may change 1/2 ||v||^2 or 1/2 ||w - v||^2.  norm : ||v|| or ||w - v||;  spread : see
    `linear_rounding`."""
    d = EPS * spread
    return np.asarray(d * (norm + 0.5 * d))


def _known(found: np.ndarray | float) -> np.ndarray:
    """A float64 array of at least one entry, with infinity where it is not a number."""
    return np.atleast_1d(np.where(np.isnan(found), np.inf, found))
