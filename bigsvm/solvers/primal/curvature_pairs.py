"""An inverse of a Hessian, roughly, from products that were taken with it before: L-BFGS's, for each model at once.

Directions u with their products H u of the last systems say how the Hessian is bent; it changes little from one system
to the next.  They are kept in float32: a preconditioner need not be exact, only the same throughout a system.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigsvm.solvers.primal.bias_eliminated import BiasEliminated
from bigsvm.solvers.weights import columns


@dataclass
class CurvaturePairs:
    """The last directions of each model, the newest last.

    directions, products : float32, (n_pairs, *shape of w)   u and H u, both over the root of u.H u
    inverse : float64, (n_pairs, n_models)   1 / (u.H u) of what is kept, nearly 1; 0 where there is no pair
    """

    directions: np.ndarray
    products: np.ndarray
    inverse: np.ndarray

    @classmethod
    def new(cls, n_pairs: int, shape: tuple[int, ...]) -> CurvaturePairs:
        """None yet, of weights of such a shape."""
        n_models = shape[1] if len(shape) == 2 else 1
        directions, products = (np.zeros((n_pairs, *shape), np.float32) for _ in range(2))
        return cls(directions, products, np.zeros((n_pairs, n_models)))

    def add(self, direction: np.ndarray, product: np.ndarray, bend: np.ndarray, held: int = 0) -> None:
        """Keep a pair of each model whose bend u.H u, (n_models,), is positive; where there is no room its oldest goes.

        held : of its oldest so many stay, and the next one goes
        """
        scale = np.divide(1.0, np.sqrt(bend), out=np.zeros_like(bend), where=bend > 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            u, Hu = ((columns(a) * scale).astype(np.float32) for a in (direction, product))
            kept = dot(u, Hu)
        good = (kept > 0.5) & (kept < 2.0)  # where float32 has no room for a pair it is left out
        self._push(u, Hu, np.divide(1.0, kept, out=np.zeros_like(kept), where=good), good, held)

    def take_over(self, newer: CurvaturePairs) -> None:
        """Add all pairs of `newer`, which has none afterwards."""
        for u, Hu, inverse in zip(newer.directions, newer.products, newer.inverse, strict=True):
            self._push(columns(u), columns(Hu), inverse, inverse > 0.0)
        newer.inverse[...] = 0.0

    def applied(self, residual: np.ndarray, core: BiasEliminated) -> np.ndarray:
        """The inverse times `residual`, float64 and of the shape of w; without pairs that of `core`."""
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
        """Take out of a direction what is not conjugate to those kept: rounding, where it is by its making."""
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
    """Of some models: weights, or a figure of each."""
    np.copyto(to.reshape(-1, len(where)), of.reshape(-1, len(where)), where=where)


def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a.b of each model, the bias included; in float64, and in an order that no library chooses."""
    return np.atleast_1d(np.einsum("j...,j...->...", a, b, dtype=np.float64, casting="safe"))
