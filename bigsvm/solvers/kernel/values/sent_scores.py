"""Scores f of rows by tasks on workers: support vectors are published once, and blocks of rows are shared out.

A row's f is a sum over support vectors in their order, whoever makes it and however rows are cut into blocks: what
workers find has the bits of this process.  Only a mapper of other processes is sent anything; threads share the tiles
of a block instead (`gram.py`), and a scan that is short stays here, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from bigsvm.compiled.kernel.support import Support, support_of, unit_rows
from bigsvm.problem.kernel import Kernel
from bigsvm.solvers.base import Context
from bigsvm.solvers.gathered import picked_rows
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.values.data import KernelData, Rows, of_qp
from bigsvm.solvers.kernel.values.gram import Gram
from bigsvm.solvers.kernel.values.other_side import Bound, OtherSide, Scoring
from bigsvm.store.blocks import BlockRef, Matrix, RowBlocks, blocks_of, bytes_per_row, readonly_view, row_bytes
from bigsvm.tasks import over_shares

WORTH_SENDING = 1 << 28
"""Products of two numbers from which a scan is sent to workers: some tenths of a second of one core."""
_BESIDE = 16  # products that what makes a kernel value of a row's products is worth


class SentRows(NamedTuple):
    """Support vectors as workers have them.

    data : whose rows are scored;  X : the support vectors, in the type that they are stored in
    numbers : of a precomputed kernel their columns, else their places in X
    at_once : gathered at one time
    """

    data: RowBlocks
    kernel: Kernel
    X: Matrix
    numbers: np.ndarray
    at_once: int

    def values(self) -> SentValues:
        """What makes kernel values with them."""
        return SentValues(self.kernel, self.data.n_features)

    def block(self, ref: BlockRef) -> tuple[Rows, int]:
        """Rows of the data, read here, and their bytes."""
        (block,) = blocks_of(self.data, (ref,))
        rows = Rows(block.start, block.stop, readonly_view(block.X), block.start, block.y, block.sample_weight)
        return rows, block.nbytes


class SentValues:
    """Kernel values on a worker, on one thread."""

    def __init__(self, kernel: Kernel, n_features: int) -> None:
        self.kernel = kernel
        self.gram = Gram(kernel, n_features, np.float32, 1)
        self.exact = Gram(kernel, n_features, np.float64, 1)

    def support(self, X: Matrix, at: np.ndarray, rows: np.ndarray, gram: Gram) -> Support:
        """As `KernelData.support`; `rows` are columns where the kernel is precomputed."""
        if self.kernel.name == "precomputed":
            return unit_rows(rows, gram.dtype)
        return support_of(X, at, gram.dtype)


def is_worth_sending(ctx: Context, products: float) -> bool:
    """Whether there are workers in other processes, and enough for them to do.

    products : rows times support vectors
    """
    entries = bytes_per_row(ctx.data, 1)
    return not ctx.mapper.in_process and products * (entries + _BESIDE) >= WORTH_SENDING


@contextmanager
def sent_rows(data: KernelData, X: Matrix, at: np.ndarray, numbers: np.ndarray, at_once: int) -> Iterator[Any]:
    """Publish rows `at` of X, which are `numbers` of the data; None where a copy of them does not fit the memory."""
    nbytes = int(len(at) * (row_bytes(data.ctx.data) + 16))
    room = data.ctx.budget.try_reserve("support vectors that are sent", nbytes)
    if room is None:
        yield None
        return
    with room:
        columns = data.column(numbers) if data.kernel.name == "precomputed" else np.arange(len(at))
        yield SentRows(data.ctx.data, data.kernel, picked_rows(X, at), columns, at_once)


# ---- f from all support vectors of some programmes


class SentSide(NamedTuple):
    """Support vectors of one programme: places in `SentRows.X`, and how its f is made (`Scoring`)."""

    at: np.ndarray
    beta: np.ndarray
    few: bool
    b: float | None
    bound: Bound | None
    epsilon: float


class SentSides(NamedTuple):
    """What is published of all programmes."""

    rows: SentRows
    sides: tuple[SentSide, ...]


class PartOfBlock(NamedTuple):
    """Rows of a block that take part in a programme: their numbers, f and box, and the places whose f is complete."""

    own: np.ndarray
    f: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    paired: np.ndarray


class ScoreShare(NamedTuple):
    """A block, and where each programme stands on it.

    sent : `SentSides`, published
    """

    ref: BlockRef
    sent: Any
    parts: tuple[PartOfBlock, ...]
    resident: bool


class FoundScores(NamedTuple):
    """f of the block's rows in each programme."""

    f: tuple[np.ndarray, ...]
    bytes_read: int


def score_block(share: ScoreShare) -> FoundScores:
    """Task: f of a block's rows from all support vectors.  Pure."""
    sent, sides = share.sent
    rows, nbytes = sent.block(share.ref)
    values, X, found = sent.values(), readonly_view(sent.X), []
    for side, part in zip(sides, share.parts, strict=True):
        f, at = np.array(part.f), np.array(side.at)
        qp = DualQP(f, part.lower, part.upper, side.epsilon, f, f, np.array(part.own))
        other = OtherSide(values, X, at, sent.numbers[at], np.array(side.beta), sent.at_once, side.few)
        Scoring(qp, values, other, part.paired, side.b, side.bound, settled=True).add(rows)
        found.append(f)
    return FoundScores(tuple(found), 0 if share.resident else nbytes)


