"""The near rows: those nearest to their hyperplane, with equal rows counted as one.

Data may contain the same row a hundred thousand times.  All copies reach their hyperplane together, and the small
problem, which takes a few hundred rows, has room for them only if they are one.  Copies are recognised by a hash of the
row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigsvm.compiled.linear.hyperpass import put_shares
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import DataShape, Need
from bigsvm.solvers.context import Context
from bigsvm.solvers.gathered import Gathered
from bigsvm.solvers.hyperpass.bins import foresee_signs, foreseen
from bigsvm.solvers.hyperpass.read_again import read_again
from bigsvm.solvers.primal.row_pass import BinnedSums, Reads, row_pass
from bigsvm.solvers.primal.row_state import RowState
from bigsvm.solvers.selection import smallest
from bigsvm.store.state.vectors import RowVector

_LABEL = np.uint64(0x9E3779B97F4A7C15)
_HELD = 1e-9  # products within this relative distance of their exact value are set to it
_ROUNDED = 1e-6  # bound of recomputed slacks of rows that lie exactly on their hyperplane


@dataclass
class NearRows:
    """The near rows of each model.  An entry stands for all copies of a row with the same class; unused ones come last.

    rows : int64, (n_models, most)     number of the first copy, ascending, then -1
    key : uint64, (n_models, most)     hash of the row and its class
    count : int64, (n_models, most)    number of copies
    cost : float64, (n_models, most)   sum of the costs of the copies, without C
    share : float64, (n_models, most)  sum of the alpha of the copies
    on_plane : bool, (n_models, most)  s_i is known to be exactly 0
    reach : float64, (n_models,)       largest |s_i| of the near rows
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
        """The entries of model m with these keys, int64; -1 if there is none."""
        q = len(self.of(m))
        if q == 0:
            return np.full(len(keys), -1)
        order = np.argsort(self.key[m, :q])
        at = np.minimum(np.searchsorted(self.key[m, :q], keys, sorter=order), q - 1)
        found = order[at]
        return np.where(self.key[m, found] == keys, found, -1)


