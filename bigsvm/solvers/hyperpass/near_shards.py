"""`hyperpass` with rows on shards: the near rows are chosen among those of all shards.

Slacks and products stay with their rows.  Each shard reports its nearest rows.  The nearest of all are sent to the
caller, which solves the small problem on them, and sends the shares back.  These are a few hundred rows for each model,
whatever the data are; no other rows leave their shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bigsvm.problem.problem import Problem
from bigsvm.solvers.context import Context
from bigsvm.solvers.gathered import Gathered
from bigsvm.solvers.hyperpass.bins import foresee_signs, foreseen
from bigsvm.solvers.hyperpass.near_rows import Nearest, NearRows, Neighbourhood, no_near_rows
from bigsvm.solvers.hyperpass.read_again import Again, blocks_with, mistaken, most_mistaken, worth_it
from bigsvm.solvers.primal.dual_point import RowMixing
from bigsvm.solvers.primal.row_pass import BinnedSums, Bins, Reads, row_pass
from bigsvm.solvers.primal.shards.shard_state import OwnVector, PrimalRows, PrimalShard
from bigsvm.solvers.primal.shards.sharded_rows import ShardedRows, summed
from bigsvm.solvers.shard_reading import ShardReading
from bigsvm.store.state.vectors import RowVector
from bigsvm.tasks import ShardSum


class Seen(NamedTuple):
    """What a shard reports about the near rows of one model.

    s, p, codes : (n_rows,)   slacks, products (if a direction was measured) and classes of those that the shard has
    copies, costs : (n_near,)   for all near rows: the number of copies on this shard, and the sum of their costs
    """

    s: np.ndarray
    p: np.ndarray
    codes: np.ndarray
    copies: np.ndarray
    costs: np.ndarray


class NearShard(PrimalShard):
    """The state of a shard of `hyperpass` between two rounds.

    keys, signs : of its rows; see `HyperPassState`
    _near : the near rows of all shards
    """

    own = (OwnVector("row keys", np.uint64), OwnVector("signs", np.uint8, of_models=True))
    keeps_costs = True
    may_be_left = PrimalShard.may_be_left | {"read_near", "read_again", "measure_near"}

    def __init__(
        self, rows: PrimalRows, vectors: Sequence[np.ndarray], products: np.ndarray | None, reading: ShardReading
    ) -> None:
        super().__init__(rows, vectors, products, reading)
        self.keys, self.signs = self.beside
        self._first, self._near = rows.first, no_near_rows(rows.problem.n_models, 0)

    def whole(self) -> dict[str, Any]:
        """The state from which `restore` makes the shard again."""
        own = {"keys": self.keys.values, "signs": self.signs.values, "near": _told(self._near)}
        return {**super().whole(), **own}

    def restore(self, rows: PrimalRows, tree: dict[str, Any]) -> None:
        """Restore the state that `whole` returned."""
        super().restore(rows, tree)
        self.keys.values[...], self.signs.values[...] = tree["keys"], tree["signs"]
        self._near = _near(tree["near"])

    # -- rounds --------------------------------------------------------------------------------------------------------

    def _read_near(self, w: np.ndarray, shape: list[int], near: list[np.ndarray], with_keys: bool) -> ShardSum:
        """Read all rows; (losses, bytes read, `Seen` of near rows, the near rows of this shard), and V as a vector."""
        before, self._near = self.reading.bytes_read, _near(near)
        gather, keys = _gathered(self._near), self.keys if with_keys else None
        V, _ = row_pass(
            self.reading, self._problem, self.rows, tuple(shape), weights=self._weights, gather=gather, keys=keys
        )
        return self._found(before, gather, V)

    def _read_again(self, w: np.ndarray, shape: list[int], near: list[np.ndarray]) -> ShardSum:
        """Read only rows that crossed otherwise than foreseen; the same results, with V as the change by them."""
        before, self._near = self.reading.bytes_read, _near(near)
        again, V = self._again(_gathered(self._near)), np.zeros(shape)
        again.read(self.reading, blocks_with(self.reading.proof_refs, again.wanted), V)
        return self._found(before, again.gather, V)

    def _found(self, before: int, gather: Gathered, V: np.ndarray) -> ShardSum:
        losses, seen = self.rows.losses(self._problem), self._seen(counted=True)
        return ShardSum(((losses, self.reading.bytes_read - before, seen, gather.parts),), (V,))

    def _know(self, w: np.ndarray, near: list[np.ndarray]) -> None:
        self._near = _near(near)

    def _measure_near(
        self, d: np.ndarray, w: np.ndarray | None, edges: np.ndarray | None, reach: np.ndarray | None
    ) -> ShardSum:
        """Compute products with d, and slacks at w if given; (bytes read, `Seen`), and sums of bins as a vector."""
        before, bins = self.reading.bytes_read, None
        if edges is not None and reach is not None:
            bins = BinnedSums(
                Bins(np.array(edges), np.array(reach)), np.zeros((len(edges), edges.shape[1] + 1, len(d)))
            )
        self._around().measure(self.reading, d, None if w is None else np.array(w), bins)
        each = (self.reading.bytes_read - before, self._seen())
        return ShardSum((each,), () if bins is None else (bins.sums,))

    def _hold_products(self, w: np.ndarray, m: int, held: np.ndarray) -> None:
        self._around().put_products(m, held)

    def _foresee(self, w: np.ndarray, lengths: np.ndarray, edges: np.ndarray, reach: np.ndarray) -> None:
        foresee_signs(Bins(np.array(edges), np.array(reach)), self.rows, lengths, self.signs)

    # -- questions -----------------------------------------------------------------------------------------------------

    def _of_nearest(self, reach: float, most: int) -> ShardSum:
        found = self._around().nearest(reach, most)
        return ShardSum(([(one.rows + self._first, one.key, one.count, one.cost, one.distance) for one in found],))

    def _of_crossings(self, lengths: np.ndarray) -> ShardSum:
        return ShardSum((self._around().crossings(lengths),))

    def _of_mistaken(self, wanted: np.ndarray, most: float) -> ShardSum:
        """Numbers of rows that crossed otherwise than foreseen, of rows to read, of their blocks; None if too many."""
        wrong = mistaken(self.rows, self.signs, most)
        if wrong is None:
            return ShardSum((None,))
        rows = Again(self._problem, self.rows, self.signs, wrong, Gathered(wanted), self._first).wanted
        return ShardSum(((len(wrong), len(rows), len(blocks_with(self.reading.proof_refs, rows))),))

    def _mixing(self) -> RowMixing:
        return RowMixing(self._problem, self.rows, self._weights, self._around())

    def _around(self) -> Neighbourhood:
        return Neighbourhood(self._problem, self.rows, self.keys, self._near)

    def _again(self, gather: Gathered) -> Again:
        wrong = mistaken(self.rows, self.signs, np.inf)
        assert wrong is not None
        return Again(self._problem, self.rows, self.signs, wrong, gather, self._first)

    def _seen(self, counted: bool = False) -> list[Seen]:
        """`Seen` of the near rows on this shard, for each model.  counted : count the copies too"""
        around, n, seen = self._around(), len(self.rows.s.values), []
        for m in range(self._problem.n_models):
            numbers = self._near.of(m) - self._first
            here = numbers[(numbers >= 0) & (numbers < n)]
            s, p, codes = self.rows.s.values[here, m], self.rows.p.values[here, m], self.rows.y.values[here, 0]
            counts = around.copies(m) if counted else (np.zeros(0, np.int64), np.zeros(0))
            seen.append(Seen(s, p, codes, *counts))
        return seen


class NearOnShards(Neighbourhood):
    """A `Neighbourhood` of rows on shards.  Its slacks, products and classes are those of the last reading."""

    rows: ShardedRows

    def __init__(self, problem: Problem, rows: ShardedRows, keys: RowVector, near: NearRows) -> None:
        super().__init__(problem, rows, keys, near)
        self._seen: list[Seen] = []

    def find(self, reach: float, among: np.ndarray | None = None) -> NearRows:
        """See `Neighbourhood`."""
        n_models, most = self.near.rows.shape
        found, each = no_near_rows(n_models, most), self.rows.ask(("nearest", reach, most)).each
        for m in range(n_models):
            nearest = Nearest(most, reach)
            for of_shard in each:
                nearest.add(*of_shard[m])
            nearest.put(found, m)
        return found

    def read(
        self, ctx: Context, shape: tuple[int, ...], found: NearRows, gather: Gathered, with_keys: bool
    ) -> np.ndarray:  # fmt: skip
        """See `Neighbourhood`."""
        total = self.rows.tell("read_near", [list(shape), _told(found), with_keys])
        return self._take(total, found, gather)

    def _take(self, total: ShardSum, found: NearRows, gather: Gathered) -> np.ndarray:
        self.rows.looked(total)
        self._see([each[2] for each in total.each])
        # Copies are counted by the shards during this reading: `find` may have missed a copy that was as far away as
        # the last row that its shard reported.
        for m, seen in enumerate(self._seen):
            q = len(seen.copies)
            found.count[m, :q], found.cost[m, :q] = seen.copies, seen.costs
        for each in total.each:
            gather.add(each[3])
        return total.vectors[0]

    def _see(self, each: list[list[Seen]]) -> None:
        self._seen = []
        for of_model in zip(*each, strict=True):
            s, p, codes, copies, costs = zip(*of_model, strict=True)
            of_rows = np.concatenate(s), np.concatenate(p), np.concatenate(codes)
            self._seen.append(Seen(*of_rows, np.sum(copies, axis=0), summed(costs)))

    def measure(
        self, ctx: Reads, d: np.ndarray, w: np.ndarray | None, bins: BinnedSums | None = None
    ) -> None:  # fmt: skip
        """See `Neighbourhood`."""
        edges, reach = (None, None) if bins is None else bins.bins
        total = self.rows.tell("measure_near", [w, edges, reach], d)
        ctx.charge(sum(nbytes for nbytes, _ in total.each))
        self._see([seen for _, seen in total.each])
        if bins is not None:
            bins.sums[...] = total.vectors[0]

    def foresee(self, binned: BinnedSums, lengths: np.ndarray, V: np.ndarray, signs: RowVector) -> None:
        """See `Neighbourhood`."""
        foreseen(binned, lengths, V)
        self.rows.tell("foresee", [lengths, *binned.bins])

    def read_again(
        self, ctx: Context, found: NearRows, gather: Gathered, V: np.ndarray, signs: RowVector
    ) -> tuple[np.ndarray, int] | None:
        """See `Neighbourhood`."""
        most = most_mistaken(ctx.data.n_samples)
        each = self.rows.ask(("mistaken", gather.wanted, most)).each
        if None in each:
            return None
        wrong, wanted, touched = np.sum(each, axis=0).tolist()
        if wrong > most or not worth_it(touched, len(ctx.refs)):
            return None
        total = self.rows.tell("read_again", [list(V.shape), _told(found)])
        return V + self._take(total, found, gather), wanted

    def slacks(self, m: int) -> np.ndarray:
        """See `Neighbourhood`."""
        return self._seen[m].s

    def codes(self, m: int) -> np.ndarray:
        """See `Neighbourhood`."""
        return self._seen[m].codes

    def tell_shares(self) -> None:
        """Send the shares to the shards, which use them when they mix dual points."""
        self.rows.tell("know", [_told(self.near)])

    def crossings(self, lengths: np.ndarray) -> np.ndarray:
        """See `Neighbourhood`."""
        return np.sum(self.rows.ask(("crossings", lengths)).each, axis=0)

    def hold_products(self, m: int) -> None:
        """See `Neighbourhood`."""
        held = self.held(m, self._seen[m].s, self._seen[m].p)
        if held.any():
            self.rows.tell("hold_products", [m, held])


def _told(near: NearRows) -> list[np.ndarray]:
    return list(vars(near).values())


def _near(told: list[np.ndarray]) -> NearRows:
    """The near rows, from `_told`; arrays are copied, because those from a log are memory maps."""
    return NearRows(*(np.array(values) for values in told))


def _gathered(near: NearRows) -> Gathered:
    return Gathered(np.unique(near.rows[near.rows >= 0]))
