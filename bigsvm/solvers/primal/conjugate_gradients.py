"""Newton's equations (R + H) d = -gradient by conjugate gradients, for each model of a group at once.

R is the regulariser's identity, 0 for a free bias, and H = sum_i h_i x_i x_i'.  An iteration needs one product of R + H
with a vector, which is one reading of the rows.  The first direction of a system is a guess that was made before its
Hessian was known, so that the reading that looks at the new point brings its product; the others are kept conjugate to
it.  The preconditioner is made of the diagonal and the last column of R + H and of the directions of earlier systems.
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
from bigsvm.solvers.primal.sharded_rows import ShardedRows, sums_need
from bigsvm.solvers.weights import columns, regularised
from bigsvm.store.state.vectors import RowVector

_EARLIER = 6  # directions of earlier systems that precondition
_FRESH = 6  # of one system, that are kept for those to come: its first and its last ones
_HELD = 2  # the first of them: where eigenvalues are large, what rounding brings back of these grows
# Arrays as large as w: the six here, a preconditioned residual, what is subtracted from it, a product, and of a look
# that and the last column, with its task's.  A pair of directions in float32 is as large as one more.
WIDE = 13 + _EARLIER + _FRESH


@dataclass
class ConjugateGradients:
    """Where the solution of one system stands.

    residual, search : float64, shape of w
    core : what preconditions where there are no earlier directions
    rho, target : float64, (n_models,)   the residual's square in the preconditioner's norm, and what it should become
    products : float64, (n_samples, n_models)   y (x.d + bias d_last) of the direction so far; None where shards have it
    first, first_product, first_bend : the guess that the system began with, H times it, and their product, (n_models,);
        0 where there was none
    earlier, fresh : directions of earlier systems, and of this one
    iteration : products taken so far, but that of a guess;  open : the direction is still being improved
    guessed : no system is open, and `search` is the first direction of the next
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
        """No system yet."""
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
        """Bytes by name."""
        wide = 8 * (shape.n_features + 1) * shape.n_models
        return [
            Need("conjugate gradients", WIDE * wide),
            Need("products", 8 * shape.n_samples * shape.n_models, may_spill=True),
            *sums_need(shape, 2 * wide),  # a look's last column and product
        ]

    def begin(
        self, problem: Problem, rows: RowState, gradient: np.ndarray, arrowhead: np.ndarray, forcing: float
    ) -> None:
        """Take up the system of a new point: d = 0.

        arrowhead : of H, as `BiasEliminated` takes it;  forcing : part of the first residual that is small enough
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
        """One iteration: `product` is H times `search`, and the p of `rows` what their products with it are.

        gaps : float64, (n_models,)   gaps P - D that would do.  As long as rows keep their sides the gradient g at
            w + d is the residual, and the dual point that goes with it leaves a gap of |g|^2 / 2.
        """
        product += regularised(problem, self.search)
        bend = dot(self.search, product)
        length = np.divide(dot(self.residual, self.search), bend, out=np.zeros_like(bend), where=bend > 0.0)
        # A gradient that is small enough and proves too little says that this rule does not hold: then at least one
        # product is taken, and the guess alone is not enough.
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
        # A model that has arrived searches no further: its step is 0 from now on.
        columns(self.search)[...] = np.where(goes_on, columns(self.search), 0.0)
        self.rho = np.where(goes_on, rho, 0.0)
        self.open = bool(goes_on.any())

    def guess(self, gradient: np.ndarray, lengths: np.ndarray) -> None:
        """Choose the first direction of the next system, where w has gone `lengths`, (n_models,), along the direction.

        gradient : where w was.  It would be so much of the residual now, and so much of itself, if rows kept their
            sides.
        """
        self.earlier.take_over(self.fresh)
        columns(self.residual)[...] = lengths * columns(self.residual) - (1.0 - lengths) * columns(gradient)
        self.search[...] = self._preconditioned()
        self.guessed = True

    def follow(self, rows: RowState) -> None:
        """Let the p of the rows be their products with the direction."""
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