def near_needs(shape: DataShape, most: int) -> list[Need]:
    """Bytes of the near rows, with the copies made when they are joined, and of the small problem."""
    q = min(most, shape.n_samples)
    entries = min(shape.n_features, 4 * shape.nnz // max(shape.n_samples, 1) + 64)  # assumed bound for a row
    return [
        Need("rows near their hyperplane", 3 * q * shape.n_models * 12 * entries, held="worker"),
        Need("Gram matrix", 4 * 8 * q * q),
    ]


def no_near_rows(n_models: int, most: int) -> NearRows:
    """Room for `most` near rows of each model, all unused."""
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
    """Collects the nearest rows of one model, at most `most`, with |s| <= `limit`; equal rows count as one.

    rows, key, count, cost : as in `NearRows`, without unused entries;  distance : float64, |s|
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
        """Add rows, whose numbers must be larger than all before."""
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
        """Write them into `found` as the near rows of model m, without shares."""
        q = len(self.rows)
        found.rows[m, :q], found.key[m, :q], found.count[m, :q] = self.rows, self.key, self.count
        found.cost[m, :q], found.reach[m] = self.cost, float(self.distance.max(initial=0.0))


@dataclass
class Neighbourhood:
    """The near rows, together with the vectors of all rows.

    keys : uint64, (n_samples, 1)   hashes of the rows
    """

    problem: Problem
    rows: RowState
    keys: RowVector
    near: NearRows
    _ordered: tuple[NearRows, np.ndarray, np.ndarray] | None = None

    def key(self, where: slice | np.ndarray) -> np.ndarray:
        """uint64: hashes of some rows with their classes."""
        return self.keys.values[where, 0] + self.rows.y.values[where, 0].astype(np.uint64) * _LABEL

    def find(self, reach: float, among: np.ndarray | None = None) -> NearRows:
        """Find the rows with the smallest |s|, at most `reach`, as many as there is room for.

        among : uint8, (n_samples, n_models)   flags of the rows to consider; None: all
        """
        found = no_near_rows(*self.near.rows.shape)
        for m, nearest in enumerate(self.nearest(reach, found.rows.shape[1], among)):
            nearest.put(found, m)
        return found

    def nearest(self, reach: float, most: int, among: np.ndarray | None = None) -> list[Nearest]:
        """The nearest rows of each model."""
        found = [Nearest(most, reach) for _ in range(self.problem.n_models)]
        limits = np.full(len(found), reach)
        for piece in self.rows.pieces():
            away, costs = np.abs(self.rows.s.values[piece]), self.rows.cost.values[piece, 0]
            within = (away <= limits) & (costs > 0.0)[:, None]
            if among is not None:
                within &= among[piece] > 0
            for m in np.flatnonzero(within.any(axis=0)).tolist():
                more = np.flatnonzero(within[:, m])
                numbers = more + piece.start
                found[m].add(numbers, self.key(numbers), np.ones(len(more), np.int64), costs[more], away[more, m])
                limits[m] = found[m].limit
        return found

    def copies(self, m: int) -> tuple[np.ndarray, np.ndarray]:
        """For each near row of model m: the number of copies with a positive cost, and the sum of their costs."""
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
        """Read all rows once: return V at the present slacks (`row_pass`), and gather the rows `found`.

        with_keys : compute the hashes of the rows too
        """
        keys = self.keys if with_keys else None
        return row_pass(ctx, self.problem, self.rows, shape, weights=self.problem.loss, gather=gather, keys=keys)[0]

    def measure(
        self, ctx: Reads, d: np.ndarray, w: np.ndarray | None, bins: BinnedSums | None = None
    ) -> None:  # fmt: skip
        """Read all rows once: compute products with d, and, if w is given, slacks anew."""
        row_pass(ctx, self.problem, self.rows, d.shape, w=w, d=d, bins=bins)
        if w is not None:
            self.hold()

    def foresee(self, binned: BinnedSums, lengths: np.ndarray, V: np.ndarray, signs: RowVector) -> None:
        """Update V and `signs` as if exactly the rows of whole bins had crossed in a step of `lengths`."""
        foreseen(binned, lengths, V)
        foresee_signs(binned.bins, self.rows, lengths, signs)

    def read_again(
        self, ctx: Context, found: NearRows, gather: Gathered, V: np.ndarray, signs: RowVector
    ) -> tuple[np.ndarray, int] | None:
        """Correct a V that was foreseen, and gather rows; (V, number of rows read).

        None if so many rows must be read that a reading of all of them is cheaper.
        """
        return read_again(ctx, self.problem, self.rows, signs, V, gather)

    def slacks(self, m: int) -> np.ndarray:
        """Slacks of the near rows of model m."""
        return self.rows.s.values[self.near.of(m), m]

    def codes(self, m: int) -> np.ndarray:
        """Class codes of the near rows of model m."""
        return self.rows.y.values[self.near.of(m), 0]

    def tell_shares(self) -> None:
        """Tell the shares to the shards, which mix dual points.  Here `put` knows them: nothing to do."""

    def crossings(self, lengths: np.ndarray) -> np.ndarray:
        """The number of rows of each model that cross their hyperplane in steps of `lengths`; int64, (n_models,)."""
        total = np.zeros(len(lengths), np.int64)
        for piece in self.rows.pieces():
            s = self.rows.s.values[piece]
            total += np.count_nonzero((s > 0.0) != (s - lengths * self.rows.p.values[piece] > 0.0), axis=0)
        return total

    def take(self, found: NearRows) -> None:
        """Replace the near rows.  Rows that were near before keep their shares; others get those of their slacks."""
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
        """(rows, entries): the rows of a piece, counted from its start, with |s| <= within that are near rows."""
        rows = np.flatnonzero(np.abs(self.rows.s.values[piece, m]) <= within)
        places = self.near.places(m, self.key(rows + piece.start))
        here = places >= 0
        return rows[here], places[here]

    def put(self, piece: slice, alpha: np.ndarray) -> None:
        """Overwrite alpha of near rows in a piece (`Known`); each copy gets its part of the share."""
        near, rows = self.near, self.rows
        put_shares(
            rows.s.values[piece], self.key(piece), rows.cost.values[piece, 0], self.problem.C,
            (*self._by_key(), near.share, near.cost, np.count_nonzero(near.rows >= 0, axis=1)), near.reach, alpha,
        )  # fmt: skip

    def _by_key(self) -> tuple[np.ndarray, np.ndarray]:
        """(keys of the near rows, ascending; the entry of each), (n_models, most); unused entries come last."""
        if self._ordered is None or self._ordered[0] is not self.near:
            keys = np.where(self.near.rows >= 0, self.near.key, np.iinfo(np.uint64).max)
            order = np.argsort(keys, axis=1, kind="stable")
            self._ordered = self.near, np.take_along_axis(keys, order, 1), order
        return self._ordered[1:]

    def hold(self) -> None:
        """After slacks were computed anew, set those of rows known to lie on their hyperplane to 0."""
        for m in range(self.problem.n_models):
            if self.near.on_plane[m].any():
                for piece in self.rows.long_pieces():
                    rows, places = self.members(piece, m, _ROUNDED)
                    self.rows.s.values[piece.start + rows[self.near.on_plane[m, places]], m] = 0.0

    def hold_products(self, m: int) -> None:
        """Remove rounding from the products with the shortest subgradient: p_i = s_i if the share is inside its box.

        Then rows on their hyperplane stay there (p_i = 0), and a step of length 1 takes the others exactly to theirs.
        """
        held = self.held(m, self.slacks(m), self.rows.p.values[self.near.of(m), m])
        if held.any():
            self.put_products(m, held)

    def held(self, m: int, s: np.ndarray, p: np.ndarray) -> np.ndarray:
        """bool: the near rows of model m, with these slacks and products, whose product is to be set to the slack."""
        q = len(s)
        share, C = self.near.share[m, :q], self.near.cost[m, :q] * self.problem.C[m]
        close = np.abs(p - s) <= _HELD * np.where(s == 0.0, np.abs(p).max(initial=0.0), np.abs(s))
        return np.asarray((share > 0.0) & (share < C) & close)

    def put_products(self, m: int, held: np.ndarray) -> None:
        """Set the products of all copies of these rows to their slacks."""
        rows = self.rows
        for piece in rows.long_pieces():
            here, places = self.members(piece, m, self.near.reach[m])
            here = here[held[places]] + piece.start
            rows.p.values[here, m] = rows.s.values[here, m]
