"""The active rows of a cycle of shrinking: at first all rows, which may stream; later copies of a few, in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np

from bigsvm.compiled.linear.primal import add_rows, signed_margins
from bigsvm.problem.loss import Loss
from bigsvm.problem.problem import Problem
from bigsvm.solvers.hyperpass.near_rows import NearRows, Neighbourhood
from bigsvm.solvers.primal.line_search import Step, exact_step
from bigsvm.solvers.primal.row_state import RowState
from bigsvm.store.blocks import Matrix, readonly_view
from bigsvm.store.state.vectors import RowVector

_DIGITS = 16  # bits of the k-th smallest distance that one pass determines


@dataclass
class Plain:
    """An array in the place of a RowVector."""

    values: np.ndarray


@dataclass
class ActiveRows:
    """A table of rows, with a flag for each row and model: whether the row is active.

    The slack of a row that is not active stays as it was when the row was left out.

    X : matrix of the rows, if they are in memory; else None
    rows : slacks, products, costs and classes of the rows
    keys, norms : hashes and squared norms of the rows
    active : uint8, (n_rows, n_models)
    folded : float64, (n_features + 1, n_models)   sum of C_i y_i [x_i, bias] over violating rows not in the table
    numbers : int64, (n_rows,)   numbers of the rows in the data; None: all rows
    """

    problem: Problem
    X: Matrix | None
    rows: RowState
    keys: RowVector
    norms: np.ndarray
    active: np.ndarray
    folded: np.ndarray
    numbers: np.ndarray | None = None

    def pieces(self) -> Iterator[slice]:
        """Ranges of rows."""
        return self.rows.pieces()

    def products(self, D: np.ndarray) -> None:
        """Compute p of all rows of the table, which must be in memory, for the directions D."""
        codes, bias = np.ascontiguousarray(self.rows.y.values[:, 0]), self.problem.constant_feature
        signed_margins(self.X, codes, self.problem.positive, _lean(D), bias, 0.0, 1.0, self.rows.p.values)

    def sums(self, weights: Loss) -> np.ndarray:
        """Sum of C_i y_i [x_i, bias] over all violating rows, including those that are not in the table."""
        return self.folded + self._sums(weights)

    def _sums(self, weights: Loss) -> np.ndarray:
        V = np.zeros(_lean(self.folded).shape)
        codes, bias = np.ascontiguousarray(self.rows.y.values[:, 0]), self.problem.constant_feature
        alpha = weights.alpha(self.rows.s.values, self.rows.cost.values * self.problem.C)
        add_rows(self.X, codes, self.problem.positive, alpha, bias, V)
        return V[:, None] if V.ndim == 1 else V

    def around(self, near: NearRows) -> Neighbourhood:
        """A `Neighbourhood` of near rows within the table."""
        return Neighbourhood(self.problem, self.rows, self.keys, near)

    def search(self, m: int, w: np.ndarray, D: np.ndarray, longest: float) -> Step:
        """The exact step of model m along its direction, if rows that are not active stay on their side.

        w, D : float64, (n_features + 1,)   point and direction;  longest : upper bound of the step
        """
        C = float(self.problem.C[m])
        slope = float((w * D).sum()) - float((self.folded[:, m] * D).sum())
        for piece in self.pieces():
            s, cost = self.rows.s.values[piece, m], self.rows.cost.values[piece, 0]
            left = (self.active[piece, m] == 0) & (s > 0.0)
            slope -= C * float((cost * self.rows.p.values[piece, m])[left].sum())

        def pieces() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
            for piece in self.pieces():
                cost = self.rows.cost.values[piece, 0] * self.active[piece, m]
                yield self.rows.s.values[piece, m], self.rows.p.values[piece, m], cost

        return exact_step(pieces, C, self.problem.loss.code, slope, float((D * D).sum()), longest)

    def advance(self, m: int, step: Step) -> None:
        """s -= t p for active rows.  A row at whose breakpoint the step ends gets a slack of exactly 0."""
        t = step.length
        for piece in self.pieces():
            s, p, here = self.rows.s.values[piece, m], self.rows.p.values[piece, m], self.active[piece, m] != 0
            with np.errstate(divide="ignore", invalid="ignore"):
                kinks = here & step.on_kink & (s / p == t)
            s -= np.where(here, t * p, 0.0)
            s[kinks] = 0.0

    def halve(self, m: int, kept: int) -> tuple[float, float]:
        """Keep the `kept` active rows nearest to their hyperplane; (largest distance kept, smallest distance dropped).

        The distances overwrite the products, which are no longer needed.
        """
        bias = self.problem.constant_feature
        for piece in self.pieces():
            length = np.sqrt(self.norms[piece, 0] + bias * bias)
            with np.errstate(divide="ignore", invalid="ignore"):
                distance = np.where(length > 0.0, np.abs(self.rows.s.values[piece, m]) / length, np.inf)
            distance[np.isnan(distance)] = np.inf  # from values whose squares overflow
            self.rows.p.values[piece, m] = np.where(self.active[piece, m] != 0, distance, -1.0)
        limit, below = self._smallest(m, kept)
        ties, nearest_dropped = kept - below, np.inf
        for piece in self.pieces():
            distance, flags = self.rows.p.values[piece, m], self.active[piece, m]
            equal = np.flatnonzero(distance == limit)
            flags[distance > limit] = 0
            flags[equal[ties:]] = 0
            dropped = distance[(distance > limit)]
            nearest_dropped = min(nearest_dropped, float(dropped.min(initial=np.inf)))
            if len(equal) > ties:
                nearest_dropped = limit
            ties = max(ties - len(equal), 0)
        return limit, nearest_dropped

    def _smallest(self, m: int, k: int) -> tuple[float, int]:
        """The k-th smallest distance, and how many are smaller; determined bit by bit, 16 bits in a pass."""
        prefix, below = 0, 0
        if k == 0:
            return 0.0, 0
        for shift in range(64 - _DIGITS, -1, -_DIGITS):
            counts = np.zeros(1 << _DIGITS, np.int64)
            for piece in self.pieces():
                distance = np.ascontiguousarray(self.rows.p.values[piece, m])
                bits = distance[distance >= 0.0].view(np.uint64) >> np.uint64(shift)
                bits = bits[(bits >> np.uint64(_DIGITS)) == prefix] if shift < 64 - _DIGITS else bits
                counts += np.bincount((bits & np.uint64((1 << _DIGITS) - 1)).astype(np.int64), minlength=1 << _DIGITS)
            before = np.cumsum(counts) - counts
            digit = int(np.flatnonzero(before < k - below)[-1])
            while counts[digit] == 0:
                digit -= 1
            below += int(before[digit])
            prefix = (prefix << _DIGITS) | digit
        return float(np.array([prefix], np.uint64).view(np.float64)[0]), below

    def on_plane(self, m: int) -> np.ndarray:
        """Numbers, in the data, of rows that are active for model m and lie exactly on their hyperplane."""
        found = np.concatenate(
            [
                np.flatnonzero((self.active[p, m] != 0) & (self.rows.s.values[p, m] == 0.0)) + p.start
                for p in self.pieces()
            ]
        )
        return found if self.numbers is None else self.numbers[found]

    def n_wanted(self) -> int:
        """The number of rows that are active for at least one model."""
        return sum(int(np.count_nonzero(self.active[piece].any(axis=1))) for piece in self.pieces())

    def wanted(self) -> np.ndarray:
        """The rows of the table that are active for at least one model."""
        return np.concatenate([np.flatnonzero(self.active[p].any(axis=1)) + p.start for p in self.pieces()])


def _lean(a: np.ndarray) -> np.ndarray:
    """A contiguous (n,) array if there is one model; else `a`."""
    return np.ascontiguousarray(a[:, 0]) if a.shape[1] == 1 else a


def compacted(table: ActiveRows, numbers: np.ndarray, X: Matrix, V: np.ndarray, weights: Loss) -> ActiveRows:
    """A table of the rows `numbers`, with the matrix X.  The part of the other rows in V, the sum of all, is folded."""

    def taken(values: np.ndarray) -> RowVector:
        return cast(RowVector, Plain(values[numbers]))

    rows = table.rows
    part = RowState(
        s=taken(rows.s.values), p=taken(rows.p.values), alpha=cast(RowVector, Plain(np.zeros((0, 1)))),
        cost=taken(rows.cost.values), y=taken(rows.y.values),
    )  # fmt: skip
    small = ActiveRows(
        table.problem, readonly_view(X), part, taken(table.keys.values), table.norms[numbers], table.active[numbers],
        np.zeros(V.shape), numbers if table.numbers is None else table.numbers[numbers],
    )  # fmt: skip
    small.folded = V - small.sums(weights)
    return small
