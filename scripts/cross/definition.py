"""What a support vector machine is, written from the definition in `longdouble`.  Imports nothing of bigsvm.

One model, in the form that classification and regression share (t = +1 or -1, or the target):

    P(beta, b) = 1/2 beta' K beta + sum_i C_i loss(t_i, f_i),    f = K beta + b
    D(beta)    = t' beta - epsilon |beta|_1 - 1/2 beta' K beta - [squared losses] sum_i beta_i^2 / (4 C_i)

over the box of beta (classes: 0 <= t_i beta_i <= C_i, no upper end for the squared hinge; targets: |beta_i| <= C_i),
and sum_i beta_i = 0 where the bias is free.  An augmented bias B is a feature of its own: K + B^2, and no b.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Real = np.longdouble
UNIT = Real(2.0) ** -53  # rounding of float64, the arithmetic that is checked
_HALVINGS = 400
_AT_END = Real(2.0) ** -44  # of C: nearer to an end of its box than this beta is at the end, whose C was rounded


def kernel_matrix(X: np.ndarray, Z: np.ndarray, kernel: dict) -> np.ndarray:
    """K(x, z) of all rows, from the formula: distances by differences, never by norms.  X, Z : longdouble."""
    name = kernel["name"]
    if name == "rbf":
        squared = np.array([((Z - row) ** 2).sum(axis=1) for row in X], Real).reshape(len(X), len(Z))
        return np.exp(-Real(kernel["gamma"]) * squared)
    products = X @ Z.T
    if name == "linear":
        return products
    bracket = Real(kernel["gamma"]) * products + Real(kernel.get("coef0", 0.0))
    return bracket ** int(kernel["degree"]) if name == "poly" else np.tanh(bracket)


def kernel_errors(X: np.ndarray, Z: np.ndarray, K: np.ndarray, kernel: dict) -> np.ndarray:
    """What float64 may be off in each value of K, of rows whose common mean was taken off first (rbf)."""
    name, terms = kernel["name"], X.shape[1] + 10
    if name == "rbf":
        mean = Z.mean(axis=0) if len(Z) else Z.sum(axis=0)
        norms = ((X - mean) ** 2).sum(axis=1)[:, None] + ((Z - mean) ** 2).sum(axis=1)[None, :]
        return UNIT * K * (4 + 2 * Real(kernel["gamma"]) * norms * terms)
    sizes = terms * UNIT * (np.abs(X) @ np.abs(Z).T)
    if name == "linear":
        return sizes
    gamma, coef0 = Real(kernel["gamma"]), Real(kernel.get("coef0", 0.0))
    inner = gamma * sizes + UNIT * abs(coef0)
    if name == "sigmoid":
        return inner + UNIT
    degree = int(kernel["degree"])
    largest = gamma * sizes / (terms * UNIT) + abs(coef0)
    return degree * largest ** (degree - 1) * inner + degree * UNIT * np.abs(K)


@dataclass(frozen=True)
class Programme:
    """One model's rows: target t and cost C > 0 of each, the loss, and whether the bias is free.  All longdouble."""

    t: np.ndarray
    C: np.ndarray
    loss: str
    free: bool
    epsilon: float = 0.0

    @property
    def lower(self) -> np.ndarray:
        """Lower ends of the box of beta."""
        return -self.upper if self.of_targets else np.where(self.t > 0, Real(0), -self._largest)

    @property
    def upper(self) -> np.ndarray:
        """Upper ends."""
        return self._largest if self.of_targets else np.where(self.t > 0, self._largest, Real(0))

    @property
    def of_targets(self) -> bool:
        return self.loss in ("epsilon_insensitive", "squared_epsilon_insensitive")

    @property
    def squared(self) -> bool:
        return self.loss in ("squared_hinge", "squared_epsilon_insensitive")

    @property
    def _largest(self) -> np.ndarray:
        return np.full(len(self.C), np.inf, Real) if self.squared else self.C

    def slacks(self, f: np.ndarray) -> np.ndarray:
        """What each row lies on the wrong side of its margin, or of its tube; at least 0."""
        apart = np.abs(self.t - f) - Real(self.epsilon) if self.of_targets else 1 - self.t * f
        return np.maximum(apart, 0)

    def losses(self, f: np.ndarray) -> np.ndarray:
        """C_i loss_i at scores f."""
        slack = self.slacks(f)
        return self.C * (slack * slack if self.squared else slack)

    def loss_error(self, f: np.ndarray, error: np.ndarray) -> np.longdouble:
        """Most that the sum of losses may change when each score changes by `error`."""
        if self.squared:
            return (self.C * ((self.slacks(f) + error) ** 2 - self.slacks(f) ** 2)).sum()
        return (self.C * error * (self.slacks(f) + error > 0)).sum()

    def dual(self, beta: np.ndarray, w_sq: np.longdouble) -> np.longdouble:
        """D(beta), ||w||^2 = beta' K beta being known."""
        found = (self.t * beta).sum() - Real(self.epsilon) * np.abs(beta).sum() - w_sq / 2
        if self.squared:
            found -= (beta * beta / (4 * self.C)).sum()
        return found

    def in_box(self, beta: np.ndarray) -> np.ndarray:
        """beta moved into its box, and balanced where the bias is free: a point that is feasible to the last digit."""
        inside = np.clip(beta, self.lower, self.upper)
        if self.free:
            up, down = inside[inside > 0].sum(), -inside[inside < 0].sum()
            if min(up, down) <= 0:
                return np.zeros_like(inside)
            inside = np.where(inside > 0, inside * min(down / up, Real(1)), inside * min(up / down, Real(1)))
        return inside

    def outside(self, beta: np.ndarray) -> np.longdouble:
        """How far beta lies outside its box, in units of its row's C; of a free bias also |sum| / sum of sizes."""
        found = np.maximum(np.maximum(beta - self.upper, self.lower - beta), 0) / self.C
        worst = found.max(initial=Real(0))
        if self.free and np.abs(beta).sum() > 0:
            worst = max(worst, abs(beta.sum()) / np.abs(beta).sum())
        return worst

    def violation(self, beta: np.ndarray, f: np.ndarray, at_end: np.longdouble = _AT_END) -> np.longdouble:
        """b_low - b_up of the optimality conditions (hinge and targets, free bias), f without the bias; at least 0.

        at_end : nearer than this to an end of its box, in units of its C, a row may not move there
        """
        F, epsilon = f - self.t, Real(self.epsilon)
        may_rise, may_fall = self.upper - beta > at_end * self.C, beta - self.lower > at_end * self.C
        if not (may_rise.any() and may_fall.any()):
            return Real(0)
        up = (F + np.where(beta >= 0, epsilon, -epsilon))[may_rise].min()
        low = (F + np.where(beta > 0, epsilon, -epsilon))[may_fall].max()
        return max(low - up, Real(0))

    def best_bias(self, f: np.ndarray) -> np.longdouble:
        """b with the least sum of losses at scores f + b; 0 where no row takes part."""
        if not len(f):
            return Real(0)
        ends = self.t - f
        if self.of_targets:
            ends = np.concatenate([ends - Real(self.epsilon), ends + Real(self.epsilon)])
        low, high = ends.min(), ends.max()
        for _ in range(_HALVINGS):  # of the slope, which ascends with b
            middle = (low + high) / 2
            if not low < middle < high:
                break
            low, high = (low, middle) if self._slope(f + middle) >= 0 else (middle, high)
        return min((low, high), key=lambda b: self.losses(f + b).sum())

    def _slope(self, f: np.ndarray) -> np.longdouble:
        sign = np.sign(f - self.t) if self.of_targets else -self.t
        slack = self.slacks(f)
        return (self.C * sign * (2 * slack if self.squared else slack > 0)).sum()


