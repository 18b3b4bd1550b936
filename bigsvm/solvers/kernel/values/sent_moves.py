"""f of rows once it knows of rows that moved in some models: what a pass of a fit does, here or on workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bigsvm.compiled.kernel.values.support import Support
from bigsvm.solvers.kernel.values.gram import Gram
from bigsvm.solvers.kernel.values.sent_rows import FoundScores, SentRows
from bigsvm.store.blocks import BlockRef, Matrix, readonly_view


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
