"""The best dual point of a primal solver: a convex combination of the dual points that its gradients give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from bigsvm.problem.problem import Problem
from bigsvm.solvers.primal.row_pass import Weights
from bigsvm.solvers.primal.row_state import RowState, total_of
from bigsvm.solvers.weights import inner, squared_norm

if TYPE_CHECKING:
    from bigsvm.solvers.primal.primal_state import PrimalState

_BALANCED = 1e-14  # differences of a factor from 1 up to which it counts as 1


class Known(Protocol):
    """A source of alpha for rows whose alpha does not follow from the slacks."""

    def put(self, piece: slice, alpha: np.ndarray) -> None:
        """Overwrite alpha, (n_rows, n_models), of the rows of a piece, as far as it is known."""
        ...


class Mixing(Protocol):
    """The sums over rows, here or on shards, that mixing two dual points needs.

    shares : float64, (2, n_models)   factors on the new alpha of rows with y alpha > 0, and of the others; None: 1
    """

    def sides(self) -> np.ndarray:
        """Sums of |alpha| of the new point, float64, (2, n_models): over rows with y alpha > 0, and over the others."""

    def sums(self, shares: np.ndarray | None) -> np.ndarray:
        """`linear` and `squares` of the new point, and the mixed term of `squares`, float64, (3, n_models)."""

    def move(self, shares: np.ndarray | None, theta: np.ndarray) -> None:
        """Move alpha by the fraction `theta`, (n_models,), of the way to the new point."""


@dataclass
class DualPoint:
    """The sums of a convex combination of the dual points that gradients gave (docs/mathematics.md 2.4).

    linear : float64, (n_models,)    sum_i alpha_i; for a regression sum_i (y_i alpha_i - epsilon |alpha_i|), or less,
        because a mixture of two points gets the mixture of their sums
    squares : float64, (n_models,)   sum_i D_i alpha_i^2 / 2
    v : float64, shape of w          sum_i alpha_i y_i [x_i, bias]
    """

    linear: np.ndarray
    squares: np.ndarray
    v: np.ndarray

    def value(self, problem: Problem) -> np.ndarray:
        """D(alpha) of each model, or, for a regression, a lower bound of it; float64, (n_models,)."""
        return self.linear - 0.5 * squared_norm(problem, self.v) - self.squares


def mix_dual(
    state: PrimalState, weights: Weights, V: np.ndarray, known: Known | None = None, tol: float = 0.0,
    stays: np.ndarray | None = None,
) -> None:  # fmt: skip
    """Replace the best dual point by the best convex combination of it and a new one.

    The new point has the alpha that `weights` gives at the present slacks.  D depends on alpha only through three sums,
    so the best combination is known before any alpha is changed.

    Parameters
    ----------
    V : float64, shape of w   sum_i alpha_i y_i [x_i, bias] of the new point
    known : overrides alpha of some rows of the new point
    tol : if the relative gap of the new point alone is at most this, it replaces the best one.  (In a mixture every row
        that ever had alpha > 0 keeps some, and becomes a support vector.)
    stays : bool, (n_models,)   models whose best point does not change
    """
    problem, dual = state.problem, state.dual
    parts = state.rows.mixing() or RowMixing(problem, state.rows, weights, known)
    shares = None if problem.bias != "free" else _balance(parts.sides())
    linear, squares, cross = parts.sums(shares)
    change = V - dual.v
    rise = linear - dual.linear - inner(problem, dual.v, change) - 2.0 * (cross - dual.squares)
    bend = squared_norm(problem, change) + 2.0 * (dual.squares - 2.0 * cross + squares)
    straight = np.where(rise > 0.0, 1.0, 0.0)  # D is linear between two points whose w is the same
    theta = np.clip(np.divide(rise, bend, out=straight, where=bend > 0), 0.0, 1.0)
    alone = linear - 0.5 * squared_norm(problem, V) - squares
    balanced = True if shares is None else shares.min(axis=0) >= 1.0 - _BALANCED  # V is that of the unscaled alpha
    theta[balanced & (state.primal - alone <= tol * state.primal)] = 1.0
    if stays is not None:
        theta[stays] = 0.0
    if not theta.any():
        return
    parts.move(shares, theta)
    dual.squares = (1 - theta) ** 2 * dual.squares + 2 * theta * (1 - theta) * cross + theta**2 * squares
    dual.linear = (1 - theta) * dual.linear + theta * linear
    dual.v += change * (theta if change.ndim == 2 else theta[0])


class RowMixing:
    """`Mixing` for rows in this process."""

    def __init__(self, problem: Problem, rows: RowState, weights: Weights, known: Known | None = None) -> None:
        self._problem, self._rows, self._weights, self._known = problem, rows, weights, known

    def sides(self) -> np.ndarray:
        """See `Mixing`."""
        problem, rows = self._problem, self._rows

        def of(piece: slice) -> np.ndarray:
            alpha = _alpha(problem, rows, self._weights, self._known, piece)
            positive, alpha = _of_positive(problem, rows, alpha, piece), np.abs(alpha)
            return np.array([np.where(positive, alpha, 0.0).sum(axis=0), np.where(positive, 0.0, alpha).sum(axis=0)])

        return total_of(map(of, rows.pieces()), (2, problem.n_models))

    def sums(self, shares: np.ndarray | None) -> np.ndarray:
        """See `Mixing`."""
        problem, rows = self._problem, self._rows
        diag = 2.0 * problem.loss.diag_factor  # squares = sum diag alpha^2 / (4 C)

        def of(piece: slice) -> np.ndarray:
            new, old, C = self._new(shares, piece), rows.alpha.values[piece], rows.costs(problem, piece)
            quarter = np.divide(0.5 * diag, 2.0 * C, out=np.zeros_like(C), where=C > 0)
            linear = _linear(problem, rows, new, piece)
            return np.array([linear, (quarter * new * new).sum(axis=0), (quarter * new * old).sum(axis=0)])

        return total_of(map(of, rows.pieces()), (3, problem.n_models))

    def move(self, shares: np.ndarray | None, theta: np.ndarray) -> None:
        """See `Mixing`."""
        alpha = self._rows.alpha.values
        for piece in self._rows.pieces():
            new, old = self._new(shares, piece), alpha[piece]
            alpha[piece] = np.where(theta == 1.0, new, old + theta * (new - old))

    def _new(self, shares: np.ndarray | None, piece: slice) -> np.ndarray:
        return _scaled(self._problem, self._rows, self._weights, self._known, shares, piece)


def _linear(problem: Problem, rows: RowState, alpha: np.ndarray, piece: slice) -> np.ndarray:
    """The linear part of D of a piece of rows, float64, (n_models,)."""
    if problem.regression:
        alpha = rows.y.values[piece] * alpha - problem.loss.epsilon * np.abs(alpha)
    return np.asarray(alpha.sum(axis=0))


def _alpha(problem: Problem, rows: RowState, weights: Weights, known: Known | None, piece: slice) -> np.ndarray:
    alpha = weights.alpha(rows.s.values[piece], rows.costs(problem, piece))
    if known is not None:
        known.put(piece, alpha)
    return alpha


def _scaled(
    problem: Problem, rows: RowState, weights: Weights, known: Known | None, shares: np.ndarray | None, piece: slice
) -> np.ndarray:
    alpha = _alpha(problem, rows, weights, known, piece)
    if shares is not None:
        alpha = alpha * np.where(_of_positive(problem, rows, alpha, piece), shares[0], shares[1])
    return alpha


def _balance(totals: np.ndarray) -> np.ndarray:
    """Factors, float64, (2, n_models), on alpha of rows with y alpha > 0 and of the others, with sum y alpha = 0."""
    lighter = totals.min(axis=0)
    return np.divide(lighter, totals, out=np.zeros_like(totals), where=totals > 0)


def _of_positive(problem: Problem, rows: RowState, alpha: np.ndarray, piece: slice) -> np.ndarray:
    """bool: rows of a piece with y alpha > 0; for classes, rows with y = +1."""
    return alpha > 0 if problem.regression else rows.signs(problem, piece) > 0
