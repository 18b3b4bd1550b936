"""The working set: the rows that a pass keeps in memory, those near their hyperplanes (y f(x) = 1), as many as fit.

Rows inside the margin come first: all of them, if three quarters of the capacity hold them.  The rest of the capacity
goes to the nearest rows outside, as far as they are useful.  If the rows inside do not fit, half of the capacity goes
to the nearest rows of each side.  Distance is measured relative to how far the step moves a row; rows that cross their
hyperplane within the step count as three times nearer.  The other rows are *folded*: their alpha is fixed, and their
sum is one vector (`subproblem.py`).

A part of the capacity holds a random sample of all rows.  Its far rows represent all far rows: if the solution moves
one of them across its hyperplane, it pays for all the rows that this row represents.  With a fixed vector alone nothing
would keep w from moving too far.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bigsvm.compiled.linear.hessian import add_hessian, triangle_size
from bigsvm.compiled.linear.primal import add_rows
from bigsvm.compiled.shared.coded import CodedRows
from bigsvm.compiled.shared.visiting import draw
from bigsvm.machine import trim_heap
from bigsvm.problem.problem import Problem
from bigsvm.solvers.gathered import stacked
from bigsvm.solvers.newton_ws.held_rows import Held, bytes_held, picked_held, pieces
from bigsvm.store.blocks import Matrix

OUT, FOLDED, KEPT = 0, 1, 2  # places of a row: alpha = 0; alpha fixed and summed; in memory
_ALL_INSIDE = 0.75  # part of the capacity within which all rows inside the margin are kept
_HALF = 0.5  # part of the capacity for each side if they are more
_CROSSED = 0.3  # factor on the distance of rows that cross their hyperplane within the step
_CUT_TO = 0.9  # part of the capacity that is kept when rows are dropped during a pass
_SAMPLED = 0.1  # part of the capacity for the sample
# Rows outside the margin are kept up to so many for each row inside, or for each feature: more would only cost time.
_OUTSIDE, _PER_FEATURE = 4.0, 8.0
_CUT_FROM = 1.25  # rows outside are dropped when they are more than this many times that number
_HALVINGS = 6  # bisections of the capacity of each model, if there are several
_TOGETHER = 1 << 20  # bytes of a part's rows from which the calls for each part take no time
_TIE = 1e-9  # breaks ties between rows at the same distance


class KeptRows(NamedTuple):
    """Some of the kept rows, ascending.

    X : the rows, as they are held in memory;  codes : int32, (n_rows,), classes
    cost : float64, (n_rows,), weight of the row;  number : int64, (n_rows,), number of the row in the data
    ends : float64, (2, n_rows, n_models)   slacks before the step, and after a whole step; (0, ...) for the hinge loss
    z : float64, (n_rows, n_models)   the expected slack after the step
    distance : float64, (n_rows, n_models)   distance from the hyperplane, by which rows are chosen
    place : uint8, (n_rows, n_models)   OUT, FOLDED or KEPT
    lot : float64, (n_rows,)   random numbers for the sample;  drawn : bool, (n_rows,), the row belongs to the sample
    """

    X: Held
    codes: np.ndarray
    cost: np.ndarray
    number: np.ndarray
    ends: np.ndarray
    z: np.ndarray
    distance: np.ndarray
    place: np.ndarray
    lot: np.ndarray
    drawn: np.ndarray

    @property
    def near(self) -> np.ndarray:
        """bool, (n_rows,): rows that at least one model keeps."""
        return np.asarray((self.place == KEPT).any(axis=1))

    def split(self) -> list[KeptRows]:
        """Two parts: rows that some model keeps, and rows that are there only for the sample.

        So a problem on the kept rows need not copy them.
        """
        near = self.near
        kinds = [mask for mask in (near, self.drawn & ~near) if mask.any()]
        return [self if mask.all() else self.picked(np.flatnonzero(mask)) for mask in kinds]

    def picked(self, rows: np.ndarray) -> KeptRows:
        """Copies of some of the rows."""
        arrays = (array[:, rows] if array is self.ends else array[rows] for array in self[1:])
        return KeptRows(picked_held(self.X, rows), *arrays)


def merged(parts: list[KeptRows]) -> list[KeptRows]:
    """At most two parts with the same rows, the kept ones and the others.  Coded rows are not merged."""
    found = []
    for near in (True, False):
        some = [part for part in parts if part.near[0] == near]
        plain = [part.X for part in some if not isinstance(part.X, CodedRows)]
        if len(some) > 1 and len(plain) == len(some):
            columns = zip(*(part[1:] for part in some), strict=True)
            arrays = [np.concatenate(column, axis=1 if column[0].ndim == 3 else 0) for column in columns]
            found.append(KeptRows(stacked(plain), *arrays))
        else:
            found += some
    return found


def gathered(parts: list[KeptRows]) -> list[KeptRows]:
    """The same rows in fewer parts, of at least `_TOGETHER` bytes; `parts` is emptied, to save memory.

    Every loop over parts makes a call for each, and a call takes longer than a few rows.
    """
    found: list[KeptRows] = []
    some: list[KeptRows] = []
    nbytes = 0
    while parts:
        part = parts.pop(0)
        if bytes_held(part.X) >= _TOGETHER:
            found.append(part)
            continue
        some.append(part)
        nbytes += bytes_held(part.X)
        if nbytes >= _TOGETHER:
            found += merged(some)
            some, nbytes = [], 0
    return found + merged(some)


class Bands(NamedTuple):
    """The rule by which rows are kept: distance at most `inside` if z > 0, else at most `outside`.

    inside, outside : float64, (n_models,)
    ahead : float64, (n_models,)   the expected step length: z = s - ahead p
    reach : float64, (n_models,)   a multiple of the mean distance that a step moves rows
    share : float   part of all rows in the sample;  key : (seed, pass) of the random numbers
    """

    inside: np.ndarray
    outside: np.ndarray
    ahead: np.ndarray
    reach: np.ndarray
    share: float
    key: tuple[int, int]

    def lots(self, start: int, n_rows: int) -> np.ndarray:
        """Random numbers in [0, 1) for rows [start, start + n_rows), a function of key and row number."""
        lot = np.empty(n_rows)
        draw(start, *self.key, lot)
        return lot

    def place(
        self, s: np.ndarray, p: np.ndarray, cost: np.ndarray, lot: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(z, distance, place) of rows, each (n_rows, n_models).

        s, p : float64, (n_rows, n_models)   slacks, and their decrease by a whole step;  cost, lot : (n_rows,)
        """
        z = s - self.ahead * p
        distance = np.abs(z) * np.where((s > 0.0) != (s - p > 0.0), _CROSSED, 1.0) / (np.abs(p) + self.reach)
        distance += _TIE * (distance + _TIE) * lot[:, None]
        inside = z > 0.0
        place = np.where(distance <= np.where(inside, self.inside, self.outside), KEPT, np.where(inside, FOLDED, OUT))
        place[cost <= 0.0] = OUT
        return z, distance, place.astype(np.uint8)