class Linear:
    """||w||^2 and scores of beta where w is a vector: v = sum_i beta_i x_i, with a constant feature B (0: none)."""

    def __init__(self, X: np.ndarray, B: float) -> None:
        self.X = X if B == 0 else np.hstack([X, np.full((len(X), 1), B, Real)])

    def of_beta(self, beta: np.ndarray) -> tuple[np.ndarray, np.longdouble]:
        """(scores without a free bias, ||w||^2)."""
        v = self.X.T @ beta
        return self.X @ v, v @ v

    def error(self, beta: np.ndarray) -> np.longdouble:
        """What float64 may be off in D(beta)."""
        v = self.X.T @ beta
        terms = sum(self.X.shape) + 10
        return 4 * UNIT * terms * (np.abs(beta).sum() + np.abs(v) @ (np.abs(self.X).T @ np.abs(beta)))

    def gram(self) -> np.ndarray:
        return self.X @ self.X.T


class Kernelled:
    """The same of a kernel matrix (longdouble), `errors` what float64 may be off in each of its values."""

    def __init__(self, K: np.ndarray, errors: np.ndarray) -> None:
        self.K, self.errors = K, errors

    def of_beta(self, beta: np.ndarray) -> tuple[np.ndarray, np.longdouble]:
        f = self.K @ beta
        return f, beta @ f

    def error(self, beta: np.ndarray) -> np.longdouble:
        size = np.abs(beta)
        rounding = (len(beta) + 10) * UNIT * np.abs(self.K) + self.errors
        return 4 * (size @ rounding @ size + len(beta) * UNIT * size.sum())

    def gram(self) -> np.ndarray:
        return self.K
