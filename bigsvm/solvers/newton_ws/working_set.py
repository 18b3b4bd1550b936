"""The working set: the rows that a pass keeps in memory, which are those nearest to their hyperplanes, as many as fit.

Rows inside the margin come first: if three quarters of the capacity hold all of them, they are all kept, and the
nearest rows outside take the rest, up to the number beyond which more would be of no use.  Otherwise each side gets
half of the capacity for its nearest rows.  The distance of a row is measured in units of how far the step moves it, and
is reduced to `_CROSSED` of that for rows that cross their hyperplane within the step.  Rows that are not kept are
folded into one vector (`subproblem`).

A tenth of the capacity is for a random sample of all rows.  A row of the sample that is not near (a *far* row) stands
for many far rows.  If a solution makes it cross its hyperplane, it pays for as many rows as it stands for; the folded
vector alone is linear in w, and would let w run away.
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

OUT, FOLDED, KEPT = 0, 1, 2  # values of `place`: alpha = 0, alpha fixed, alpha to be solved for
_ALL_INSIDE = 0.75  # share of the capacity within which all rows inside the margin are kept
_HALF = 0.5  # share of the capacity for the rows inside the margin if they are more
_CROSSED = 0.3  # factor on the distance of rows that cross their hyperplane within the step
_CUT_TO = 0.9  # share of the capacity to which rows are cut while more are to come
_SAMPLED = 0.1  # share of the capacity for the random sample
_OUTSIDE, _PER_FEATURE = 4.0, 8.0  # most rows outside for each row inside, or each feature if that is more
_CUT_FROM = 1.25  # multiple of the rows wanted outside from which they are cut
_HALVINGS = 6  # bisection steps to find how many rows each of several models may keep
_TOGETHER = 1 << 20  # bytes of rows in a part, from which the cost of a call does not matter
_TIE = 1e-9  # relative differences drawn for rows at the same distance, so that cuts can be made among them


class KeptRows(NamedTuple):
    """A part: some of the rows that were kept, in the order of their numbers.

    X : the rows, coded or not;  codes : int32, (n_rows,), classes;  cost : float64, (n_rows,), weights
    number : int64, (n_rows,)   which rows these are
    ends : float64, (2, n_rows, n_models)   slacks before the step and after a whole step; (0, ...) for the hinge loss
    z : float64, (n_rows, n_models)   slack expected after the step
    distance : float64, (n_rows, n_models)   distance from the hyperplane, by which rows are chosen
    place : uint8, (n_rows, n_models)   KEPT, FOLDED or OUT
    lot : float64, (n_rows,), in [0, 1);  drawn : bool, (n_rows,)   whether the row belongs to the random sample
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
        """bool, (n_rows,): the rows that at least one model keeps."""
        return np.asarray((self.place == KEPT).any(axis=1))

    def split(self) -> list[KeptRows]:
        """Near rows and far rows of the sample as separate parts, so that a problem on the near rows need not copy."""
        near = self.near
        kinds = [mask for mask in (near, self.drawn & ~near) if mask.any()]
        return [self if mask.all() else self.picked(np.flatnonzero(mask)) for mask in kinds]

    def picked(self, rows: np.ndarray) -> KeptRows:
        """Copies of some of the rows."""
        arrays = (array[:, rows] if array is self.ends else array[rows] for array in self[1:])
        return KeptRows(picked_held(self.X, rows), *arrays)


