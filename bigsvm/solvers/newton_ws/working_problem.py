"""Between a working set and its solution: the problem of each model, and the dual point that it gives of all rows.

`WorkingHere` and `PosedHere` are of rows that are here; the same of shards are in `sharded_working`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np

from bigsvm.problem.problem import Problem
from bigsvm.solvers.newton_ws.held_rows import picked_held
from bigsvm.solvers.newton_ws.interior import solve_hinge
from bigsvm.solvers.newton_ws.subproblem import Solution, Subproblem
from bigsvm.solvers.newton_ws.working_newton import solve_squared_hinge
from bigsvm.solvers.newton_ws.working_set import FOLDED, KEPT, OUT, KeptRows, WorkingSet, frozen_alpha
from bigsvm.solvers.primal.row_state import RowState
from bigsvm.store.state.vectors import RowVector

_IDLE = 1e-6  # of C: alpha of a row that does not matter


def kept_rows(
    problem: Problem,
    found: WorkingSet,
    m: int,
    lean: np.ndarray,
    at: np.ndarray,
    threads: int,
    scale: float = 1.0,
    sampled: bool = False,
) -> Subproblem:
    """The problem of model m on the rows that it keeps, around the point `at`.

    lean : float64, (n_features + 1,)   the sum of the rows that are folded, as they are at that point
    scale : of the costs
    sampled : with the rows that stand for the far ones
    """
    parts, codes, costs, sides, far = [], [], [], [], []
    share, smooth = found.bands.share, problem.loss.smooth
    for part in found.parts:
        rows = np.flatnonzero(in_problem(part, m, smooth, sampled))
        if not len(rows):
            continue
        whole = len(rows) == len(part.number)
        parts.append(part.X if whole else picked_held(part.X, rows))
        codes.append((part.codes[rows] == problem.positive[m]).astype(np.int32))
        place = part.place[rows, m]
        costs.append(part.cost[rows] / np.where(place == KEPT, 1.0, share))
        far.append(place != KEPT)
        sides.append(np.where(place == FOLDED, -1.0, 1.0))
    fold = found.fold
    return Subproblem(
        parts=parts,
        codes=np.concatenate(codes) if codes else np.zeros(0, np.int32),
        C=np.concatenate(costs) * (problem.C[m] * scale) if costs else np.zeros(0),
        far=np.concatenate(far) if far else np.zeros(0, bool),
        side=np.concatenate(sides) if sides else np.zeros(0),
        bias=problem.constant_feature,
        free=problem.bias == "free",
        lean=np.ascontiguousarray(lean),
        at=at.copy(),
        F=None if fold.F is None else fold.F[m],
        threads=threads,
    )


def minimum(problem: Problem, part: Subproblem, w: np.ndarray, target: float, mu: float) -> Solution:
    """The solution of a working set, from w on, to a gap of `target`; `mu` as for `solve_hinge`."""
    if problem.loss.smooth:
        return solve_squared_hinge(part, w, target)
    return solve_hinge(part, w, target, mu)


class Posed(Protocol):
    """The problem of one model on the rows that it keeps, wherever they are.

    costs : sum of the rows' C
    """

    @property
    def costs(self) -> float: ...

    def minimum(self, w: np.ndarray, target: float, mu: float) -> np.ndarray:
        """As `minimum`; alpha stays with the rows."""

    def crossed(self) -> bool:
        """Whether alpha of a far row is not 0, by more than a row may have that does not matter."""

    def dual(self, folded: float) -> tuple[np.ndarray, bool]:
        """What alpha of the kept rows sums up to, 0 of far ones; False where a free bias is not balanced.

        folded : sum y alpha of the other rows, times the constant feature
        """


class Measured(Protocol):
    """What a pass found: how many rows lie on either side, sums of those that are folded, and problems on the rest.

    sides : int64, (2, n_models);  capacity : rows that are kept;  leans, F : as of a `Fold`
    """

    @property
    def sides(self) -> np.ndarray: ...
    @property
    def capacity(self) -> int: ...
    @property
    def leans(self) -> list[np.ndarray]: ...
    @property
    def F(self) -> np.ndarray | None: ...

    def posed(
        self, m: int, lean: np.ndarray, at: np.ndarray, sampled: bool = False, bends: bool = True, scale: float = 1.0
    ) -> Posed:
        """The problem of model m, as `kept_rows` says; without F where it does not bend."""


class PosedHere:
    """`Posed` of rows that are here; `known` takes the dual point."""

    def __init__(self, problem: Problem, m: int, part: Subproblem, known: Placed | None) -> None:
        self._problem, self._m, self._part, self._known = problem, m, part, known
        self.costs = float(part.C.sum())
        self._alpha = np.zeros(0)

    def minimum(self, w: np.ndarray, target: float, mu: float) -> np.ndarray:
        """As `Posed` says."""
        found = minimum(self._problem, self._part, w, target, mu)
        self._alpha = found.alpha
        return found.w

    def crossed(self) -> bool:
        """As `Posed` says."""
        return far_matter(self._part, self._alpha)

    def dual(self, folded: float) -> tuple[np.ndarray, bool]:
        """As `Posed` says."""
        part, known = self._part, self._known
        assert known is not None
        alpha = np.where(part.far, 0.0, self._alpha)
        balanced = not part.free or balance(part, alpha, folded)
        known.take(self._m, alpha[~part.far])
        return part.pull(alpha), balanced


class WorkingHere:
    """`Measured` of rows that are here.

    lengths : of the step, (n_models,);  None: no dual point is wanted
    """

    def __init__(
        self, problem: Problem, rows: RowState, place: RowVector, found: WorkingSet, lengths: np.ndarray | None,
        threads: int,
    ) -> None:  # fmt: skip
        self._problem, self._found, self._threads = problem, found, threads
        self.sides, self.capacity = found.sides, found.capacity
        self.leans, self.F = found.fold.leans, found.fold.F
        self.known = None if lengths is None else Placed(problem, rows, place, found, lengths)

    def posed(
        self, m: int, lean: np.ndarray, at: np.ndarray, sampled: bool = False, bends: bool = True, scale: float = 1.0
    ) -> Posed:
        """As `Measured` says."""
        part = kept_rows(self._problem, self._found, m, lean, at, self._threads, scale, sampled)
        return PosedHere(self._problem, m, part if bends else replace(part, F=None), self.known)


def far_matter(part: Subproblem, alpha: np.ndarray) -> bool:
    """Whether a far row's alpha is not 0, by more than a row may have that does not matter."""
    return bool(np.any(alpha[part.far] > _IDLE * part.C[part.far]))


