"""Momentum for dual coordinate descent on rows that stream: a pass starts beyond where the last one ended.

The dual is maximised along the direction of the last pass, exactly and without regard to the box; so far the next
pass starts ahead, at an alpha that may be infeasible, and its own coordinate steps bring every row back.  That costs
no reading, and about a quarter of the passes are spared where most support vectors are free
(docs/measurements.md 4.2).

Where many rows are at their bounds an unguarded step is mostly clipped away again and does harm
(docs/measurements.md 4.3).  So it is cut until the box would clip no more than a quarter of it, and left out after a
pass in which the dual has fallen.  Beside that second guard a quarter is better than a tenth: kdd, C=10, to 1e-2 in 13
passes instead of 21, w8a, C=100, in 14 instead of 20, neither with any loss at C=1.

Proofs and checkpoints see the end of a pass, which is feasible.  A pass needs a copy of it for the next direction,
and so does a deferred certificate: it is the same copy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate, repeat
from operator import mul

import numpy as np

from bigsvm.compiled.linear import momentum as kernel
from bigsvm.problem.problem import Problem
from bigsvm.solvers.weights import columns
from bigsvm.store.blocks import tile
from bigsvm.store.state.vectors import RowVector

_CLIPPED = 0.25  # of the step's l1 mass, at most
_CUT = 0.7
_FARTHEST = 0.9  # of the last direction: what w has drifted from alpha is then made at most ten times as large
_CUTS = 24  # beyond, what is left of the step is nothing
_CUTS_AT_ONCE = 8  # tried on one reading of alpha
_PIECE = 1 << 16  # rows: what is added up apart


@dataclass
class Momentum:
    """Of models that are trained together.

    w, alpha : shaped as theirs; as they were before the pass that was begun last, feasible
    theta : float64, (n_models,)   how far beyond that the pass started, in parts of the direction that led to it
    dual : float64, (n_models,)    the dual value where it began
    """

    w: np.ndarray
    alpha: RowVector
    theta: np.ndarray
    dual: np.ndarray

    @classmethod
    def new(cls, w: np.ndarray, alpha: RowVector) -> Momentum:
        """Before the first pass; `alpha` for the copy."""
        m = alpha.values.shape[1]
        return cls(w.copy(), alpha, np.zeros(m), np.full(m, -math.inf))

    def remember(self, w: np.ndarray, alpha: RowVector) -> None:
        """Remember w and alpha, and move neither."""
        self.w[...] = w
        for rows in _pieces(len(alpha.values)):
            self.alpha.values[rows] = alpha.values[rows]

    def leap(self, problem: Problem, w: np.ndarray, alpha: RowVector, cost: np.ndarray) -> None:
        """Remember w and alpha, and move both ahead.

        As `decide` has it.
        """
        self.decide(problem, w, alpha, cost)
        for rows in _pieces(len(alpha.values)):
            kernel.leap(alpha.values[rows], self.alpha.values[rows], self.theta)
        kernel.leap(columns(w), columns(self.w), self.theta)

    def decide(self, problem: Problem, w: np.ndarray, alpha: RowVector, cost: np.ndarray) -> None:
        """How far ahead the next pass starts.

        w : (n_features + 1,) or (n_features + 1, n_models), of alpha
        cost : float64, (n_samples,) or (0,) for ones
        """
        sums = self._sums(problem, alpha, cost)
        part, run = np.zeros((2, problem.n_models, 3))
        kernel.products(columns(w), columns(self.w), run, part)
        norm, slope, bend = part.T
        value = sums[:, kernel.ALPHA] - 0.5 * norm - sums[:, kernel.SQUARES]
        rise = sums[:, kernel.RISE] - slope - sums[:, kernel.CROSS]
        bend = bend + sums[:, kernel.BEND]
        theta = np.divide(rise, bend, out=np.zeros_like(rise), where=bend > 0)
        theta = np.where((theta > 0) & (value >= self.dual), np.minimum(theta, _FARTHEST), 0.0)
        if problem.axis is not None:
            theta = np.where(problem.axis.moves, theta, 0.0)
        self.theta[...] = self._guarded(problem, alpha, cost, theta, sums[:, kernel.LENGTH])
        self.dual[...] = value

    def _sums(self, problem: Problem, alpha: RowVector, cost: np.ndarray) -> np.ndarray:
        parts = []
        for rows in _pieces(len(alpha.values)):
            part, run = np.zeros((2, problem.n_models, kernel.N_SUMS))
            kernel.line_sums(
                alpha.values[rows], self.alpha.values[rows], cost[rows], problem.C, problem.loss.diag_factor, run, part
            )
            parts.append(part)
        return _added(parts)

    def _guarded(
        self, problem: Problem, alpha: RowVector, cost: np.ndarray, theta: np.ndarray, length: np.ndarray
    ) -> np.ndarray:
        """The steps cut until the box clips no more than a part of each; `length`: l1 norms of the directions."""
        for _ in range(0, _CUTS, _CUTS_AT_ONCE):
            steps = np.array(list(accumulate(repeat(_CUT, _CUTS_AT_ONCE - 1), mul, initial=theta)))
            parts = []
            for rows in _pieces(len(alpha.values)):
                part = np.zeros(steps.shape)
                kernel.clipped(
                    alpha.values[rows], self.alpha.values[rows], cost[rows], problem.C, problem.loss.upper_factor,
                    steps, part,
                )  # fmt: skip
                parts.append(part)
            fits = _added(parts) <= _CLIPPED * steps * length
            theta = np.where(fits.any(axis=0), steps[fits.argmax(axis=0), np.arange(len(theta))], _CUT * steps[-1])
            if fits.any(axis=0).all():
                return theta
        return np.where(fits.any(axis=0), theta, 0.0)


def _pieces(n_rows: int) -> list[slice]:
    return [slice(start, stop) for start, stop in tile(n_rows, _PIECE)]


def _added(parts: list[np.ndarray]) -> np.ndarray:
    stacked = np.array(parts)
    return np.array([math.fsum(column) for column in stacked.reshape(len(parts), -1).T]).reshape(stacked.shape[1:])