def merged(parts: list[KeptRows]) -> list[KeptRows]:
    """Join the parts into at most two, of near rows and of far rows.  Parts that are coded already are not joined."""
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
    """Join small parts into parts of about `_TOGETHER` bytes, since the work on a few rows costs less than the call.

    `parts` is emptied on the way, so that rows are not held twice.
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
    """The rule by which rows are kept: the distance is at most `inside` if z > 0, and at most `outside` otherwise.

    inside, outside : float64, (n_models,)   largest distances of rows inside and outside the margin
    ahead : float64, (n_models,)   length of the step that is expected: z = s - ahead p
    reach : float64, (n_models,)   mean of |p|, which is added to |p| in the unit of distances
    share : float   share of all rows that the random sample takes;  key : (seed, pass)   seed of the sample
    """

    inside: np.ndarray
    outside: np.ndarray
    ahead: np.ndarray
    reach: np.ndarray
    share: float
    key: tuple[int, int]

    def lots(self, start: int, n_rows: int) -> np.ndarray:
        """A random number in [0, 1) for each row from `start` on; a function of seed, pass and row."""
        lot = np.empty(n_rows)
        draw(start, *self.key, lot)
        return lot

    def place(
        self, s: np.ndarray, p: np.ndarray, cost: np.ndarray, lot: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(z, distance, place) of rows, each (n_rows, n_models), from s and p of that shape, cost and lot (n_rows,)."""
        z = s - self.ahead * p
        distance = np.abs(z) * np.where((s > 0.0) != (s - p > 0.0), _CROSSED, 1.0) / (np.abs(p) + self.reach)
        distance += _TIE * (distance + _TIE) * lot[:, None]
        inside = z > 0.0
        place = np.where(distance <= np.where(inside, self.inside, self.outside), KEPT, np.where(inside, FOLDED, OUT))
        place[cost <= 0.0] = OUT
        return z, distance, place.astype(np.uint8)


@dataclass
class Fold:
    """Sums over the rows that are not kept, with their dual variables fixed.

    For the hinge loss alpha is C if the row is expected to violate the margin, and 0 otherwise.  For the squared hinge
    alpha is linear in the slack, so two sums are kept: with the slacks before the step, and with those after a whole
    step.  Once the length of the step is known, their mixture is the right sum, and no row is read again.

    leans : list of one or two arrays, float64, (n_features + 1,) or (n_features + 1, n_models): sum alpha y [x, bias]
    F : float64, a triangle (`compiled/linear/hessian.py`) for each model, or None for the hinge loss
    """

    leans: list[np.ndarray]
    F: np.ndarray | None

    @classmethod
    def empty(cls, problem: Problem, shape: tuple[int, ...]) -> Fold:
        """The sums over no rows."""
        if not problem.loss.smooth:
            return cls([np.zeros(shape)], None)
        return cls([np.zeros(shape), np.zeros(shape)], np.zeros((problem.n_models, triangle_size(shape[0]))))

    def merge(self, other: Fold) -> None:
        """Add the sums over other rows."""
        for mine, others in zip(self.leans, other.leans, strict=True):
            mine += others
        if self.F is not None and other.F is not None:
            self.F += other.F

    def add(
        self, problem: Problem, X: Matrix, codes: np.ndarray, cost: np.ndarray, ends: np.ndarray, z: np.ndarray,
        mask: np.ndarray,
    ) -> None:  # fmt: skip
        """Add the rows of `mask`, bool, (n_rows, n_models).  `ends` and z are those of `KeptRows`."""
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
    """Slacks before the step and after a whole step, (2, n_rows, n_models); (0, ...) for a loss that needs none."""
    return np.stack([s, s - p]) if problem.loss.smooth else np.empty((0, *s.shape))


def frozen_alpha(problem: Problem, ends: np.ndarray, z: np.ndarray, C: np.ndarray) -> list[np.ndarray]:
    """The dual variables of folded rows: one array for the hinge loss; for a smooth loss one for each end of the step.

    ends : float64, (2, n_rows, n_models)   slacks before the step and after a whole step
    z, C : float64, (n_rows, n_models)      expected slacks, and costs

    For a row that crosses its hyperplane within the step alpha is not linear in between, so both arrays have the alpha
    of its expected slack.
    """
    if not problem.loss.smooth:
        return [problem.loss.alpha(z, C)]
    through = (ends > 0.0).all(axis=0)
    return [problem.loss.alpha(np.where(through, end, z), C) for end in ends]


