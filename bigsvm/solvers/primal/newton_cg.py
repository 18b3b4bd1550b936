"""Newton's method with conjugate gradients (`newton-cg`), for any number of features (docs/mathematics.md 5.6)."""

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
from bigsvm.solvers.primal.shards.sharded_rows import ShardedRows
from bigsvm.tasks import PassLeft

_AIM = 0.9  # share of the tolerance that the gap should have after the system, if no row crosses a kink


@dataclass(frozen=True)
class NewtonCG(FullGradient):
    """Hyperparameters of `newton-cg`.

    Each iteration solves H d = -grad with the generalised Hessian H = I + 2 sum_{s > 0} C_i x_i x_i' by conjugate
    gradients.  Each product with H reads the rows once, and no matrix is formed.  Then w moves to the exact minimum of
    P along d, which follows from the products already computed.  The reading that computes the slacks at the new point
    also computes the first product of the next system.

    forcing : float        relative norm of the residual to reach in a system
    most_products : int    most products of a system, not counting the look; d is a descent direction after any number

    Source: the truncated Newton methods of Keerthi and DeCoste (JMLR 6, 2005) and of LIBLINEAR's -s 2, with an exact
    line search instead of a trust region.
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
        """Bytes of the conjugate gradients."""
        return ConjugateGradients.needs(shape)

    def init(self, problem: Problem, ctx: Context) -> PrimalState:
        """Start at w = 0, alpha = 0."""
        state = super().init(problem, ctx)
        state.extra = ConjugateGradients.new(problem, ctx)
        return state

    def step(self, problem: Problem, state: PrimalState, ctx: Context) -> StepInfo:
        """Solve the system of the last look, product by product; then move and look like the template."""
        system: ConjugateGradients = state.extra
        n, allowed = ctx.data.n_samples, self._products_allowed(state, ctx)
        paused = StepInfo.left(state.estimate, n)
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
        """H d, by one reading of the rows."""
        if isinstance(state.rows, ShardedRows):
            return state.rows.product(d)
        weights = self.weights(problem)
        return row_pass(ctx, problem, state.rows, d.shape, d=d, weights=weights, curvature="product")[0]

    def _take(self, state: PrimalState, ctx: Context, product: np.ndarray) -> None:
        state.extra.take(state.problem, product, state.rows, state.direction, _AIM * ctx.tol * state.primal)

    def read(self, state: PrimalState, ctx: Context) -> tuple[np.ndarray, np.ndarray | None]:
        """The pass of a look; if a direction was guessed, with the product of the new Hessian with it."""
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
        """The number of products that this system may take, so that the look that follows and a proof can be read.

        At least one product is needed if there is no direction yet.  A proof of rows in memory counts as no epoch.
        """
        if ctx.sweeps_left is None:
            return self.most_products
        most, least = ctx.sweeps_left - (1 if ctx.resident else 2), self.readings(state, ctx) - 1
        return max(min(self.most_products, most), least)

    def readings(self, state: PrimalState, ctx: Context) -> int:
        """A look, and a product if there is no direction yet; `_products_allowed` says how many more."""
        return 1 if state.direction.any() else 2

    def direction(self, state: PrimalState, H: np.ndarray | None) -> None:
        """Begin the system of the present point."""
        assert H is not None
        system: ConjugateGradients = state.extra
        state.direction[...] = 0.0
        if system.guessed:
            system.first_product[...] = H[-1]
        system.begin(state.problem, state.rows, state.gradient, H, self.forcing)

    def look(self, state: PrimalState, ctx: Context) -> None:
        """Look like the template; then make the iteration along the guess, whose product is known now."""
        super().look(state, ctx)
        if state.extra.guessed:
            self._take(state, ctx, state.extra.first_product)

    def moved(self, state: PrimalState, lengths: np.ndarray) -> None:
        """Record a move, and guess the first direction of the next system."""
        super().moved(state, lengths)
        state.extra.guess(state.gradient, lengths)

    def measure(self, state: PrimalState, ctx: Context) -> None:
        """Set the products with the direction, without a pass: conjugate gradients have summed them up."""
        state.extra.follow(state.rows)

    def finish(self, state: PrimalState) -> None:
        """Release what only training needs."""
        if state.extra.products is not None:
            state.extra.products.close()
        super().finish(state)
