"""f of all rows from all support vectors of some programmes, computed by workers; a proof needs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.values.data import KernelData, Rows, of_qp
from bigsvm.solvers.kernel.values.other_side import Bound, OtherSide, Scoring
from bigsvm.solvers.kernel.values.sent_rows import FoundScores, SentRows, is_worth_sending, sent_rows
from bigsvm.store.blocks import BlockRef, readonly_view
from bigsvm.tasks import over_shares


class SentSide(NamedTuple):
    """The support vectors of one programme: places in `SentRows.X`, beta, and options of `OtherSide` and `Scoring`."""

    at: np.ndarray
    beta: np.ndarray
    kept: int
    b: float | None
    bound: Bound | None
    epsilon: float


class SentSides(NamedTuple):
    """The support vectors of all programmes, published once."""

    rows: SentRows
    sides: tuple[SentSide, ...]


class PartOfBlock(NamedTuple):
    """The rows of a block that take part in a programme: numbers, f, box, and the places whose f is complete."""

    own: np.ndarray
    f: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    paired: np.ndarray


class ScoreShare(NamedTuple):
    """The input of a task: a block, and its part of each programme.

    sent : `SentSides`, published by the mapper
    """

    ref: BlockRef
    sent: Any
    parts: tuple[PartOfBlock, ...]
    resident: bool


def score_block(share: ScoreShare) -> FoundScores:
    """Task: add the kernel sums of all support vectors to f of the rows of a block.  Pure."""
    sent, sides = share.sent
    rows, nbytes = sent.block(share.ref)
    values, X, found = sent.values(), readonly_view(sent.X), []
    for side, part in zip(sides, share.parts, strict=True):
        f, at = np.array(part.f), np.array(side.at)
        qp = DualQP(f, part.lower, part.upper, side.epsilon, f, f, np.array(part.own))
        other = OtherSide(values, X, at, sent.numbers[at], np.array(side.beta), sent.at_once, side.kept)
        Scoring(qp, values, other, part.paired, side.b, side.bound, settled=True).add(rows)
        found.append(f)
    return FoundScores(tuple(found), 0 if share.resident else nbytes)


def add_to_all(parts: Sequence[Scoring], data: KernelData) -> bool:
    """Add the kernel sums of all parts to f of all rows, block by block, here or on workers; False if the run stops.

    The first block is always done in this process, where it decides whether float32 values are worth their time.
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
            np.searchsorted(numbers, part.side.numbers), part.side.beta, min(part.side.kept, sent.at_once), part.b,
            part.bound, part.qp.epsilon,
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