@dataclass
class WorkingSet:
    """The rows kept so far in a pass, and the sums over those folded.

    capacity : int   most near rows;  seen : int   rows of the pass that were read so far
    sides : int64, (2, n_models)   how many of the rows read lie outside and inside the margin
    wider : float   factor on the useful number of rows outside, raised after the usual number was not enough
    together : bool   join small parts; rows that are coded are not joined
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

    def gather(self) -> None:
        """Join small parts, if they may be joined."""
        if self.together:
            self.parts = gathered(self.parts)

    @property
    def entry_bytes(self) -> float:
        """Mean bytes of the entries of a row that is held; 0 if none is."""
        rows = sum(len(part.number) for part in self.parts)
        return sum(bytes_held(part.X) for part in self.parts) / max(rows, 1)

    @property
    def held(self) -> int:
        """The number of near rows that are held."""
        return sum(int(np.count_nonzero(part.near)) for part in self.parts)

    def take(self, parts: list[KeptRows], seen: int, sides: np.ndarray, fold: Fold) -> None:
        """Add what a task found: the rows kept, how many it read, on which side they lie, and the sums of the fold."""
        self.parts += parts
        self.seen += seen
        self.sides = self.sides + sides
        self.fold.merge(fold)

    def cut(self, last: bool = False) -> list[tuple[np.ndarray, np.ndarray]]:
        """Fold the farthest rows if there are too many; return (numbers, places) of the parts that have changed.

        last : bool   all rows have been read; otherwise some capacity is kept free for the rows to come
        """
        changed: list[tuple[np.ndarray, np.ndarray]] = []
        self.gather()
        most = self.capacity if last else _CUT_TO * self.capacity
        if self.held <= self.capacity and np.all(self._held_outside() <= _CUT_FROM * self._shares(most)[1]):
            return changed
        self.bands.inside[:], self.bands.outside[:] = self._narrower(most)
        kept, parts = [], self.parts
        while parts:
            part = parts.pop(0)  # released as soon as its rows are copied, so that rows are not held twice
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
            self.gather()
        trim_heap()  # rows that were released lie between rows that stay
        return changed

    def _narrower(self, most: float) -> tuple[np.ndarray, np.ndarray]:
        """The widest bands (inside, outside) that hold at most `most` rows, with the same share for each model.

        A row that several models keep counts once, and models of one class at several C share most of their rows.  So
        the share of a model may exceed most / n_models, and is found by bisection.
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
        """Bands (inside, outside), no wider than the present ones, in which each model keeps `capacity` rows.

        distances : for the rows inside, then outside: for each model the distances of its rows, ascending
        """
        narrowed = []
        for some, bands, most in zip(
            distances, (self.bands.inside, self.bands.outside), self._shares(capacity), strict=True
        ):
            narrowed.append(np.array([_nearest(some[m], int(n), float(bands[m])) for m, n in enumerate(most)]))
        return narrowed[0], narrowed[1]

    def _within(self, inside: np.ndarray, outside: np.ndarray) -> int:
        """The number of rows that at least one model would keep with these bands."""
        total = 0
        for part in self.parts:
            kept = (part.place == KEPT) & (part.distance <= np.where(part.z > 0.0, inside, outside))
            total += int(np.count_nonzero(kept.any(axis=1)))
        return total

    def _shares(self, capacity: float) -> tuple[np.ndarray, np.ndarray]:
        """How many rows each model may keep (inside, outside), projected from the rows read to the whole pass."""
        outside, inside = self.sides
        come = self.seen / self.n_samples
        fit = inside <= _ALL_INSIDE * capacity * come
        wanted_inside = np.where(fit, inside / come, np.maximum(_HALF * capacity, capacity - outside / come))
        wanted_outside = np.minimum(capacity - np.minimum(wanted_inside, inside / come), outside / come)
        scale = capacity / np.maximum(wanted_inside + wanted_outside, 1.0)  # above 1 if all rows are fewer
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
    """The largest band, at most `band`, that holds no more than n rows; `distances` ascend."""
    if len(distances) <= n:
        return band
    nearer = int(np.searchsorted(distances, distances[n]))
    return min(float(distances[nearer - 1]) if nearer else -1.0, band)


def shares_of_capacity(capacity: int, n_samples: int) -> tuple[int, float]:
    """How many near rows a working set of `capacity` rows keeps, and which share of all rows its sample takes."""
    near = max(int((1.0 - _SAMPLED) * capacity), 1)
    return (capacity, 0.0) if capacity >= n_samples else (near, (capacity - near) / n_samples)
