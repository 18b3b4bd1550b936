"""Whether the sweeps of `dcd` over rows in memory will take longer than an interior-point method on all rows.

Both are counted in epochs: what the gap still needs at its present rate, and the multiplications of the other method.
"""

from __future__ import annotations

import math

import numpy as np

from bigsvm.problem.problem import Problem
from bigsvm.solvers.context import Context
from bigsvm.solvers.dcd.dual_cd_state import DualCDState
from bigsvm.solvers.pace import IN_MEMORY
from bigsvm.solvers.tube.classes import work
from bigsvm.solvers.tube.tube import NARROW
from bigsvm.store.blocks import row_bytes

_TOLD = 1 / 16  # share of the other method's work that sweeps do before a forecast of theirs counts


def work_of_another(problem: Problem, ctx: Context) -> float:
    """The work of an interior-point method on rows in memory, in epochs; inf if there is none for them.

    There is none if it would take longer than sweeps that end as hopeless, as for sparse rows of many features.  A
    regression of few features has a rule of its own (`epochs`).
    """
    data, loss = ctx.data, problem.loss
    regression = loss.regression and (loss.smooth or loss.nu is not None or data.n_features <= NARROW)
    if not ctx.resident or regression or problem.joint or problem.axis is not None:
        return math.inf
    nnz = data.nnz if data.nnz is not None else row_bytes(data) * data.n_samples / 8  # the estimate of the plan
    found = work(data.n_samples, data.n_features, nnz, data.layout == "csr")
    return found if found <= IN_MEMORY.most else math.inf


def foresee(state: DualCDState, ctx: Context, gap: float, asked: int) -> None:
    """Note the gap after some sweeps; `hopeless` is set if the other method is expected to take less work than dcd.

    That is so once sweeps have done as much work as it is thought to need, or would still need as much if the gap went
    on shrinking by the same factor.  Its work is spent for nothing if that forecast is wrong, so the forecast counts
    only after a part of it.

    asked : epochs after which the method takes over in any case, if that was asked for; else 0
    """
    n = max(ctx.data.n_samples, 1)
    done = sum(group.swept for group in state.groups) / (n * len(state.groups))
    state.pace.see(done, np.array([gap]))
    longer = done > state.enough or (done >= _TOLD * state.enough and epochs_left(state, ctx) > state.enough)
    state.hopeless = state.hopeless or (done >= asked if asked else longer)


def epochs_left(state: DualCDState, ctx: Context) -> float:
    """Epochs that dcd still needs if its gap goes on shrinking by the same factor; inf if it does not shrink."""
    return float(state.pace.by_ratio(np.array([ctx.tol]))[0])
