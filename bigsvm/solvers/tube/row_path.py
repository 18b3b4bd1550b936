"""Rows that stream, on the central path: a piece of them with its iterate, as it is kept between two readings.

Six numbers are kept for each row; all else is computed anew from them and the weights at each reading.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bigsvm.compiled.linear import interior as kernel
from bigsvm.compiled.shared.rows import n_rows_of, take_rows
from bigsvm.problem.deferred import adds_groups
from bigsvm.problem.problem import Problem
from bigsvm.solvers.block_order import groups_in_order
from bigsvm.solvers.context import Context
from bigsvm.solvers.gathered import picked_rows
from bigsvm.solvers.newton_ws.interior import ROW_ARRAYS
from bigsvm.solvers.tube.tube import Tube, targets_and_costs, tube_of
from bigsvm.store.blocks import Block, readonly_view, tile
from bigsvm.store.read_ahead import ReadAhead
from bigsvm.tasks import PassLeft

NUMBERS = 6
"""float64 numbers kept for a row: of each of the two rows that stand for it alpha or C - alpha, xi and eta."""
_PIECE, _ENTRIES = 2048, 1 << 16  # rows that are worked on at a time, and entries of dense ones, at most
_ARRAYS = ROW_ARRAYS + 20  # float64 numbers of each of the two rows that stand for a row of a piece
_COPIED = 40  # bytes of an entry that is copied, with its addresses


def piece_rows(n_features: int) -> int:
    """Rows of a piece."""
    return max(min(_PIECE, _ENTRIES // (n_features + 1)), 1)


def piece_bytes(n_features: int, left_out: bool) -> int:
    """Work space for a piece.  left_out : rows may take no part, so that the others are copied"""
    rows = piece_rows(n_features)
    return rows * 2 * 8 * _ARRAYS + (_COPIED * rows * n_features if left_out else 0)


class Piece(NamedTuple):
    """Some rows with costs above 0.

    at : the working rows, int64 or a slice;  start, stop : the working rows that were looked at
    """

    tube: Tube
    at: np.ndarray | slice
    start: int
    stop: int

    def kept(self, rows: np.ndarray) -> kernel.RowsOnPath:
        """The iterate that `keep` has put into `rows`, float64 (n_samples, NUMBERS); s is not known yet."""
        found, C = rows[self.at].T, self.tube.C
        one, xi, eta = (np.concatenate(found[k : k + 2]) for k in (0, 2, 4))
        above = np.signbit(one)  # C - alpha is the smaller of the two, and kept as a negative number
        alpha, room = np.where(above, C + one, one), np.where(above, -one, C - one)
        return kernel.RowsOnPath(np.empty(len(C)), alpha, room, xi, eta)

    def keep(self, on_path: kernel.RowsOnPath, rows: np.ndarray) -> None:
        """Put an iterate into `rows`; so that neither alpha nor C - alpha loses digits, the smaller one is kept."""
        _, alpha, room, xi, eta = on_path
        n = len(self.tube.codes)
        one = np.where(room < alpha, -room, alpha)
        rows[self.at] = np.stack([values[half] for values in (one, xi, eta) for half in (slice(n), slice(n, None))], 1)


@dataclass
class Sides:
    """Sums of the rows, for the bias and the mu of the start.

    n, mean, squares : number of targets, their mean, and the sum of their squared distances from it
    size : sum of |t|;  least, largest : of the targets
    """

    n: float = 0.0
    mean: float = 0.0
    squares: float = 0.0
    size: float = 0.0
    least: float = math.inf
    largest: float = -math.inf

    def add(self, t: np.ndarray) -> None:
        """Add targets."""
        n, mean = len(t), float(np.mean(t))
        off, total = mean - self.mean, self.n + n
        self.squares += float(np.sum((t - mean) ** 2)) + off * off * self.n * n / total
        self.mean += off * n / total
        self.size += float(np.sum(np.abs(t)))
        self.n = total
        self.least, self.largest = min(self.least, float(t.min())), max(self.largest, float(t.max()))


def pieces(problem: Problem, m: int, constant: float, ctx: Context) -> Iterator[Piece]:
    """Read all rows once: the pieces, in working order, of those that take part in a model.  constant : as in `tube_of`

    Deferred proofs see each group of blocks.  Raises PassLeft if the run is to stop.
    """
    first = 0
    also = adds_groups(ctx.deferred, 0)
    with ReadAhead(ctx.data, groups_in_order(ctx), ctx.read_depth, ctx.buffers, also) as source:
        for _, block in source:
            ctx.charge(block.nbytes)
            for piece in _of_block(problem, m, constant, block, first, ctx):
                if ctx.stopping():
                    raise PassLeft
                yield piece
            first += block.n_rows
    ctx.reads.waited_s += source.waited_s


def _of_block(problem: Problem, m: int, constant: float, block: Block, first: int, ctx: Context) -> Iterator[Piece]:
    """The pieces of a block whose rows are working rows from `first` on."""
    (t, C), X = targets_and_costs(problem, m, block, first), readonly_view(block.X)
    for start, stop in tile(len(C), piece_rows(ctx.data.n_features)):
        some = np.flatnonzero(C[start:stop] > 0.0)  # the method needs costs above 0
        if not len(some):
            continue
        rows = take_rows(X, start, stop)
        at: np.ndarray | slice = slice(first + start, first + stop)
        if len(some) < stop - start:
            rows, at = picked_rows(rows, some), first + start + some
        n = n_rows_of(rows)
        halves = [take_rows(rows, 0, n // 2), take_rows(rows, n // 2, n)]
        taken = start + some
        tube = tube_of(problem, halves, t[taken], C[taken], ctx.data.n_features + 1, constant, ctx.threads)
        yield Piece(tube, at, first + start, first + stop)
