"""The rows nearest to their hyperplane, equal rows as one.

Data may hold one row a hundred thousand times; all its copies reach their hyperplane together, and only as one do
they fit among the few hundred rows that a small problem can take.  Copies are told by a hash of the row's content.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import DataShape, Need
from bigsvm.solvers.context import Context
from bigsvm.solvers.gathered import Gathered
from bigsvm.solvers.hyperpass.bins import foresee_signs, foreseen
from bigsvm.solvers.hyperpass.read_again import read_again
from bigsvm.solvers.primal.dual_point import Mixing
from bigsvm.solvers.primal.row_pass import BinnedSums, Reads, row_pass
from bigsvm.solvers.primal.row_state import RowState
from bigsvm.solvers.selection import smallest
from bigsvm.store.state.vectors import RowVector

_LABEL = np.uint64(0x9E3779B97F4A7C15)
_HELD = 1e-9  # products that differ less from what they are in exact arithmetic are set to it
_ROUNDED = 1e-6  # slacks computed anew of rows on their hyperplane are below this


@dataclass
class NearRows:
    """For each model some rows, each standing for all its copies with the same class; unused places at the end.

    rows : int64, (n_models, most)    number of the first copy, ascending, then -1
    key : uint64, (n_models, most)    of its content and class
    count : int64, (n_models, most)   copies
    cost : float64, (n_models, most)  sum of the copies' costs, without C
    share : float64, (n_models, most) sum of their alpha
    on_plane : bool, (n_models, most) s_i = 0 exactly, by identity
    reach : float64, (n_models,)      no row that was taken in is farther away
    """

    rows: np.ndarray
    key: np.ndarray
    count: np.ndarray
    cost: np.ndarray
    share: np.ndarray
    on_plane: np.ndarray
    reach: np.ndarray

    def of(self, m: int) -> np.ndarray:
        """Numbers of the first copies, for model m."""
        return self.rows[m, : np.count_nonzero(self.rows[m] >= 0)]

    def places(self, m: int, keys: np.ndarray) -> np.ndarray:
        """Where rows with `keys` stand for model m; -1 for rows that are not there."""
        q = len(self.of(m))
        if q == 0:
            return np.full(len(keys), -1)
        order = np.argsort(self.key[m, :q])
        at = np.minimum(np.searchsorted(self.key[m, :q], keys, sorter=order), q - 1)
        found = order[at]
        return np.where(self.key[m, found] == keys, found, -1)


def near_needs(shape: DataShape, most: int) -> list[Need]:
    """Bytes of the rows taken in, of the copies that put them together, and of the small problem."""
    q = min(most, shape.n_samples)
    entries = min(shape.n_features, 4 * shape.nnz // max(shape.n_samples, 1) + 64)  # of a row, at the most
    return [
        Need("rows near their hyperplane", 3 * q * shape.n_models * 12 * entries),
        Need("Gram matrix", 4 * 8 * q * q),
    ]


def no_near_rows(n_models: int, most: int) -> NearRows:
    """None yet."""
    shape = (n_models, most)
    return NearRows(
        rows=np.full(shape, -1, np.int64),
        key=np.zeros(shape, np.uint64),
        count=np.zeros(shape, np.int64),
        cost=np.zeros(shape),
        share=np.zeros(shape),
        on_plane=np.zeros(shape, bool),
        reach=np.zeros(n_models),
    )


class Nearest:
    """Collects the `most` rows of one model that are nearest, and no farther than `limit`; equal rows count as one.

    rows, key, count, cost : as in NearRows, without unused places;  distance : float64, |s|
    """

    def __init__(self, most: int, limit: float) -> None:
        self._most, self.limit = most, limit
        self.rows: np.ndarray = np.zeros(0, np.int64)
        self.key: np.ndarray = np.zeros(0, np.uint64)
        self.count: np.ndarray = np.zeros(0, np.int64)
        self.cost: np.ndarray = np.zeros(0)
        self.distance: np.ndarray = np.zeros(0)

    def add(
        self, rows: np.ndarray, key: np.ndarray, count: np.ndarray, cost: np.ndarray, distance: np.ndarray
    ) -> None:  # fmt: skip
        """More rows, whose numbers follow those of all before."""
        rows, key = np.concatenate([self.rows, rows]), np.concatenate([self.key, key])
        count, cost = np.concatenate([self.count, count]), np.concatenate([self.cost, cost])
        distance = np.concatenate([self.distance, distance])
        _, first, which = np.unique(key, return_index=True, return_inverse=True)
        order = np.argsort(first)  # first copies in ascending order
        counts = np.bincount(which, count, len(first)).astype(np.int64)[order]
        sums, first = np.bincount(which, cost, len(first))[order], first[order]
        if len(first) > self._most:
            kept = np.sort(smallest(distance[first], self._most))
            counts, sums, first = counts[kept], sums[kept], first[kept]
        self.rows, self.key, self.count, self.cost, self.distance = (
            rows[first],
            key[first],
            counts,
            sums,
            distance[first],
        )
        if len(first) == self._most:
            self.limit = float(self.distance.max())

    def put(self, found: NearRows, m: int) -> None:
        """Let them be the rows of model m, without shares."""
        q = len(self.rows)
        found.rows[m, :q], found.key[m, :q], found.count[m, :q] = self.rows, self.key, self.count
        found.cost[m, :q], found.reach[m] = self.cost, float(self.distance.max(initial=0.0))


@dataclass
class Neighbourhood:
    """NearRows beside the vectors that they are rows of.

    keys : uint64, (n_samples, 1)   of each row's content
    """

    problem: Problem
    rows: RowState
    keys: RowVector
    near: NearRows

    def key(self, where: slice | np.ndarray) -> np.ndarray:
        """Of content and class."""
        return self.keys.values[where, 0] + self.rows.y.values[where, 0].astype(np.uint64) * _LABEL

    def find(self, reach: float, among: np.ndarray | None = None) -> NearRows:
        """The rows of least |s| <= reach, as many as there is room for; of equal ones those that come first.

        among : uint8, (n_samples, n_models), flags of the rows that are to be looked at
        """
        found = no_near_rows(*self.near.rows.shape)
        for m in range(self.problem.n_models):
            self.nearest(m, reach, found.rows.shape[1], among).put(found, m)
        return found

    def nearest(self, m: int, reach: float, most: int, among: np.ndarray | None = None) -> Nearest:
        """Those of model m."""
        nearest = Nearest(most, reach)
        for piece in self.rows.pieces():
            away = np.abs(self.rows.s.values[piece, m])
            costs = self.rows.cost.values[piece, 0]
            if among is not None:
                costs = costs * among[piece, m]
            more = np.flatnonzero((away <= nearest.limit) & (costs > 0.0))
            if len(more):
                numbers = more + piece.start
                nearest.add(numbers, self.key(numbers), np.ones(len(more), np.int64), costs[more], away[more])
        return nearest

    def copies(self, m: int) -> tuple[np.ndarray, np.ndarray]:
        """Of each row of model m how many copies cost something, and the sum of their costs."""
        q = len(self.near.of(m))
        count, cost = np.zeros(q, np.int64), np.zeros(q)
        for piece in self.rows.pieces():
            rows, places = self.members(piece, m, self.near.reach[m])
            costs = self.rows.cost.values[piece.start + rows, 0]
            count += np.bincount(places[costs > 0.0], minlength=q)
            cost += np.bincount(places, costs, q)
        return count, cost

    def read(
        self, ctx: Context, shape: tuple[int, ...], found: NearRows, gather: Gathered, with_keys: bool
    ) -> np.ndarray:  # fmt: skip
        """V of all rows at their slacks, as `row_pass` gives it: one reading, which gathers the rows found.

        with_keys : it makes the rows' keys, too
        """
        keys = self.keys if with_keys else None
        return row_pass(ctx, self.problem, self.rows, shape, weights=self.problem.loss, gather=gather, keys=keys)[0]

    def measure(
        self, ctx: Reads, d: np.ndarray, w: np.ndarray | None, bins: BinnedSums | None = None
    ) -> None:  # fmt: skip
        """Products of all rows with d, and slacks anew where w is given: one reading."""
        row_pass(ctx, self.problem, self.rows, d.shape, w=w, d=d, bins=bins)
        if w is not None:
            self.hold()

    def foresee(self, binned: BinnedSums, lengths: np.ndarray, V: np.ndarray, signs: RowVector) -> None:
        """Move V over the whole bins of a step, and let `signs` say which rows violate if that is all."""
        foreseen(binned, lengths, V)
        foresee_signs(binned.bins, self.rows, lengths, signs)

    def read_again(
        self, ctx: Context, found: NearRows, gather: Gathered, V: np.ndarray, signs: RowVector
    ) -> tuple[np.ndarray, int] | None:
        """V put right after a step that was foreseen, and how many rows were read for it and for `gather`.

        None where all are to be read.
        """
        return read_again(ctx, self.problem, self.rows, signs, V, gather)

    def slacks(self, m: int) -> np.ndarray:
        """s of the rows of model m."""
        return self.rows.s.values[self.near.of(m), m]

    def codes(self, m: int) -> np.ndarray:
        """Class codes of the rows of model m."""
        return self.rows.y.values[self.near.of(m), 0]

    def mixing(self) -> Mixing | None:
        """What mixes dual points of these rows, where it is not `RowMixing`."""
        return None

    def crossings(self, lengths: np.ndarray) -> np.ndarray:
        """How many rows of each model cross their hyperplane on steps of `lengths` along p."""
        total = np.zeros(len(lengths), np.int64)
        for piece in self.rows.pieces():
            s = self.rows.s.values[piece]
            total += np.count_nonzero((s > 0.0) != (s - lengths * self.rows.p.values[piece] > 0.0), axis=0)
        return total

    def take(self, found: NearRows) -> None:
        """Go over to other rows: shares that are known are kept, others are what the slack says."""
        before, self.near = self.near, found
        for m in range(self.problem.n_models):
            numbers, former = found.of(m), before.of(m)
            q, s = len(numbers), self.slacks(m)
            found.share[m, :q] = np.where(s > 0.0, found.cost[m, :q] * self.problem.C[m], 0.0)
            found.on_plane[m, :q] = s == 0.0
            if len(former):
                at = np.minimum(np.searchsorted(former, numbers), len(former) - 1)
                known = np.flatnonzero(former[at] == numbers)
                found.share[m, known] = np.minimum(before.share[m, at[known]], found.cost[m, known] * self.problem.C[m])

    def members(self, piece: slice, m: int, within: float) -> tuple[np.ndarray, np.ndarray]:
        """(rows counted from the piece's start, places) of the rows of a piece with |s| <= within that stand there."""
        rows = np.flatnonzero(np.abs(self.rows.s.values[piece, m]) <= within)
        places = self.near.places(m, self.key(rows + piece.start))
        here = places >= 0
        return rows[here], places[here]

    def put(self, piece: slice, alpha: np.ndarray) -> None:
        """Set what is known of alpha: each copy has its part of the share."""
        for m in range(self.problem.n_models):
            rows, places = self.members(piece, m, self.near.reach[m])
            C, near = self.problem.C[m], self.near
            alpha[rows, m] = (
                near.share[m, places] / (near.cost[m, places] * C) * (self.rows.cost.values[piece.start + rows, 0] * C)
            )

    def hold(self) -> None:
        """Slacks were computed anew: those of rows on their hyperplane are 0 by identity."""
        for m in range(self.problem.n_models):
            if self.near.on_plane[m].any():
                for piece in self.rows.pieces():
                    rows, places = self.members(piece, m, _ROUNDED)
                    self.rows.s.values[piece.start + rows[self.near.on_plane[m, places]], m] = 0.0

    def hold_products(self, m: int) -> None:
        """Products with the shortest subgradient of rows whose share is inside: p_i = s_i, but for rounding.

        So rows on their hyperplane stay there (p_i = 0), and a step of length 1 takes the others to theirs.
        """
        held = self.held(m, self.slacks(m), self.rows.p.values[self.near.of(m), m])
        if held.any():
            self.put_products(m, held)

    def held(self, m: int, s: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Of which rows of model m, with such slacks and products, the product is to be the slack."""
        q = len(s)
        share, C = self.near.share[m, :q], self.near.cost[m, :q] * self.problem.C[m]
        close = np.abs(p - s) <= _HELD * np.where(s == 0.0, np.abs(p).max(initial=0.0), np.abs(s))
        return np.asarray((share > 0.0) & (share < C) & close)

    def put_products(self, m: int, held: np.ndarray) -> None:
        """Let the products of all copies of such rows be their slacks."""
        rows = self.rows
        for piece in rows.pieces():
            here, places = self.members(piece, m, self.near.reach[m])
            here = here[held[places]] + piece.start
            rows.p.values[here, m] = rows.s.values[here, m]