@dataclass
class Fold:
    """Sums over the rows that are not kept, whose alpha is fixed.

    For the hinge loss alpha is C if the row is expected to violate, else 0.  For the squared hinge alpha depends on the
    step length, which is known only after the pass.  Two sums are kept, with alpha by the slacks before the step and
    after a whole step; the sum for any step length between is a mixture of them, and needs no further reading.

    leans : sums of alpha_i y_i x_i, float64, (n_features + 1,) or (n_features + 1, n_models); one for the hinge loss,
        two for the squared hinge
    F : curvature of the folded rows, a triangle (`compiled/linear/hessian.py`) for each model; None for the hinge
    """

    leans: list[np.ndarray]
    F: np.ndarray | None

    @classmethod
    def empty(cls, problem: Problem, shape: tuple[int, ...]) -> Fold:
        """The sums over no rows.  shape : that of w"""
        if not problem.loss.smooth:
            return cls([np.zeros(shape)], None)
        return cls([np.zeros(shape), np.zeros(shape)], np.zeros((problem.n_models, triangle_size(shape[0]))))

    def merge(self, other: Fold) -> None:
        """Add the sums of other rows."""
        for mine, others in zip(self.leans, other.leans, strict=True):
            mine += others
        if self.F is not None and other.F is not None:
            self.F += other.F

    def add(
        self, problem: Problem, X: Matrix, codes: np.ndarray, cost: np.ndarray, ends: np.ndarray, z: np.ndarray,
        mask: np.ndarray,
    ) -> None:  # fmt: skip
        """Add rows.  mask : bool, (n_rows, n_models), rows to add to each model;  ends, z : as in `KeptRows`"""
        if not mask.any():
            return
        C, bias = cost[:, None] * problem.C, problem.constant_feature
        for lean, alpha in zip(self.leans, frozen_alpha(problem, ends, z, C), strict=True):
            add_rows(X, codes, problem.positive, np.where(mask, alpha, 0.0), bias, lean)
        if self.F is not None:
            curvature = np.where(mask, problem.loss.curvature(z, C), 0.0)
            for m in range(problem.n_models):
                add_hessian(X, np.ascontiguousarray(curvature[:, m]), bias, self.F[m])


