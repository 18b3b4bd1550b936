"""The problem of a regression with the epsilon-insensitive loss, as the interior-point method takes it.

A row with the target t is two rows of a hinge loss, one above the tube and one below.  Their slacks are
t - epsilon - f(x) and f(x) - t - epsilon, and alpha of the row is the difference of their dual variables.

With a free bias the sum of alpha is 0.  That is one more row of Newton's equations, whose multiplier is the bias: the
row of the bias lacks the regulariser, so the equations say that the step makes the sum 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bigsvm.compiled.linear.hessian import solve_factored
from bigsvm.problem.loss import Loss
from bigsvm.problem.problem import Problem
from bigsvm.solvers.newton_ws.held_rows import Held
from bigsvm.solvers.newton_ws.subproblem import Around, Subproblem
from bigsvm.store.blocks import Block

NARROW = 500
"""Features, at most, unless the user asks for more: an iteration factors a matrix of this order."""
BALANCINGS = 4
"""Steps that make the sum of alpha 0, at most."""
_BALANCED = 2.0**-46  # share of the sum of |alpha| that counts as 0; proofs with a kernel take four times as much
FINAL = 0.1
"""Share of the tolerance to which the problem is solved."""


@dataclass(kw_only=True)
class Tube(Subproblem):
    """The problem of one regression: C, far and side have two entries for each row, of `codes` there is one.

    side : float64, (2 n_rows,)   t - epsilon of each row, then -t - epsilon: what alpha counts in D
    """

    def slacks(self, w: np.ndarray) -> np.ndarray:
        """t - epsilon - f(x) of every row, then f(x) - t - epsilon; float64, (2 n_rows,)."""
        return self.side - self.products(w)

    def products(self, d: np.ndarray) -> np.ndarray:
        """x.d + bias d_last of every row, then the same with the opposite sign; float64, (2 n_rows,)."""
        found = self.margins(d, 0.0, 1.0)
        return np.concatenate([found, -found])

    def pull(self, coefficients: np.ndarray) -> np.ndarray:
        """The sum of [x_i, bias] times the difference of both coefficients of row i; float64, (n_features + 1,)."""
        return self.summed(self.difference(coefficients))

    def add_to_hessian(self, h: np.ndarray, H: list[np.ndarray]) -> None:
        """Add sums of [x_i, bias] [x_i, bias]' times both h of row i to H; h may have a single one for each row."""
        n = len(self.codes)
        super().add_to_hessian(h[:n] + h[n:] if len(h) > n else h, H)

    def difference(self, coefficients: np.ndarray) -> np.ndarray:
        """What belongs to a row above the tube, less what belongs to it below; float64, (n_rows,)."""
        n = len(self.codes)
        return coefficients[:n] - coefficients[n:]

    def inner(self, alpha: np.ndarray) -> np.ndarray:
        """How far alpha of each row is from 0 and from the ends of its box; float64, (n_rows,)."""
        size = np.abs(alpha)
        return np.minimum(size, self.C[: len(alpha)] - size)

    def moved(self, alpha: np.ndarray, change: np.ndarray) -> np.ndarray:
        """alpha after the step that `balancing` found; float64, (n_rows,)."""
        C = self.C[: len(alpha)]
        return np.clip(alpha + self.inner(alpha) * self.margins(change, 0.0, 1.0), -C, C)


def exact_sum(values: Iterable[float]) -> float:
    """The sum without rounding errors; infinite if it is beyond float64, so that nothing is to be gained."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # ValueError: of infinities with both signs
        return math.inf


def is_balanced(total: float, size: float) -> bool:
    """Whether the sum of alpha is 0 up to rounding, so that a free bias has a proof.  size : the sum of |alpha|"""
    return abs(total) <= _BALANCED * size


def evened(alpha: np.ndarray, total: float, size: float) -> np.ndarray:
    """alpha whose sum is 0 up to rounding, where all rows are at the ends of their boxes: those of one sign are scaled.

    total, size : the sums of alpha and of |alpha|, of all rows
    """
    more, less = 0.5 * (size + abs(total)), 0.5 * (size - abs(total))
    return np.where(np.sign(alpha) == np.sign(total), alpha * (less / more), alpha) if more > 0.0 else alpha


def constant_of(problem: Problem, costs: float) -> float:
    """The constant feature of the equations, which for a free bias may be any number.

    Its row of the matrix has no regulariser; if it were less than the rounding of the others, the bias would not move.
    costs : the sum of C
    """
    if problem.bias != "free" or costs * problem.constant_feature**2 >= 1.0:
        return problem.constant_feature
    return 2.0 ** math.ceil(-0.5 * math.log2(costs))


def flat_bias(least: float, largest: float, problem: Problem) -> float | None:
    """The bias of a constant within epsilon of all targets, so that w = 0 and alpha = 0 are optimal; None without one.

    The method would halve a loss of 0 for ever.  least, largest : of the targets
    """
    bias = 0.5 * least + 0.5 * largest if problem.bias == "free" else 0.0
    return bias if max(largest - bias, bias - least) <= problem.loss.epsilon else None


def balancing(tube: Around, H: list[np.ndarray], wanted: np.ndarray) -> np.ndarray:
    """The change of the weights that belongs to a step of alpha which makes its sum 0; float64, (n_features + 1,).

    Rows inside their boxes change, as in a step of Newton's, so that w(alpha) hardly changes.  It is a difference of
    large sums if columns are large: if alpha above 0 were scaled by 1 + 1e-11, f(x) could change by more than epsilon.

    H : H[0] is the sum over the rows with the weights `Tube.inner`
    wanted : float64, (n_features + 1,)   by how much w(alpha) is to change; the last entry is for the sum of alpha
    """
    change = np.empty(len(tube.lean))
    tube.factor(H)
    solve_factored(*H, wanted, change)
    return change


def solves(loss: Loss, n_features: int) -> bool:
    """Whether the method is for this loss and so many features."""
    return loss.regression and not loss.smooth and loss.nu is None and n_features <= NARROW


def targets_and_costs(problem: Problem, m: int, block: Block, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Target and C_i of each row of a block in model m, float64, (n_rows,); C_i is 0 where the row takes no part.

    first : the working row with which the block begins
    """
    t, cost = problem.y_and_cost(block)
    C = problem.C[m] * cost
    if (axis := problem.axis) is not None:
        C = np.where(axis.of_rows(first, first + len(C)).fold == axis.held_out[m], 0.0, axis.weight[m, 0] * C)
    return t, C


def tube_of(
    problem: Problem, parts: list[Held], t: np.ndarray, C: np.ndarray, width: int, constant: float, threads: int = 1
) -> Tube:
    """The problem on some rows.

    parts : their matrices, an even number of them, so that any number of threads gives the same bits
    t, C : float64, (n_rows,)   targets, and costs above 0;  width : n_features + 1;  constant : of `constant_of`
    """
    n, epsilon, zeros = len(t), problem.loss.epsilon, np.zeros(width)
    return Tube(
        parts=parts,
        codes=np.ones(n, np.int32),
        C=np.concatenate([C, C]),
        far=np.zeros(2 * n, bool),
        side=np.concatenate([t - epsilon, -t - epsilon]),
        bias=constant,
        free=problem.bias == "free",
        lean=zeros,
        at=zeros,
        threads=threads,
    )