def add_to_all(parts: Sequence[Scoring], data: KernelData) -> bool:
    """Add to f of all rows, block by block, here or on workers.  False where the run is to stop before.

    The first block is always of this process: it decides whether float32 values are worth their time.
    """
    n_support = sum(len(part.side.at) for part in parts)
    send = is_worth_sending(data.ctx, float(n_support) * data.n)
    first = 0
    for rows in data.blocks():
        for part in parts:
            part.add(rows)
        if data.ctx.stopping():
            return False
        first = rows.stop
        if send:
            break
    if first == data.n:
        return True
    side = parts[0].side  # all lie in one matrix
    at, numbers = (np.concatenate([getattr(part.side, name) for part in parts]) for name in ("at", "numbers"))
    numbers, places = np.unique(numbers, return_index=True)
    with sent_rows(data, side.X, at[places], numbers, side.at_once) as sent:
        if sent is None:
            return all(_added_here(parts, data, rows) for rows in data.blocks(first))
        return _added_there(parts, data, sent, numbers, first)


def _added_here(parts: Sequence[Scoring], data: KernelData, rows: Rows) -> bool:
    for part in parts:
        part.add(rows)
    return not data.ctx.stopping()


def _added_there(parts: Sequence[Scoring], data: KernelData, sent: SentRows, numbers: np.ndarray, first: int) -> bool:
    ctx = data.ctx
    sides = tuple(
        SentSide(
            np.searchsorted(numbers, part.side.numbers), part.side.beta, part.side.few, part.b, part.bound,
            part.qp.epsilon,
        )
        for part in parts
    )  # fmt: skip
    published = ctx.mapper.publish(SentSides(sent, sides))

    def share(ref: BlockRef) -> ScoreShare:
        mine = tuple(_part_of(part, ref) for part in parts)
        return ScoreShare(ref, published, mine, ctx.resident)

    for ref, found in over_shares(ctx.mapper, score_block, data.refs(first), share, account=ctx):
        for part, f in zip(parts, found.f, strict=True):
            part.qp.f[of_qp(part.qp, ref)[0]] = f
        if ctx.stopping():
            return False
    return True


def _part_of(part: Scoring, ref: BlockRef) -> PartOfBlock:
    qp = part.qp
    mine, own = of_qp(qp, ref)
    a, b = np.searchsorted(part.paired, [mine.start, mine.stop])
    return PartOfBlock(own, qp.f[mine], qp.lower[mine], qp.upper[mine], part.paired[a:b] - mine.start)


# ---- f from rows that moved in some models


class Step(NamedTuple):
    """Rows of a block to whose f some moved rows add something, in several models.

    moved : which list of moved rows;  rows : int64, of the data
    members : models;  at : places of the rows in f of each;  waits : which of them wait for it, of each
    """

    moved: int
    rows: np.ndarray
    members: tuple[int, ...]
    at: tuple[np.ndarray, ...]
    waits: tuple[np.ndarray, ...]


class SentMoved(NamedTuple):
    """Moved rows as workers have them.

    lists : of each its places in `SentRows.X`, by how much they moved, (n, n_members), and whether values are float64
    """

    rows: SentRows
    lists: tuple[tuple[np.ndarray, np.ndarray, bool], ...]


class MovedShare(NamedTuple):
    """A block, f of its rows in each model, and what is added.

    sent : `SentMoved`, published
    """

    ref: BlockRef
    sent: Any
    f: tuple[np.ndarray, ...]
    steps: tuple[Step, ...]


def add_moved_rows(share: MovedShare) -> FoundScores:
    """Task: f of a block's rows, once it knows of rows that moved.  Pure.  The caller counts the reading."""
    sent, lists = share.sent
    (rows, _), values, X = sent.block(share.ref), sent.values(), readonly_view(sent.X)
    f = tuple(np.array(one) for one in share.f)
    for step in share.steps:
        at, by, exact = lists[step.moved]
        gram = values.exact if exact else values.gram
        at, by = np.array(at), np.array(by)
        add_step(f, step, rows.X, rows.offset, gram, gathered(values, X, at, sent.numbers[at], by, sent.at_once, gram))
    return FoundScores(f, 0)


def gathered(
    values: Any, X: Matrix, at: np.ndarray, numbers: np.ndarray, by: np.ndarray, at_once: int, gram: Gram
) -> Iterator[tuple[Support, np.ndarray]]:
    """Moved rows, some at a time, and by how much each moved."""
    for start in range(0, len(at), at_once):
        these = slice(start, start + at_once)
        yield values.support(X, at[these], numbers[these], gram), by[these]


def add_step(
    f: Sequence[np.ndarray],
    step: Step,
    X: Matrix,
    offset: int,
    gram: Gram,
    moved: Iterable[tuple[Support, np.ndarray]],
) -> None:
    """Bring f of some rows up to date in the models where they wait for it.

    f : of the rows of a block in each model;  offset : row i of the data is row i - offset of X
    """
    sums = np.stack([f[m][at] for m, at in zip(step.members, step.at, strict=True)])
    for support, by in moved:
        gram.add(X, step.rows - offset, support, by, sums)
    for m, at, waits, found in zip(step.members, step.at, step.waits, sums, strict=True):
        f[m][at[waits]] = found[waits]
