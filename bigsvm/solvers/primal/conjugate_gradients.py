"""Newton's equations (R + H) d = -gradient by conjugate gradients, for each model of a group at once.

R is the regulariser's identity, 0 for a free bias, and H = sum_i h_i x_i x_i'.  An iteration needs one product of R + H
with a vector, which is one reading of the rows; the preconditioner is the diagonal of R + H.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigsvm.problem.problem import Problem, zero_weights
from bigsvm.solvers.base import Context, DataShape, Need
from bigsvm.solvers.primal.row_state import RowState
from bigsvm.solvers.primal.sharded_rows import ShardedRows
from bigsvm.solvers.weights import columns, regularised
from bigsvm.store.state.vectors import RowVector

WIDE = 6  # arrays as large as w: the four here, a preconditioned residual, and the product


@dataclass
class ConjugateGradients:
    """Where the solution of one system stands.

    residual, search, diagonal : float64, shape of w
    rho, target : float64, (n_models,)   the residual's square in the preconditioner's norm, and what it should become
    products : float64, (n_samples, n_models)   y (x.d + bias d_last) of the direction so far; None where shards have it
    iteration : products taken so far;  open : the direction is still being improved
    """

    residual: np.ndarray
    search: np.ndarray
    diagonal: np.ndarray
    rho: np.ndarray
    target: np.ndarray
    products: RowVector | None
    iteration: int = 0
    open: bool = False

    @classmethod
    def new(cls, problem: Problem, ctx: Context) -> ConjugateGradients:
        """No system yet."""
        m = problem.n_models
        residual, search, diagonal = (zero_weights(ctx.data.n_features, m) for _ in range(3))
        products = ctx.vector("products", m) if ctx.shards == 1 else None
        return cls(residual, search, diagonal, np.zeros(m), np.zeros(m), products)

    @staticmethod
    def needs(shape: DataShape) -> list[Need]:
        """Bytes by name."""
        return [
            Need("conjugate gradients", WIDE * 8 * (shape.n_features + 1) * shape.n_models),
            Need("products", 8 * shape.n_samples * shape.n_models, may_spill=True),
        ]

    def begin(
        self, problem: Problem, rows: RowState, gradient: np.ndarray, diagonal: np.ndarray, forcing: float
    ) -> None:
        """Take up the system of a new point: d = 0.

        diagonal : of H, float64, shape of w;  forcing : part of the first residual that is small enough
        """
        np.add(diagonal, regularised(problem, np.ones_like(diagonal)), out=self.diagonal)
        self.diagonal[self.diagonal <= 0.0] = 1.0  # of a free bias, where no row has curvature
        np.negative(gradient, out=self.residual)
        np.divide(self.residual, self.diagonal, out=self.search)
        self.rho = _dot(self.residual, self.search)
        self.target = forcing * forcing * self.rho
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
        bend = _dot(self.search, product)
        length = np.divide(self.rho, bend, out=np.zeros_like(bend), where=bend > 0.0)
        columns(direction)[...] += length * columns(self.search)
        columns(self.residual)[...] -= length * columns(product)
        if isinstance(rows, ShardedRows):
            rows.add_products(length)
        else:
            for piece in rows.pieces():
                self._products[piece] += length * rows.p.values[piece]
        z = self.residual / self.diagonal
        rho = _dot(self.residual, z)
        goes_on = (rho > self.target) & (0.5 * _dot(self.residual, self.residual) > gaps) & (length > 0.0)
        turn = np.divide(rho, self.rho, out=np.zeros_like(rho), where=goes_on)
        # A model that has arrived searches no further: its step is 0 from now on.
        columns(self.search)[...] = np.where(goes_on, columns(z) + turn * columns(self.search), 0.0)
        self.rho = np.where(goes_on, rho, 0.0)
        self.iteration, self.open = self.iteration + 1, bool(goes_on.any())

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


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a.b of each model, the bias included; in an order that no library chooses."""
    return np.atleast_1d(np.einsum("j...,j...->...", a, b))
