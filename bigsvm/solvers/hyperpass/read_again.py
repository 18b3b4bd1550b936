"""Correction of a forecast by bins (`bins.py`): rows that crossed otherwise than foreseen are read again, no others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from bigsvm.compiled.linear.primal import add_rows
from bigsvm.problem.problem import Problem
from bigsvm.solvers.context import Context
from bigsvm.solvers.gathered import Gathered, picked_rows
from bigsvm.solvers.primal.row_state import RowState
from bigsvm.store.blocks import BlockRef, RowBlocks, readonly_view
from bigsvm.store.state.vectors import RowVector
from bigsvm.tasks import Account, PassLeft

_MOST = 0.2  # share of the rows up to which they are read again
_AT_MOST = 1 << 16  # rows up to which they are read again, since their numbers are in memory
_REFS = 2  # blocks for each wanted row, below which reading some rows means reading all blocks


class Reading(Account, Protocol):
    """What reading some rows needs of its caller: a `Context`, or the part of one that a shard has."""

    @property
    def data(self) -> RowBlocks: ...


def can_read_some(ctx: Context, wanted: int) -> bool:
    """Whether reading a few rows costs less than reading all of them."""
    return ctx.resident or len(ctx.refs) >= _REFS * wanted


def mistaken(rows: RowState, signs: RowVector, most: float) -> np.ndarray | None:
    """The rows that crossed otherwise than foreseen, ascending; None if there are more than `most`."""
    found, n = [np.zeros(0, np.int64)], 0
    for piece in rows.pieces():
        wrong = (rows.s.values[piece] > 0.0) != (signs.values[piece] != 0)
        found.append(np.flatnonzero(wrong.any(axis=1)) + piece.start)
        n += len(found[-1])
        if n > most:
            return None
    return np.concatenate(found)


def most_mistaken(n_rows: int) -> float:
    """The largest number of rows that are read again."""
    return min(_MOST * n_rows, _AT_MOST)


def worth_it(touched: int, blocks: int) -> bool:
    """Whether reading `touched` of the blocks costs less than reading all of them."""
    return 2 * touched <= blocks


class Again(NamedTuple):
    """The rows to read again, out of rows whose numbers in working order begin with `first`.

    signs : the forecast;  wrong : positions of rows that crossed otherwise than foreseen
    gather : receives the rows that it names
    """

    problem: Problem
    rows: RowState
    signs: RowVector
    wrong: np.ndarray
    gather: Gathered
    first: int = 0

    @property
    def wanted(self) -> np.ndarray:
        """Numbers of all rows to read, in working order, ascending."""
        mine = self.gather.wanted[
            slice(*np.searchsorted(self.gather.wanted, [self.first, self.first + len(self.rows.s.values)]))
        ]
        return np.union1d(self.wrong + self.first, mine)

    def read(self, ctx: Reading, touched: Iterable[BlockRef], V: np.ndarray) -> None:
        """Read the blocks `touched` once: correct V, (n_features + 1, n_models), in place, and gather rows.

        Raises PassLeft if the run is to stop.
        """
        problem, rows, before, release = self.problem, self.rows, ctx.bytes_read, ctx.data.release
        for ref in touched:
            block = ctx.data.read(ref)
            X, first = readonly_view(block.X), block.start
            bounds = np.subtract([ref.start, ref.stop], self.first)
            some = self.wrong[slice(*np.searchsorted(self.wrong, bounds))]
            if len(some):
                change = (rows.s.values[some] > 0.0).astype(float) - self.signs.values[some]
                lean, codes = np.zeros(V.shape if V.shape[1] > 1 else len(V)), rows.y.values[some, 0]
                alpha = change * (rows.cost.values[some] * problem.C)
                picked = readonly_view(picked_rows(X, some + (self.first - first)))
                add_rows(picked, codes, problem.positive, alpha, problem.constant_feature, lean)
                V += problem.summed(lean).reshape(V.shape)
            near = self.gather.between(ref.start, ref.stop)
            if len(near):
                self.gather.add([picked_rows(X, near)])
            ctx.charge(block.nbytes)
            release(ref)
            if ctx.stopping():
                ctx.uncharge(before)
                raise PassLeft


def read_again(
    ctx: Context, problem: Problem, rows: RowState, signs: RowVector, V: np.ndarray, gather: Gathered
) -> tuple[np.ndarray, int] | None:
    """A corrected copy of V, and the number of rows read; None if a reading of all rows is cheaper.

    gather : receives the rows that it names, in the same reading
    """
    wrong = mistaken(rows, signs, most_mistaken(len(rows.s.values)))
    if wrong is None:
        return None
    again = Again(problem, rows, signs, wrong, gather)
    V, wanted = V.copy(), again.wanted
    touched = list(_touched(ctx, wanted))
    if not ctx.resident and not worth_it(len(touched), len(ctx.refs)):
        return None
    again.read(ctx, touched, V)
    return V, len(wanted)


def _touched(ctx: Context, wanted: np.ndarray) -> Iterator[BlockRef]:
    """The blocks that hold wanted rows."""
    if ctx.resident:
        if len(wanted):
            yield from ctx.refs
        return
    yield from blocks_with(ctx.refs, wanted)


def blocks_with(refs: Sequence[BlockRef], wanted: np.ndarray) -> list[BlockRef]:
    """The blocks, out of consecutive `refs`, that hold wanted rows.  All but the last must have equally many rows."""
    if not len(wanted):
        return []
    return [refs[number] for number in np.unique((wanted - refs[0].start) // refs[0].n_rows).tolist()]
