"""Rows that are centred without being touched: the means act on w, where rows meet it (docs/mathematics.md 3.7).

A centred row x - mu with its constant feature B has the score w.(x - mu) + B u = w.x + B (u - mu.w / B).  So rows that
are stored uncentred are met with the weights T (w, u) = (w, u - mu.w / B); what they sum up to, sum_i a_i [x_i, B],
goes back by T', and their matrix, sum_i h_i [x_i, B] [x_i, B]', by T' H T.  Without a bias B is 1 and u stays 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Centre(NamedTuple):
    """mu : float64, (n_features,), in working order;  constant : B;  biased : u exists"""

    mu: np.ndarray
    constant: float
    biased: bool

    def ordered(self, order: np.ndarray | None) -> Centre:
        """In the order of features that `order` gives."""
        return self if order is None else self._replace(mu=self.mu[order])

    def met(self, w: np.ndarray) -> np.ndarray:
        """What uncentred rows are met with, T w; of the shape of w, (n_features + 1,) or (n_features + 1, n_models)."""
        found = w.copy()
        if not self.biased:
            found[-1] = 0.0
        found[-1] -= _along(self.mu, w[: len(self.mu)]) / self.constant
        return found

    def summed(self, v: np.ndarray) -> np.ndarray:
        """What centred rows sum up to, T' v, where uncentred ones sum up to v, of the shape of w."""
        found = v.copy()
        found[: len(self.mu)] -= (self.mu if v.ndim == 1 else self.mu[:, None]) * (v[-1] / self.constant)
        if not self.biased:
            found[-1] = 0.0
        return found

    def sums(self, S: np.ndarray) -> None:
        """T' v in place of every v, (n_features + 1,), that lies along the last axis of S."""
        S[..., : len(self.mu)] -= S[..., -1:] * (self.mu / self.constant)
        if not self.biased:
            S[..., -1] = 0.0

    def gram(self, Q: np.ndarray, sign: np.ndarray, along: np.ndarray) -> None:
        """Products of centred rows in place of those of rows as they are stored.

        Q : float64, (n, n)   sign_i sign_j x_i.x_j, and what a constant feature adds
        along : float64, (n,)   sign_i mu.x_i
        """
        Q -= along[:, None] * sign
        Q -= sign[:, None] * along
        Q += float(_along(self.mu, self.mu)) * (sign[:, None] * sign)

    def matrix(self, H: np.ndarray) -> None:
        """T' H T in place of the upper triangle of H, float64, (n_features + 1, n_features + 1)."""
        mu, d = self.mu / self.constant, len(self.mu)
        cross, corner = H[:d, -1].copy(), float(H[-1, -1])
        for j in range(d):  # row by row: no second matrix
            H[j, j:d] += (corner * mu[j] - cross[j]) * mu[j:] - mu[j] * cross[j:]
        H[:d, -1] = cross - corner * mu
        if not self.biased:
            H[:, -1] = 0.0

    def diagonal(self, diagonal: np.ndarray, last: np.ndarray) -> np.ndarray:
        """The diagonal of T' H T, from that of H and from its last column over B, all of the shape of w.

        last : sum_i h_i [x_i, B]
        """
        found, d = diagonal.copy(), len(self.mu)
        mu = self.mu if diagonal.ndim == 1 else self.mu[:, None]
        total = diagonal[-1] / self.constant**2
        found[:d] += mu * (mu * total - 2.0 * last[:d])
        np.maximum(found, 0.0, out=found)  # of a column that hardly varies rounding is left
        if not self.biased:
            found[-1] = 0.0
        return found

    def hessian(self, H: np.ndarray) -> np.ndarray:
        """Matrices of all models, changed in place."""
        for part in H:
            self.matrix(part)
        return H

    def arrowhead(self, diagonal: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Diagonal and last column over B of T' H T, from those of H, all of the shape of w."""
        return self.diagonal(diagonal, last), self.summed(last) if self.biased else np.zeros_like(last)

    def bias_of(self, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
        """u of such an intercept, float64, (n_models,);  coef : float64, (n_models, n_features)."""
        if not self.biased:
            return np.zeros(len(intercept))
        return np.asarray((intercept + _along(self.mu, coef.T[: len(self.mu)])) / self.constant)


def _along(mu: np.ndarray, w: np.ndarray) -> np.ndarray:
    """mu.w of each model, in an order that no library chooses."""
    return np.asarray(np.einsum("j,j...->...", mu, w))
