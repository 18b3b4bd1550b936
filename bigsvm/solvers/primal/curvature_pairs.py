"""A preconditioner from earlier products with the Hessian: the L-BFGS inverse, for all models at once.

Pairs of directions u and products H u of earlier systems describe the Hessian, which changes little from one system to
the next.  They are kept in float32, because a preconditioner need not be exact, only constant during a system.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigsvm.solvers.primal.bias_eliminated import BiasEliminated
from bigsvm.solvers.weights import columns


@dataclass
class CurvaturePairs:
    """The last pairs of each model, the newest last.

    directions, products : float32, (n_pairs, *shape of w)   u and H u, both divided by the square root of u.H u
    inverse : float64, (n_pairs, n_models)   1 / (u.H u) of the stored values, which is nearly 1; 0 if there is no pair
    """

    directions: np.ndarray
    products: np.ndarray
    inverse: np.ndarray

    @classmethod
    def new(cls, n_pairs: int, shape: tuple[int, ...]) -> CurvaturePairs:
        """Room for `n_pairs` pairs, none of them filled.  shape : that of w"""
        n_models = shape[1] if len(shape) == 2 else 1
        directions, products = (np.zeros((n_pairs, *shape), np.float32) for _ in range(2))
        return cls(directions, products, np.zeros((n_pairs, n_models)))

    def add(self, direction: np.ndarray, product: np.ndarray, bend: np.ndarray, held: int = 0) -> None:
        """Store the pair of each model whose bend, u.H u, (n_models,), is positive.

        If a model has no room left, its oldest pair is dropped, or the oldest one after the first `held`.
        """
        scale = np.divide(1.0, np.sqrt(bend), out=np.zeros_like(bend), where=bend > 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            u, Hu = ((columns(a) * scale).astype(np.float32) for a in (direction, product))
            kept = dot(u, Hu)
        good = (kept > 0.5) & (kept < 2.0)  # a pair that overflows float32 is left out
        self._push(u, Hu, np.divide(1.0, kept, out=np.zeros_like(kept), where=good), good, held)

    def take_over(self, newer: CurvaturePairs) -> None:
        """Add all pairs of `newer`, and remove them there."""
        for u, Hu, inverse in zip(newer.directions, newer.products, newer.inverse, strict=True):
            self._push(columns(u), columns(Hu), inverse, inverse > 0.0)
        newer.inverse[...] = 0.0

    def applied(self, residual: np.ndarray, core: BiasEliminated) -> np.ndarray:
        """The inverse times `residual`, float64, shape of w.  `core` is the inverse that the pairs improve."""
        found = residual.copy()
        z, taken = columns(found), np.zeros_like(self.inverse)
        present = np.flatnonzero(self.inverse.any(axis=1)).tolist()
        for k in reversed(present):
            taken[k] = self.inverse[k] * dot(columns(self.directions[k]), z)
            z -= taken[k] * columns(self.products[k])
        core.solve(found)
        for k in present:
            z += (taken[k] - self.inverse[k] * dot(columns(self.products[k]), z)) * columns(self.directions[k])
        return found

    def conjugate(self, direction: np.ndarray) -> None:
        """Make a direction conjugate to the stored ones, in place.  If it is by construction, this removes rounding."""
        u = columns(direction)
        for kept, product, inverse in zip(self.directions, self.products, self.inverse, strict=True):
            if inverse.any():
                u -= inverse * dot(columns(product), u) * columns(kept)

    def _push(self, u: np.ndarray, Hu: np.ndarray, inverse: np.ndarray, where: np.ndarray, held: int = 0) -> None:
        if not where.any():
            return
        room = where & (self.inverse[0] == 0.0)
        for kept, new in ((self.directions, u), (self.products, Hu), (self.inverse, inverse)):
            for k in range(len(kept) - 1):
                _copy(kept[k], kept[k + 1], room if k < held else where)
            _copy(kept[-1], new, where)


def _copy(to: np.ndarray, of: np.ndarray, where: np.ndarray) -> None:
    """Copy the entries of some models, of arrays of weights or with a number for each model."""
    np.copyto(to.reshape(-1, len(where)), of.reshape(-1, len(where)), where=where)


def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a.b of each model, with the bias entry; in float64, summed in an order that does not depend on a BLAS."""
    return np.atleast_1d(np.einsum("j...,j...->...", a, b, dtype=np.float64, casting="safe"))
