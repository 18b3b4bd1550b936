"""Finite Newton with exact line search (`newton`), for few features and many rows (docs/mathematics.md 5.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import DataShape, Need, Rule, StartsFrom
from bigsvm.solvers.context import Context
from bigsvm.solvers.primal.hessian import hessian_needs, newton_direction, too_many_features
from bigsvm.solvers.primal.kept_hessian import KeptHessian, kept_needs
from bigsvm.solvers.primal.primal_state import FullGradient, PrimalState
from bigsvm.solvers.primal.row_pass import Curvature


@dataclass(frozen=True)
class Newton(FullGradient):
    """Hyperparameters of `newton`.

    Each iteration solves H d = -grad with the generalised Hessian H = I + 2 sum_{s > 0} C_i x_i x_i', and moves w to
    the exact minimum of P along d.  An iteration takes two passes; the optimum is reached after finitely many.

    max_features : int   largest number of features; H has (n_features + 1)^2 entries
    eps1 : float         rule of --stop paper: ||w_{k+1} - w_k|| < eps1
    """

    name: ClassVar[str] = "newton"
    losses: ClassVar[tuple[str, ...]] = ("squared_hinge", "squared_epsilon_insensitive")
    biases: ClassVar[tuple[str, ...]] = ("augmented", "none", "free")
    starts_from: ClassVar[StartsFrom] = "weights"
    paper_rule: ClassVar[bool] = True
    curvature: ClassVar[Curvature] = "matrix"
    hurries: ClassVar[bool] = True
    centres: ClassVar[bool] = True
    label_sets: ClassVar[bool] = True
    in_shards: ClassVar[bool] = True

    max_features: int = 5000
    eps1: float = 1e-6

    def refusal(self, shape: DataShape) -> str | None:
        """Refuse too many features for a Hessian."""
        return too_many_features(self.name, shape, self.max_features)

    def more_needs(self, shape: DataShape) -> list[Need]:
        """Bytes of the Hessians."""
        return hessian_needs(shape)

    def needs(self, shape: DataShape, resident: bool) -> list[Need]:
        """Those of the template, and of the Hessian that is kept."""
        return super().needs(shape, resident) + kept_needs(shape)

    def init(self, problem: Problem, ctx: Context) -> PrimalState:
        """Start at w = 0, alpha = 0."""
        state = super().init(problem, ctx)
        state.extra = KeptHessian.new(problem, state.rows, ctx)
        return state

    def read(self, state: PrimalState, ctx: Context) -> tuple[np.ndarray, np.ndarray | None]:
        """The pass of a look, which changes the Hessian of the last one."""
        kept: KeptHessian | None = state.extra
        return super().read(state, ctx) if kept is None else kept.look(state, ctx)

    def moved(self, state: PrimalState, lengths: np.ndarray) -> None:
        """Record a move."""
        super().moved(state, lengths)
        if state.extra is not None:
            state.extra.decide(state.problem, state.rows)

    def direction(self, state: PrimalState, H: np.ndarray | None) -> None:
        """Set d = -H^-1 gradient."""
        assert H is not None
        kept: KeptHessian | None = state.extra
        if kept is None:
            newton_direction(state, H)
            return
        # Where the last step was short the rule of the paper may hold, which is about the steps of all models.
        kept.let_rest(self.gaps(state), state.primal * (state.step_norm >= self.eps1))
        newton_direction(state, H, kept.rests)

    def finish(self, state: PrimalState) -> None:
        """Release what only training needs."""
        if state.extra is not None:
            state.extra.close()
        super().finish(state)

    def rule(self, state: PrimalState) -> Rule | None:
        """The rule of the paper: the last step was shorter than eps1."""
        rested = state.extra is not None and state.extra.rested
        holds = state.iteration > 0 and state.step_norm < self.eps1 and not rested
        return Rule.where(holds, "length of the last step", state.step_norm, self.eps1)
