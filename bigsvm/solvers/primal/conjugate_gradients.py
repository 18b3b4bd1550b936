"""Newton's equations (R + H) d = -gradient by conjugate gradients, for each model of a group at once.

R is the identity, with 0 for a free bias, and H = sum_i h_i x_i x_i'.  An iteration needs one product of R + H with a
vector, which takes one reading of the rows.  The first direction of a system is guessed before its Hessian is known, so
that the reading which computes the slacks at the new point computes its product too.  All later directions are kept
conjugate to it.  The preconditioner consists of the diagonal and the last column of R + H, and of directions of earlier
systems.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigsvm.problem.problem import Problem, zero_weights
from bigsvm.solvers.base import DataShape, Need
from bigsvm.solvers.context import Context
from bigsvm.solvers.primal.bias_eliminated import BiasEliminated
from bigsvm.solvers.primal.curvature_pairs import CurvaturePairs, dot
from bigsvm.solvers.primal.row_state import RowState
from bigsvm.solvers.primal.shards.sharded_rows import ShardedRows, sums_need
from bigsvm.solvers.weights import columns, regularised
from bigsvm.store.state.vectors import RowVector

_EARLIER = 6  # directions of earlier systems in the preconditioner
_FRESH = 6  # directions of one system that are kept for later systems: its first and its last ones
_HELD = 2  # first directions that are kept; for large eigenvalues rounding brings these directions back
# Arrays as large as w: six of the state, the preconditioned residual, what is subtracted from it, a product; and the
# product and the last column of a look, with those of a task.  Each pair in float32 counts as one more.
WIDE = 13 + _EARLIER + _FRESH


@dataclass
class ConjugateGradients:
    """The state of the solution of one system.

    residual, search : float64, shape of w   residual, and the next direction
    core : BiasEliminated      preconditioner without earlier directions
    rho, target : float64, (n_models,)   squared norm of the residual by the preconditioner, and the value to reach
    products : float64, (n_samples, n_models)   y (x.d + bias d_last) of the solution d so far; None if shards have it
    first, first_product, first_bend : the first direction u if it was guessed, (R + H) u, both shape of w, and
        u.(R + H) u, (n_models,); that is 0 if it was not
    earlier, fresh : CurvaturePairs   directions of earlier systems, and of this one
    iteration : int    products so far, without that of the guess
    open : bool        the solution is not accurate enough yet
    guessed : bool     no system is open, and `search` is the first direction of the next one
    """

    residual: np.ndarray
    search: np.ndarray
    core: BiasEliminated
    rho: np.ndarray
    target: np.ndarray
    products: RowVector | None
    first: np.ndarray
    first_product: np.ndarray
    first_bend: np.ndarray
    earlier: CurvaturePairs
    fresh: CurvaturePairs
    iteration: int = 0
    open: bool = False
    guessed: bool = False

    @classmethod
    def new(cls, problem: Problem, ctx: Context) -> ConjugateGradients:
        """The state before the first system."""
        m = problem.n_models
        residual, search, diagonal, slopes, first, product = (zero_weights(ctx.data.n_features, m) for _ in range(6))
        products = ctx.vector("products", m) if ctx.shards == 1 else None
        earlier, fresh = (CurvaturePairs.new(n, residual.shape) for n in (_EARLIER, _FRESH))
        return cls(
            residual, search, BiasEliminated(diagonal, slopes), np.zeros(m), np.zeros(m), products,
            first, product, np.zeros(m), earlier, fresh,
        )  # fmt: skip

    @staticmethod
    def needs(shape: DataShape) -> list[Need]:
        """Named amounts in bytes."""
        wide = 8 * (shape.n_features + 1) * shape.n_models
        return [
            Need("conjugate gradients", WIDE * wide),
            Need("products", 8 * shape.n_samples * shape.n_models, may_spill=True),
            *sums_need(shape, 2 * wide),  # last column and product of a look
        ]

    def begin(
        self, problem: Problem, rows: RowState, gradient: np.ndarray, arrowhead: np.ndarray, forcing: float
    ) -> None:
        """Begin the system of a new point, at d = 0.

        arrowhead : of H; see `BiasEliminated.take`
        forcing : float   relative norm of the residual to reach
        """
        self.core.take(problem, arrowhead)
        np.negative(gradient, out=self.residual)
        z = self._preconditioned()
        self.rho = dot(self.residual, z)
        self.target = forcing * forcing * self.rho
        self.first_bend[...] = 0.0
        if not self.guessed:
            self.search[...] = z
        if isinstance(rows, ShardedRows):
            rows.begin_products()
        else:
            self._products[:] = 0.0
        self.iteration, self.open = 0, bool(np.any(self.rho > 0.0))

    def take(
        self, problem: Problem, product: np.ndarray, rows: RowState, direction: np.ndarray, gaps: np.ndarray
    ) -> None:
        """One iteration.

        product : float64, shape of w   H times `search`; changed in place
        rows : their p must be the products with `search`
        direction : float64, shape of w   the solution d, updated in place
        gaps : float64, (n_models,)   gaps P - D that are small enough.  As long as no row crosses a kink, the gradient
            g at w + d is the residual, and the dual point of w + d leaves a gap of |g|^2 / 2
        """
        product += regularised(problem, self.search)
        bend = dot(self.search, product)
        length = np.divide(dot(self.residual, self.search), bend, out=np.zeros_like(bend), where=bend > 0.0)
        # If the gradient was small enough before the step, and yet no proof succeeded, rows have crossed kinks and the
        # rule does not hold.  Then the guess alone is not enough, and at least one more product is taken.
        small = 0.5 * dot(self.residual, self.residual) <= gaps
        columns(direction)[...] += length * columns(self.search)
        columns(self.residual)[...] -= length * columns(product)
        if isinstance(rows, ShardedRows):
            rows.add_products(length)
        else:
            for piece in rows.pieces():
                self._products[piece] += length * rows.p.values[piece]
        self.fresh.add(self.search, product, bend, _HELD)
        z = self._preconditioned()
        rho = dot(self.residual, z)
        goes_on = rho > self.target
        large = 0.5 * dot(self.residual, self.residual) > gaps
        if self.guessed:
            self.first[...], self.first_product[...], self.first_bend[...] = self.search, product, bend
            self.guessed = False
            goes_on &= large | small
            turn = np.zeros_like(rho)
        else:
            goes_on &= large & (length > 0.0)
            turn = np.divide(rho, self.rho, out=np.zeros_like(rho), where=goes_on)
            self.iteration += 1
        bent = self.first_bend > 0.0
        share = np.divide(dot(self.first_product, z), self.first_bend, out=np.zeros_like(rho), where=bent)
        columns(self.search)[...] *= turn
        columns(self.search)[...] += columns(z) - share * columns(self.first)
        self.fresh.conjugate(self.search)
        # A model whose system is solved gets steps of 0 from now on.
        columns(self.search)[...] = np.where(goes_on, columns(self.search), 0.0)
        self.rho = np.where(goes_on, rho, 0.0)
        self.open = bool(goes_on.any())

    def guess(self, gradient: np.ndarray, lengths: np.ndarray) -> None:
        """Choose the first direction of the next system, after w has moved by `lengths`, (n_models,), along d.

        gradient : float64, shape of w   gradient before the move.  If no row crosses a kink, the new gradient is a
            mixture of it and of the residual, by the lengths
        """
        self.earlier.take_over(self.fresh)
        columns(self.residual)[...] = lengths * columns(self.residual) - (1.0 - lengths) * columns(gradient)
        self.search[...] = self._preconditioned()
        self.guessed = True

    def follow(self, rows: RowState) -> None:
        """Set p of the rows to their products with the solution d."""
        if isinstance(rows, ShardedRows):
            rows.follow_products()
        else:
            rows.p.values[:] = self._products

    @property
    def _products(self) -> np.ndarray:
        assert self.products is not None
        return self.products.values

    def _preconditioned(self) -> np.ndarray:
        """The residual times the preconditioner; a new array."""
        return self.earlier.applied(self.residual, self.core)
