"""The small problem on near rows: their alpha (*shares*) that give the best direction and the best dual bound.

A row with s_i = 0 may have any alpha_i in [0, C_i], and each choice is a subgradient of P.  The shortest subgradient is
the direction of steepest descent (docs/mathematics.md 3.4).  If rows near their hyperplane are included, their shares
maximise the dual value, while alpha of all other rows follows from their slacks (C_i or 0).  A step of length 1 along
the resulting direction ends on the hyperplane of every near row whose share is strictly between 0 and C_i, unless
another row crosses its hyperplane before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigsvm.compiled.linear.hyperpass import best_shares, gram
from bigsvm.compiled.linear.primal import add_rows, signed_margins
from bigsvm.problem.problem import Problem
from bigsvm.solvers.gathered import Gathered, picked_rows
from bigsvm.solvers.hyperpass.lbfgs import dot
from bigsvm.solvers.hyperpass.near_rows import Neighbourhood
from bigsvm.store.blocks import Matrix, readonly_view

_ROUNDS = 20  # most rounds of the small problem
_CLOSE = 1e-2  # gap of the small problem to reach, relative to that of the point
_CLOSER = 1e-10  # the same after a step that changed nothing, and if all near rows lie exactly on their hyperplane
_FLOOR = 1e-16  # smallest gap to reach, relative to P
_BALANCED = 1e-9  # relative size up to which sum y alpha counts as 0
_EXACT = 1e-12  # the same while it is being made 0, relative to C of a row


class Shares(NamedTuple):
    """The solutions of the small problems of all models.

    V : float64, shape of w      sum_i alpha_i y_i [x_i, bias] over all rows, with the shares of near rows
    half : float64, shape of w   the same sum, with alpha of near rows from their slacks, and C_i / 2 for slack 0
    level : float64, (n_models,)   change of an unregularised bias in the best direction
    balanced : bool   with a free bias: sum y alpha = 0 holds for all models
    """

    V: np.ndarray
    half: np.ndarray
    level: np.ndarray
    balanced: bool


def best_of(
    around: Neighbourhood, gathered: Gathered, w: np.ndarray, V: np.ndarray, primal: np.ndarray, linear: bool,
    closer: bool,
) -> Shares:  # fmt: skip
    """Solve the small problem of each model, and store the shares of the near rows.

    gathered : the near rows of all models
    w : float64, (n_features + 1, n_models)   with 0 in the place of an unregularised bias
    V : float64, (n_features + 1, n_models)   sum of C_i y_i [x_i, bias] over the rows with s_i > 0
    primal : float64, (n_models,)   P(w)
    linear : bool   near rows need not lie exactly on their hyperplane
    closer : bool   solve accurately, because the last step changed nothing
    """
    problem, near = around.problem, around.near
    models = range(problem.n_models)
    bias, free = problem.constant_feature, problem.bias == "free"
    X = gathered.matrix()
    half, level, balanced = V.copy(), np.zeros(len(models)), True
    V = V.copy()
    for m in models:
        numbers = near.of(m)
        if X is None or not len(numbers):
            if free:
                balanced = balanced and _is_balanced(V[-1, m] / bias, 0.0, problem, m)
            continue
        here = np.searchsorted(gathered.wanted, numbers)
        part = X if len(here) == len(gathered.wanted) else readonly_view(picked_rows(X, here))
        one = _SmallProblem(around, part, m)
        violating = one.s > 0.0
        one.add(np.where(violating, -one.C, 0.0), V[:, m])
        half[:, m] = V[:, m]
        one.add(np.where(violating, one.C, np.where(one.s == 0.0, 0.5 * one.C, 0.0)), half[:, m])
        a = near.share[m, : len(numbers)].copy()
        if free:
            missing = one.balance(a, -V[-1, m] / bias)
            balanced = balanced and _is_balanced(missing, float(a.sum()), problem, m)
        r = np.ascontiguousarray(w[:, m] - V[:, m])
        one.add(-a, r)
        level[m] = one.solve(a, r, _CLOSER if closer or not linear else _CLOSE, _FLOOR * primal[m])
        one.add(a, V[:, m])
        near.share[m, : len(numbers)] = a
    return Shares(V, half, level, balanced)


class _SmallProblem:
    """The small problem of model m.  X : its near rows, in their order"""

    def __init__(self, around: Neighbourhood, X: Matrix, m: int) -> None:
        problem = around.problem
        self.X, self.problem, self.s = X, problem, around.slacks(m)
        self.C = around.near.cost[m, : len(self.s)] * problem.C[m]
        self.codes = np.ascontiguousarray(around.codes(m))
        self.positive = problem.positive[m : m + 1]
        self.sign = np.where(self.codes == self.positive[0], 1.0, -1.0)
        self.bias, self.free = problem.constant_feature, problem.bias == "free"

    def add(self, coefficients: np.ndarray, V: np.ndarray) -> None:
        """V += sum_i coefficients_i y_i [x_i, bias]; V may be strided."""
        total = np.zeros(len(V))
        add_rows(self.X, self.codes, self.positive, coefficients[:, None], self.bias, total)
        V += self.problem.summed(total)

    def balance(self, a: np.ndarray, wanted: float) -> float:
        """Change the shares `a`, nearest rows first, until sum y a = wanted; returns what could not be reached."""
        missing = wanted - float((self.sign * a).sum())
        for i in np.argsort(np.abs(self.s), kind="stable"):
            if abs(missing) <= _EXACT * self.C[i]:  # rounding must not move a share off its bound
                break
            change = self.sign[i] * missing
            to = min(max(a[i] + change, 0.0), self.C[i])
            missing = missing - self.sign[i] * (to - a[i]) if to != a[i] + change else 0.0
            a[i] = to
        return missing

    def solve(self, a: np.ndarray, r: np.ndarray, part: float, floor: float) -> float:
        """Optimise the shares `a` in place; the multiplier of sum y a if the bias is free, else 0.

        r : w - V(a);  part, floor : gap to reach, relative to that of the point, and absolute
        """
        q, bias = len(a), 0.0 if self.free else self.bias
        Q, g = np.empty((q, q)), np.empty((q, 1))
        met, centre = self.problem.met(r), self.problem.centre
        if centre is None:
            gram(self.X, self.sign, bias, np.zeros(len(r)), Q)
        else:
            gram(self.X, self.sign, bias if centre.biased else 0.0, np.zeros(len(r)), Q)
            along = np.empty((q, 1))
            signed_margins(self.X, self.codes, self.positive, np.append(centre.mu, 0.0), 0.0, 0.0, 1.0, along)
            centre.gram(Q, self.sign, along[:, 0])
        signed_margins(self.X, self.codes, self.positive, met, bias, 0.0, 1.0, g)
        regularised = r[:-1] if self.free else r
        missing = 0.5 * dot(regularised, regularised) + float((self.C * np.maximum(self.s, 0.0) - a * self.s).sum())
        return best_shares(Q, self.s + g[:, 0], a, self.C, self.sign, self.free, missing, part, floor, _ROUNDS)


def _is_balanced(missing: float, total: float, problem: Problem, m: int) -> bool:
    scale = total + float(problem.C[m])
    return abs(missing) <= _BALANCED * scale
