"""Momentum for dual coordinate descent: a pass over rows that stream starts beyond where the last one ended.

Before a pass, alpha and w are moved further along the direction of the last pass, to the maximum of the dual on that
line.  The step ignores the box, so alpha may be infeasible when the pass begins; the coordinate steps of the pass bring
every row back into its box.  The step needs no reading.  It saves about a quarter of the passes if most support vectors
are free (docs/measurements.md 4.2).

If many rows are at their bounds, most of the step is clipped again, and does harm (docs/measurements.md 4.3).  There
are two guards: the step is shortened until the box would clip at most a quarter of it, and it is left out after a pass
in which the dual has fallen.  With the second guard a quarter is better than a tenth: kdd, C=10, to 1e-2 took 13 passes
instead of 21, w8a, C=100, 14 instead of 20, and nothing is lost at C=1.

Sweeps over rows in memory that take long are extrapolated too, every few sweeps (`slow_sweeps.py`).

Proofs and checkpoints see the end of a pass, which is feasible.  The next direction needs a copy of that point, and a
deferred certificate needs the same copy.
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

_CLIPPED = 0.25  # largest part of the step, by its l1 norm, that the box may clip
_CUT = 0.7  # factor by which a step is shortened
_FARTHEST = 0.9  # longest step, relative to the last pass: rounding errors in w then grow at most tenfold
_CUTS = 24  # shortenings tried before the step is given up
_CUTS_AT_ONCE = 8  # shortenings tried on one reading of alpha
_PIECE = 1 << 16  # rows whose sums are computed together; the pieces are added exactly


@dataclass
class Momentum:
    """Momentum of a group of models.

    w, alpha : the (feasible) point at which the last pass began, before the step of momentum
    theta : float64, (n_models,)   length of that step, relative to the change during the pass before
    dual : float64, (n_models,)    dual value at (w, alpha)
    """

    w: np.ndarray
    alpha: RowVector
    theta: np.ndarray
    dual: np.ndarray

    @classmethod
    def new(cls, w: np.ndarray, alpha: RowVector) -> Momentum:
        """Before the first pass.  alpha : a vector that the copy is kept in"""
        m = alpha.values.shape[1]
        return cls(w.copy(), alpha, np.zeros(m), np.full(m, -math.inf))

    def remember(self, w: np.ndarray, alpha: RowVector) -> None:
        """Copy w and alpha, without a step."""
        self.w[...] = w
        for rows in _pieces(len(alpha.values)):
            self.alpha.values[rows] = alpha.values[rows]

    def leap(
        self, problem: Problem, w: np.ndarray, alpha: RowVector, cost: np.ndarray, moves: np.ndarray | None = None
    ) -> None:
        """Choose the step (`decide`), copy w and alpha, and move both in place."""
        self.decide(problem, w, alpha, cost, moves)
        for rows in _pieces(len(alpha.values)):
            kernel.leap(alpha.values[rows], self.alpha.values[rows], self.theta)
        kernel.leap(columns(w), columns(self.w), self.theta)

    def decide(
        self, problem: Problem, w: np.ndarray, alpha: RowVector, cost: np.ndarray, moves: np.ndarray | None = None
    ) -> None:
        """Set `theta`, the length of the next step, and `dual`.

        w : (n_features + 1,) or (n_features + 1, n_models)   w(alpha)
        cost : float64, (n_samples,)   class weight times sample weight; (0,) if all are 1
        moves : uint8, (n_models,)   0 for models that rest, which take no step; None: all models are trained
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
        if moves is not None:
            theta = np.where(moves, theta, 0.0)
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
        """The steps, shortened until the box clips at most `_CLIPPED` of each; 0 if no shortening is enough.

        theta, length : float64, (n_models,)   steps, and l1 norms of their directions
        """
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
