"""SSVM, the smoothed support vector machine of Lee and Mangasarian 2001 (`ssvm`; docs/mathematics.md 5.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import DataShape, Need, Rule, StartsFrom
from bigsvm.solvers.context import Context
from bigsvm.solvers.primal.hessian import hessian_needs, newton_direction, too_many_features
from bigsvm.solvers.primal.primal_state import FullGradient, PrimalState
from bigsvm.solvers.primal.row_pass import Curvature, Weights
from bigsvm.solvers.weights import columns, inner, squared_norm

_SHORTEST = 2.0**-40


@dataclass(frozen=True)
class SmoothDual:
    """The smoothed loss C p(s, a)^2 with p(s, a) = s + log(1 + exp(-a s)) / a, as `Weights`."""

    a: float

    def value(self, s: np.ndarray) -> np.ndarray:
        """p(s, a)^2."""
        return self.plus(s) ** 2

    def plus(self, s: np.ndarray) -> np.ndarray:
        """p(s, a), which is above max(s, 0)."""
        return np.maximum(s, 0.0) + np.log1p(np.exp(-self.a * np.abs(s))) / self.a

    def alpha(self, s: np.ndarray, C: np.ndarray) -> np.ndarray:
        """The derivative 2 C p q of the smoothed loss."""
        return 2.0 * C * self.plus(s) * self._q(s)

    def curvature(self, s: np.ndarray, C: np.ndarray) -> np.ndarray:
        """Its second derivative 2 C (q^2 + a p q (1 - q))."""
        q = self._q(s)
        return 2.0 * C * (q * q + self.a * self.plus(s) * q * (1.0 - q))

    def _q(self, s: np.ndarray) -> np.ndarray:
        e = np.exp(-self.a * np.abs(s))
        return np.where(s >= 0.0, 1.0, e) / (1.0 + e)


@dataclass(frozen=True)
class SSVM(FullGradient):
    """Hyperparameters of `ssvm`: Newton with Armijo's rule on a smoothed squared hinge.

    It converges to the minimiser of the smoothed problem.  The relative gap of that point in the original problem is
    2e-5 to 1e-3 with smoothing 5, and below 3e-7 with 50.  The gap that is reported is that of the original problem.

    smoothing : float   a of Lee and Mangasarian; larger values are closer to the squared hinge
    delta : float       Armijo's constant, in (0, 1/2)
    eps1 : float        rule of --stop paper: largest norm of the gradient of the smoothed problem
    max_features : int  largest number of features
    """

    name: ClassVar[str] = "ssvm"
    losses: ClassVar[tuple[str, ...]] = ("squared_hinge",)
    biases: ClassVar[tuple[str, ...]] = ("augmented", "none")
    starts_from: ClassVar[StartsFrom] = "weights"
    paper_rule: ClassVar[bool] = True
    curvature: ClassVar[Curvature] = "matrix"
    hurries: ClassVar[bool] = True
    centres: ClassVar[bool] = True
    in_shards: ClassVar[bool] = True

    smoothing: float = 5.0
    delta: float = 1e-3
    eps1: float = 1e-5
    max_features: int = 5000

    def __post_init__(self) -> None:
        if not (self.smoothing > 0 and 0 < self.delta < 0.5):
            raise ValueError("smoothing must be positive and delta between 0 and 1/2")

    def refusal(self, shape: DataShape) -> str | None:
        """Refuse too many features for a Hessian."""
        return too_many_features(self.name, shape, self.max_features)

    def more_needs(self, shape: DataShape) -> list[Need]:
        """Bytes of the Hessians."""
        return hessian_needs(shape)

    def weights(self, problem: Problem) -> Weights:
        """The smoothed loss."""
        return SmoothDual(self.smoothing)

    def direction(self, state: PrimalState, H: np.ndarray | None) -> None:
        """Set the Newton direction of the smoothed problem."""
        assert H is not None
        newton_direction(state, H)

    def move(self, state: PrimalState, ctx: Context) -> None:
        """Move by Armijo's rule on the smoothed objective: the largest of 1, 1/2, 1/4, ... that decreases it enough."""
        problem, d = state.problem, state.direction
        self.measure(state, ctx)
        wd, dd = inner(problem, state.w, d), squared_norm(problem, d)
        slope = (columns(state.gradient) * columns(d)).sum(axis=0)
        now = self._smooth(state, np.zeros(problem.n_models), wd, dd)
        lengths = np.ones(problem.n_models)
        for _ in range(40):
            then = self._smooth(state, lengths, wd, dd)
            enough = (then <= now + self.delta * lengths * slope) | (lengths == 0.0)
            if enough.all():
                break
            lengths = np.where(enough, lengths, 0.5 * lengths)
        lengths = np.where((lengths > _SHORTEST) & (slope < 0.0), lengths, 0.0)
        columns(state.w)[...] += columns(d) * lengths
        self.moved(state, lengths)

    def _smooth(self, state: PrimalState, t: np.ndarray, wd: np.ndarray, dd: np.ndarray) -> np.ndarray:
        """The smoothed objective at w + t d, minus ||w||^2 / 2; float64, (n_models,)."""
        regular = t * wd + 0.5 * t * t * dd
        return state.rows.losses_after(state.problem, SmoothDual(self.smoothing), t, regular)

    def rule(self, state: PrimalState) -> Rule | None:
        """The rule of the paper: the gradient of the smoothed problem is no longer than eps1."""
        norm = float(np.sqrt((columns(state.gradient) ** 2).sum(axis=0)).max())
        return Rule.where(norm <= self.eps1, "norm of the smoothed gradient", norm, self.eps1)
