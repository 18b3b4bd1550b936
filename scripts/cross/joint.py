"""Crammer and Singer's problem, written from its definition (JMLR 2, 2001) in `longdouble`.  Imports nothing of bigsvm.

    P(W)     = 1/2 sum_k |w_k|^2 + sum_i C_i max_k s_ik,   s_ik = [k != y_i] + z_ik - z_iy,  z_ik = w_k.x_i
    D(alpha) = sum_i alpha_iy - 1/2 sum_k |sum_i alpha_ik x_i|^2

over alpha_ik <= 0 of the other classes and alpha_iy <= C_i with sum_k alpha_ik = 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cross.definition import Linear, Real
from cross.reference import Bounds, own_rounding, solve

_MOST = 400  # variables of an optimum of one's own: with more there is none, and a check is weaker


@dataclass(frozen=True)
class JointProgramme:
    """codes : class of each row that takes part;  C : its cost, longdouble;  rows : their numbers;  space : of them"""

    rows: np.ndarray
    codes: np.ndarray
    C: np.ndarray
    n_classes: int
    space: Linear

    @property
    def own(self) -> np.ndarray:
        """bool (n, n_classes): which class is a row's."""
        return self.codes[:, None] == np.arange(self.n_classes)

    def losses(self, z: np.ndarray) -> np.ndarray:
        """C_i max_k s_ik of scores (n, n_classes)."""
        s = np.where(self.own, 0, 1 + z - z[np.arange(len(z)), self.codes][:, None])
        return self.C * s.max(axis=1)

    def dual(self, alpha: np.ndarray) -> np.longdouble:
        """D of alpha, (n, n_classes)."""
        v = self.space.X.T @ alpha
        return alpha[self.own].sum() - (v * v).sum() / 2

    def outside(self, alpha: np.ndarray) -> np.longdouble:
        """How far alpha is from feasible, in units of C."""
        worst = np.where(self.own, alpha - self.C[:, None], alpha) / self.C[:, None]
        return max(worst.max(), np.abs(alpha.sum(axis=1) / self.C).max(), Real(0))

    def bounds(self) -> Bounds:
        """Of the optimum."""
        nothing = Bounds(Real(0), self.C.sum())  # alpha = 0, and W = 0
        alpha = self.near_optimum()
        if alpha is None:
            return nothing
        v = self.space.X.T @ alpha
        upper = (v * v).sum() / 2 + self.losses(self.space.X @ v).sum()
        rounding = sum((own_rounding(self.space, column) for column in alpha.T), Real(0))
        return Bounds(max(nothing.lower, self.dual(alpha) - rounding), min(nothing.upper, upper + rounding))

    def near_optimum(self) -> np.ndarray | None:
        """alpha by an interior point on the masses q_ik = C_i [k = y_i] - alpha_ik, where there are few of them."""
        n, k = self.own.shape
        if n * k > _MOST:
            return None
        gram, full = self.space.gram(), np.where(self.own, self.C[:, None], 0)
        scale = self.C.max()
        Q = np.kron(np.asarray(gram * scale, np.float64), np.eye(k))
        c = np.asarray((self.own - gram @ full).reshape(-1), np.float64)
        size = max(float(np.abs(c).max()), float(np.abs(Q).max()), 1e-300)
        A = np.kron(np.eye(n), np.ones((1, k)))
        with np.errstate(all="ignore"):
            x = solve(Q / size, c / size, np.full(n * k, np.inf), A, np.asarray(self.C / scale, np.float64))
        if not np.isfinite(x).all():
            return None
        q = np.maximum(x.reshape(n, k).astype(Real), 0)
        sums = q.sum(axis=1)
        return np.asarray(full - q * (self.C / sums)[:, None]) if np.all(sums > 0) else None