def ends_of(problem: Problem, s: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Slacks before a step and after a whole step, (2, n_rows, n_models); (0, ...) for the hinge, which needs none."""
    return np.stack([s, s - p]) if problem.loss.smooth else np.empty((0, *s.shape))


def frozen_alpha(problem: Problem, ends: np.ndarray, z: np.ndarray, C: np.ndarray) -> list[np.ndarray]:
    """The fixed alpha of folded rows: one array for the hinge; for the squared hinge before and after a whole step.

    ends : float64, (2, n_rows, n_models);  z, C : float64, (n_rows, n_models)
    For rows that cross their hyperplane within the step both arrays have the alpha of the expected slack.
    """
    if not problem.loss.smooth:
        return [problem.loss.alpha(z, C)]
    through = (ends > 0.0).all(axis=0)
    return [problem.loss.alpha(np.where(through, end, z), C) for end in ends]


@dataclass
class WorkingSet:
    """The rows kept so far in a pass, and the sums over the others.

    capacity : limit of the rows that are kept because they are near;  seen : rows of the pass so far
    sides : int64, (2, n_models)   how many of these are outside, and inside, the margin
    wider : factor on the number of rows outside that are kept, larger after these were not enough
    together : merge small parts of rows that are not coded
    """

    problem: Problem
    n_samples: int
    capacity: int
    bands: Bands
    fold: Fold
    parts: list[KeptRows] = field(default_factory=list)
    seen: int = 0
    sides: np.ndarray = field(default_factory=lambda: np.zeros((2, 1), np.int64))
    wider: float = 1.0
    together: bool = False

    def _gather(self) -> None:
        if self.together:
            self.parts = gathered(self.parts)

    @property
    def entry_bytes(self) -> float:
        """Mean bytes of the entries of a row, as it is held; 0 if no row is."""
        rows = sum(len(part.number) for part in self.parts)
        return sum(bytes_held(part.X) for part in self.parts) / max(rows, 1)

    @property
    def held(self) -> int:
        """Number of rows that are kept because they are near."""
        return sum(int(np.count_nonzero(part.near)) for part in self.parts)

    def take(self, parts: list[KeptRows], seen: int, sides: np.ndarray, fold: Fold) -> None:
        """Add the rows that a task kept, and its sums."""
        self.parts += parts
        self.seen += seen
        self.sides = self.sides + sides
        self.fold.merge(fold)

    def cut(self, last: bool = False) -> list[tuple[np.ndarray, np.ndarray]]:
        """Drop the farthest rows if there are too many.

        last : the pass is over; if not, some capacity is left free for further rows

        Returns (numbers of rows, their new places) for each part from which rows were dropped.
        """
        changed: list[tuple[np.ndarray, np.ndarray]] = []
        self._gather()
        most = self.capacity if last else _CUT_TO * self.capacity
        if self.held <= self.capacity and np.all(self._held_outside() <= _CUT_FROM * self._shares(most)[1]):
            return changed
        self.bands.inside[:], self.bands.outside[:] = self._narrower(most)
        kept, parts = [], self.parts
        while parts:
            part = parts.pop(0)  # frees the old part before the next one is copied
            within = part.distance <= np.where(part.z > 0.0, self.bands.inside, self.bands.outside)
            gone = (part.place == KEPT) & ~within
            if not gone.any():
                kept.append(part)
                continue
            for some, X in pieces(part.X):
                self.fold.add(
                    self.problem, X, part.codes[some], part.cost[some], part.ends[:, some], part.z[some], gone[some]
                )
            part.place[gone] = np.where(part.z[gone] > 0.0, FOLDED, OUT)
            changed.append((part.number, part.place))
            kept += part.split()
        self.parts = kept
        if last:
            self._gather()
        trim_heap()  # return the memory of dropped rows, which lies between rows that stay
        return changed

    def _narrower(self, most: float) -> tuple[np.ndarray, np.ndarray]:
        """(inside, outside) such that at most `most` rows are kept, with equal capacities for all models.

        A row that several models keep counts once, and models that differ only in C share most of their rows.  So the
        capacity of each is found by bisection.
        """
        n_models = self.problem.n_models
        distances = [[self._distances(m, side) for m in range(n_models)] for side in (True, False)]
        bands = self._holding(most, distances)
        if n_models == 1 or self._within(*bands) <= most:
            return bands
        fits, least, largest = self._holding(most / n_models, distances), 1.0 / n_models, 1.0
        for _ in range(_HALVINGS):
            share = 0.5 * (least + largest)
            bands = self._holding(share * most, distances)
            if self._within(*bands) <= most:
                fits, least = bands, share
            else:
                largest = share
        return fits

    def _holding(self, capacity: float, distances: list[list[np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
        """(inside, outside) such that each model keeps at most `capacity` rows; never wider than now.

        distances : for the two sides and each model, distances of its kept rows, ascending
        """
        narrowed = []
        for some, bands, most in zip(
            distances, (self.bands.inside, self.bands.outside), self._shares(capacity), strict=True
        ):
            narrowed.append(np.array([_nearest(some[m], int(n), float(bands[m])) for m, n in enumerate(most)]))
        return narrowed[0], narrowed[1]

    def _within(self, inside: np.ndarray, outside: np.ndarray) -> int:
        """Number of rows that at least one model keeps within these bands."""
        total = 0
        for part in self.parts:
            kept = (part.place == KEPT) & (part.distance <= np.where(part.z > 0.0, inside, outside))
            total += int(np.count_nonzero(kept.any(axis=1)))
        return total

    def _shares(self, capacity: float) -> tuple[np.ndarray, np.ndarray]:
        """(inside, outside): how many rows of each side each model keeps within `capacity`, so far in the pass."""
        outside, inside = self.sides
        come = self.seen / self.n_samples
        fit = inside <= _ALL_INSIDE * capacity * come
        wanted_inside = np.where(fit, inside / come, np.maximum(_HALF * capacity, capacity - outside / come))
        wanted_outside = np.minimum(capacity - np.minimum(wanted_inside, inside / come), outside / come)
        scale = capacity / np.maximum(wanted_inside + wanted_outside, 1.0)  # more capacity than rows of the pass as yet
        enough = np.maximum(_OUTSIDE * inside / come, _PER_FEATURE * len(self.fold.leans[0]))
        return wanted_inside * scale, np.minimum(wanted_outside * scale, self.wider * enough)

    def _held_outside(self) -> np.ndarray:
        total = np.zeros(self.problem.n_models, np.int64)
        for part in self.parts:
            total += ((part.place == KEPT) & (part.z <= 0.0)).sum(axis=0)
        return total

    def _distances(self, m: int, inside: bool) -> np.ndarray:
        """Distances of the rows of one side that model m keeps, ascending."""
        found = [part.distance[(part.place[:, m] == KEPT) & ((part.z[:, m] > 0.0) == inside), m] for part in self.parts]
        return np.sort(np.concatenate(found)) if found else np.zeros(0)


def _nearest(distances: np.ndarray, n: int, band: float) -> float:
    """The largest band, at most `band`, that holds at most n rows.  distances : ascending"""
    if len(distances) <= n:
        return band
    nearer = int(np.searchsorted(distances, distances[n]))
    return min(float(distances[nearer - 1]) if nearer else -1.0, band)


def shares_of_capacity(capacity: int, n_samples: int) -> tuple[int, float]:
    """(rows to keep because they are near, part of all rows to sample) for a capacity."""
    near = max(int((1.0 - _SAMPLED) * capacity), 1)
    return (capacity, 0.0) if capacity >= n_samples else (near, (capacity - near) / n_samples)
