"""The rows of one shard in primal solvers: their slacks, products and alpha, which stay where the rows are.

A round is one operation on them, a reading of the rows or a change of their vectors; a question changes nothing.  What
comes back has the size of w, of a Hessian, or of a histogram, never that of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from bigsvm.problem.problem import Problem
from bigsvm.solvers.primal.dual_point import RowMixing
from bigsvm.solvers.primal.line_search import PieceSums, Step
from bigsvm.solvers.primal.row_pass import Weights, row_pass
from bigsvm.solvers.primal.row_state import RowState
from bigsvm.solvers.shard_reading import ShardReading, ShardVector, proved, rows_within
from bigsvm.store.blocks import BlockRef, RowBlocks
from bigsvm.store.state.vectors import RowVector
from bigsvm.tasks import ShardSum

_OF_ROWS = 5  # vectors of a `RowState`


class OwnVector(NamedTuple):
    """what : as plans name it;  of_models : a row has a number for each model"""

    what: str
    dtype: type
    of_models: bool = False


class PrimalRows(NamedTuple):
    """Which rows: the same in every round.

    number : of the shard
    block_rows, blocks : its blocks, which follow one another, are `data.refs(block_rows)[blocks]`
    weights : what a row weighs in gradients, and in the dual point that they give
    kind : what the shard can do
    products : conjugate gradients sum the rows' products up
    """

    data: RowBlocks
    problem: Problem
    number: int
    block_rows: int
    blocks: range
    weights: Weights
    kind: type[PrimalShard]
    products: bool

    @property
    def refs(self) -> Sequence[BlockRef]:
        return self.data.refs(self.block_rows)[self.blocks.start : self.blocks.stop]

    @property
    def first(self) -> int:
        """Working row of the first row."""
        return rows_within(self.data, self.block_rows, self.blocks).start

    @property
    def n_rows(self) -> int:
        return len(rows_within(self.data, self.block_rows, self.blocks))

    def new_vectors(self) -> list[np.ndarray]:
        """Those of a `RowState` at w = 0, alpha = 0, and those that the shard has beside."""
        m, regression = self.problem.n_models, self.problem.regression

        def make(width: int, dtype: type = np.float64, fill: float = 0.0) -> np.ndarray:
            return np.full((self.n_rows, width), fill, dtype)

        y = make(1, np.float64 if regression else np.int32)
        own = [make(m if vector.of_models else 1, vector.dtype) for vector in self.kind.own]
        return [make(m, fill=1.0), make(m), make(m), make(1), y, *own]

    def new_state(self) -> PrimalShard:
        """w = 0, alpha = 0, in arrays of its own."""
        products = np.zeros((self.n_rows, self.problem.n_models)) if self.products else None
        return self.kind(self, self.new_vectors(), products, ShardReading(self.data, self.refs))

    def told(self, tree: dict[str, Any]) -> Told:
        """As the log keeps it."""
        return Told(int(tree["number"]), tree["what"], list(tree["args"]))


class Told(NamedTuple):
    """What all shards do in a round, since the fit began of this `number`."""

    number: int
    what: str
    args: list[Any]

    def tree(self) -> dict[str, Any]:
        """As the log keeps it."""
        return dict(self._asdict())


class PrimalShard:
    """What a shard knows between two rounds.

    vectors : s, p, alpha, cost and y of its rows, as a `RowState` has them, and those of `own`
    products : of conjugate gradients;  added : those that were summed up since the last system began
    """

    own: ClassVar[tuple[OwnVector, ...]] = ()
    """Vectors of its rows that it has beside those of a `RowState`."""
    keeps_costs: ClassVar[bool] = False
    """Costs and classes are wanted before they are read again."""

    def __init__(
        self, rows: PrimalRows, vectors: Sequence[np.ndarray], products: np.ndarray | None, reading: ShardReading
    ) -> None:
        self.rounds = self.added = 0
        self.products, self.reading, self._problem = products, reading, rows.problem
        self._weights = rows.weights
        known = [cast(RowVector, ShardVector(values, rows.first)) for values in vectors]
        self.rows, self.beside = RowState(*known[:_OF_ROWS]), known[_OF_ROWS:]

    def work(self, rows: PrimalRows, told: Told, w: np.ndarray) -> ShardSum:
        """One operation; w is the point or the direction that it speaks of."""
        found: ShardSum | None = getattr(self, f"_{told.what}")(w, *told.args)
        self.rounds = told.number + 1
        return ShardSum((None,)) if found is None else found

    def answer(self, rows: PrimalRows, question: tuple[Any, ...], w: Any) -> ShardSum:
        """What a question finds: its name, and what belongs to it."""
        what, *args = question
        if what == "proof":
            alpha = cast(ShardVector, self.rows.alpha)
            return proved(ShardReading(rows.data, rows.refs), self._problem, w, alpha, *args)
        asked: Callable[..., ShardSum] = getattr(self, f"_of_{what}")
        return asked(*args)

    def settle(self, ending: Any) -> None:
        """All is settled at any time."""

    def whole(self) -> dict[str, Any]:
        """All that a shard that is made anew needs.

        Costs and y are set by every reading of the rows.  They are kept where a line search may come before the next.
        """
        rows, summed = self.rows, self.added > 0
        values = {"s": rows.s.values, "alpha": rows.alpha.values, "products": self.products if summed else None}
        read = {"cost": rows.cost.values, "y": rows.y.values} if summed or self.keeps_costs else {}
        return {"rounds": self.rounds, "added": self.added, **values, **read}

    def restore(self, rows: PrimalRows, tree: dict[str, Any]) -> None:
        """Take over what `whole` gave."""
        self.rounds, self.added = int(tree["rounds"]), int(tree["added"])
        self.rows.s.values[...], self.rows.alpha.values[...] = tree["s"], tree["alpha"]
        if "cost" in tree:
            self.rows.cost.values[...], self.rows.y.values[...] = tree["cost"], tree["y"]
        if self.products is not None:
            self.products[...] = 0.0 if tree["products"] is None else tree["products"]

    # -- rounds --------------------------------------------------------------------------------------------------------

    def _look(self, w: np.ndarray, curvature: Any, d: np.ndarray | None = None) -> ShardSum:
        """Slacks at w, and products with d; losses and bytes, and V and H of the rows."""
        before, problem = self.reading.bytes_read, self._problem
        V, H = row_pass(
            self.reading, problem, self.rows, w.shape, w=w, d=d, weights=self._weights, curvature=curvature
        )  # fmt: skip
        each = (self.rows.losses(problem), self.reading.bytes_read - before)
        if H is None:
            return ShardSum((each,), (V,))
        return ShardSum((each,), (V, packed(H) if curvature == "matrix" else H))

    def _product(self, d: np.ndarray) -> ShardSum:
        """Products with d; bytes, and H d."""
        before, weights = self.reading.bytes_read, self._weights
        V, _ = row_pass(self.reading, self._problem, self.rows, d.shape, d=d, weights=weights, curvature="product")
        return ShardSum((self.reading.bytes_read - before,), (V,))

    def _measure(self, d: np.ndarray) -> ShardSum:
        """Products with d; bytes."""
        before = self.reading.bytes_read
        row_pass(self.reading, self._problem, self.rows, d.shape, d=d)
        return ShardSum((self.reading.bytes_read - before,))

    def _begin(self, w: np.ndarray) -> None:
        assert self.products is not None
        self.products[...], self.added = 0.0, 0

    def _add(self, w: np.ndarray, length: np.ndarray) -> None:
        assert self.products is not None
        for piece in self.rows.pieces():
            self.products[piece] += length * self.rows.p.values[piece]
        self.added += 1

    def _follow(self, w: np.ndarray) -> None:
        self.rows.p.values[...] = self.products

    def _advance(self, w: np.ndarray, lengths: np.ndarray, on_kink: np.ndarray) -> None:
        self.rows.advance([Step(float(t), bool(kink)) for t, kink in zip(lengths, on_kink, strict=True)])

    def _shift(self, w: np.ndarray, m: int, way: float, length: float, on_kink: bool) -> None:
        self.rows.shift(self._problem, m, way, Step(length, on_kink))

    def _move(self, w: np.ndarray, shares: np.ndarray | None, theta: np.ndarray) -> None:
        self._mixing().move(shares, theta)

    # -- questions -----------------------------------------------------------------------------------------------------

    def _of_start(self, m: int, way: float) -> ShardSum:
        return ShardSum((None,), (self._line(m, way).at_start(),))

    def _of_histogram(self, m: int, way: float, prefix: int, shift: int) -> ShardSum:
        return ShardSum((None,), (self._line(m, way).histogram(prefix, shift),))

    def _of_breakpoints(self, m: int, way: float, prefix: int, shift: int, n: int) -> ShardSum:
        return ShardSum((self._line(m, way).breakpoints(prefix, shift, n),))

    def _of_step(self, m: int, way: float, t: float) -> ShardSum:
        return ShardSum((None,), (self._line(m, way).at_step(t),))

    def _of_losses_after(self, t: np.ndarray) -> ShardSum:
        return ShardSum((self.rows.losses_after(self._problem, self._weights, t, np.zeros(len(t))),))

    def _of_span(self) -> ShardSum:
        return ShardSum((self.rows.span(),))

    def _of_sides(self) -> ShardSum:
        return ShardSum((self._mixing().sides(),))

    def _of_sums(self, shares: np.ndarray | None) -> ShardSum:
        return ShardSum((self._mixing().sums(shares),))

    def _mixing(self) -> RowMixing:
        return RowMixing(self._problem, self.rows, self._weights)

    def _line(self, m: int, way: float) -> PieceSums:
        problem = self._problem
        return PieceSums(self.rows.along(problem, m, way), float(problem.C[m]), problem.loss.one_sided)


def packed(H: np.ndarray) -> np.ndarray:
    """The upper triangles of matrices (n_models, n, n), row by row: (n_models, n (n + 1) / 2)."""
    return np.stack([np.concatenate([row[i:] for i, row in enumerate(part)]) for part in H])


def unpacked(rows: np.ndarray, n: int) -> np.ndarray:
    """What `packed` has packed; 0 below the diagonals."""
    H = np.zeros((len(rows), n, n))
    for part, values in zip(H, rows, strict=True):
        first = 0
        for i, row in enumerate(part):
            row[i:] = values[first : first + n - i]
            first += n - i
    return H