def balance(part: Subproblem, alpha: np.ndarray, folded: float) -> bool:
    """Make the kept alpha of the heavier class lighter until sum y alpha = 0, as the dual of a free bias wants it.

    folded : sum y alpha of the other rows, times the constant feature.  False where that is more than kept ones hold.
    """
    excess = (folded + float(part.pull(alpha)[-1])) / part.bias
    heavier = (part.codes == 1) == (excess > 0.0)
    left = share_left(excess, float(alpha[heavier].sum()))
    if left is not None:
        alpha[heavier] *= left
    return left is not None


def share_left(excess: float, total: float) -> float | None:
    """The part of kept alpha, `total` in a class, that is left when |excess| goes; None where it is not that much."""
    if abs(excess) > total:
        return None
    return 1.0 - abs(excess) / total if total > 0.0 else 1.0


def in_problem(part: KeptRows, m: int, smooth: bool, sampled: bool) -> np.ndarray:
    """Which rows of a part are in the problem of model m: those that it keeps and, if so, far ones that were drawn.

    What the squared hinge folds grows like |w|^2 by itself.
    """
    place = part.place[:, m]
    if not sampled:
        return np.asarray(place == KEPT)
    return (place == KEPT) | (part.drawn & ((place == OUT) | ((place == FOLDED) & (not smooth))))


def shares_gone(lengths: np.ndarray) -> np.ndarray:
    """Of the whole step, for mixtures of what is before it and after."""
    return np.clip(lengths, 0.0, 1.0)


def mixed(ends: list[np.ndarray], shares: np.ndarray) -> np.ndarray:
    """What lies between the ends of a step, arrays (..., n_models), where each model goes its share of it."""
    return ends[0] if len(ends) == 1 else (1.0 - shares) * ends[0] + shares * ends[1]


class Placed:
    """Knows alpha of every row by its place in the pass: of kept ones what the working set's solution says.

    rows : after the step, whose lengths were `lengths`, (n_models,)
    """

    def __init__(
        self, problem: Problem, rows: RowState, place: RowVector, found: WorkingSet, lengths: np.ndarray
    ) -> None:
        self._problem, self._rows, self._place = problem, rows, place
        self._beyond, self._lengths, self._shares = found.bands.ahead - lengths, lengths, shares_gone(lengths)
        self._kept = [part.place == KEPT for part in found.parts]
        numbers = np.concatenate([np.zeros(0, np.int64), *(part.number for part in found.parts)])
        self._order = np.argsort(numbers)
        self._number = numbers[self._order]
        self._alpha = np.zeros((len(numbers), problem.n_models))
        self._known = np.concatenate([np.zeros((0, problem.n_models), bool), *self._kept])

    def take(self, m: int, alpha: np.ndarray) -> None:
        """The solution of model m: alpha of the rows that it keeps, in the order of the working set."""
        self._alpha[self._known[:, m], m] = alpha

    def put(self, piece: slice, alpha: np.ndarray) -> None:
        """Write alpha of the rows of a piece, (n_rows, n_models)."""
        rows, place = self._rows, self._place.values[piece]
        s, p, C = rows.s.values[piece], rows.p.values[piece], rows.costs(self._problem, piece)
        ends = np.stack([s + self._lengths * p, s + (self._lengths - 1.0) * p])
        frozen = frozen_alpha(self._problem, ends, s - self._beyond * p, C)
        alpha[...] = frozen[-1]
        alpha[place == KEPT] = 0.0
        a, b = np.searchsorted(self._number, [piece.start, piece.stop])
        here, which = self._number[a:b] - piece.start, self._order[a:b]
        alpha[here] = np.where(self._known[which], self._alpha[which], alpha[here])
