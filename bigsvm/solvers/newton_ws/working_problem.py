"""From a working set to its solution: the problem of each model, and the dual point that its solution gives.

`Passing` is a pass over the rows, `Measured` what it found, and `Posed` the problem of one model.  `PassHere`,
`WorkingHere` and `PosedHere` implement them for rows in this process; `sharded_working` has those for rows on shards.
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
from bigsvm.solvers.newton_ws.working_pass import WorkingPass
from bigsvm.solvers.newton_ws.working_set import FOLDED, KEPT, OUT, KeptRows, WorkingSet, frozen_alpha
from bigsvm.solvers.primal.dual_point import Known
from bigsvm.solvers.primal.row_state import RowState
from bigsvm.store.state.vectors import RowVector

_IDLE = 1e-6  # share of C up to which alpha counts as 0


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

    lean : float64, (n_features + 1,)   sum alpha y [x, bias] over the folded rows, with their alpha at that point
    scale : float                       factor on the costs
    sampled : bool                      include the far rows of the sample, each with the cost of all it stands for
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
    """Solve a subproblem from w on until its gap is at most `target`; see `solve_hinge` for mu."""
    if problem.loss.smooth:
        return solve_squared_hinge(part, w, target)
    return solve_hinge(part, w, target, mu)


class Posed(Protocol):
    """The problem of one model on the rows that it keeps, which are here or on shards.

    costs : float   sum of C over these rows
    """

    @property
    def costs(self) -> float: ...

    def minimum(self, w: np.ndarray, target: float, mu: float) -> np.ndarray:
        """Solve the problem as the function `minimum` does; return w.  alpha stays with the rows."""

    def crossed(self) -> bool:
        """Whether a far row has alpha above `_IDLE` of its C, and so has crossed its hyperplane."""

    def dual(self, folded: float) -> tuple[np.ndarray, bool]:
        """sum alpha y [x, bias] over the near rows; False if sum y alpha of all rows is not 0 but the bias is free.

        folded : float   sum y alpha of the other rows, times the constant feature
        """


class Passing(Protocol):
    """A pass over all rows, which are here or on shards."""

    def sample(self) -> tuple[Measured, float]:
        """Read a random sample of the rows instead of all; returns it, and the share by which its costs are divided."""

    def read(self, w: np.ndarray, d: np.ndarray, done: np.ndarray) -> Measured:
        """Measure the direction d on all rows, and choose the working set; see `WorkingPass.read`."""


class Measured(Protocol):
    """What a pass found: a working set, from which the problem of each model is posed.

    sides : int64, (2, n_models)   rows outside and inside the margin
    capacity : int                 most near rows;  leans, F : those of the `Fold`
    entry_bytes : float            mean bytes of the entries of a row; 0 if the rows are on shards, which know it
    known : where the dual point of the solutions is put; None before `moved`, and if the rows are on shards
    """

    @property
    def sides(self) -> np.ndarray: ...
    @property
    def capacity(self) -> int: ...
    @property
    def leans(self) -> list[np.ndarray]: ...
    @property
    def F(self) -> np.ndarray | None: ...
    @property
    def entry_bytes(self) -> float: ...
    @property
    def known(self) -> Known | None: ...

    def moved(self, lengths: np.ndarray) -> Measured:
        """The same after the step, of these lengths, (n_models,): now the problems have dual points."""

    def posed(
        self, m: int, lean: np.ndarray, at: np.ndarray, sampled: bool = False, bends: bool = True, scale: float = 1.0
    ) -> Posed:
        """The problem of model m (see `kept_rows`), without F if `bends` is False."""


class PosedHere:
    """`Posed` for rows in this process; `known` receives the dual point."""

    def __init__(self, problem: Problem, m: int, part: Subproblem, known: Placed | None) -> None:
        self._problem, self._m, self._part, self._known = problem, m, part, known
        self.costs = float(part.C.sum())
        self._alpha = np.zeros(0)

    def minimum(self, w: np.ndarray, target: float, mu: float) -> np.ndarray:
        """See `Posed`."""
        found = minimum(self._problem, self._part, w, target, mu)
        self._alpha = found.alpha
        return found.w

    def crossed(self) -> bool:
        """See `Posed`."""
        return far_matter(self._part, self._alpha)

    def dual(self, folded: float) -> tuple[np.ndarray, bool]:
        """See `Posed`."""
        part, known = self._part, self._known
        assert known is not None
        alpha = np.where(part.far, 0.0, self._alpha)
        balanced = not part.free or balance(part, alpha, folded)
        known.take(self._m, alpha[~part.far])
        return part.pull(alpha), balanced


class PassHere:
    """`Passing` for rows in this process."""

    def __init__(self, passing: WorkingPass, threads: int) -> None:
        self._passing, self._threads = passing, threads

    def sample(self) -> tuple[Measured, float]:
        """See `Passing`."""
        found, share = self._passing.sample()
        return self._measured(found), share

    def read(self, w: np.ndarray, d: np.ndarray, done: np.ndarray) -> Measured:
        """See `Passing`."""
        return self._measured(self._passing.read(w, d, done))

    def _measured(self, found: WorkingSet) -> WorkingHere:
        return WorkingHere(self._passing.problem, self._passing.rows, self._passing.place, found, self._threads)


class WorkingHere:
    """`Measured` for rows in this process.

    lengths : float64, (n_models,)   lengths of the step;  None before the step
    """

    def __init__(
        self, problem: Problem, rows: RowState, place: RowVector, found: WorkingSet, threads: int,
        lengths: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self._problem, self._rows, self._place, self._threads = problem, rows, place, threads
        self.working_set = found
        self.sides, self.capacity, self.entry_bytes = found.sides, found.capacity, found.entry_bytes
        self.leans, self.F = found.fold.leans, found.fold.F
        self.known = None if lengths is None else Placed(problem, rows, place, found, lengths)

    def moved(self, lengths: np.ndarray) -> Measured:
        """See `Measured`."""
        return WorkingHere(self._problem, self._rows, self._place, self.working_set, self._threads, lengths)

    def posed(
        self, m: int, lean: np.ndarray, at: np.ndarray, sampled: bool = False, bends: bool = True, scale: float = 1.0
    ) -> Posed:
        """See `Measured`."""
        part = kept_rows(self._problem, self.working_set, m, lean, at, self._threads, scale, sampled)
        return PosedHere(self._problem, m, part if bends else replace(part, F=None), self.known)


def far_matter(part: Subproblem, alpha: np.ndarray) -> bool:
    """Whether a far row has alpha above `_IDLE` of its C; see `Posed.crossed`."""
    return bool(np.any(alpha[part.far] > _IDLE * part.C[part.far]))


def balance(part: Subproblem, alpha: np.ndarray, folded: float) -> bool:
    """Scale alpha of the kept rows of the class with the larger sum down, until sum y alpha = 0.

    The dual problem with a free bias has this constraint.  Returns False, and changes nothing, if the kept rows of that
    class have less than the excess.

    folded : float   sum y alpha of the other rows, times the constant feature
    """
    excess = (folded + float(part.pull(alpha)[-1])) / part.bias
    heavier = (part.codes == 1) == (excess > 0.0)
    left = share_left(excess, float(alpha[heavier].sum()))
    if left is not None:
        alpha[heavier] *= left
    return left is not None


def share_left(excess: float, total: float) -> float | None:
    """The factor on alpha of a class, whose sum is `total`, that lowers it by |excess|; None if `total` is less."""
    if abs(excess) > total:
        return None
    return 1.0 - abs(excess) / total if total > 0.0 else 1.0


def in_problem(part: KeptRows, m: int, smooth: bool, sampled: bool) -> np.ndarray:
    """bool, (n_rows,): rows of a part that are in the problem of model m: near rows and, if `sampled`, far rows.

    With a smooth loss, sampled rows that are folded stay out: its fold has a quadratic term, which bounds w by itself.
    """
    place = part.place[:, m]
    if not sampled:
        return np.asarray(place == KEPT)
    return (place == KEPT) | (part.drawn & ((place == OUT) | ((place == FOLDED) & (not smooth))))


def shares_gone(lengths: np.ndarray) -> np.ndarray:
    """The share of a whole step that each model went, within [0, 1], for mixing the sums of the two ends."""
    return np.clip(lengths, 0.0, 1.0)


def mixed(ends: list[np.ndarray], shares: np.ndarray) -> np.ndarray:
    """Interpolate between the ends of a step, arrays (..., n_models), by the share that each model went."""
    return ends[0] if len(ends) == 1 else (1.0 - shares) * ends[0] + shares * ends[1]


class Placed:
    """alpha of every row: from the solution for kept rows, and by `frozen_alpha` for the others.

    rows : RowState   slacks after the step
    lengths : float64, (n_models,)   lengths of the step
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
        """Set alpha of the rows that model m keeps, in the order of the working set."""
        self._alpha[self._known[:, m], m] = alpha

    def put(self, piece: slice, alpha: np.ndarray) -> None:
        """Write alpha of the rows of a piece into `alpha`, float64, (n_rows, n_models)."""
        rows, place = self._rows, self._place.values[piece]
        s, p, C = rows.s.values[piece], rows.p.values[piece], rows.costs(self._problem, piece)
        ends = np.stack([s + self._lengths * p, s + (self._lengths - 1.0) * p])
        frozen = frozen_alpha(self._problem, ends, s - self._beyond * p, C)
        alpha[...] = frozen[-1]
        alpha[place == KEPT] = 0.0
        a, b = np.searchsorted(self._number, [piece.start, piece.stop])
        here, which = self._number[a:b] - piece.start, self._order[a:b]
        alpha[here] = np.where(self._known[which], self._alpha[which], alpha[here])
