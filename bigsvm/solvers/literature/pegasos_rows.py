"""Operations on the rows in the batch method of `pegasos`, in this process or on shards."""

from __future__ import annotations

import math

import numpy as np

from bigsvm.problem.problem import Problem
from bigsvm.solvers.primal.row_state import RowState
from bigsvm.solvers.primal.shards.shard_state import PrimalShard
from bigsvm.tasks import ShardSum


class PegasosShard(PrimalShard):
    """A shard of the batch method."""

    keeps_costs = True

    def _follow_subgradient(self, w: np.ndarray, theta: float, shrink: np.ndarray) -> None:
        follow(self._problem, self.rows, theta, shrink)

    def _of_gaps_and_cost(self) -> ShardSum:
        return ShardSum((gaps_and_cost(self._problem, self.rows),))


def follow(problem: Problem, rows: RowState, theta: float, shrink: np.ndarray) -> None:
    """Update alpha after a step: (1 - theta) alpha_i, plus theta C_i for violating rows, all times `shrink`."""
    for piece in rows.pieces():
        alpha = rows.alpha.values[piece]
        alpha *= 1.0 - theta
        alpha += np.where(rows.s.values[piece] > 0.0, theta * rows.costs(problem, piece), 0.0)
        alpha *= shrink


def gaps_and_cost(problem: Problem, rows: RowState) -> np.ndarray:
    """float64, (n_models + 1,): sums of the brackets of the gap over the rows, and last the sum of all costs."""
    sums = [np.zeros(problem.n_models + 1)]
    for piece in rows.pieces():
        s, alpha, C = rows.s.values[piece], rows.alpha.values[piece], rows.costs(problem, piece)
        gaps = np.maximum(-alpha * s, (C - alpha) * s).sum(axis=0)
        sums.append(np.append(gaps, rows.cost.values[piece].sum()))
    return np.array([math.fsum(column) for column in np.transpose(sums)])
