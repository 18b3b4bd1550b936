"""The rows that are kept in memory out of a pass: those around their hyperplanes, as many as fit.

Rows inside the margin are wanted most, all of them if three quarters of the capacity hold them; what is left takes the
nearest outside, as far as they are of use.  Where they do not fit, half of the capacity takes the nearest of each side.
Near is measured by how far the step moves a row, and one that crosses its hyperplane within the step counts as three
times nearer.  Rows that are not kept are folded into one vector (`subproblem`).

A part of the capacity is for a random sample of all rows.  Far rows of the sample stand for all that are far: should a
solution make one of them cross its hyperplane, it pays for as many rows as it stands for, where one vector alone
would let w run away.
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

OUT, FOLDED, KEPT = 0, 1, 2  # places of a row
_ALL_INSIDE = 0.75  # of the capacity
_HALF = 0.5
_CROSSED = 0.3
_CUT_TO = 0.9  # of the capacity, while more rows come
_SAMPLED = 0.1  # of the capacity
_OUTSIDE, _PER_FEATURE = 4.0, 8.0  # rows outside the margin for each inside, or each feature: more would only cost
_CUT_FROM = 1.25  # times what is enough
_HALVINGS = 6  # to find what each of several models may keep
_TOGETHER = 1 << 20  # bytes of a part's rows, from which calls cost nothing beside them
_TIE = 1e-9  # by which rows at one distance differ


class KeptRows(NamedTuple):
    """Some rows that were kept, in their order.

    X : as they are held;  codes : int32, (n_rows,);  cost : float64, (n_rows,);  number : int64, (n_rows,), of the rows
    ends : float64, (2, n_rows, n_models)   slacks before the step and after a whole one; (0, ...) for the hinge
    z : float64, (n_rows, n_models)   the slack that is expected;  distance : likewise, for the choice
    place : uint8, (n_rows, n_models);  lot : float64, (n_rows,);  drawn : bool, (n_rows,), of the sample
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
        """Which rows some model keeps, bool, (n_rows,)."""
        return np.asarray((self.place == KEPT).any(axis=1))

    def split(self) -> list[KeptRows]:
        """The rows that some model keeps, and those of the sample that none does: apart, so that a problem on the
        first ones need not copy them."""
        near = self.near
        kinds = [mask for mask in (near, self.drawn & ~near) if mask.any()]
        return [self if mask.all() else self.picked(np.flatnonzero(mask)) for mask in kinds]

    def picked(self, rows: np.ndarray) -> KeptRows:
        """Copies of some of the rows."""
        arrays = (array[:, rows] if array is self.ends else array[rows] for array in self[1:])
        return KeptRows(picked_held(self.X, rows), *arrays)


def merged(parts: list[KeptRows]) -> list[KeptRows]:
    """The rows as two parts at most: near ones, and others.  Rows that are coded already stay apart."""
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
    """The rows in fewer parts, each of `_TOGETHER` bytes or little more; `parts` is emptied on the way.

    Whatever works on a part pays for the call, which is more than a few rows cost.
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
    """Which rows are kept: distance at most `inside` where z > 0, at most `outside` elsewhere.

    inside, outside : float64, (n_models,)
    ahead : float64, (n_models,)   the step that is expected, for z = s - ahead p
    reach : float64, (n_models,)   how far a step moves rows in the mean, times some
    share : float   of all rows in the sample;  key : (seed, pass), for who is drawn
    """

    inside: np.ndarray
    outside: np.ndarray
    ahead: np.ndarray
    reach: np.ndarray
    share: float
    key: tuple[int, int]

    def lots(self, start: int, n_rows: int) -> np.ndarray:
        """A random number in [0, 1) for each row from `start` on: the same wherever it is asked for."""
        lot = np.empty(n_rows)
        draw(start, *self.key, lot)
        return lot

    def place(
        self, s: np.ndarray, p: np.ndarray, cost: np.ndarray, lot: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(z, distance, place) of rows, each (n_rows, n_models); s, p likewise, cost and lot (n_rows,)."""
        z = s - self.ahead * p
        distance = np.abs(z) * np.where((s > 0.0) != (s - p > 0.0), _CROSSED, 1.0) / (np.abs(p) + self.reach)
        distance += _TIE * (distance + _TIE) * lot[:, None]
        inside = z > 0.0
        place = np.where(distance <= np.where(inside, self.inside, self.outside), KEPT, np.where(inside, FOLDED, OUT))
        place[cost <= 0.0] = OUT
        return z, distance, place.astype(np.uint8)


