"""Problems that nu shapes, written from the definition in `longdouble`.  Imports nothing of bigsvm.

    nu_svc     1/2 |w|^2 - nu rho sum c_i + sum c_i max(0, rho - t_i f_i)           t = +1, -1
    one_class  the same of f without a bias, all t being 1
    nu_svr     1/2 |w|^2 + C sum c_i (nu epsilon + max(0, |t_i - f_i| - epsilon))   epsilon >= 0

The dual of the first two is to minimise 1/2 beta'K beta over boxes [0, c_i] of t_i beta_i, |beta| summing to
nu sum c_i (and beta to 0, but of one_class): that is their objective, as LIBSVM prints it, and minus the value above
bounds it from below.  nu_svr: t'beta - 1/2 beta'K beta over |beta_i| <= C c_i, sum beta = 0 and
sum |beta| <= nu C sum c_i.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cross.definition import Kernelled, Linear, Real
from cross.reference import Bounds, own_rounding, solve

NU_LOSSES = ("nu_svc", "one_class", "nu_svr")


@dataclass(frozen=True)
class NuProgramme:
    """One model's rows: t as above, c > 0 (of nu_svr C c) of each, the loss and nu.  All longdouble."""

    t: np.ndarray
    c: np.ndarray
    loss: str
    nu: float

    @property
    def of_targets(self) -> bool:
        return self.loss == "nu_svr"

    @property
    def total(self) -> np.longdouble:
        """What |beta| sums up to, or its bound."""
        return Real(self.nu) * self.c.sum()

    @property
    def feasible(self) -> np.longdouble:
        """nu may be so many times as large before no beta is feasible."""
        if self.loss != "nu_svc":
            return Real(np.inf)
        return 2 * min(self.c[self.t > 0].sum(), self.c[self.t < 0].sum()) / self.total

    def outside(self, beta: np.ndarray) -> np.longdouble:
        """How far beta lies outside its box, in units of c, or its sums from what they must be, of their total."""
        sizes = np.abs(beta) if self.of_targets else self.t * beta
        worst = np.maximum(np.maximum(sizes - self.c, 0 if self.of_targets else -sizes) / self.c, 0).max(
            initial=Real(0)
        )
        if self.loss != "one_class":
            worst = max(worst, abs(beta.sum()) / max(self.total, np.abs(beta).sum()))
        off = np.abs(beta).sum() - self.total
        return max(worst, (max(off, Real(0)) if self.of_targets else abs(off)) / self.total)

    def priced(self, w_sq: np.longdouble, f: np.ndarray, b: np.longdouble, width: np.longdouble) -> np.longdouble:
        """The value of a model at scores f + b and rho or epsilon."""
        if self.of_targets:
            return w_sq / 2 + width * self.total + (self.c * np.maximum(np.abs(self.t - f - b) - width, 0)).sum()
        return w_sq / 2 - width * self.total + (self.c * np.maximum(width - self.t * (f + b), 0)).sum()

    def objective(self, w_sq: np.longdouble, f: np.ndarray, b: np.longdouble, width: np.longdouble) -> np.longdouble:
        """What is reported as the objective; of classes of a beta that is feasible."""
        return self.priced(w_sq, f, b, width) if self.of_targets else w_sq / 2

    def below(
        self, beta: np.ndarray, w_sq: np.longdouble, f: np.ndarray, b: np.longdouble, width: np.longdouble
    ) -> np.longdouble:
        """A lower bound of the objective, of any beta, or any model."""
        return (self.t * beta).sum() - w_sq / 2 if self.of_targets else -self.priced(w_sq, f, b, width)

    def best(self, f: np.ndarray) -> tuple[np.longdouble, np.longdouble]:
        """(b, rho or epsilon) that make the value least: a quantile of the scores of either side."""
        if self.loss == "one_class":
            return Real(0), _quantile(f, self.c, self.total)
        if not self.of_targets:
            up = _quantile(f[self.t > 0], self.c[self.t > 0], self.total / 2)  # rho - b
            down = _quantile(-f[self.t < 0], self.c[self.t < 0], self.total / 2)  # rho + b
            return (down - up) / 2, (up + down) / 2
        rest = self.t - f
        high, low = -_quantile(-rest, self.c, self.total / 2), _quantile(rest, self.c, self.total / 2)
        if high < low:  # a tube has no negative width
            return _quantile(rest, self.c, self.c.sum() / 2), Real(0)
        return (high + low) / 2, (high - low) / 2

    def in_place(self, beta: np.ndarray) -> np.ndarray:
        """beta moved to a feasible point near it."""
        if self.of_targets:
            up, down = np.clip(beta, 0, self.c), np.clip(-beta, 0, self.c)
            most = min(up.sum(), down.sum(), self.total / 2)
            return _scaled(up, most) - _scaled(down, most)
        if self.loss == "one_class":
            return _filled(np.clip(beta, 0, self.c), self.c, self.total)
        found = np.clip(self.t * beta, 0, self.c)
        for side in (self.t > 0, self.t < 0):
            found[side] = _filled(found[side], self.c[side], self.total / 2)
        return self.t * found


