"""Newton's method with conjugate gradients (`newton-cg`): any number of features (docs/mathematics.md 5.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import DataShape, Need, StartsFrom, StepInfo
from bigsvm.solvers.context import Context
from bigsvm.solvers.primal.conjugate_gradients import ConjugateGradients
from bigsvm.solvers.primal.primal_state import FullGradient, PrimalState
from bigsvm.solvers.primal.row_pass import Curvature, row_pass
from bigsvm.solvers.primal.sharded_rows import ShardedRows
from bigsvm.tasks import PassLeft

_AIM = 0.9  # of the tolerance: the gap that the solution of a system should leave, if no row changed its side


@dataclass(frozen=True)
class NewtonCG(FullGradient):
    """Hyperparameters of `newton-cg`.

    Each iteration solves H d = -grad with the generalised Hessian H = I + 2 sum_{s > 0} C_i x_i x_i' by conjugate
    gradients, whose every product reads the rows once and needs no matrix, and goes to the least of P along d, found
    exactly from the products that are there already.  The reading that looks where this led takes the next system's
    first product.  The truncated Newton method of Keerthi and DeCoste (JMLR 6, 2005)
    and of LIBLINEAR's -s 2, with an exact line search in place of a trust region.

    forcing : float        part of the gradient that the solution of a system may leave
    most_products : int    of one system, but the look's: d is a direction of descent after any number
    """

    name: ClassVar[str] = "newton-cg"
    losses: ClassVar[tuple[str, ...]] = ("squared_hinge", "squared_epsilon_insensitive")
    biases: ClassVar[tuple[str, ...]] = ("augmented", "none", "free")
    starts_from: ClassVar[StartsFrom] = "weights"
    curvature: ClassVar[Curvature] = "arrowhead"
    move_reads: ClassVar[int] = 0
    centres: ClassVar[bool] = True
    label_sets: ClassVar[bool] = True
    in_shards: ClassVar[bool] = True
    sums_products: ClassVar[bool] = True

    forcing: float = 0.3
    most_products: int = 250

    def __post_init__(self) -> None:
        if not 0.0 < self.forcing < 1.0:
            raise ValueError(f"forcing must be between 0 and 1, not {self.forcing!r}")
        if self.most_products < 1:
            raise ValueError(f"most_products must be at least 1, not {self.most_products!r}")

    def more_needs(self, shape: DataShape) -> list[Need]:
        """What conjugate gradients keep."""
        return ConjugateGradients.needs(shape)

    def init(self, problem: Problem, ctx: Context) -> PrimalState:
        """w = 0, alpha = 0."""
        state = super().init(problem, ctx)
        state.extra = ConjugateGradients.new(problem, ctx)
        return state

    def step(self, problem: Problem, state: PrimalState, ctx: Context) -> StepInfo:
        """Solve the system of the last look product by product; then move and look, as all do."""
        system: ConjugateGradients = state.extra
        n, allowed = ctx.data.n_samples, self._products_allowed(state, ctx)
        paused = StepInfo(state.estimate, n, 0, ask_certificate=False, paused=True)
        while system.open and system.iteration < allowed and not (state.direction.any() and ctx.expired()):
            try:
                product = self._product(problem, state, ctx, system.search)
            except PassLeft:
                return paused
            self._take(state, ctx, product)
            state.visits += n
            if system.open and ctx.pause():
                return paused
        system.open = False
        return super().step(problem, state, ctx)

    def _product(self, problem: Problem, state: PrimalState, ctx: Context, d: np.ndarray) -> np.ndarray:
        """The Hessian's with d, from one reading of the rows."""
        if isinstance(state.rows, ShardedRows):
            return state.rows.product(d)
        weights = self.weights(problem)
        return row_pass(ctx, problem, state.rows, d.shape, d=d, weights=weights, curvature="product")[0]

    def _take(self, state: PrimalState, ctx: Context, product: np.ndarray) -> None:
        state.extra.take(state.problem, product, state.rows, state.direction, _AIM * ctx.tol * state.primal)

    def read(self, state: PrimalState, ctx: Context) -> tuple[np.ndarray, np.ndarray | None]:
        """The pass of a look, with the product of the Hessian that it finds and the guess that was made, if one was."""
        system: ConjugateGradients = state.extra
        if not system.guessed:
            return super().read(state, ctx)
        curvature: Curvature = "arrowhead and product"
        if isinstance(state.rows, ShardedRows):
            return state.rows.look(state.w, curvature, system.search)
        return row_pass(
            ctx, state.problem, state.rows, state.w.shape, w=state.w, d=system.search,
            weights=self.weights(state.problem), curvature=curvature,
        )  # fmt: skip

    def _products_allowed(self, state: PrimalState, ctx: Context) -> int:
        """Products of this system: one reading more than these is the look that follows.

        Where no guess has led anywhere there is no direction without one.
        """
        if ctx.sweeps_left is None:
            return self.most_products
        return max(min(self.most_products, ctx.sweeps_left - 1), 0 if state.direction.any() else 1)

    def direction(self, state: PrimalState, H: np.ndarray | None) -> None:
        """Begin a new system."""
        assert H is not None
        system: ConjugateGradients = state.extra
        state.direction[...] = 0.0
        if system.guessed:
            system.first_product[...] = H[-1]
        system.begin(state.problem, state.rows, state.gradient, H, self.forcing)

    def look(self, state: PrimalState, ctx: Context) -> None:
        """As all do; then take the step along the guess, whose product the look has brought."""
        super().look(state, ctx)
        if state.extra.guessed:
            self._take(state, ctx, state.extra.first_product)

    def moved(self, state: PrimalState, lengths: np.ndarray) -> None:
        """Guess where the new point will want to go."""
        super().moved(state, lengths)
        state.extra.guess(state.gradient, lengths)

    def measure(self, state: PrimalState, ctx: Context) -> None:
        """No pass: the products are the sum of those that conjugate gradients took."""
        state.extra.follow(state.rows)

    def finish(self, state: PrimalState) -> None:
        """Give back what only training needs."""
        if state.extra.products is not None:
            state.extra.products.close()
        super().finish(state)
