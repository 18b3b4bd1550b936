"""The rows nearest to their hyperplane, equal rows as one.

Data may hold one row a hundred thousand times; all its copies reach their hyperplane together, and only as one do
they fit among the few hundred rows that a small problem can take.  Copies are told by a hash of the row's content.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import DataShape, Need
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
            self._find(found, m, reach, among)
        return found

    def _find(self, found: NearRows, m: int, reach: float, among: np.ndarray | None) -> None:
        most, limit = found.rows.shape[1], reach
        empty: np.ndarray = np.zeros(0, np.int64)
        rows, key, count = empty, empty.astype(np.uint64), empty
        cost: np.ndarray = np.zeros(0)
        distance: np.ndarray = np.zeros(0)
        for piece in self.rows.pieces():
            away = np.abs(self.rows.s.values[piece, m])
            costs = self.rows.cost.values[piece, 0]
            if among is not None:
                costs = costs * among[piece, m]
            more = np.flatnonzero((away <= limit) & (costs > 0.0))
            if not len(more):
                continue
            rows = np.concatenate([rows, more + piece.start])
            key = np.concatenate([key, self.key(more + piece.start)])
            count = np.concatenate([count, np.ones(len(more), np.int64)])
            cost, distance = np.concatenate([cost, costs[more]]), np.concatenate([distance, away[more]])
            _, first, which = np.unique(key, return_index=True, return_inverse=True)
            order = np.argsort(first)  # first copies in ascending order
            counts = np.bincount(which, count, len(first)).astype(np.int64)[order]
            sums, first = np.bincount(which, cost, len(first))[order], first[order]
            if len(first) > most:
                kept = np.sort(smallest(distance[first], most))
                counts, sums, first = counts[kept], sums[kept], first[kept]
            full = len(first) == most
            rows, key, count, cost, distance = rows[first], key[first], counts, sums, distance[first]
            if full:
                limit = float(distance.max())
        q = len(rows)
        found.rows[m, :q], found.key[m, :q], found.count[m, :q], found.cost[m, :q] = rows, key, count, cost
        found.reach[m] = float(distance.max(initial=0.0))

    def take(self, found: NearRows) -> None:
        """Go over to other rows: shares that are known are kept, others are what the slack says."""
        for m in range(self.problem.n_models):
            numbers, former = found.of(m), self.near.of(m)
            q, s = len(numbers), self.rows.s.values[numbers, m]
            found.share[m, :q] = np.where(s > 0.0, found.cost[m, :q] * self.problem.C[m], 0.0)
            found.on_plane[m, :q] = s == 0.0
            if len(former):
                at = np.minimum(np.searchsorted(former, numbers), len(former) - 1)
                known = np.flatnonzero(former[at] == numbers)
                found.share[m, known] = np.minimum(
                    self.near.share[m, at[known]], found.cost[m, known] * self.problem.C[m]
                )
        self.near = found

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
        rows, near, numbers = self.rows, self.near, self.near.of(m)
        q = len(numbers)
        share, C = near.share[m, :q], near.cost[m, :q] * self.problem.C[m]
        s, p = rows.s.values[numbers, m], rows.p.values[numbers, m]
        close = np.abs(p - s) <= _HELD * np.where(s == 0.0, np.abs(p).max(initial=0.0), np.abs(s))
        held = (share > 0.0) & (share < C) & close
        if held.any():
            for piece in rows.pieces():
                here, places = self.members(piece, m, near.reach[m])
                here = here[held[places]] + piece.start
                rows.p.values[here, m] = rows.s.values[here, m]
