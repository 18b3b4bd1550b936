"""Sweeps over rows in memory, as many in a step as half a second holds, with shrinking as in LIBLINEAR.

Sweeps that take long are helped by `slow_sweeps.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bigsvm.compiled.linear.dual_cd import EXACT, GAP, LOSS, BlockRows, Limits, dual_cd_sweeps, widest_spread
from bigsvm.compiled.shared.losses import DualModels, JointModels
from bigsvm.compiled.shared.rows import sqnorms
from bigsvm.compiled.shared.visiting import VisitingOrder
from bigsvm.problem.problem import Problem
from bigsvm.solvers.context import Context
from bigsvm.solvers.dcd.dual_cd_state import DualCDState, ModelGroup
from bigsvm.solvers.dcd.dual_cd_stream import writable
from bigsvm.store.blocks import Matrix, readonly_view

_SMALLEST_EPS = 1e-13  # projected gradients below this are rounding, or below this share of smaller targets
_VISITS_PER_STEP = 1 << 28  # non-zeros visited in a step: about half a second, so that signals are answered soon
_SWEEPS_A_LEAP_OF_A_SEARCH = 8  # sweeps between two steps of momentum, in a search
_SWEEPS_A_LEAP = 16  # the same in other fits
_MET_EPS = 1  # what `dual_cd_sweeps` says if the projected gradients of the active rows lie within eps of one another
_NOT_SETTLED = 0  # what it says if it met neither eps nor the target


class Swept(NamedTuple):
    """What the sweeps of one step did to a group of models.

    visits, last_visits : rows visited, by all sweeps and by the last one
    exhausted : no further progress is possible in floating point
    widest : spread of the projected gradients, if a sweep over all rows met eps under the paper's rule; else inf
    """

    visits: int
    last_visits: int
    exhausted: bool
    widest: float


def sweeps_in_a_step(state: DualCDState, ctx: Context, most: int) -> int:
    """The number of sweeps of a step: what half a second holds, but at most `most`, and what the limit leaves."""
    entries = max(ctx.data.nnz or ctx.data.n_samples, 1) * max(group.problem.n_models for group in state.groups)
    n_sweeps = min(max(_VISITS_PER_STEP // entries, 1), most)
    return n_sweeps if ctx.sweeps_left is None else max(min(n_sweeps, ctx.sweeps_left), 1)


@dataclass
class MemorySweeps:
    """The sweeps of one step, which `run` makes for one group of models at a time; groups may run side by side.

    X, rows : the rows;  cost : of each row, for momentum; empty if there is none
    first : sweeps before this step;  most : sweeps in this step
    mixed_runs : how a sweep mixes runs of rows (`mixed_runs_of`)
    by_rule : the fit ends by the rule of the paper, which compares the gradients of a sweep over all rows
    least : spread of the projected gradients that is rounding
    """

    X: Matrix
    rows: BlockRows
    cost: np.ndarray
    seed: int
    first: int
    most: int
    mixed_runs: Callable[[Matrix, Problem], int]
    by_rule: bool
    least: float

    @classmethod
    def of(
        cls, state: DualCDState, ctx: Context, most: int, mixed_runs: Callable[[Matrix, Problem], int], by_rule: bool
    ) -> MemorySweeps:  # fmt: skip
        """Read the rows, and compute their norms, and their costs for momentum, if this has not been done yet."""
        assert state.sqnorm is not None
        block, problem = ctx.data.read(ctx.refs[0]), state.groups[0].problem
        X, sqnorm = readonly_view(block.X), state.sqnorm.values[:, 0]
        if sqnorm[0] < 0:  # norms are never negative: these rows were not seen yet
            sqnorms(X, sqnorm)
        rows = BlockRows(X, problem.y_of(block), writable(block.sample_weight), sqnorm, np.empty(0, np.int64))
        cost = np.empty(0) if state.cost is None else state.cost.values[:, 0]
        if len(cost) and state.sweep == 0:
            cost[:] = problem.y_and_cost(block)[1]
        largest = float(np.abs(rows.y).max(initial=0.0)) if problem.regression else 1.0
        least = _SMALLEST_EPS * (min(largest, 1.0) or 1.0)
        return cls(X, rows, cost, ctx.seed, state.sweep, most, mixed_runs, by_rule, least)

    def run(self, group: ModelGroup) -> Swept:
        """Sweep over the active rows of a group; in a search, again and again until the estimated gap is small."""
        if not group.moves.any():  # all models of the group are done
            group.estimate = 0.0
            return Swept(0, 0, True, math.inf)
        group.still = False
        models, mixed = group.training_models(), self.mixed_runs(self.X, group.problem)
        visits, sweeps, exhausted, widest, going_on = 0, 0, False, math.inf, True
        while going_on:
            key = VisitingOrder(mixed, self.seed, self.first + sweeps, 0)
            stats, (swept, visited, last_visits, settled) = self._sweep(group, models, key, self.most - sweeps)
            sweeps, visits = sweeps + swept, visits + visited
            if settled == _MET_EPS:
                if last_visits == len(self.rows.sqnorm):  # no row was shrunk, so all rows meet eps
                    if self.by_rule:
                        widest = widest_spread(stats)
                    else:
                        exhausted = group.eps <= self.least
                        group.eps = max(group.eps * 0.1, self.least)
                group.reactivate()
            # A proof costs as much as a few sweeps, so a search goes on until the estimated gap is small.
            more = settled == _MET_EPS and group.problem.axis is not None
            more = more or (settled == _NOT_SETTLED and group.momentum is not None)
            going_on = more and not exhausted and sweeps < self.most
        group.swept += visits
        return Swept(visits, last_visits, exhausted, widest)

    def _sweep(
        self, group: ModelGroup, models: DualModels | JointModels, key: VisitingOrder, most: int
    ) -> tuple[np.ndarray, tuple[int, int, int, int]]:
        """At most `most` sweeps, after a step of momentum if there is one; statistics, and what the loop says."""
        if group.momentum is not None:
            _leap(group, self.cost, key.epoch == 0)
            most = min(most, _SWEEPS_A_LEAP if group.problem.axis is None else _SWEEPS_A_LEAP_OF_A_SEARCH)
        stats = np.empty((group.problem.n_proofs, 4))
        limits = Limits(most, True, group.eps, group.target, group.floor)
        done = dual_cd_sweeps(
            self.rows, models, group.alpha.values, group.w, group.active.values[:, 0], EXACT,
            group.thresholds, key, limits, stats,
        )  # fmt: skip
        group.rest(models)
        group.estimate = group.relative(stats[:, GAP], stats[:, LOSS])
        return stats, done


def _leap(group: ModelGroup, cost: np.ndarray, first: bool) -> None:
    """Extrapolate before the next sweeps.  All rows become active: the step may have moved any alpha out of its box."""
    assert group.momentum is not None
    if first:
        group.momentum.remember(group.w, group.alpha)
        return
    group.momentum.leap(group.problem, group.w, group.alpha, cost, group.moves)
    if group.momentum.theta.any():
        group.reactivate()
