"""Which rows stay in memory if several models want more rows than fit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bigsvm.solvers.kernel.smo.member import Member
from bigsvm.solvers.kernel.smo.round_work import Violations
from bigsvm.solvers.selection import largest


def distinct(numbers: Sequence[np.ndarray]) -> np.ndarray:
    """The distinct row numbers of several lists, ascending."""
    if len(numbers) == 1:
        return numbers[0]
    return np.unique(np.concatenate(numbers)) if numbers else np.empty(0, np.int64)


def among(member: Member, positions: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """The positions, out of `positions` in the programme of a model, whose rows are among `numbers` of the data."""
    return positions[np.isin(member.numbers(positions), numbers)]


def worst_first(numbers: Sequence[np.ndarray], violations: Sequence[Violations]) -> np.ndarray:
    """The distinct rows of several models, the worst first.

    First come the rows that are the worst violator on one side of one model, then those that are second, and so on.

    numbers : for each model int64, row numbers;  violations : for each model, of the same rows
    """
    ranks = []
    for by, falls in violations:
        rank = np.empty(len(by), np.int64)
        for side in (np.flatnonzero(falls), np.flatnonzero(~falls)):
            rank[side[largest(by[side], len(side))]] = np.arange(len(side))
        ranks.append(rank)
    found, place = np.unique(np.concatenate(numbers), return_inverse=True)
    first, worst = np.full(len(found), np.iinfo(np.int64).max), np.full(len(found), -np.inf)
    np.minimum.at(first, place, np.concatenate(ranks))
    np.maximum.at(worst, place, np.concatenate([by for by, _ in violations]))
    return found[np.lexsort((found, -worst, first))]