@dataclass
class Fold:
    """Sums over rows that are not kept.

    The dual variables of these rows are frozen: at C where they are expected to violate, for the hinge loss.  For the
    squared hinge they are what the slacks give before the step, and after a whole one: in between, once the step is
    known, a mixture of both is what they should be, and its sum is known without another reading.

    leans : float64, (n_features + 1,) or (n_features + 1, n_models) each   the sums, before and after
    F : float64, a triangle (`compiled/linear/hessian.py`) for each model, or None
    """

    leans: list[np.ndarray]
    F: np.ndarray | None

    @classmethod
    def empty(cls, problem: Problem, shape: tuple[int, ...]) -> Fold:
        """Of no rows; F where the loss is not linear there."""
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
        """Add the rows of `mask`, bool, (n_rows, n_models); `ends` and z as of a part."""
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
    """Slacks before a step and after a whole one, (2, n_rows, n_models), where `frozen_alpha` asks for them."""
    return np.stack([s, s - p]) if problem.loss.smooth else np.empty((0, *s.shape))


def frozen_alpha(problem: Problem, ends: np.ndarray, z: np.ndarray, C: np.ndarray) -> list[np.ndarray]:
    """The dual variables of rows that are folded: one for all of the step, or those before it and after.

    ends : float64, (2, n_rows, n_models);  z, C : float64, (n_rows, n_models)
    A row that crosses its hyperplane within the step has what its expected slack says at either end.
    """
    if not problem.loss.smooth:
        return [problem.loss.alpha(z, C)]
    through = (ends > 0.0).all(axis=0)
    return [problem.loss.alpha(np.where(through, end, z), C) for end in ends]


@dataclass
class WorkingSet:
    """Rows kept so far in a pass, and what was folded.

    capacity : rows that are kept for being near;  seen : rows of the pass that have come
    sides : int64, (2, n_models)   of them outside and inside the margin
    wider : times as many rows outside as usual, where those were not enough
    together : rows are put together in fewer parts, where they are not coded
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
        """What the entries of a row take that is held, in the mean; 0 where none is."""
        rows = sum(len(part.number) for part in self.parts)
        return sum(bytes_held(part.X) for part in self.parts) / max(rows, 1)

    @property
    def held(self) -> int:
        """Rows that are kept for being near."""
        return sum(int(np.count_nonzero(part.near)) for part in self.parts)

    def take(self, parts: list[KeptRows], seen: int, sides: np.ndarray, fold: Fold) -> None:
        """The rows that a task kept, and what it folded."""
        self.parts += parts
        self.seen += seen
        self.sides = self.sides + sides
        self.fold.merge(fold)

    def cut(self, last: bool = False) -> list[tuple[np.ndarray, np.ndarray]]:
        """Let the farthest rows go where there are too many; numbers and new places of rows among which some went.

        last : all rows have come, else some capacity is left for more
        """
        changed: list[tuple[np.ndarray, np.ndarray]] = []
        self._gather()
        most = self.capacity if last else _CUT_TO * self.capacity
        if self.held <= self.capacity and np.all(self._held_outside() <= _CUT_FROM * self._shares(most)[1]):
            return changed
        self.bands.inside[:], self.bands.outside[:] = self._narrower(most)
        kept, parts = [], self.parts
        while parts:
            part = parts.pop(0)  # else all of them would be there twice
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
        trim_heap()  # holes of rows that went, between rows that stay
        return changed

    def _narrower(self, most: float) -> tuple[np.ndarray, np.ndarray]:
        """Bands, inside and outside, that hold at most so many rows; as many for each model as that allows.

        A row that several models keep is there once: models of one class at several C share most of their rows.
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
        """Bands, inside and outside, in which each model holds so many rows; no wider than they are.

        distances : of the rows inside and outside that each model keeps, ascending
        """
        narrowed = []
        for some, bands, most in zip(
            distances, (self.bands.inside, self.bands.outside), self._shares(capacity), strict=True
        ):
            narrowed.append(np.array([_nearest(some[m], int(n), float(bands[m])) for m, n in enumerate(most)]))
        return narrowed[0], narrowed[1]

    def _within(self, inside: np.ndarray, outside: np.ndarray) -> int:
        """Rows that some model keeps in such bands."""
        total = 0
        for part in self.parts:
            kept = (part.place == KEPT) & (part.distance <= np.where(part.z > 0.0, inside, outside))
            total += int(np.count_nonzero(kept.any(axis=1)))
        return total

    def _shares(self, capacity: float) -> tuple[np.ndarray, np.ndarray]:
        """How many rows of either side each model keeps in such a capacity, of those that have come."""
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
        """Of the rows of one side that model m keeps, ascending."""
        found = [part.distance[(part.place[:, m] == KEPT) & ((part.z[:, m] > 0.0) == inside), m] for part in self.parts]
        return np.sort(np.concatenate(found)) if found else np.zeros(0)


def _nearest(distances: np.ndarray, n: int, band: float) -> float:
    """The distance of the row number n of one side, no more than `band`; `distances` ascend."""
    if len(distances) <= n:
        return band
    nearer = int(np.searchsorted(distances, distances[n]))
    return min(float(distances[nearer - 1]) if nearer else -1.0, band)


def shares_of_capacity(capacity: int, n_samples: int) -> tuple[int, float]:
    """How many rows are kept for being near, and which part of all rows is sampled."""
    near = max(int((1.0 - _SAMPLED) * capacity), 1)
    return (capacity, 0.0) if capacity >= n_samples else (near, (capacity - near) / n_samples)
