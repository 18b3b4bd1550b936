"""Centring of rows that stay as they are stored: the means are applied to w instead (docs/mathematics.md 3.7).

A centred row x - mu with its constant feature B has the score w.(x - mu) + B u = w.x + B (u - mu.w / B).  So its score
is that of the stored row with the weights T (w, u) = (w, u - mu.w / B).  A sum v = sum_i a_i [x_i, B] over stored rows
becomes T' v for centred rows, and H = sum_i h_i [x_i, B] [x_i, B]' becomes T' H T.  Without a bias, B is 1 and u
stays 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Centre(NamedTuple):
    """The map T.

    mu : float64, (n_features,)   means, in working order
    constant : float   B;  biased : bool   whether there is a bias u
    """

    mu: np.ndarray
    constant: float
    biased: bool

    def ordered(self, order: np.ndarray | None) -> Centre:
        """The centre with its features in the given order."""
        return self if order is None else self._replace(mu=self.mu[order])

    def met(self, w: np.ndarray) -> np.ndarray:
        """T w: the weights for stored rows; shape of w, (n_features + 1,) or (n_features + 1, n_models)."""
        found = w.copy()
        if not self.biased:
            found[-1] = 0.0
        found[-1] -= _along(self.mu, w[: len(self.mu)]) / self.constant
        return found

    def summed(self, v: np.ndarray) -> np.ndarray:
        """T' v: the sum over centred rows, from the sum v over stored rows; shape of w."""
        found = v.copy()
        found[: len(self.mu)] -= (self.mu if v.ndim == 1 else self.mu[:, None]) * (v[-1] / self.constant)
        if not self.biased:
            found[-1] = 0.0
        return found

    def sums(self, S: np.ndarray) -> None:
        """Replace every v, (n_features + 1,), along the last axis of S by T' v."""
        S[..., : len(self.mu)] -= S[..., -1:] * (self.mu / self.constant)
        if not self.biased:
            S[..., -1] = 0.0

    def gram(self, Q: np.ndarray, sign: np.ndarray, along: np.ndarray) -> None:
        """Replace the products of stored rows in Q by those of centred rows.

        Q : float64, (n, n)   sign_i sign_j x_i.x_j, and what a constant feature adds
        along : float64, (n,)   sign_i mu.x_i
        """
        Q -= along[:, None] * sign
        Q -= sign[:, None] * along
        Q += float(_along(self.mu, self.mu)) * (sign[:, None] * sign)

    def matrix(self, H: np.ndarray) -> None:
        """Replace the upper triangle of H, float64, (n_features + 1, n_features + 1), by that of T' H T."""
        mu, d = self.mu / self.constant, len(self.mu)
        cross, corner = H[:d, -1].copy(), float(H[-1, -1])
        for j in range(d):  # row by row, so that no second matrix is needed
            H[j, j:d] += (corner * mu[j] - cross[j]) * mu[j:] - mu[j] * cross[j:]
        H[:d, -1] = cross - corner * mu
        if not self.biased:
            H[:, -1] = 0.0

    def diagonal(self, diagonal: np.ndarray, last: np.ndarray) -> np.ndarray:
        """The diagonal of T' H T, from that of H and the last column of H over B, all of the shape of w.

        last : sum_i h_i [x_i, B]
        """
        found, d = diagonal.copy(), len(self.mu)
        mu = self.mu if diagonal.ndim == 1 else self.mu[:, None]
        total = diagonal[-1] / self.constant**2
        found[:d] += mu * (mu * total - 2.0 * last[:d])
        np.maximum(found, 0.0, out=found)  # rounding may leave less than 0 for a column that hardly varies
        if not self.biased:
            found[-1] = 0.0
        return found

    def hessian(self, H: np.ndarray) -> np.ndarray:
        """`matrix` for each model; H, float64, (n_models, n_features + 1, n_features + 1), changes in place."""
        for part in H:
            self.matrix(part)
        return H

    def arrowhead(self, diagonal: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Diagonal and last column over B of T' H T, from those of H, all of the shape of w."""
        return self.diagonal(diagonal, last), self.summed(last) if self.biased else np.zeros_like(last)

    def bias_of(self, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
        """u for a model on stored rows: float64, (n_models,).

        coef : float64, (n_models, n_features);  intercept : float64, (n_models,)
        """
        if not self.biased:
            return np.zeros(len(intercept))
        return np.asarray((intercept + _along(self.mu, coef.T[: len(self.mu)])) / self.constant)


def _along(mu: np.ndarray, w: np.ndarray) -> np.ndarray:
    """mu.w for each model, summed in an order that does not depend on a BLAS."""
    return np.asarray(np.einsum("j,j...->...", mu, w))
