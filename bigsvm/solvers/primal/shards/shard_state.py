"""One shard in primal solvers: slacks, products and alpha of its rows, which stay where the rows are.

A *round* is one operation on all shards, which reads the rows or changes their vectors.  A *question* changes nothing.
Results have the size of w, of a Hessian, or of a histogram, never that of the rows.
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
    """A vector of rows that only one kind of shard has.

    what : its name in plans;  of_models : it has a number for each model
    """

    what: str
    dtype: type
    of_models: bool = False


class PrimalRows(NamedTuple):
    """What a shard is in every round: its rows, and what is computed on them.

    number : int         number of the shard
    block_rows, blocks : its blocks, which are consecutive, are `data.refs(block_rows)[blocks]`
    weights : Weights    loss that gives alpha and curvature of a row
    kind : class of the shard
    products : bool      sum products up, for conjugate gradients
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
        """Number of the first row, in working order."""
        return rows_within(self.data, self.block_rows, self.blocks).start

    @property
    def n_rows(self) -> int:
        return len(rows_within(self.data, self.block_rows, self.blocks))

    def new_vectors(self) -> list[np.ndarray]:
        """The vectors of a `RowState` at w = 0, alpha = 0, followed by those of `kind.own`."""
        m, regression = self.problem.n_models, self.problem.regression

        def make(width: int, dtype: type = np.float64, fill: float = 0.0) -> np.ndarray:
            return np.full((self.n_rows, width), fill, dtype)

        y = make(1, np.float64 if regression else np.int32)
        own = [make(m if vector.of_models else 1, vector.dtype) for vector in self.kind.own]
        return [make(m, fill=1.0), make(m), make(m), make(1), y, *own]

    def new_state(self) -> PrimalShard:
        """A shard at w = 0, alpha = 0, with new arrays."""
        products = np.zeros((self.n_rows, self.problem.n_models)) if self.products else None
        return self.kind(self, self.new_vectors(), products, ShardReading(self.data, self.refs))

    def told(self, tree: dict[str, Any]) -> Told:
        """A round, from its form in the log."""
        return Told(int(tree["number"]), tree["what"], list(tree["args"]))


class Told(NamedTuple):
    """A round: what all shards do.

    number : int    number of the round since the fit began
    what : str      name of the operation of `PrimalShard`;  args : its arguments, besides w
    """

    number: int
    what: str
    args: list[Any]

    def tree(self) -> dict[str, Any]:
        """The form in which the log keeps a round."""
        return dict(self._asdict())


