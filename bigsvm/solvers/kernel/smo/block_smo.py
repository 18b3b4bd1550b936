"""Block SMO on rows in memory: one working set after another, without a cache of kernel rows.

Half of a working set are rows of the last one, its free rows first; the other half are the rows that violate most on
either side.  (Keeping all free rows instead takes four times the rounds: docs/measurements.md 7.2.)  The kernel values
within a working set are a small matrix, whose programme is solved by steps of two variables.  Then f of all active rows
is updated, in one sweep that computes kernel values and adds them up without storing them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bigsvm.compiled.kernel.block_smo import LANES, StepWorkspace, measure, side_ends, solve_sides, solve_working_set
from bigsvm.compiled.kernel.dual_qp import Box, DualPoint
from bigsvm.compiled.kernel.values.own_lines import zeros_on_own_lines
from bigsvm.compiled.kernel.values.support import Support, unit_rows
from bigsvm.problem.nu import NuSums
from bigsvm.solvers.kernel.values.gram import Gram
from bigsvm.store.blocks import Matrix

_INNER = 0.1  # share of the violation at the start of a round to which its working set is solved
_FINAL = 0.5  # share of the target to which a working set is solved at most
_STEPS_A_ROW = 16  # steps inside a working set that cost as much as a row of its kernel values
_STEPS = 200  # most steps of a working set for each of its rows
_MOST_ROUNDS = 10_000  # working sets in one call


@dataclass
class ActiveRows:
    """The active rows of a QP, which are in memory.  Arrays are copies, float64, (n,), unless said otherwise.

    X : matrix that contains the rows;  at : int64, (n,)   their rows in X
    column : int64, (n,)   number of each row for a precomputed kernel; otherwise empty
    diag : K_ii;  beta, f, lower, upper, epsilon : as in `DualQP`
    sums : constraint of nu that steps preserve besides sum beta, or None; with it, epsilon changes
    """

    X: Matrix
    at: np.ndarray
    column: np.ndarray
    diag: np.ndarray
    beta: np.ndarray
    f: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    epsilon: float
    sums: NuSums | None = None

    @property
    def n(self) -> int:
        return len(self.at)

    def support(self, which: np.ndarray, gram: Gram) -> Support:
        """Some of the rows as the second argument of kernel values."""
        return other_side(self.X, self.at[which], self.column[which] if len(self.column) else self.column, gram)


def other_side(X: Matrix, at: np.ndarray, column: np.ndarray, gram: Gram) -> Support:
    """Rows of X as the second argument of kernel values; for a precomputed kernel, their columns."""
    return unit_rows(column, gram.dtype) if len(column) else gram.support(X, at)


@dataclass
class Solved:
    """The result of `BlockSMO.solve`.

    rounds, steps : int        working sets, and steps of two variables in them
    kernel_rows, values : int  rows of kernel values computed, and single values
    work : int                 kernel values, plus the steps expressed in kernel values
    idle : int                 consecutive working sets, up to now, in which nothing moved
    b_up, b_low : float        over the active rows
    left : bool                it stopped before the target: it was asked to, or has done as much as it may
    """

    rounds: int = 0
    steps: int = 0
    kernel_rows: int = 0
    values: int = 0
    work: int = 0
    idle: int = 0
    b_up: float = np.inf
    b_low: float = -np.inf
    left: bool = False

    @property
    def violation(self) -> float:
        return self.b_low - self.b_up


class BlockSMO:
    """Solves the programme of `ActiveRows` by working sets of `q` rows.

    gram : Gram     computes kernel values
    second : bool   choose the second row of a step by its gain (WSS2); False: the maximal violating pair
    """

    def __init__(self, gram: Gram, q: int, second: bool = True) -> None:
        self.gram, self.second = gram, second
        self.q = -(-q // LANES) * LANES
        kind = gram.dtype
        self._diag = np.empty(self.q)
        self._box = Box(np.empty(self.q), np.empty(self.q))
        self._point = DualPoint(np.empty(self.q), np.empty(self.q))
        self._workspace = StepWorkspace(np.empty(self.q), np.empty(self.q), np.empty(self.q, np.float32))
        (self._K,) = zeros_on_own_lines([(self.q * self.q,)], [kind])

    @staticmethod
    def workspace_bytes(q: int, itemsize: int) -> int:
        """Bytes of the matrix and the vectors of a working set."""
        q = -(-q // LANES) * LANES
        return q * q * itemsize + 16 * 8 * q

    def solve(
        self,
        active: ActiveRows,
        target: float,
        last: np.ndarray,
        most: int = _MOST_ROUNDS,
        pause: Callable[[], bool] = lambda: False,
        most_work: float = math.inf,
        idle: int = 0,
    ) -> tuple[Solved, np.ndarray]:
        """Change beta and f of the active rows, in place, until their violation is at most `target`.

        It also ends after `most` rounds, after about `most_work`, or if two working sets in a row change nothing.
        Returns what was done, and the rows of the last working set, ascending.

        last : int64   rows of the working set before, ascending
        pause : called between two rounds; True: stop
        idle : `Solved.idle` of the call that this one continues
        """
        found, n = Solved(idle=idle), active.n
        up, down = np.empty(n), np.empty(n)
        point, box = DualPoint(active.beta, active.f), Box(active.lower, active.upper)
        while True:
            if active.sums is not None:
                active.epsilon = active.sums.multiplier(side_ends(*point, *box))
            found.b_up, found.b_low = measure(point, box, active.epsilon, up, down)
            violation = found.violation
            if not violation > target or found.idle > 1:
                return found, last
            if found.rounds and (found.rounds >= most or found.work >= most_work or pause()):
                found.left = True
                return found, last
            W = self._choose(active, up, down, found.b_up, found.b_low, last)
            moved, by = self._solve_set(active, W, max(_INNER * violation, _FINAL * target), found)
            found.idle = found.idle + 1 if len(moved) == 0 else 0
            if len(moved):
                f = active.f[None, :]
                self.gram.add(active.X, active.at, active.support(moved, self.gram), by[:, None], f)
                found.kernel_rows += len(moved)
                found.values += len(moved) * n
                found.work += len(moved) * n
            found.rounds += 1
            last = W

    def _choose(
        self, active: ActiveRows, up: np.ndarray, down: np.ndarray, b_up: float, b_low: float, last: np.ndarray
    ) -> np.ndarray:
        """The rows of the next working set, ascending."""
        n, q = active.n, self.q
        if n <= q:
            return np.arange(n)
        chosen = np.zeros(n, bool)
        kept = last
        if len(last) > q // 2:
            beta = active.beta[last]
            free = (beta > active.lower[last]) & (beta < active.upper[last]) & (beta != 0.0)
            worst = np.maximum(b_low - up[last], down[last] - b_up)
            order = np.lexsort((last, -worst, ~free))
            kept = last[order[: q // 2]]
        chosen[kept] = True
        left = q - len(kept)
        for values, side in ((up, 1.0), (-down, -1.0)):
            wanted = left // 2 if side > 0 else q - int(chosen.sum())
            bound = b_low if side > 0 else -b_up
            candidates = np.flatnonzero((values < bound) & ~chosen)
            if len(candidates) > wanted:
                score = values[candidates]
                candidates = candidates[np.argpartition(score, wanted - 1)[:wanted]] if wanted else candidates[:0]
            chosen[candidates] = True
        return np.flatnonzero(chosen)

    def _solve_set(
        self, active: ActiveRows, W: np.ndarray, target: float, found: Solved
    ) -> tuple[np.ndarray, np.ndarray]:
        """Solve the programme of the working set W; (rows whose beta has changed, changes)."""
        n = len(W)
        # Use only the part of the workspace that these rows need.
        m = -(-n // LANES) * LANES
        K = self._K[: m * m].reshape(m, m)
        self.gram.values(active.X, active.at[W], active.support(W, self.gram), K)
        found.values += n * n
        found.work += n * n
        diag, box, point = self._diag[:m], Box(*(a[:m] for a in self._box)), DualPoint(*(a[:m] for a in self._point))
        given = active.diag, active.lower, active.upper, active.beta, active.f
        for of_set, of_all in zip((diag, *box, *point), given, strict=True):
            of_set[:n] = of_all[W]
            of_set[n:] = 0.0
        K[np.arange(n), np.arange(n)] = diag[:n]
        K[n:] = 0.0
        K[:, n:] = 0.0
        workspace = self._workspace._replace(
            up=self._workspace.up[:m], down=self._workspace.down[:m], gain=self._workspace.gain[:m]
        )
        most, sums = _STEPS * n, active.sums
        if sums is None:
            steps, _ = solve_working_set(K, diag, box, active.epsilon, point, target, most, self.second, workspace)
        else:
            steps, sums.slack = solve_sides(K, diag, box, point, sums.slack, sums.at_most, target, most, self.second)
        found.steps += steps
        found.work += steps * n // _STEPS_A_ROW
        by = point.beta[:n] - active.beta[W]
        changed = np.flatnonzero(by)
        active.beta[W[changed]] = point.beta[changed]
        return W[changed], by[changed]