def nu_bounds(programme: NuProgramme, space: Linear | Kernelled) -> Bounds:
    """Bounds of the optimal objective, of a positive semidefinite kernel and a feasible nu."""
    with np.errstate(all="ignore"):
        beta = programme.in_place(near_optimum(programme, space.gram()).astype(Real))
    f, w_sq = space.of_beta(beta)
    b, width = programme.best(f)
    lower, upper = programme.below(beta, w_sq, f, b, width), programme.objective(w_sq, f, b, width)
    rounding = own_rounding(space, programme.c)  # no beta is larger, and scores count with the costs
    found = lower - rounding, upper + rounding
    return Bounds(*found) if np.isfinite(found).all() else Bounds(-Real(np.inf), Real(np.inf))


def near_optimum(programme: NuProgramme, K: np.ndarray) -> np.ndarray:
    """float64 (n,), by the interior point on the dual, scaled so that the box of the largest c is 1."""
    n, t, total = len(programme.t), programme.t, programme.total
    scale = programme.c.max()
    if programme.of_targets:  # (alpha, alpha*, what the bound of their sum leaves)
        Q = np.zeros((2 * n + 1, 2 * n + 1), Real)
        Q[: 2 * n, : 2 * n] = np.block([[K, -K], [-K, K]])
        c, u = np.concatenate([-t, t, [Real(0)]]), np.concatenate([programme.c, programme.c, [total]])
        A = np.vstack([np.concatenate([np.ones(n), -np.ones(n), [0.0]]), np.ones(2 * n + 1)])
        wanted = np.array([0.0, float(total / scale)])
    else:
        Q, c, u = K * np.outer(t, t), np.zeros(n, Real), programme.c
        A, wanted = np.ones((1, n)), np.array([float(total / scale)])
        if programme.loss == "nu_svc":
            A, wanted = np.vstack([A, np.asarray(t, np.float64)]), np.append(wanted, 0.0)
    size = max(float(np.abs(c).max(initial=0)), float(np.abs(Q).max()) * float(scale), 1e-300)
    x = solve(np.asarray(Q * scale / size, np.float64), np.asarray(c / size, np.float64),
              np.asarray(u / scale, np.float64), A, wanted) * float(scale)  # fmt: skip
    return x[:n] - x[n : 2 * n] if programme.of_targets else x * np.asarray(t, np.float64)


def _quantile(scores: np.ndarray, costs: np.ndarray, wanted: np.longdouble) -> np.longdouble:
    """p with the least  sum costs max(0, p - scores) - p wanted."""
    order = np.argsort(scores, kind="stable")
    at = int(np.searchsorted(np.cumsum(costs[order]), wanted * (1 - Real(1e-15))))
    return scores[order[min(at, len(order) - 1)]]


def _scaled(sizes: np.ndarray, wanted: np.longdouble) -> np.ndarray:
    have = sizes.sum()
    return sizes * (wanted / have) if have > 0 else sizes


def _filled(sizes: np.ndarray, most: np.ndarray, wanted: np.longdouble) -> np.ndarray:
    """Sizes scaled down, or moved towards their most, until they sum up to what is wanted."""
    have, room = sizes.sum(), (most - sizes).sum()
    if have >= wanted:
        return _scaled(sizes, wanted)
    return sizes + (most - sizes) * min((wanted - have) / room, Real(1)) if room > 0 else sizes
