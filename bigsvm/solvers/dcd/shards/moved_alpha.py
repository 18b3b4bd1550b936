"""What a round remembers of the rows whose alpha it may move, until the step length is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from bigsvm.problem.problem import Problem

_PIECE = 1 << 14  # steps that are looked at together, each of a row and a model


class MovedAlpha(NamedTuple):
    """Rows whose alpha a round may have moved.

    at : number within the shard;  y : class code or target;  weight : sample weight, (0,) if rows have none
    sqnorm : |x|^2;  old : alpha before the round;  kept : they are in the row buffer
    """

    at: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    sqnorm: np.ndarray
    old: np.ndarray
    kept: bool

    def pieces(self) -> Iterator[MovedAlpha]:
        """Views of some rows at a time, so that what is computed from them stays small."""
        rows = max(_PIECE // self.old.shape[1], 1)
        for start in range(0, len(self.at), rows):
            these = slice(start, start + rows)
            at, y, weight, sqnorm, old, kept = self
            yield MovedAlpha(at[these], y[these], weight[these], sqnorm[these], old[these], kept)

    def cost(self, problem: Problem) -> np.ndarray:
        """float64, (n, n_models): C of each model times class weight and sample weight."""
        cost = np.ones(len(self.at)) if problem.regression else problem.class_weight[self.y]
        return problem.C * (cost * self.weight if len(self.weight) else cost)[:, None]


def moved_bytes(models: int, weighted: bool, regression: bool, n_rows: int) -> int:
    """Bytes that a round remembers of each row that it visits or keeps: those of `MovedAlpha`.

    n_rows : those of the shard, or more
    """
    return number_type(n_rows).itemsize + (8 if regression else 4) + 8 * weighted + 8 + 8 * models


def number_type(n_rows: int) -> np.dtype:
    """The type of numbers of rows that are remembered."""
    return np.dtype(np.uint32 if n_rows < 1 << 32 else np.int64)


def dual_changes(moved: Iterable[MovedAlpha], alpha: np.ndarray, problem: Problem) -> np.ndarray:
    """Sums over what a round moved, as in `Found`: linear, cross, square, balance, response and kept_response.

    alpha : of all rows of the shard, as the round left it
    """
    total, box = np.zeros((6, problem.n_models)), problem.box
    for piece in (piece for whole in moved for piece in whole.pieces()):
        new = alpha[piece.at]
        cost = piece.cost(problem)
        diagonal = np.divide(box.diag_factor, cost, out=np.zeros_like(cost), where=cost > 0.0)
        inside = (new != 0.0) & (cost > 0.0)
        if box.diag_factor == 0.0:
            inside &= np.abs(new) < cost
        firm = piece.sqnorm[:, None] + diagonal
        np.divide(1.0, firm, out=firm, where=firm > 0.0)
        change = new - piece.old
        total[5 if piece.kept else 4] += (firm * (inside | (change != 0.0))).sum(axis=0)
        if problem.regression:
            total[0] += piece.y @ change - box.epsilon * (np.abs(new) - np.abs(piece.old)).sum(axis=0)
            total[3] += change.sum(axis=0)
        else:
            total[0] += change.sum(axis=0)
            total[3] += (problem.signs(piece.y) * change).sum(axis=0)
        total[1] += (diagonal * piece.old * change).sum(axis=0)
        total[2] += (diagonal * change * change).sum(axis=0)
    return total
