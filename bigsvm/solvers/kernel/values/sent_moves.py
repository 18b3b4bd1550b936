"""The update of f by rows that moved in some models (`moved_rows.py`), in this process or on workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bigsvm.compiled.kernel.values.support import Support
from bigsvm.solvers.kernel.values.gram import Gram
from bigsvm.solvers.kernel.values.sent_rows import FoundScores, SentRows
from bigsvm.store.blocks import BlockRef, Matrix, readonly_view


class Step(NamedTuple):
    """An update: a list of moved rows is added to f of some rows of a block, in several models.

    moved : int     number of the list of moved rows
    rows : int64    numbers of the rows in the data
    members : positions of the models;  at : for each model, the places of the rows in its f
    waits : for each model, bool: whether f of the row is to be updated
    """

    moved: int
    rows: np.ndarray
    members: tuple[int, ...]
    at: tuple[np.ndarray, ...]
    waits: tuple[np.ndarray, ...]


class SentMoved(NamedTuple):
    """Moved rows, in the form that is sent to workers.

    lists : for each list of moved rows: their places in `SentRows.X`; changes of beta, float64, (n, n_members); and
        whether kernel values are float64
    """

    rows: SentRows
    lists: tuple[tuple[np.ndarray, np.ndarray, bool], ...]


class MovedShare(NamedTuple):
    """The input of a task: a block, f of its rows in each model, and the updates.

    sent : `SentMoved`, published by the mapper
    """

    ref: BlockRef
    sent: Any
    f: tuple[np.ndarray, ...]
    steps: tuple[Step, ...]


def add_moved_rows(share: MovedShare) -> FoundScores:
    """Task: update f of the rows of a block.  Pure.  The caller counts the bytes read."""
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
    """Yield (moved rows, changes of beta), some rows at a time."""
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
    """Apply an update to f, in place.

    f : for each model, f of the rows of a block;  offset : row i of the data is row i - offset of X
    """
    sums = np.stack([f[m][at] for m, at in zip(step.members, step.at, strict=True)])
    for support, by in moved:
        gram.add(X, step.rows - offset, support, by, sums)
    for m, at, waits, found in zip(step.members, step.at, step.waits, sums, strict=True):
        f[m][at[waits]] = found[waits]