class PrimalShard:
    """The state of a shard between two rounds.

    vectors : s, p, alpha, cost and y of its rows (`RowState`), followed by those of `own`
    products : float64, (n_rows, n_models), or None   products summed up for conjugate gradients
    added : int    how many products were summed up since the last system began
    """

    own: ClassVar[tuple[OwnVector, ...]] = ()
    """Vectors of its rows besides those of a `RowState`."""
    keeps_costs: ClassVar[bool] = False
    """Whether costs and classes are needed before the rows are read again, so that they must be saved."""
    may_be_left: ClassVar[frozenset[str]] = frozenset(("look", "product", "measure"))
    """Rounds that may be left if the run is to stop: all that read rows.  When they are repeated, they write the same
    values again, however far they had come."""

    def __init__(
        self, rows: PrimalRows, vectors: Sequence[np.ndarray], products: np.ndarray | None, reading: ShardReading
    ) -> None:
        self.rounds = self.added = 0
        self.products, self.reading, self._problem = products, reading, rows.problem
        self._weights = rows.weights
        known = [cast(RowVector, ShardVector(values, rows.first)) for values in vectors]
        self.rows, self.beside = RowState(*known[:_OF_ROWS]), known[_OF_ROWS:]

    def work(self, rows: PrimalRows, told: Told, w: np.ndarray) -> ShardSum:
        """Do the operation of a round.  w : the point or the direction that it is about"""
        found: ShardSum | None = getattr(self, f"_{told.what}")(w, *told.args)
        self.rounds = told.number + 1
        return ShardSum((None,)) if found is None else found

    def answer(self, rows: PrimalRows, question: tuple[Any, ...], w: Any) -> ShardSum:
        """Answer a question, (name, arguments...).  w : the point of a proof"""
        what, *args = question
        if what == "proof":
            alpha = cast(ShardVector, self.rows.alpha)
            return proved(ShardReading(rows.data, rows.refs), self._problem, w, alpha, *args)  # may be left
        asked: Callable[..., ShardSum] = getattr(self, f"_of_{what}")
        return asked(*args)

    def settle(self, ending: Any) -> None:
        """Nothing to do: a shard has no unfinished work between rounds."""

    def whole(self) -> dict[str, Any]:
        """The state from which `restore` makes the shard again.

        Costs and y are set by every reading of the rows.  They are included only if a line search may come before the
        next reading.
        """
        rows, summed = self.rows, self.added > 0
        values = {"s": rows.s.values, "alpha": rows.alpha.values, "products": self.products if summed else None}
        read = {"cost": rows.cost.values, "y": rows.y.values} if summed or self.keeps_costs else {}
        return {"rounds": self.rounds, "added": self.added, **values, **read}

    def restore(self, rows: PrimalRows, tree: dict[str, Any]) -> None:
        """Restore the state that `whole` returned."""
        self.rounds, self.added = int(tree["rounds"]), int(tree["added"])
        self.rows.s.values[...], self.rows.alpha.values[...] = tree["s"], tree["alpha"]
        if "cost" in tree:
            self.rows.cost.values[...], self.rows.y.values[...] = tree["cost"], tree["y"]
        if self.products is not None:
            self.products[...] = 0.0 if tree["products"] is None else tree["products"]

    # -- rounds --------------------------------------------------------------------------------------------------------

    def _look(self, w: np.ndarray, curvature: Any, d: np.ndarray | None = None) -> ShardSum:
        """Compute slacks at w, and products with d; (losses, bytes read), and V and H as vectors."""
        before, problem = self.reading.bytes_read, self._problem
        V, H = row_pass(
            self.reading, problem, self.rows, w.shape, w=w, d=d, weights=self._weights, curvature=curvature
        )  # fmt: skip
        each = (self.rows.losses(problem), self.reading.bytes_read - before)
        if H is None:
            return ShardSum((each,), (V,))
        return ShardSum((each,), (V, packed(H) if curvature == "matrix" else H))

    def _product(self, d: np.ndarray) -> ShardSum:
        """Compute products with d; the bytes read, and H d as a vector."""
        before, weights = self.reading.bytes_read, self._weights
        V, _ = row_pass(self.reading, self._problem, self.rows, d.shape, d=d, weights=weights, curvature="product")
        return ShardSum((self.reading.bytes_read - before,), (V,))

    def _measure(self, d: np.ndarray) -> ShardSum:
        """Compute products with d; the bytes read."""
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
        self.rows.advance(steps_of(lengths, on_kink))

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


def steps_of(lengths: np.ndarray, on_kink: np.ndarray) -> list[Step]:
    """The step of each model, from the arrays that a round was told."""
    return [Step(float(t), bool(kink)) for t, kink in zip(lengths, on_kink, strict=True)]


def packed(H: np.ndarray) -> np.ndarray:
    """The upper triangles of matrices, (n_models, n, n), row by row: (n_models, n (n + 1) / 2)."""
    return np.stack([np.concatenate([row[i:] for i, row in enumerate(part)]) for part in H])


def unpacked(rows: np.ndarray, n: int) -> np.ndarray:
    """The matrices, (n_models, n, n), from `packed`; 0 below the diagonals."""
    H = np.zeros((len(rows), n, n))
    for part, values in zip(H, rows, strict=True):
        first = 0
        for i, row in enumerate(part):
            row[i:] = values[first : first + n - i]
            first += n - i
    return H
