"""What rounding of scores is worth in a gap; first of models with kernel values, then of linear ones.

A score is a sum of beta_s K(x_s, x_i), and float64 knows it to no better than eps sum_s |beta_s| |K(x_s, x_i)|, which
is at most eps sqrt(K_ii) sum_s |beta_s| sqrt(K_ss).  Of a row whose beta lies at the end of its box that its score
asks for, the term of the gap is 0 wherever the score lies within that.  Of a row inside its box it is not: to first
order it changes by the distance of beta to the farther end, times what its score changes by.  Where P is so small that
these changes together are larger (rows far from the origin, kernel values of 1e20 and more), no relative gap is proved
however small the terms came out; nor where rounding of all scores, each at its cost, is worth more than P: then it is
not known which end a row belongs at (docs/mathematics.md 2.8).

Of a linear model a score w.x_i is known to eps ||w|| ||x_i||, and v = sum_i alpha_i y_i x_i to eps sum_i |alpha_i|
||x_i||.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

_EPS = float(np.finfo(np.float64).eps)
_SHARE = 2.0**-20
_LOST = _SHARE * _SHARE
_SUMS = 2.0**-50  # of sums in float64, relative
NEAR = 2.0**-40
"""Of a residual on a kink: relative to the numbers that it is made of."""


@dataclass
class Unsure:
    """Sums over rows, of one model or float64 (n_models,).

    reach : |beta| sqrt(K_ii);  spread : room sqrt(K_ii), of rows inside their box
    fixed : room |t|, and room : itself, of the same rows
    """

    reach: np.ndarray | float = 0.0
    spread: np.ndarray | float = 0.0
    fixed: np.ndarray | float = 0.0
    room: np.ndarray | float = 0.0

    def add(self, other: Unsure) -> None:
        """Add the sums over other rows."""
        self.reach, self.spread = self.reach + other.reach, self.spread + other.spread
        self.fixed, self.room = self.fixed + other.fixed, self.room + other.room


def unsure_of(
    beta: np.ndarray, lower: np.ndarray, upper: np.ndarray, target: np.ndarray, diagonal: np.ndarray
) -> Unsure:
    """Of some rows, float64, (n_rows,) each; those whose beta is 0 add nothing.  diagonal : their K_ii"""
    room = _room(beta, lower, upper)
    root = np.sqrt(np.abs(diagonal))
    return Unsure(float(np.abs(beta) @ root), float(room @ root), float(room @ np.abs(target)), float(room.sum()))


def _room(beta: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """The distance of beta to the farther end of its side of the box; 0 at an end."""
    end = np.where(beta > 0.0, upper, lower)
    return np.where((beta != 0.0) & (beta != end), np.maximum(np.abs(end - beta), np.abs(beta)), 0.0)


def rounding_cost(
    unsure: Unsure, ends: np.ndarray, costs: np.ndarray, size: np.ndarray, b: np.ndarray, primal: np.ndarray,
    gap: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """What is added to the gap of each model, float64, (n_models,): 0 where it is lost in the gap or in P.

    ends, costs : as `unsure_costs` has them, whose rows are taken for ones of the usual size;  size : sum |beta|
    """
    usual = np.divide(unsure.reach, size, out=np.zeros_like(size), where=size > 0.0)
    with np.errstate(over="ignore", invalid="ignore"):  # an infinite gap stays what it is
        scores = unsure.reach * (unsure.spread + usual * ends)
        lost = _EPS * unsure.reach * usual * costs > np.abs(primal)
        cost = _EPS * (scores + unsure.fixed + np.abs(b) * (unsure.room + ends))
        counts = cost > _SHARE * np.maximum(gap, _SHARE * np.abs(primal))
    return np.where(lost, np.abs(primal), np.where(counts, cost, 0.0))


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
        own = np.where(self.gap > _SHARE * np.maximum(gap, _SHARE * size), self.gap, 0.0)
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
    e = _EPS * w
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
        norm, room, C = np.sqrt(np.abs(diagonal)), _room(beta, lower, upper), np.maximum(upper, -lower)
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
            scores = _EPS * (w * (self.inside + self.largest * ends) + size * (self.room + ends))
            gap = scores + rounding_of_norm(np.asarray(apart), np.asarray(self.spread))
            primal = _EPS * (w * self.costs + size * self.weight)
        return LinearRounding(_finite(gap), _finite(primal))


def rounding_of_norm(norm: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """What rounding of v is worth in 1/2 ||v||^2, or in 1/2 ||w - v||^2.  spread : as `linear_rounding` has it"""
    d = _EPS * spread
    return np.asarray(d * (norm + 0.5 * d))


def _finite(found: np.ndarray | float) -> np.ndarray:
    """Float64, at least (1,), 0 where squares have overflowed."""
    return np.atleast_1d(np.where(np.isfinite(found), found, 0.0))
